/* See safetensors_digest.h. The hash is libxxhash's. */
#include "nn/safetensors_digest.h"
#include "nn/safetensors_convert.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct SafeDigest {
  XXH3_state_t *state;
};

SafeDigest *safe_digest_new(void) {
  SafeDigest *digest = malloc(sizeof *digest);
  if (digest) digest->state = XXH3_createState();
  if (digest && digest->state) return digest;
  free(digest);
  return NULL;
}

void safe_digest_free(SafeDigest *digest) {
  if (!digest) return;
  XXH3_freeState(digest->state);
  free(digest);
}

void safe_digest_begin(SafeDigest *digest) { XXH3_64bits_reset(digest->state); }

void safe_digest_add(SafeDigest *digest, const void *data, size_t bytes) {
  if (bytes > 0) XXH3_64bits_update(digest->state, data, bytes);
}

uint64_t safe_digest_end(SafeDigest *digest) { return XXH3_64bits_digest(digest->state); }

uint64_t safe_digest_of(const void *data, size_t bytes) { return XXH3_64bits(data, bytes); }

void safe_digest_text(uint64_t number, char text[SAFE_DIGEST_TEXT]) { snprintf(text, SAFE_DIGEST_TEXT, "%016" PRIx64, number); }

bool safe_digest_parse(const char *text, uint64_t *number) {
  if (strlen(text) != SAFE_DIGEST_TEXT - 1 || strspn(text, "0123456789abcdef") != SAFE_DIGEST_TEXT - 1) return false;
  *number = strtoull(text, NULL, 16);
  return true;
}

bool safe_digest_is_key(const char *key) {
  size_t length = strlen(SAFE_DIGEST_KEY);
  return strncmp(key, SAFE_DIGEST_KEY, length) == 0 && (key[length] == 0 || key[length] == '.');
}

static void add_text(SafeDigest *digest, const char *text) { safe_digest_add(digest, text, strlen(text) + 1); }

void safe_digest_add_tensor(SafeDigest *digest, const char *name, SafeDtype dtype, int dims, const int64_t *shape, uint64_t own) {
  uint64_t numbers[SAFE_DIMS + 2] = {(uint64_t)dims};
  for (int i = 0; i < dims; i++) numbers[1 + i] = (uint64_t)shape[i];
  numbers[1 + dims] = own;
  add_text(digest, name);
  add_text(digest, safe_dtype_name(dtype));
  safe_digest_add(digest, numbers, ((size_t)dims + 2) * sizeof *numbers);
}

void safe_digest_add_pair(SafeDigest *digest, const char *key, const char *value) {
  if (safe_digest_is_key(key)) return;
  add_text(digest, key);
  add_text(digest, value);
}
