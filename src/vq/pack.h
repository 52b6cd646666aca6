/* Codes as bits. With one width for all: ceil(log2 K) bits each, little-endian bit order (bit b of code i is bit (i bits + b) of the
 * stream), a token's G codes together, padded with zero bits to a whole byte: pack_bytes_per_token = ceil(G bits / 8). */
#ifndef VQ_PACK_H
#define VQ_PACK_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int pack_bits(int64_t entries); /* ceil(log2 K), K >= 2 */
size_t pack_bytes_per_token(int64_t groups, int64_t entries);
void pack_codes(const int32_t *codes, int64_t tokens, int64_t groups, int64_t entries, uint8_t *bytes);
/* Untrusted bytes: a code >= K or a padding bit that is set is BAD_VALUE. */
Status pack_unpack(const uint8_t *bytes, int64_t tokens, int64_t groups, int64_t entries, int32_t *codes);

/* The same without padding between tokens: all codes of a packet are one stream of bits, ceil(tokens G bits / 8) bytes, padding after the
 * last one. Where G bits is a multiple of 8 both forms are equal. */
size_t pack_dense_bytes(int64_t tokens, int64_t groups, int64_t entries);
void pack_dense(const int32_t *codes, int64_t tokens, int64_t groups, int64_t entries, uint8_t *bytes);
Status pack_dense_unpack(const uint8_t *bytes, int64_t tokens, int64_t groups, int64_t entries, int32_t *codes);

#endif
