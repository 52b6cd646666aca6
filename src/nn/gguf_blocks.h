/* Blocks of 256 numbers of GGUF files (ggml's "K-quants"), and their way into blocks that are computed with. Fields in their order in the
 * file, d and dmin half-precision, little-endian:
 *
 *   Q4_K  144 bytes: d, dmin, 12 bytes of scales, 128 bytes of numbers   w = d s q - dmin m     s, m in 0..63 for 32 numbers, q in 0..15
 *   Q6_K  210 bytes: 128 bytes of low, 64 of high bits, 16 int8 scales, d     w = d s (q - 32)       s for 16 numbers, q in 0..63
 *
 *   q of Q4_K, number i:  low nibble of byte 32 (i / 64) + i % 32 where i / 32 is even, else the high one
 *   q of Q6_K, number i of each half of 128:  low 4 bits from byte 64 half + i % 64, its low nibble where i < 64, else the high one;
 *                                             high 2 bits from byte 32 half + i % 32, bits 2 (i / 32) and the next
 *   s_j of Q4_K, bytes b, j < 4:  b[j] & 63, m_j:  b[j + 4] & 63;  j >= 4:  the nibbles of b[j + 4] (s low, m high) with bits 6 and 7 of
 *   b[j - 4] (s) and of b[j] (m) above them */
#ifndef NN_GGUF_BLOCKS_H
#define NN_GGUF_BLOCKS_H
#include "autograd/lowbit.h"
#include "base/gguf.h"

enum { GGUF_BLOCK = 256 };

/* value [GGUF_BLOCK] of one block of type GGUF_DATA_Q4_K or GGUF_DATA_Q6_K, computed in float. */
void gguf_block_widen(uint32_t type, const uint8_t *block, float *value);

/* count numbers, a multiple of LOWBIT_BLOCK, to blocks of 8 bits: the scale is the largest magnitude / 127 as a half, numbers are rounded
 * to nearest. Numbers that are not finite, or too large for it, make a scale that is not finite. */
void gguf_block_to_q8(const float *value, int64_t count, LowbitQ8Block *out);

#endif
