/* Raw loops over rows of numbers: one table of functions, filled once at start with the portable versions and then
 * overridden for the CPU at hand (AVX2+FMA, AVX-512, NEON through the portable code). Single-threaded: callers share
 * rows out. In double builds only the portable versions exist. The portable versions are the oracle of the tests.
 * Rows are contiguous; n is the row length; pointers need no alignment; outputs do not overlap inputs unless said. */
#ifndef AUTOGRAD_KERNELS_H
#define AUTOGRAD_KERNELS_H
#include "autograd/kernels/nearest_packed.h"
#include "autograd/kernels/product_packed.h"
#include "autograd/narrow.h"
#include "autograd/real.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  NEAREST_MAX_WIDTH = 64,
  TRIANGLE_MAX_WIDTH = 64,
  NEARER_LANES = 64,
  KERNELS_TEXT = 192 /* room for matmul_describe and kernels_check */
};

/* What an AdamW step does to every number (Loshchilov and Hutter, 2019; Adam when decay is 0):
 *   m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  w -= rate (m/c1 / (sqrt(v/c2) + eps) + decay w),  g = scale grad */
typedef struct AdamwStep {
  real scale, rate, b1, b2, c1, c2, eps, decay;
  uint64_t seed; /* of the draws with which narrow moments are rounded: another one for each step */
} AdamwStep;

/* Moments in 8 bits have a scale for each block of ADAMW_BLOCK numbers; ADAMW_DRAWS numbers share one counter value of the generator. */
enum { ADAMW_BLOCK = 256, ADAMW_DRAWS = 8 };

typedef void ProductBf16(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                         const uint16_t *b, int64_t ldb, bool add, real *c, int64_t ldc);

/* `count` vectors of n numbers and a codeword of each: that of item i is words + i word_step + codes[i code_step] d, n <= d. With
 * word_step = K d and code_step = 1 the groups of one row; with word_step = 0 rows of one group. */
typedef struct WordList {
  int64_t count, n, d;
  const real *words;
  int64_t word_step;
  const int32_t *codes;
  int64_t code_step;
} WordList;

typedef struct Kernels {
  const char *name; /* "portable", "avx2", "avx512" */

  /* y[i] += a x[i] */
  void (*axpy)(int64_t n, real a, const real *x, real *y);
  /* y[i] += x[i] */
  void (*add)(int64_t n, const real *x, real *y);
  real (*dot)(int64_t n, const real *x, const real *y);
  double (*sum_squares)(int64_t n, const real *x); /* accumulated in double lanes */

  /* z[i] += bias[i] (bias may be NULL); y[i] = gelu(z[i]). Exact: z Phi(z). Tanh: 0.5 z (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))). y may be
   * z. */
  void (*bias_gelu)(int64_t n, const real *bias, real *z, real *y);
  void (*bias_gelu_tanh)(int64_t n, const real *bias, real *z, real *y);
  /* dz[i] = dy[i] gelu'(z[i]); dz may be dy */
  void (*gelu_backward)(int64_t n, const real *z, const real *dy, real *dz);
  void (*gelu_tanh_backward)(int64_t n, const real *z, const real *dy, real *dz);

  /* y[i] = silu(gate[i]) up[i], silu(z) = z sigmoid(z); y may be either input */
  void (*swiglu)(int64_t n, const real *gate, const real *up, real *y);
  /* dgate[i] = dy[i] up[i] silu'(gate[i]), dgate may be dy; dup[i] += dy[i] silu(gate[i]), dup may be NULL */
  void (*swiglu_backward)(int64_t n, const real *gate, const real *up, const real *dy, real *dgate, real *dup);

  /* Turns the pairs (x[i], x[i + half]), i < half, by the angle of cosine[i] and sine[i]: to the left (direction 1) or back (-1). y may be
   * x; both have 2 half numbers. */
  void (*rotate)(int64_t half, real direction, const real *cosine, const real *sine, const real *x, real *y);

  /* y = (x - mean) rstd weight + bias; mean and rstd (one number each) are kept for backward. eps inside the root. */
  void (*layer_norm)(int64_t n, const real *x, const real *weight, const real *bias, real eps, real *y, real *mean, real *rstd);
  /* dx[i] += ...; dweight[i] += dy[i] xhat[i]; dbias[i] += dy[i]; any of dx, dweight, dbias may be NULL */
  void (*layer_norm_backward)(int64_t n, const real *x, const real *weight, real mean, real rstd, const real *dy, real *dx, real *dweight,
                              real *dbias);
  /* y = x rstd weight, rstd = 1 / sqrt(mean(x^2) + eps) */
  void (*rms_norm)(int64_t n, const real *x, const real *weight, real eps, real *y, real *rstd);
  void (*rms_norm_backward)(int64_t n, const real *x, const real *weight, real rstd, const real *dy, real *dx, real *dweight);

  /* In place: p[i] = exp(scale s[i] - m) / sum with m = max(scale s); returns log-sum-exp of scale s. n >= 1. */
  real (*softmax)(int64_t n, real scale, real *s);
  /* Some columns of a softmax over more columns than are held at once: s [rows, n], rows `stride` apart, in place. With
   * M = max(max[r], max_i scale s[r, i]): s[r, i] = exp(scale s[r, i] - M), factor[r] = exp(max[r] - M), by which what was made of earlier
   * columns must be multiplied, sum[r] = factor[r] sum[r] + sum_i s[r, i], max[r] = M. Begins with max -infinity and sum 0; a row's first
   * columns hold a finite number; scale > 0. Log-sum-exp is max + log(sum). */
  void (*softmax_tile)(int64_t rows, int64_t n, int64_t stride, real scale, real *s, real *max, real *sum, real *factor);
  /* The same columns again, from log-sum-exps, and their gradient: p = exp(scale s[r, i] - lse[r]) in place of s, scale p (dp[r, i] -
   * dot[r]) in place of dp, which is the gradient of unscaled s where dot[r] = sum_i p dp over all columns. */
  void (*softmax_tile_backward)(int64_t rows, int64_t n, int64_t stride, real scale, const real *lse, const real *dot, real *s, real *dp);
  /* x[r, i] *= factor[r], rows of n numbers `stride` apart */
  void (*scale_rows)(int64_t rows, int64_t n, int64_t stride, const real *factor, real *x);

  /* C [m, n] = op(A) op(B), added to C or not, of small matrices; m, n, k >= 1. Strides as in matmul. Called through matmul_small, which
   * counts it, or by who counts it itself. */
  void (*product)(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const real *a, int64_t lda, const real *b,
                  int64_t ldb, bool add, real *c, int64_t ldc);

  /* The same of matrices in bf16, with sums in full and C in full. Where the processor multiplies bf16, that of kernels_native is faster.
   */
  ProductBf16 *product_bf16;

  /* Index of the smallest half_norm[i] - s[i]; the lowest index among equals. *best is the value found. n >= 1.
   * (Nearest codeword: |x - e|^2 / 2 = |x|^2 / 2 + (|e|^2 / 2 - x.e).) */
  int32_t (*nearest)(int64_t n, const real *half_norm, const real *s, real *best);

  /* The same with the scores s = x . e computed as needed and never stored: codes[r stride] = index of the word nearest to row r of
   * x [rows, d] (rows `ldx` apart); words [k, d], 1 <= d <= NEAREST_MAX_WIDTH, half_norm [k]. The caller counts it as a product. */
  void (*nearest_words)(int64_t rows, int64_t k, int64_t d, const real *x, int64_t ldx, const real *words, const real *half_norm,
                        int32_t *codes, int64_t stride);

  /* Of lists of codewords; item i's vector of x, y or out is `step` numbers behind that of item i - 1. */
  /* out = words */
  void (*words_copy)(const WordList *list, real *out, int64_t step);
  /* sum |x - word|^2 over all items, of differences and in double: never negative, 0 where they are equal */
  double (*words_distance)(const WordList *list, const real *x, int64_t step);
  /* y += factor (x - word) */
  void (*words_pull)(const WordList *list, real factor, const real *x, int64_t step, real *y);
  /* sums += gain x for the sums of each item's codeword, which lie as words do; in the order of items. words is not read. */
  void (*words_add)(const WordList *list, real gain, const real *x, int64_t step, real *sums);

  /* The same sums += x in double. */
  void (*words_sum)(const WordList *list, const real *x, int64_t step, double *sums);
  /* out[g d + i] = scale (mean[g d + i] + sum_j columns[g, j, i] x[g d + j]), j <= i: lower triangles [groups, d, d], kept by columns
   * with zeros above the diagonal, times the groups of one row. d <= TRIANGLE_MAX_WIDTH. */
  void (*triangles)(int64_t groups, int64_t d, real scale, const real *mean, const real *columns, const real *x, real *out);

  /* What each of `count` points [count, d] would make of the squared distances of n samples, kept as columns [d, n], to the nearest point
   * so far: nearer[c, i] = min(distances[i], sum_j (columns[j, i] - points[c, j])^2), sums[c] = sum_i nearer[c, i]; rows of nearer are
   * `stride` apart. Differences, not products: a sample equal to a point is at distance 0. n is a multiple of NEARER_LANES. */
  void (*nearer)(int64_t n, int64_t d, const real *columns, int64_t count, const real *points, const real *distances, real *nearer,
                 int64_t stride, double *sums);

  /* 16-bit numbers (`kind` is not NARROW_NONE), widened in registers. Through matmul_narrow, which counts the products. */
  /* y[i] = x[i] */
  void (*widen)(NarrowKind kind, int64_t n, const uint16_t *x, real *y);
  /* y[i] = x[i] as bf16, rounded to nearest, ties to even; a NaN stays a NaN */
  void (*narrow)(int64_t n, const real *x, uint16_t *y);
  /* the same as halves; returns whether all of them are finite (beyond 65,520 none is) */
  bool (*narrow_half)(int64_t n, const real *x, uint16_t *y);
  /* y[r] += sum_i w[r, i] x[i] over w [rows, n], `stride` numbers from row to row: a matrix times a vector */
  void (*narrow_dots)(NarrowKind kind, int64_t rows, int64_t n, const uint16_t *w, int64_t stride, const real *x, real *y);
  /* y[i] += sum_r x[r] w[r, i]: the transposed matrix times a vector */
  void (*narrow_sums)(NarrowKind kind, int64_t rows, int64_t n, const uint16_t *w, int64_t stride, const real *x, real *y);

  /* One AdamW step on n numbers. */
  void (*adamw)(int64_t n, real *w, const real *grad, real *m, real *v, const AdamwStep *step);

  /* The same with moments in bfloat16. m is rounded to nearest. v is rounded up or down at random, by its distance to both neighbours: a
   * step moves it by 1 - b2 of itself, less than half of a bfloat's last bit, and to nearest it would never move. The draws are a
   * function of (seed, counter) and of a number's index, as those of `normal`. */
  void (*adamw_bf16)(int64_t n, real *w, const real *grad, uint16_t *m, uint16_t *v, const AdamwStep *step, uint64_t counter);

  /* The same with moments in 8 bits, in blocks of ADAMW_BLOCK numbers from the first (Dettmers et al., 2022, "8-bit optimizers via
   * block-wise quantization"): m = sign(c - 128) ((c - 128) / 127)^4 m_scale of the block, v = (c / 255)^4 v_scale. The fourth power
   * replaces their table: it is as fine for small numbers (steps of 1.6% of v at the largest, of 16% at 1e-4 of it) without jumps, and
   * two square roots find the code. v is rounded at random, as above, and never to 0. A new moment has all scales 0. */
  void (*adamw_bytes)(int64_t n, real *w, const real *grad, uint8_t *m, uint8_t *v, float *m_scale, float *v_scale, const AdamwStep *step,
                      uint64_t counter);

  /* n standard normal numbers, a function only of (seed, first index): block `counter` and following of a counter-based generator
   * (Philox4x32-10; 4 numbers a counter value), so that any partition over threads gives the same numbers. Tables of different names
   * draw the same random bits and differ in rounding only. */
  void (*normal)(int64_t n, uint64_t seed, uint64_t counter, real *x);
} Kernels;

/* The table for this machine. Chosen on the first call (thread-safe); ASTRA_KERNELS=portable|avx2|avx512 in the environment chooses, where
 * that table exists. */
const Kernels *kernels(void);

/* Loops in instructions (bf16, VNNI) that only some processors of the fastest table have; chosen with that table, on the first call. */
typedef struct NativeKernels {
  ProductBf16 *product_bf16; /* sums are rounded in another order than the table's, which stands here where there is no other */
  ProductPacked *product_packed, *product_packed_bf16; /* of floats, of bf16; or NULL */
  const NearestPacked *nearest_packed;                 /* or NULL */
} NativeKernels;
const NativeKernels *kernels_native(void);

/* What programs ask at start. BAD_USAGE when ASTRA_KERNELS names a table that this machine or build lacks. Otherwise `warning` [size]
 * says where the environment (ASTRA_KERNELS, OPENBLAS_CORETYPE) forces slower kernels than this processor can run, and is "" where it does
 * not. blas_core: the kernels that BLAS runs with (matmul_core). */
Status kernels_check(const char *blas_core, char *warning, size_t size);

/* What programs ask where BLAS multiplies floats (matmul_backend) and could run with other kernels (matmul_core_is_picked). An OpenBLAS
 * that is older than the processor picks kernels without AVX: `warning` [size] says what to set instead. It is "" where blas_core
 * (matmul_core) is none of these, or was asked for. */
void kernels_check_core(const char *blas_core, char *warning, size_t size);

/* The table of one name, or NULL where the CPU or the build lacks it: for tests and benchmarks. */
const Kernels *kernels_named(const char *name);

#endif
