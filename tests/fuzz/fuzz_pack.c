/* Fuzz target: packed codes as they come off the wire. The first bytes choose the shape, the rest are the codes' bits.
 * Holds: what is accepted has only codes below K and packs to the same bytes again. */
#include "fuzz/fuzz.h"
#include "vq/pack.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 3) return 0;
  int64_t groups = 1 + data[0], entries = 2 + (data[1] | data[2] << 8) % 65535;
  size_t stride = pack_bytes_per_token(groups, entries);
  int64_t tokens = (int64_t)((size - 3) / stride);
  size_t used = (size_t)tokens * stride, count = (size_t)(tokens * groups);
  uint8_t *bytes = malloc(used ? used : 1), *again = malloc(used ? used : 1); /* exact, so that a sanitizer sees a byte too many */
  int32_t *codes = malloc((count ? count : 1) * sizeof *codes);
  if (!bytes || !again || !codes) abort();
  memcpy(bytes, data + 3, used);
  if (pack_unpack(bytes, tokens, groups, entries, codes) == STATUS_OK) {
    for (size_t i = 0; i < count; i++)
      if (codes[i] < 0 || codes[i] >= entries) abort();
    pack_codes(codes, tokens, groups, entries, again);
    if (memcmp(bytes, again, used) != 0) abort();
  }
  size_t dense = pack_dense_bytes(tokens, groups, entries); /* never more than `used` */
  if (pack_dense_unpack(bytes, tokens, groups, entries, codes) == STATUS_OK) {
    for (size_t i = 0; i < count; i++)
      if (codes[i] < 0 || codes[i] >= entries) abort();
    pack_dense(codes, tokens, groups, entries, again);
    if (memcmp(bytes, again, dense) != 0) abort();
  }
  free(bytes);
  free(again);
  free(codes);
  return 0;
}
