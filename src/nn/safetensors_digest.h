/* For the safetensors reader and writer, and whoever keeps a digest beside another file: the XXH3 digests that a safetensors file carries
 * of its tensors and of its header, in __metadata__.
 *
 *   "astra.xxh3.NAME"  of tensor NAME: XXH3-64, seed 0, of its bytes in the file
 *   "astra.xxh3"       of the header: XXH3-64, seed 0, of what is listed at safe_digest_add_tensor
 *
 * each as 16 small hexadecimal digits, the most significant first. A file has all of them or none. They find damage, not forgery. */
#ifndef NN_SAFETENSORS_DIGEST_H
#define NN_SAFETENSORS_DIGEST_H
#include "nn/safetensors.h"
#include <stdbool.h>

#define SAFE_DIGEST_KEY    "astra.xxh3"
#define SAFE_DIGEST_PREFIX SAFE_DIGEST_KEY "."
enum { SAFE_DIGEST_TEXT = 17 };

typedef struct SafeDigest SafeDigest;

SafeDigest *safe_digest_new(void); /* NULL: no memory */
void safe_digest_free(SafeDigest *digest);
void safe_digest_begin(SafeDigest *digest);
void safe_digest_add(SafeDigest *digest, const void *data, size_t bytes);
uint64_t safe_digest_end(SafeDigest *digest);
uint64_t safe_digest_of(const void *data, size_t bytes); /* all at once */

void safe_digest_text(uint64_t number, char text[SAFE_DIGEST_TEXT]);
bool safe_digest_parse(const char *text, uint64_t *number);
bool safe_digest_is_key(const char *key); /* one of ours */

/* Of the header: tensors in bytewise order of their names: name, NUL, dtype, NUL, u64 dims, u64 shape [dims], u64 digest (little-endian);
 * then all other metadata in bytewise order of their keys: key, NUL, value, NUL. Places are left out: bytes elsewhere have other digests.
 */
void safe_digest_add_tensor(SafeDigest *digest, const char *name, SafeDtype dtype, int dims, const int64_t *shape, uint64_t own);
void safe_digest_add_pair(SafeDigest *digest, const char *key, const char *value); /* one of ours is passed over */

#endif
