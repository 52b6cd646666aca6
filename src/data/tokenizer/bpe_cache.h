/* What frequent pieces of text were encoded to. A fixed number of places, one for each hash: a newer piece takes the place of an older.
 * Nothing is allocated for a piece. One thread at a time. */
#ifndef DATA_BPE_CACHE_H
#define DATA_BPE_CACHE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BPE_CACHE_BYTES = 22, BPE_CACHE_IDS = 10 }; /* longer pieces, or pieces of more tokens, are not kept */

typedef struct BpeCached {
  uint8_t size, count; /* size 0: free */
  char bytes[BPE_CACHE_BYTES];
  int32_t ids[BPE_CACHE_IDS];
} BpeCached;

typedef struct BpeCache BpeCache;

BpeCache *bpe_cache_new(void); /* NULL: out of memory */
void bpe_cache_free(BpeCache *cache);

/* The place for these bytes, or NULL when they are not kept. *found: it holds them. To fill it: bpe_cache_keep. */
BpeCached *bpe_cache_place(BpeCache *cache, const char *bytes, size_t size, bool *found);
void bpe_cache_keep(BpeCached *place, const char *bytes, size_t size, const int32_t *ids, size_t count);

#endif
