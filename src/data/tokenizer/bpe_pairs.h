/* Which two neighbours may be merged, how early, and into what: (left id, right id) -> (rank, id). */
#ifndef DATA_BPE_PAIRS_H
#define DATA_BPE_PAIRS_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BPE_NO_RANK UINT32_MAX /* the pair cannot be merged */

typedef struct BpePair {
  uint64_t key;  /* left << 32 | right; all ones: free */
  uint32_t rank; /* lower merges earlier; below BPE_NO_RANK */
  int32_t id;    /* what the two become */
} BpePair;

/* Open addressing, linear probing, at most half full. */
typedef struct BpePairs {
  BpePair *slots; /* [mask + 1] */
  size_t mask, count;
} BpePairs;

/* Room for `expected` pairs; it grows. Release with bpe_pairs_release, also after a failure. */
Status bpe_pairs_init(BpePairs *pairs, size_t expected);
void bpe_pairs_release(BpePairs *pairs); /* accepts a zeroed one */

/* Adds a pair; *fresh is false, and nothing changes, when it is there already. */
Status bpe_pairs_add(BpePairs *pairs, int32_t left, int32_t right, uint32_t rank, int32_t id, bool *fresh);

/* The pair, or NULL. Valid until the next add. */
const BpePair *bpe_pairs_find(const BpePairs *pairs, int32_t left, int32_t right);

#endif
