/* Memory for keys, values and codes: see kv_cache.h. What attention makes of them is block.c's. */
#include "nn/kv_cache.h"
#include "autograd/tensor.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool allocate(KvCache *cache) {
  const KvCacheSetup *setup = &cache->setup;
  size_t max = (size_t)setup->max, blocks = (size_t)setup->blocks, sites = (size_t)setup->sites, rows = blocks * max * (size_t)setup->width;
  cache->keys = malloc(rows * narrow_kind_bytes(setup->kind));
  cache->values = malloc(rows * narrow_kind_bytes(setup->kind));
  cache->lost = malloc(blocks * max);
  cache->any_lost = calloc(blocks, sizeof *cache->any_lost);
  if (sites == 0) return cache->keys && cache->values && cache->lost && cache->any_lost;
  cache->codes = malloc(blocks * sites * max * setup->token_bytes);
  cache->unpacked = malloc(sites * max * (size_t)setup->groups * sizeof *cache->unpacked);
  cache->positions = malloc(max * sizeof *cache->positions);
  cache->codewords = malloc(blocks * sites * sizeof *cache->codewords);
  return cache->keys && cache->values && cache->codes && cache->lost && cache->any_lost && cache->unpacked && cache->positions &&
         cache->codewords;
}

Status kv_cache_init(KvCache *cache, const KvCacheSetup *setup) {
  *cache = (KvCache){.setup = *setup};
  if (!allocate(cache)) {
    kv_cache_release(cache);
    return status_set(STATUS_NO_MEMORY, "no memory for the keys and values of %lld tokens; use a smaller --max-context",
                      (long long)setup->max);
  }
  for (int64_t i = 0; cache->positions && i < setup->max; i++) cache->positions[i] = (int32_t)i;
  for (int64_t i = 0; i < setup->blocks * setup->sites; i++) cache->codewords[i] = setup->codewords[i];
  cache->setup.codewords = cache->codewords;
  return STATUS_OK;
}

void kv_cache_release(KvCache *cache) {
  free(cache->keys);
  free(cache->values);
  free(cache->codes);
  free(cache->lost);
  free(cache->any_lost);
  free(cache->unpacked);
  free(cache->positions);
  free(cache->codewords);
  *cache = (KvCache){.setup = {.blocks = 0}};
}

Status kv_cache_start(KvCache *cache, int64_t remote) {
  if (remote < 0 || remote > cache->setup.max || (remote > 0 && cache->setup.sites == 0))
    return status_set(STATUS_BAD_VALUE, "a cache for %lld tokens%s does not take %lld as codes", (long long)cache->setup.max,
                      cache->setup.sites ? "" : " in full", (long long)remote);
  cache->remote = remote;
  cache->rows = cache->marks = 0;
  memset(cache->any_lost, 0, (size_t)cache->setup.blocks * sizeof *cache->any_lost);
  return STATUS_OK;
}

static uint8_t *codes_of(const KvCache *cache, int block, int site) {
  return cache->codes + (size_t)(block * cache->setup.sites + site) * (size_t)cache->setup.max * cache->setup.token_bytes;
}

uint8_t *kv_cache_codes(KvCache *cache, int block, int site, int64_t position) {
  return codes_of(cache, block, site) + (size_t)position * cache->setup.token_bytes;
}

static size_t block_start(const KvCache *cache, int block) {
  return (size_t)(block * cache->setup.max * cache->setup.width) * narrow_kind_bytes(cache->setup.kind);
}

Status kv_cache_write(NarrowKind kind, int64_t count, const real *numbers, void *to) {
  if (kind == NARROW_NONE) memcpy(to, numbers, (size_t)count * sizeof *numbers);
  if (kind == NARROW_NONE || tensor_narrow(kind, count, numbers, to)) return STATUS_OK;
  int64_t at = 0;
  while (at < count - 1 && fabs((double)numbers[at]) < 65520) at++;
  if (!isfinite(numbers[at]))
    return status_set(STATUS_NUMERIC, "a key or value is %g: the model computes no finite numbers for these tokens; check its checkpoint",
                      (double)numbers[at]);
  return status_set(STATUS_NUMERIC, "a key or value of %g is too large for a cache of 16-bit numbers; use --cache-type float32 or bfloat16",
                    (double)numbers[at]);
}

Status kv_cache_store(KvCache *cache, int block, int64_t count, const real *k, const real *v, const uint8_t *lost, int64_t marks) {
  if (count > kv_cache_room(cache))
    return status_set(STATUS_BAD_VALUE, "%lld tokens after %lld: the cache has room for %lld in all", (long long)count,
                      (long long)(cache->remote + cache->rows), (long long)cache->setup.max);
  size_t at = block_start(cache, block) + (size_t)(cache->rows * cache->setup.width) * narrow_kind_bytes(cache->setup.kind);
  TRY(kv_cache_write(cache->setup.kind, count * cache->setup.width, k, (uint8_t *)cache->keys + at));
  TRY(kv_cache_write(cache->setup.kind, count * cache->setup.width, v, (uint8_t *)cache->values + at));
  if (!lost) return STATUS_OK;
  memcpy(cache->lost + block * cache->setup.max, lost, (size_t)marks);
  cache->marks = marks;
  cache->any_lost[block] = true;
  return STATUS_OK;
}

void kv_cache_advance(KvCache *cache, int64_t count) { cache->rows += count; }

KvCacheBlock kv_cache_block(const KvCache *cache, int block) {
  const size_t at = block_start(cache, block);
  return (KvCacheBlock){(const uint8_t *)cache->keys + at, (const uint8_t *)cache->values + at,
                        cache->any_lost[block] ? cache->lost + block * cache->setup.max : NULL, cache->marks};
}

Status kv_cache_unpack(KvCache *cache, int block, int site, const int32_t **codes) {
  const KvCacheSetup *setup = &cache->setup;
  int32_t *out = cache->unpacked + site * setup->max * setup->groups;
  *codes = out;
  return setup->unpack(codes_of(cache, block, site), cache->remote, setup->groups, setup->entries, out);
}

int64_t kv_cache_bytes(const KvCache *cache, int64_t *codes) {
  const KvCacheSetup *setup = &cache->setup;
  const KvShape rows = {.tokens = cache->rows,
                        .local = cache->rows,
                        .blocks = setup->blocks,
                        .width = setup->width,
                        .number_bytes = (int64_t)narrow_kind_bytes(setup->kind)};
  const KvShape coded = {
      .tokens = cache->remote, .blocks = setup->blocks, .sites = setup->sites, .token_bytes = (int64_t)setup->token_bytes};
  *codes = kv_cache_predict(&coded);
  return kv_cache_predict(&rows);
}

int64_t kv_cache_predict(const KvShape *s) {
  return 2 * s->local * s->blocks * s->width * s->number_bytes + s->sites * (s->tokens - s->local) * s->blocks * s->token_bytes;
}
