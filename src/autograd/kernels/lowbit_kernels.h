/* Loops of products with weights of 8 and 4 bits (lowbit.h), one table for each kind of processor, chosen like kernels(): the portable one
 * is the oracle of the others. Activations are quantised first, symmetrically: a row of int8 numbers with a float scale for the row
 * (LOWBIT_INT8 weights) or for each block of 32 (block weights), and the sum of the numbers beside each scale.
 *
 * Products multiply unsigned by signed bytes, which is what the processors' instructions do, so weights are shifted by `offset` as they are
 * read:
 *
 *   u = q + offset (INT8, Q8_0: 128; Q4_0, whose nibbles are q: 8)      sum_i u a - offset sum_i a
 *
 * Integer sums are exact, and the floats around them are computed in one fixed order whatever the number of rows, so a row's result does
 * not depend on the rows beside it. Leaves out threads, scratch and what happens to the results: matmul_lowbit.c. */
#ifndef AUTOGRAD_LOWBIT_KERNELS_H
#define AUTOGRAD_LOWBIT_KERNELS_H
#include "autograd/lowbit.h"
#include "autograd/narrow.h"
#include <stdbool.h>

enum {
  LOWBIT_PANEL = 16,    /* outputs of a panel */
  LOWBIT_PIECE = 64,    /* rows of int8 activations are padded with zeros to a multiple of this */
  LOWBIT_TILE_ROWS = 12 /* maximum number of rows of activations that are multiplied with a panel at a time */
};

/* Quantised activations: a [rows, stride], scale and sum [rows, groups]; groups is 1 or the number of blocks. */
typedef struct LowbitRows {
  const int8_t *a;
  int64_t stride, groups;
  const float *scale;
  const int32_t *sum;
} LowbitRows;

/* Some rows times the weights of some panels: c[r, o] (+)= sum_i w[o, i] x[r, i], o < columns. */
typedef struct LowbitTile {
  LowbitRows x; /* of the first row */
  int64_t rows; /* 1 to LOWBIT_TILE_ROWS */
  int64_t inputs;
  int offset;
  const uint8_t *panels; /* [panels][inputs / 4, rounded up][LOWBIT_PANEL][4], `panel_bytes` apart; room for an even number */
  int64_t panel_bytes;
  const float *scale; /* INT8: [columns]; blocks: [panels][groups][LOWBIT_PANEL], room for an even number, too */
  bool blocks;
  int64_t columns;
  bool add;
  real *c;
  int64_t ldc;
  const uint8_t *ahead; /* bytes to bring into the second-level cache meanwhile; they may lie after the matrix */
  int64_t ahead_bytes;
} LowbitTile;

/* One row times outputs of a matrix as it lies in memory, read once from beginning to end. */
typedef struct LowbitDots {
  LowbitRows x;
  LowbitKind kind;
  int64_t outputs, inputs;
  const uint8_t *numbers; /* of the first output, from the first input on */
  int64_t row_bytes;
  const float *scale; /* [outputs]; only INT8 */
  bool add;
  real *y;
} LowbitDots;

typedef struct LowbitKernels {
  const char *name; /* "portable", "avx2", "vnni", "neon" */

  /* a[i] = x[i] / scale rounded to nearest even, scale = max |x| / 127; *sum = sum of a. n numbers. See lowbit_inverse_scale. */
  void (*quantise)(int64_t n, const real *x, int8_t *a, float *scale, int32_t *sum);

  /* Interleaves LOWBIT_PANEL outputs into panel, as bytes with their offset (neon: signed ones where it is 128), rows from `numbers` on,
   * each `row_bytes` after the last; only `outputs` of them exist, and the rest is filled with anything. scale [blocks][LOWBIT_PANEL]
   * receives those of blocks. Bytes behind the inputs are undefined: activations are 0 there. */
  void (*panel)(LowbitKind kind, int64_t outputs, int64_t inputs, const uint8_t *numbers, int64_t row_bytes, uint8_t *panel, float *scale);

  void (*tile)(const LowbitTile *tile);
  void (*dots)(const LowbitDots *dots);

  /* The end of an int8 product whose sums another library has made, of one row: c[o] (+)= (sums[o] - less[o]) (x_scale scale[o]), o < n.
   * NULL: none for this table, whose own loops are used always. */
  void (*scale)(int64_t n, const int32_t *sums, const int32_t *less, const float *scale, float x_scale, bool add, real *c);
} LowbitKernels;

const LowbitKernels *lowbit_kernels(void);                   /* the fastest that kernels()->name allows on this processor */
const LowbitKernels *lowbit_kernels_named(const char *name); /* NULL where the processor or the build lacks it: for tests */

/* What numbers with this largest magnitude are multiplied with. 0: all become 0, because they are all but 0 (scale 0), or because one is an
 * infinity or a NaN, which the scale then makes of every result. */
static inline float lowbit_inverse_scale(float peak, float *scale) {
  const float tiny = 1e-30f, large = 3e38f;
  *scale = peak < tiny ? 0 : peak / 127;
  if (peak > large) *scale = peak * 1e30f;
  return peak >= tiny && peak <= large ? 127 / peak : 0;
}

/* The largest magnitude of n numbers and of those that had `bits`, which are compared: NaNs are the largest. */
static inline float lowbit_peak(uint32_t bits, int64_t n, const real *x) {
  const uint32_t magnitude = 0x7fffffff;
  for (int64_t i = 0; i < n; i++) {
    const uint32_t other = narrow_bits_of_float((float)x[i]) & magnitude;
    bits = other > bits ? other : bits;
  }
  return narrow_float_of_bits(bits);
}

/* A table's `dots`, `step` outputs at a time by its file's int8_dots(d, output) and block_dots(kind, d, output), where the kind is a
 * constant. */
#define LOWBIT_DOTS(step)                                                                                                                  \
  static void dots(const LowbitDots *d) {                                                                                                  \
    for (int64_t o = 0; o < d->outputs; o += (step)) {                                                                                     \
      if (d->kind == LOWBIT_Q4_0)                                                                                                          \
        block_dots(LOWBIT_Q4_0, d, o);                                                                                                     \
      else if (d->kind == LOWBIT_Q8_0)                                                                                                     \
        block_dots(LOWBIT_Q8_0, d, o);                                                                                                     \
      else                                                                                                                                 \
        int8_dots(d, o);                                                                                                                   \
    }                                                                                                                                      \
  }

static inline int lowbit_offset(LowbitKind kind) { return kind == LOWBIT_Q4_0 ? 8 : 128; }
static inline int64_t lowbit_groups(LowbitKind kind, int64_t inputs) {
  return kind == LOWBIT_INT8 ? 1 : (inputs + LOWBIT_BLOCK - 1) / LOWBIT_BLOCK;
}

/* One a file; NULL where it was compiled to nothing. */
const LowbitKernels *lowbit_portable(void);
const LowbitKernels *lowbit_avx2(void);
const LowbitKernels *lowbit_vnni(void);
const LowbitKernels *lowbit_neon(void);

#endif
