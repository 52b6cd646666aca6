/* The kernels on vectors of floats, written once and compiled for each instruction set by kernels_avx2.c and kernels_avx512.c, which define
 * before including this:
 *
 *   VECTOR_NAME, VECTOR_WIDTH (floats), types Vector (floats), Words (uint32_t), Integers (int32_t), Doubles (half as many), Mask
 *   v_load(p, left), v_store(p, v, left)   the first `left` <= WIDTH lanes; loading zeroes the others
 *   v_load_half(p, left), v_load_bfloat    the same from 16-bit numbers
 *   v_store_bfloat(p, v, left)             v as bf16, rounded to nearest even
 *   v_store_half(p, v, left)               v as halves, likewise
 *   v_load_bytes(p), v_store_bytes(p, v)   whole numbers from 0 to 255, all lanes
 *   v_fill(v, left, fill)                  replaces the lanes from `left` on
 *   v_set, v_fma (a b + c), v_max, v_min (NaN in the second argument passes), v_sqrt, v_round (to even), v_scale(a, n) = a 2^n
 *   v_less -> Mask, v_select(mask, then, otherwise), v_select_integers, v_to_float, v_low, v_high -> Doubles
 *   v_sum, v_reduce_max (over lanes), v_multiply_wide(words, factor, &high, &low), v_transpose_4x4(v[4]) within 128-bit lanes
 *
 * Operators + - * / on vectors (and on a vector and a number) are the compiler's. Every kernel is bound by memory or by the arithmetic
 * units, not by the loop: a row's tail runs through the same code with masks. */
#ifndef AUTOGRAD_KERNELS_VECTOR_H
#define AUTOGRAD_KERNELS_VECTOR_H
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
/* These want the includes above. */
#include "autograd/kernels/vector_adamw.h"
#include "autograd/kernels/vector_math.h"
#include "autograd/kernels/vector_product.h"
#include "autograd/kernels/vector_words.h"

#define SQRT_2_OVER_PI    0.79788456080286535588f
#define INVERSE_SQRT_2_PI 0.39894228040143267794f
#define TANH_CUBIC        0.044715f
#define GELU_FLAT         1e3f /* beyond it the slope is 0 or 1, and squares of larger numbers may be infinite */
#define LOG2_E            1.44269504088896341f

static void vector_axpy(int64_t n, float a, const float *x, float *y) {
  const Vector factor = v_set(a);
  EACH_VECTOR(n, v_store(y + i, v_fma(factor, v_load(x + i, left), v_load(y + i, left)), left););
}

static void vector_add(int64_t n, const float *x, float *y) {
  EACH_VECTOR(n, v_store(y + i, v_load(y + i, left) + v_load(x + i, left), left););
}

static float vector_dot(int64_t n, const float *x, const float *y) {
  Vector sum = v_set(0);
  EACH_VECTOR(n, sum = v_fma(v_load(x + i, left), v_load(y + i, left), sum););
  return v_sum(sum);
}

static double vector_sum_squares(int64_t n, const float *x) {
  Doubles low = {0}, high = {0};
  EACH_VECTOR(n, {
    const Vector number = v_load(x + i, left);
    low += v_low(number) * v_low(number);
    high += v_high(number) * v_high(number);
  });
  double sum = 0;
  low += high;
  for (int lane = 0; lane < VECTOR_WIDTH / 2; lane++) sum += low[lane];
  return sum;
}

/* ---- activations ---- */

static inline Vector biased(const float *bias, float *z, int64_t i, int64_t left) {
  Vector number = v_load(z + i, left);
  if (!bias) return number;
  number += v_load(bias + i, left);
  v_store(z + i, number, left);
  return number;
}

static void vector_bias_gelu(int64_t n, const float *bias, float *z, float *y) {
  EACH_VECTOR(n, {
    Vector exponential;
    const Vector number = biased(bias, z, i, left);
    v_store(y + i, number * v_normal_cdf(number, &exponential), left);
  });
}

/* (1 + tanh u) / 2 = sigmoid(2 u): this is 2 u. */
static inline Vector tanh_argument(Vector z) { return z * v_fma(z * z, v_set(2 * SQRT_2_OVER_PI * TANH_CUBIC), v_set(2 * SQRT_2_OVER_PI)); }

static void vector_bias_gelu_tanh(int64_t n, const float *bias, float *z, float *y) {
  EACH_VECTOR(n, {
    Vector unused;
    const Vector number = biased(bias, z, i, left);
    v_store(y + i, number * v_sigmoid(tanh_argument(number), &unused), left);
  });
}

static void vector_gelu_backward(int64_t n, const float *z, const float *dy, float *dz) {
  EACH_VECTOR(n, {
    Vector exponential;
    const Vector number = v_load(z + i, left);
    const Vector cdf = v_normal_cdf(number, &exponential);
    v_store(dz + i, v_load(dy + i, left) * v_fma(number * INVERSE_SQRT_2_PI, exponential, cdf), left);
  });
}

static void vector_gelu_tanh_backward(int64_t n, const float *z, const float *dy, float *dz) {
  EACH_VECTOR(n, {
    Vector steepness;
    const Vector number = v_min(v_set(GELU_FLAT), v_max(v_set(-GELU_FLAT), v_load(z + i, left))); /* both keep a NaN on the right */
    const Vector s = v_sigmoid(tanh_argument(number), &steepness);
    const Vector slope = v_fma(number * number, v_set(6 * SQRT_2_OVER_PI * TANH_CUBIC), v_set(2 * SQRT_2_OVER_PI));
    v_store(dz + i, v_load(dy + i, left) * v_fma(number * steepness, slope, s), left);
  });
}

static void vector_swiglu(int64_t n, const float *gate, const float *up, float *y) {
  EACH_VECTOR(n, {
    Vector unused;
    const Vector z = v_load(gate + i, left);
    v_store(y + i, z * v_sigmoid(z, &unused) * v_load(up + i, left), left);
  });
}

/* silu'(z) = s + z s (1 - s), s = sigmoid(z) */
static void vector_swiglu_backward(int64_t n, const float *gate, const float *up, const float *dy, float *dgate, float *dup) {
  EACH_VECTOR(n, {
    Vector slope;
    const Vector z = v_load(gate + i, left);
    const Vector d = v_load(dy + i, left);
    const Vector s = v_sigmoid(z, &slope);
    if (dup) v_store(dup + i, v_fma(d, z * s, v_load(dup + i, left)), left);
    v_store(dgate + i, d * v_load(up + i, left) * v_fma(z, slope, s), left);
  });
}

static void vector_rotate(int64_t half, float direction, const float *cosine, const float *sine, const float *x, float *y) {
  EACH_VECTOR(half, {
    const Vector a = v_load(x + i, left);
    const Vector b = v_load(x + half + i, left);
    const Vector c = v_load(cosine + i, left);
    const Vector s = v_load(sine + i, left) * direction;
    v_store(y + i, a * c - b * s, left);
    v_store(y + half + i, v_fma(a, s, b * c), left);
  });
}

/* ---- norms ---- */

/* Of rows whose squares are beyond a float, in double as the portable loops have it: mean (or NULL for 0) and 1 / deviation. */
static __attribute__((noinline)) void vector_large_moments(int64_t n, const float *x, float eps, float *mean, float *rstd) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; mean && i < n; i++) sum += (double)x[i];
  for (int64_t i = 0; i < n; i++) squares += ((double)x[i] - sum / (double)n) * ((double)x[i] - sum / (double)n);
  if (mean) *mean = (float)(sum / (double)n);
  *rstd = (float)(1 / sqrt(squares / (double)n + (double)eps));
}

static void vector_layer_norm(int64_t n, const float *x, const float *weight, const float *bias, float eps, float *y, float *mean,
                              float *rstd) {
  Vector sum = v_set(0), rest = v_set(0), squares = v_set(0);
  EACH_VECTOR(n, sum += v_load(x + i, left););
  const float rough = v_sum(sum) / (float)n; /* a sum of floats: by as much as it is wrong, numbers apart from it do not add up to 0 */
  const Vector average = v_set(rough);
  EACH_VECTOR(n, {
    const Vector apart = v_fill(v_load(x + i, left) - average, left, 0);
    rest += apart;
    squares = v_fma(apart, apart, squares);
  });
  const float wrong = v_sum(rest) / (float)n, variance = v_sum(squares) / (float)n - wrong * wrong;
  *mean = rough + wrong;
  *rstd = 1.0f / sqrtf((variance < 0 ? 0 : variance) + eps); /* a NaN stays one */
  if (!(*rstd > 0)) vector_large_moments(n, x, eps, mean, rstd);
  const Vector centre = v_set(*mean), factor = v_set(*rstd);
  EACH_VECTOR(n, {
    const Vector xhat = (v_load(x + i, left) - centre) * factor;
    v_store(y + i, v_fma(xhat, v_load(weight + i, left), v_load(bias + i, left)), left);
  });
}

/* With g = dy weight: dx = rstd (g - mean(g) - xhat mean(g xhat)). */
static void vector_layer_norm_backward(int64_t n, const float *x, const float *weight, float mean, float rstd, const float *dy, float *dx,
                                       float *dweight, float *dbias) {
  const Vector average = v_set(mean), factor = v_set(rstd);
  Vector sum = v_set(0), sum_xhat = v_set(0);
  EACH_VECTOR(n, {
    const Vector xhat = (v_load(x + i, left) - average) * factor;
    const Vector dout = v_load(dy + i, left);
    const Vector g = dout * v_load(weight + i, left); /* 0 beyond the tail */
    sum += g;
    sum_xhat = v_fma(g, xhat, sum_xhat);
    if (dweight) v_store(dweight + i, v_fma(dout, xhat, v_load(dweight + i, left)), left);
    if (dbias) v_store(dbias + i, v_load(dbias + i, left) + dout, left);
  });
  if (!dx) return;
  const Vector mean_g = v_set(v_sum(sum) / (float)n), mean_g_xhat = v_set(v_sum(sum_xhat) / (float)n);
  EACH_VECTOR(n, {
    const Vector xhat = (v_load(x + i, left) - average) * factor;
    const Vector g = v_load(dy + i, left) * v_load(weight + i, left);
    v_store(dx + i, v_fma(factor, g - mean_g - xhat * mean_g_xhat, v_load(dx + i, left)), left);
  });
}

static void vector_rms_norm(int64_t n, const float *x, const float *weight, float eps, float *y, float *rstd) {
  *rstd = 1.0f / sqrtf(vector_dot(n, x, x) / (float)n + eps);
  if (!(*rstd > 0)) vector_large_moments(n, x, eps, NULL, rstd);
  const Vector factor = v_set(*rstd);
  EACH_VECTOR(n, v_store(y + i, v_load(x + i, left) * factor * v_load(weight + i, left), left););
}

static void vector_rms_norm_backward(int64_t n, const float *x, const float *weight, float rstd, const float *dy, float *dx,
                                     float *dweight) {
  const Vector factor = v_set(rstd);
  Vector sum_xhat = v_set(0);
  EACH_VECTOR(n, {
    const Vector xhat = v_load(x + i, left) * factor;
    const Vector dout = v_load(dy + i, left);
    sum_xhat = v_fma(dout * v_load(weight + i, left), xhat, sum_xhat);
    if (dweight) v_store(dweight + i, v_fma(dout, xhat, v_load(dweight + i, left)), left);
  });
  if (!dx) return;
  const Vector mean_g_xhat = v_set(v_sum(sum_xhat) / (float)n);
  EACH_VECTOR(n, {
    const Vector xhat = v_load(x + i, left) * factor;
    const Vector g = v_load(dy + i, left) * v_load(weight + i, left);
    v_store(dx + i, v_fma(factor, g - xhat * mean_g_xhat, v_load(dx + i, left)), left);
  });
}

/* ---- softmax ---- */

static float vector_softmax(int64_t n, float scale, float *s) {
  Vector max = v_set(-INFINITY), sum = v_set(0);
  EACH_VECTOR(n, max = v_max(max, v_fill(v_load(s + i, left) * scale, left, -INFINITY)););
  const float highest = v_reduce_max(max);
  EACH_VECTOR(n, {
    const Vector p = v_exp(v_load(s + i, left) * scale - highest);
    v_store(s + i, p, left);
    sum += v_fill(p, left, 0);
  });
  const float total = v_sum(sum), inverse = 1.0f / total;
  EACH_VECTOR(n, v_store(s + i, v_load(s + i, left) * inverse, left););
  return highest + logf(total);
}

/* In powers of two. scale s is rounded before M is taken off (two statements, which no compiler fuses), as M was: in one multiply-add the
 * largest of scores beyond 1e9 would come out far from exp 0. */
static inline float softmax_row(int64_t n, float scale, float highest, float *s) {
  Vector sum = v_set(0);
  EACH_VECTOR(n, {
    const Vector scaled = v_load(s + i, left) * scale;
    const Vector p = v_exp2((scaled - highest) * LOG2_E);
    v_store(s + i, p, left);
    sum += v_fill(p, left, 0);
  });
  return v_sum(sum);
}

static void vector_softmax_tile(int64_t rows, int64_t n, int64_t stride, float scale, float *s, float *max, float *sum, float *factor) {
  for (int64_t r = 0; r < rows; r++) {
    float *row = s + r * stride;
    Vector peak = v_set(-INFINITY);
    EACH_VECTOR(n, peak = v_max(peak, v_fill(v_load(row + i, left), left, -INFINITY)););
    const float here = scale * v_reduce_max(peak), highest = here > max[r] ? here : max[r];
    factor[r] = highest == max[r] ? 1.0f : isinf(max[r]) ? 0.0f : expf(max[r] - highest);
    sum[r] = factor[r] * sum[r] + softmax_row(n, scale, highest, row);
    max[r] = highest;
  }
}

static void vector_softmax_tile_backward(int64_t rows, int64_t n, int64_t stride, float scale, const float *lse, const float *dot, float *s,
                                         float *dp) {
  const Vector scales = v_set(scale);
  for (int64_t r = 0; r < rows; r++) {
    float *row = s + r * stride, *grad = dp + r * stride;
    const Vector less = v_set(dot[r]);
    EACH_VECTOR(n, {
      const Vector scaled = v_load(row + i, left) * scale;
      const Vector p = v_exp2((scaled - lse[r]) * LOG2_E);
      v_store(row + i, p, left);
      v_store(grad + i, p * scales * (v_load(grad + i, left) - less), left);
    });
  }
}

static void vector_scale_rows(int64_t rows, int64_t n, int64_t stride, const float *factor, float *x) {
  for (int64_t r = 0; r < rows; r++) {
    float *row = x + r * stride;
    const Vector factors = v_set(factor[r]);
    EACH_VECTOR(n, v_store(row + i, v_load(row + i, left) * factors, left););
  }
}

/* ---- search ---- */

/* Each lane keeps its best and the vector that held it; a later equal value never replaces an earlier one. */
static int32_t vector_nearest(int64_t n, const float *half_norm, const float *s, float *best) {
  Vector min = v_set(INFINITY);
  Integers found = {0}, step = {0};
  EACH_VECTOR(n, {
    const Vector value = v_fill(v_load(half_norm + i, left) - v_load(s + i, left), left, INFINITY);
    const Mask less = v_less(value, min);
    min = v_min(value, min); /* not by the mask: a shorter chain from one step to the next */
    found = v_select_integers(less, step, found);
    step += 1;
  });
  float lowest = INFINITY;
  int32_t index = 0;
  for (int lane = 0; lane < VECTOR_WIDTH; lane++) {
    const int32_t at = found[lane] * VECTOR_WIDTH + lane;
    if (min[lane] < lowest || (min[lane] == lowest && lowest < INFINITY && at < index)) {
      lowest = min[lane];
      index = at;
    }
  }
  *best = lowest;
  return index;
}

static const Kernels vector_table = {
    .name = VECTOR_NAME,
    .axpy = vector_axpy,
    .add = vector_add,
    .dot = vector_dot,
    .sum_squares = vector_sum_squares,
    .bias_gelu = vector_bias_gelu,
    .bias_gelu_tanh = vector_bias_gelu_tanh,
    .gelu_backward = vector_gelu_backward,
    .gelu_tanh_backward = vector_gelu_tanh_backward,
    .swiglu = vector_swiglu,
    .swiglu_backward = vector_swiglu_backward,
    .rotate = vector_rotate,
    .layer_norm = vector_layer_norm,
    .layer_norm_backward = vector_layer_norm_backward,
    .rms_norm = vector_rms_norm,
    .rms_norm_backward = vector_rms_norm_backward,
    .softmax = vector_softmax,
    .softmax_tile = vector_softmax_tile,
    .softmax_tile_backward = vector_softmax_tile_backward,
    .scale_rows = vector_scale_rows,
    .product = vector_product,
    .product_bf16 = vector_product_bf16,
    .nearest = vector_nearest,
    .nearest_words = vector_nearest_words,
    .words_copy = vector_words_copy,
    .words_distance = vector_words_distance,
    .words_pull = vector_words_pull,
    .words_add = vector_words_add,
    .words_sum = vector_words_sum,
    .triangles = vector_triangles,
    .nearer = vector_nearer,
    .widen = vector_widen,
    .narrow = vector_narrow,
    .narrow_half = vector_narrow_half,
    .narrow_dots = vector_narrow_dots,
    .narrow_sums = vector_narrow_sums,
    .adamw = vector_adamw,
    .adamw_bf16 = vector_adamw_bf16,
    .adamw_bytes = vector_adamw_bytes,
    .normal = vector_normal,
};

#endif
