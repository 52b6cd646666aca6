/* Byte-pair merging of one piece of text: as long as two neighbours are in the table of pairs, the two of lowest rank, among equals the
 * leftmost, become one. O(n log n) in the number of symbols. */
#ifndef DATA_BPE_MERGE_H
#define DATA_BPE_MERGE_H
#include "data/tokenizer/bpe_vocab.h"

/* A symbol of the piece; those that remain form a list. */
typedef struct BpeSymbol {
  int32_t id;
  int32_t previous, next; /* places; -1: none */
  uint32_t rank;          /* of merging it with the next one; BPE_NO_RANK: not possible */
  int32_t merged;         /* the id that this gives */
} BpeSymbol;

/* Working memory, kept from piece to piece. One thread at a time. Zero it first. */
typedef struct BpeMerge {
  BpeSymbol *symbols; /* [room] */
  uint64_t *heap;     /* [3 room]: rank << 32 | place, a binary heap with the smallest first; entries that no longer hold are passed over */
  size_t room, waiting;
} BpeMerge;

/* Room for `count` symbols, whose id the caller then sets. BAD_VALUE: 2^31 or more. */
Status bpe_merge_reserve(BpeMerge *merge, size_t count);
void bpe_merge_release(BpeMerge *merge);

/* Merges the first `count` (at least one) symbols; writes what remains to ids [count], in order, and returns how many. */
size_t bpe_merge_run(BpeMerge *merge, const BpePairs *pairs, size_t count, int32_t *ids);

#endif
