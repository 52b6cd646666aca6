/* The KV cache of a decoder. Keys (after rotation) and values of its own device's tokens and of generated tokens are kept in full; of the
 * other devices' tokens, which all precede these, only the packed codes are kept, and their keys and values are never stored (paper,
 * appendix "Memory Cost Analysis"); with predictions, or where a full cache is wanted (setup.sites 0), all are stored in full.
 *
 *   position   0 ............ remote | remote ............... remote + rows
 *              codes of each site    | rows in full: own part of the prompt, then new tokens
 *
 * All memory is allocated once, for the longest sequence; the system commits pages when they are touched. Single-threaded. */
#ifndef NN_KV_CACHE_H
#define NN_KV_CACHE_H
#include "autograd/narrow.h"
#include "autograd/real.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Packed codes of a token's groups -> codes [tokens, groups]; BAD_VALUE where the bytes are no codes (vq/pack.h). */
typedef Status KvUnpack(const uint8_t *bytes, int64_t tokens, int64_t groups, int64_t entries, int32_t *codes);

/* A site's codewords [G, K, W/G]: reals, or numbers of 16 bits. */
typedef struct KvCodewords {
  const real *reals;
  const uint16_t *narrow; /* NULL where they are reals */
  NarrowKind kind;
} KvCodewords;

typedef struct KvCacheSetup {
  int64_t blocks, width;        /* width: kv heads x head width */
  int64_t max;                  /* tokens of the longest sequence */
  NarrowKind kind;              /* of the numbers that keys and values are kept in; NARROW_NONE: reals */
  int sites;                    /* codebook sets of a block: 1 (x) or 2 (k, v); 0 without codes, as are the following */
  int64_t groups, entries;      /* G, K */
  size_t token_bytes;           /* of the packed codes of a token and site */
  const KvCodewords *codewords; /* [blocks * sites]; the array is copied, what it points to outlives the cache */
  KvUnpack *unpack;
} KvCacheSetup;

typedef struct KvCache {
  KvCacheSetup setup;
  int64_t remote, rows;   /* of the sequence it currently holds */
  int64_t marks;          /* how many of its first tokens are marked in `lost` */
  void *keys, *values;    /* [blocks][max, width] of setup.kind */
  uint8_t *codes;         /* [blocks * sites][max, token_bytes] */
  uint8_t *lost;          /* [blocks][max], 1: this token's codes never arrived */
  bool *any_lost;         /* [blocks] */
  int32_t *unpacked;      /* [sites][max, G]: of the block at work */
  int32_t *positions;     /* [max]: 0, 1, 2... */
  KvCodewords *codewords; /* [blocks * sites] */
} KvCache;

Status kv_cache_init(KvCache *cache, const KvCacheSetup *setup);
void kv_cache_release(KvCache *cache); /* accepts a zeroed one */

/* Empties it for a sequence whose first `remote` tokens are kept as codes. BAD_VALUE when they do not fit or the cache holds no codes.
 */
Status kv_cache_start(KvCache *cache, int64_t remote);

/* Where the packed codes of remote token `position` and its successors are stored, token_bytes each. */
uint8_t *kv_cache_codes(KvCache *cache, int block, int site, int64_t position);

/* Appends rows k, v [count, width] to a block, and notes which of the sequence's first tokens were lost there (NULL: none; [marks], the
 * same number for all blocks): as codes, or among the rows of a cache without codes. They count once all blocks have theirs
 * (kv_cache_advance). Numbers of 16 bits are rounded to nearest even. BAD_VALUE when there is no room, NUMERIC when a number is too large
 * for float16. */
Status kv_cache_store(KvCache *cache, int block, int64_t count, const real *k, const real *v, const uint8_t *lost, int64_t marks);
void kv_cache_advance(KvCache *cache, int64_t count);

/* Numbers as they are kept: `count` of them in `kind`, rounded to nearest even. NUMERIC as above. */
Status kv_cache_write(NarrowKind kind, int64_t count, const real *numbers, void *to);

/* What it holds of a block. */
typedef struct KvCacheBlock {
  const void *keys, *values; /* [rows..., width] of setup.kind */
  const uint8_t *lost;       /* [marks] or NULL */
  int64_t marks;
} KvCacheBlock;
KvCacheBlock kv_cache_block(const KvCache *cache, int block);

/* The codes of a block's site [remote, G], until the next call for the same site. */
Status kv_cache_unpack(KvCache *cache, int block, int site, const int32_t **codes);

/* Tokens that can still be added. */
static inline int64_t kv_cache_room(const KvCache *cache) { return cache->setup.max - cache->remote - cache->rows; }

/* Bytes that the sequence it holds takes: in full, and as codes. */
int64_t kv_cache_bytes(const KvCache *cache, int64_t *codes);

/* The size of such a cache by the paper's appendix:
 *   2 local L d b + sites (tokens - local) L ceil(G ceil(log2 K) / 8)
 * With local = tokens that is the full cache, 2 N L d b; with sites = 2 and local = N / n_d the paper's M_KV^ASTRA. */
typedef struct KvShape {
  int64_t tokens, local, blocks, width, number_bytes; /* N, N / n_d, L, d, b */
  int64_t sites, token_bytes;                         /* of a token's packed codes */
} KvShape;
int64_t kv_cache_predict(const KvShape *shape);

#endif
