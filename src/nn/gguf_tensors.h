/* Inside the checkpoint code only: the tensors of a GGUF file as if they were those of a safetensors file of Hugging Face's.
 *
 *   names     blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight ...
 *   shapes    the other way round: outputs first
 *   rows      of attn_q and attn_k come in pairs that rotary positions turn together, 2 i and 2 i + 1 of a head;
 *             here they are rows i and i + d / 2 (d rows in a head)
 *   types     F32, F16, BF16, Q8_0, Q4_0: as they are (SafeTensor.dtype or .lowbit), in the file's mapping unless the
 *             order of rows changes
 *             Q4_K, Q6_K: converted to Q8_0
 *
 * Other types, and tensors that Llama does not have (biases), are UNSUPPORTED; the message names tensor and type. */
#ifndef NN_GGUF_TENSORS_H
#define NN_GGUF_TENSORS_H
#include "autograd/lowbit.h"
#include "base/gguf.h"
#include "nn/safetensors.h"

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

/* value [GGUF_BLOCK] of one block of type GGUF_DATA_Q4_K or GGUF_DATA_Q6_K, computed in float. */
void gguf_block_widen(uint32_t type, const uint8_t *block, float *value);

/* count numbers, a multiple of LOWBIT_BLOCK, to blocks of 8 bits: the scale is the largest magnitude / 127 as a half, numbers are rounded
 * to nearest. Numbers that are not finite, or too large for it, make a scale that is not finite. */
void gguf_block_to_q8(const float *value, int64_t count, LowbitQ8Block *out);

Status gguf_tensors_open(SafeFile *file, const char *path);       /* safetensors_close closes it */
Status gguf_tensors_make(SafeFile *file, const GgufFile *source); /* on a parsed file that the caller keeps: fuzzed */

#endif
