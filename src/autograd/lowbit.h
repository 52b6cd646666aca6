/* Frozen weights of 8 and 4 bits, for inference. A matrix is kept as [outputs, inputs], row by row, whatever the layout of the float weight
 * that it was made from; q are the stored numbers:
 *
 *   LOWBIT_INT8   w[o, i] = scale[o] q[o, i]                 int8 numbers [outputs, inputs] and one float scale an output
 *   LOWBIT_Q8_0   w[o, i] = d q                              blocks of 32 inputs with one half-precision scale d each, the layouts of
 *   LOWBIT_Q4_0   w[o, i] = d (q - 8)                        GGUF files: a row is ceil(inputs / 32) blocks, the rows follow each other
 *
 * A row whose inputs are no multiple of 32 ends with zeros (of Q4_0: q = 8). Numbers need no alignment beyond that of their struct. */
#ifndef AUTOGRAD_LOWBIT_H
#define AUTOGRAD_LOWBIT_H
#include "autograd/narrow.h"
#include "autograd/real.h"
#include <stddef.h>
#include <stdint.h>

typedef enum LowbitKind { LOWBIT_NONE, LOWBIT_INT8, LOWBIT_Q8_0, LOWBIT_Q4_0 } LowbitKind;

enum { LOWBIT_BLOCK = 32, LOWBIT_MAX_INPUTS = 65536 /* sums of products of bytes stay within 32 bits */ };

typedef struct LowbitQ8Block { /* 34 bytes */
  uint16_t scale;              /* IEEE half */
  int8_t number[LOWBIT_BLOCK];
} LowbitQ8Block;

typedef struct LowbitQ4Block { /* 18 bytes */
  uint16_t scale;
  uint8_t number[LOWBIT_BLOCK / 2]; /* low nibbles: numbers 0 to 15; high nibbles: 16 to 31 */
} LowbitQ4Block;

/* A plain description; numbers and scales belong to its creator, and are not written while a tensor points to it. */
typedef struct LowbitMatrix {
  LowbitKind kind;
  int64_t outputs, inputs;
  const void *numbers; /* outputs * lowbit_row_bytes(kind, inputs) bytes */
  const float *scale;  /* [outputs], finite; only of LOWBIT_INT8 */
} LowbitMatrix;

/* The scale of a Q8_0 block with this largest magnitude: the half nearest to largest / 127, or the next one where that is too small by so
 * much that the largest number would be cut, as subnormal halves can be. No finite half becomes infinite. */
static inline uint16_t lowbit_q8_scale(uint16_t nearest, float largest) {
  return nearest < 0x7bff && 127.49f * narrow_half_to_float(nearest) < largest ? (uint16_t)(nearest + 1) : nearest;
}

size_t lowbit_row_bytes(LowbitKind kind, int64_t inputs);

/* value[i] = w[output, first + i], i < count: the definition of the layouts, and the oracle of the kernels' tests. */
void lowbit_widen(const LowbitMatrix *matrix, int64_t output, int64_t first, int64_t count, real *value);

/* Quantises one row, the weights of an output: n finite numbers -> lowbit_row_bytes(kind, n) bytes at `numbers`, and *scale of LOWBIT_INT8
 * (else may be NULL).
 *
 *   INT8, Q8_0   scale = max |x| / 127, of the row or of each block
 *   Q4_0         of each block the scale with the smallest squared error among 27 around max / -8 (the number of the largest magnitude
 *                becomes q = 0, value -8) and max / 7, each refined once: for given q the best scale is sum x (q - 8) / sum (q - 8)^2
 *
 * Scales of blocks are rounded to half precision before numbers are (Q8_0: lowbit_q8_scale); one too large for it is the largest half. */
void lowbit_quantise(LowbitKind kind, int64_t n, const float *x, void *numbers, float *scale);

#endif
