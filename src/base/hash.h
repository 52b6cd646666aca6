/* FNV-1a of 64 bits (Fowler, Noll and Vo): tells contents apart that differ by accident. No defence against forgery. */
#ifndef BASE_HASH_H
#define BASE_HASH_H
#include <stddef.h>
#include <stdint.h>

#define HASH_BEGIN UINT64_C(0xcbf29ce484222325) /* of nothing */

/* Of what `hash` is of and then these bytes. */
static inline uint64_t hash_add(uint64_t hash, const void *data, size_t bytes) {
  const uint8_t *byte = data;
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
  return hash;
}

/* As a file keeps it in a signed number that is 0 or above. */
static inline int64_t hash_signed(uint64_t hash) { return (int64_t)(hash >> 1); }

#endif
