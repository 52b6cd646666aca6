/* Training a byte-level BPE (Sennrich et al. 2016; Radford et al. 2019): text is cut into pieces by GPT-2's expression, every byte begins
 * as a symbol, and the most frequent two neighbours are merged until the vocabulary is full. Of pairs that are equally frequent the one
 * whose left symbol has the lowest id is merged, then the one whose right symbol has. The result depends on the text alone; the order of
 * the files matters only where a piece would reach over the end of one. One thread; 14 MB of English take seconds. */
#ifndef DATA_BPE_TRAIN_H
#define DATA_BPE_TRAIN_H
#include "data/tokenizer/tokenizer.h"

enum { BPE_TRAIN_MIN = 257, BPE_TRAIN_MAX = 1000000 }; /* pieces of a vocabulary: 256 bytes and <|endoftext|> */

typedef struct BpeTrain BpeTrain;

Status bpe_train_new(BpeTrain **train); /* NULL after a failure */
void bpe_train_free(BpeTrain *train);   /* accepts NULL */

/* Counts the pieces of a text [size]. */
Status bpe_train_add(BpeTrain *train, const char *text, size_t size);

/* The same for a file, plain or .gz; the bytes of its text are added to *bytes. */
Status bpe_train_add_file(BpeTrain *train, const char *path, int64_t *bytes);

int64_t bpe_train_words(const BpeTrain *train); /* distinct pieces so far */

/* A tokenizer of `pieces` pieces: ids 0 to 255 the bytes in the order of GPT-2's alphabet, then merges, the last one <|endoftext|>. A
 * progress bar unless `quiet`. BAD_VALUE: `pieces` out of range, or the text has too few pairs that occur twice; the message says how many
 * pieces it allows. *tokenizer is NULL then. */
Status bpe_train_run(BpeTrain *train, int64_t pieces, bool quiet, Tokenizer **tokenizer);

#endif
