/* Any bytes as a cache of tokens. What must hold of an accepted one: its size is the header's and every id, read through the facts alone,
 * is in the vocabulary. */
#include "data/text/token_cache.c" /* its check of bytes in memory */
#include "fuzz/fuzz.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  TokenCacheFacts facts;
  if (token_cache_check(&facts, data, size, "input") != STATUS_OK) {
    if (!strstr(status_message(), "input")) abort();
    return 0;
  }
  size_t width = (size_t)facts.width;
  if (facts.tokens < 1 || size != TOKEN_CACHE_HEADER + (size_t)facts.tokens * width) abort();
  for (size_t at = TOKEN_CACHE_HEADER; at < size; at += width) {
    uint64_t id = 0;
    for (size_t i = 0; i < width; i++) id |= (uint64_t)data[at + i] << 8 * i;
    if (id >= (uint64_t)facts.vocabulary) abort();
  }
  return 0;
}
