/* Inside the training of byte-pair encodings: how often each two symbols are neighbours, kept up to date while pairs are merged. A merge
 * costs what its own occurrences cost, whatever the size of the text. */
#ifndef DATA_BPE_COUNTS_H
#define DATA_BPE_COUNTS_H
#include "data/tokenizer/bpe_words.h"
#include <stdbool.h>

typedef struct BpeCounts BpeCounts;

/* From the words, each byte of which starts as the symbol byte_ids[byte]. The words are not needed afterwards. */
Status bpe_counts_new(BpeCounts **counts, const BpeWords *words, const int32_t byte_ids[256]);
void bpe_counts_free(BpeCounts *counts); /* accepts NULL */

/* The most frequent pair, among equals that of the lowest left symbol, then of the lowest right one; false when there is none. */
typedef struct BpeBest {
  int32_t left, right;
  int64_t count;
  uint32_t pair; /* for bpe_counts_merge */
} BpeBest;
Status bpe_counts_best(BpeCounts *counts, BpeBest *best, bool *found);

/* Makes every occurrence of the best pair, from left to right in each word, the symbol `id`. */
Status bpe_counts_merge(BpeCounts *counts, const BpeBest *best, int32_t id);

#endif
