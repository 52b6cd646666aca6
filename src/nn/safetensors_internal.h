/* Inside the safetensors reader and writer only: dtypes, arrays from one to another, and digests. */
#ifndef NN_SAFETENSORS_INTERNAL_H
#define NN_SAFETENSORS_INTERNAL_H
#include "nn/safetensors.h"
#include <stdbool.h>
#include <string.h>

enum { SAFE_DTYPES = SAFE_F8_E8M0 + 1 };

/* Bytes of a header that is read, and so of one that is written. The format's own library accepts 100 MB; the largest published checkpoints
 * have a few. */
enum { SAFE_HEADER_MAX = 32 << 20 };

bool safe_dtype_agree(SafeDtype a, SafeDtype b); /* both floats or both integers that can be converted */

/* count numbers, unaligned at both ends. Floats go to floats (round to nearest even) and integers to integers: *at gets the index of the
 * first number that does not fit (a finite one that would become infinite, an integer out of range), or -1. They must agree. */
void safe_convert(SafeDtype to, void *out, SafeDtype from, const void *in, int64_t count, int64_t *at);

/* A key of the metadata, index from 0 in bytewise order, and its value. */
static inline const char *safe_metadata(const SafeFile *file, size_t index, const char **value) {
  const char *key = file->text + file->metadata[index];
  *value = key + strlen(key) + 1;
  return key;
}

/* The XXH3 digests that a safetensors file carries of its tensors and of its header, in __metadata__:
 *
 *   "astra.xxh3.NAME"  of tensor NAME: XXH3-64, seed 0, of its bytes in the file
 *   "astra.xxh3"       of the header: XXH3-64, seed 0, of what is listed at safe_digest_add_tensor
 *
 * each as 16 small hexadecimal digits, the most significant first. A file has all of them or none. They find damage, not forgery. */

#define SAFE_DIGEST_KEY    "astra.xxh3"
#define SAFE_DIGEST_PREFIX SAFE_DIGEST_KEY "."

typedef struct SafeDigest SafeDigest;

SafeDigest *safe_digest_new(void); /* NULL: no memory */
void safe_digest_free(SafeDigest *digest);
void safe_digest_begin(SafeDigest *digest);
void safe_digest_add(SafeDigest *digest, const void *data, size_t bytes);
uint64_t safe_digest_end(SafeDigest *digest);

bool safe_digest_is_key(const char *key); /* one of ours */

/* Of the header: tensors in bytewise order of their names: name, NUL, dtype, NUL, u64 dims, u64 shape [dims], u64 digest (little-endian);
 * then all other metadata in bytewise order of their keys: key, NUL, value, NUL. Places are left out: bytes elsewhere have other digests.
 */
void safe_digest_add_tensor(SafeDigest *digest, const char *name, SafeDtype dtype, int dims, const int64_t *shape, uint64_t own);
void safe_digest_add_pair(SafeDigest *digest, const char *key, const char *value); /* one of ours is passed over */

#endif
