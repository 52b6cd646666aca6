/* Codes to bits and back, with a fixed width. Pure functions of their arguments; infer/wire.h has what surrounds the bits on the wire. */
#include "vq/pack.h"
#include <inttypes.h>

int pack_bits(int64_t entries) {
  int bits = 1;
  while (((int64_t)1 << bits) < entries) bits++;
  return bits;
}

size_t pack_bytes_per_token(int64_t groups, int64_t entries) { return ((size_t)groups * (size_t)pack_bits(entries) + 7) / 8; }

/* A token's codes [G] into its bytes. `held` bits wait in `waiting`, the lowest first; at most 7 + 16 of them. */
static void pack_token(const int32_t *codes, int64_t groups, int bits, uint8_t *bytes) {
  uint32_t waiting = 0;
  int held = 0;
  for (int64_t g = 0; g < groups; g++) {
    waiting |= (uint32_t)codes[g] << held;
    for (held += bits; held >= 8; held -= 8, waiting >>= 8) *bytes++ = (uint8_t)waiting;
  }
  if (held > 0) *bytes = (uint8_t)waiting;
}

void pack_codes(const int32_t *codes, int64_t tokens, int64_t groups, int64_t entries, uint8_t *bytes) {
  int bits = pack_bits(entries);
  size_t stride = pack_bytes_per_token(groups, entries);
  for (int64_t t = 0; t < tokens; t++) pack_token(codes + t * groups, groups, bits, bytes + (size_t)t * stride);
}

/* `count` codes, `groups` of each token, from token `first` on (for messages). */
static Status unpack_stream(const uint8_t *bytes, int64_t groups, int64_t count, int64_t entries, int bits, int64_t first, int32_t *codes) {
  uint32_t waiting = 0, mask = ((uint32_t)1 << bits) - 1;
  int held = 0;
  for (int64_t g = 0; g < count; g++) {
    for (; held < bits; held += 8) waiting |= (uint32_t)*bytes++ << held;
    codes[g] = (int32_t)(waiting & mask);
    if (codes[g] >= entries)
      return status_set(STATUS_BAD_VALUE,
                        "packed codes: token %" PRId64 ", group %" PRId64 " holds code %" PRId32 ", but the codebook has %" PRId64
                        " entries; the bytes are damaged or belong to another codebook",
                        first + g / groups, g % groups, codes[g], entries);
    waiting >>= bits;
    held -= bits;
  }
  if (waiting != 0)
    return status_set(STATUS_BAD_VALUE, "packed codes: token %" PRId64 " ends in padding bits that are not zero; the bytes are damaged",
                      first + (count - 1) / groups);
  return STATUS_OK;
}

Status pack_unpack(const uint8_t *bytes, int64_t tokens, int64_t groups, int64_t entries, int32_t *codes) {
  int bits = pack_bits(entries);
  size_t stride = pack_bytes_per_token(groups, entries);
  for (int64_t t = 0; t < tokens; t++) TRY(unpack_stream(bytes + (size_t)t * stride, groups, groups, entries, bits, t, codes + t * groups));
  return STATUS_OK;
}

/* ---- without padding between tokens: one token of many groups */

size_t pack_dense_bytes(int64_t tokens, int64_t groups, int64_t entries) { return pack_bytes_per_token(tokens * groups, entries); }

void pack_dense(const int32_t *codes, int64_t tokens, int64_t groups, int64_t entries, uint8_t *bytes) {
  pack_token(codes, tokens * groups, pack_bits(entries), bytes);
}

Status pack_dense_unpack(const uint8_t *bytes, int64_t tokens, int64_t groups, int64_t entries, int32_t *codes) {
  return tokens > 0 ? unpack_stream(bytes, groups, tokens * groups, entries, pack_bits(entries), 0, codes) : STATUS_OK;
}
