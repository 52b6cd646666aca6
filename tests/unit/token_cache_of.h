/* A cache of given token ids, in memory alone; a test that includes this has token_cache.c inside of it. */
#ifndef UNIT_TOKEN_CACHE_OF_H
#define UNIT_TOKEN_CACHE_OF_H
#include "data/text/token_cache.c"

/* BAD_VALUE: an id outside of the vocabulary. The cache owns a copy, mapped as a file's would be. */
static inline Status token_cache_of(TokenCache **cache, const int32_t *ids, int64_t count, int64_t vocabulary) {
  size_t size = (size_t)count * sizeof *ids;
  *cache = NULL;
  for (int64_t i = 0; i < count; i++)
    if (ids[i] < 0 || ids[i] >= vocabulary) return status_set(STATUS_BAD_VALUE, "token %lld is id %d", (long long)i, (int)ids[i]);
  TokenCache *fresh = calloc(1, sizeof *fresh);
  uint8_t *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!fresh || data == MAP_FAILED) return status_set(STATUS_NO_MEMORY, "no memory for a test");
  for (int64_t i = 0; i < count; i++) memcpy(data + 4 * i, &(uint32_t){htole32((uint32_t)ids[i])}, 4);
  *fresh =
      (TokenCache){.facts = {.width = 4, .tokens = count, .vocabulary = vocabulary, .documents = 1}, .map = {.data = data, .size = size}};
  fresh->ids = data;
  *cache = fresh;
  return STATUS_OK;
}

#endif
