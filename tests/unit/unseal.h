/* Takes the digests out of a safetensors file in memory: their keys become others of the same length, so that it counts as a file without
 * any, in which a test may change numbers. */
#ifndef UNIT_UNSEAL_H
#define UNIT_UNSEAL_H
#include <string.h>

static inline void unseal(char *image, size_t size) {
  for (char *at = image; (at = memmem(at, size - (size_t)(at - image), "astra.xxh3", 10)) != NULL;) memcpy(at, "other", 5);
}

#endif
