/* The kernels as plain scalar loops with libm, for any CPU and for double builds: the oracle of the vector ones, and readable first.
 * Sums run in double. */
#include "autograd/kernels/kernels_tables.h"
#include "autograd/kernels/philox.h"
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <tgmath.h>

#define SQRT_HALF         ((real)0.70710678118654752440)
#define SQRT_2_OVER_PI    ((real)0.79788456080286535588)
#define INVERSE_SQRT_2_PI ((real)0.39894228040143267794)
#define TANH_CUBIC        ((real)0.044715)
#define GELU_FLAT         ((real)1e3) /* beyond it the slope is 0 or 1, and squares of larger numbers may be infinite */

static void add_scaled(int64_t n, real a, const real *x, real *y) {
  for (int64_t i = 0; i < n; i++) y[i] += a * x[i];
}

static void add(int64_t n, const real *x, real *y) {
  for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

static real dot(int64_t n, const real *x, const real *y) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)y[i];
  return (real)sum;
}

static double sum_squares(int64_t n, const real *x) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
  return sum;
}

/* Phi(z) through erfc, which keeps its relative precision in the negative tail. */
static real normal_cdf(real z) { return (real)0.5 * erfc(-z * SQRT_HALF); }

static real tanh_argument(real z) { return SQRT_2_OVER_PI * (z + TANH_CUBIC * z * z * z); }

static void add_bias(int64_t n, const real *bias, real *z) {
  if (bias) add(n, bias, z);
}

static void bias_gelu(int64_t n, const real *bias, real *z, real *y) {
  add_bias(n, bias, z);
  for (int64_t i = 0; i < n; i++) y[i] = z[i] * normal_cdf(z[i]);
}

static void bias_gelu_tanh(int64_t n, const real *bias, real *z, real *y) {
  add_bias(n, bias, z);
  for (int64_t i = 0; i < n; i++) y[i] = (real)0.5 * z[i] * (1 + tanh(tanh_argument(z[i])));
}

static void gelu_backward(int64_t n, const real *z, const real *dy, real *dz) {
  for (int64_t i = 0; i < n; i++) {
    const real density = INVERSE_SQRT_2_PI * exp((real)-0.5 * z[i] * z[i]);
    dz[i] = dy[i] * (normal_cdf(z[i]) + z[i] * density);
  }
}

static void gelu_tanh_backward(int64_t n, const real *z, const real *dy, real *dz) {
  for (int64_t i = 0; i < n; i++) {
    const real x = z[i] < -GELU_FLAT ? -GELU_FLAT : z[i] > GELU_FLAT ? GELU_FLAT : z[i]; /* a NaN stays one */
    const real t = tanh(tanh_argument(x));
    const real slope = SQRT_2_OVER_PI * (1 + 3 * TANH_CUBIC * x * x);
    dz[i] = dy[i] * (real)0.5 * (1 + t + x * (1 - t * t) * slope);
  }
}

static real sigmoid(real z) { return 1 / (1 + exp(-z)); }

static void swiglu(int64_t n, const real *gate, const real *up, real *y) {
  for (int64_t i = 0; i < n; i++) y[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

/* silu'(z) = s (1 + z (1 - s)), s = sigmoid(z) and 1 - s = sigmoid(-z) */
static void swiglu_backward(int64_t n, const real *gate, const real *up, const real *dy, real *dgate, real *dup) {
  for (int64_t i = 0; i < n; i++) {
    const real z = gate[i], s = sigmoid(z), d = dy[i];
    if (dup) dup[i] += d * z * s;
    dgate[i] = d * up[i] * s * (1 + z * sigmoid(-z));
  }
}

static void rotate(int64_t half, real direction, const real *cosine, const real *sine, const real *x, real *y) {
  for (int64_t i = 0; i < half; i++) {
    const real a = x[i], b = x[i + half], s = direction * sine[i];
    y[i] = a * cosine[i] - b * s;
    y[i + half] = b * cosine[i] + a * s;
  }
}

static void layer_norm(int64_t n, const real *x, const real *weight, const real *bias, real eps, real *y, real *mean, real *rstd) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < n; i++) sum += (double)x[i];
  const double average = sum / (double)n;
  for (int64_t i = 0; i < n; i++) squares += ((double)x[i] - average) * ((double)x[i] - average);
  *mean = (real)average;
  *rstd = (real)(1 / sqrt(squares / (double)n + (double)eps));
  for (int64_t i = 0; i < n; i++) y[i] = (x[i] - *mean) * *rstd * weight[i] + bias[i];
}

/* With g = dy weight: dx = rstd (g - mean(g) - xhat mean(g xhat)). */
static void layer_norm_backward(int64_t n, const real *x, const real *weight, real mean, real rstd, const real *dy, real *dx, real *dweight,
                                real *dbias) {
  double sum = 0, sum_xhat = 0;
  for (int64_t i = 0; i < n; i++) {
    const real xhat = (x[i] - mean) * rstd;
    sum += (double)(dy[i] * weight[i]);
    sum_xhat += (double)(dy[i] * weight[i] * xhat);
    if (dweight) dweight[i] += dy[i] * xhat;
    if (dbias) dbias[i] += dy[i];
  }
  if (!dx) return;
  const real mean_g = (real)(sum / (double)n), mean_g_xhat = (real)(sum_xhat / (double)n);
  for (int64_t i = 0; i < n; i++) dx[i] += rstd * (dy[i] * weight[i] - mean_g - (x[i] - mean) * rstd * mean_g_xhat);
}

static void rms_norm(int64_t n, const real *x, const real *weight, real eps, real *y, real *rstd) {
  *rstd = (real)(1 / sqrt(sum_squares(n, x) / (double)n + (double)eps));
  for (int64_t i = 0; i < n; i++) y[i] = x[i] * *rstd * weight[i];
}

/* As above, without the mean. */
static void rms_norm_backward(int64_t n, const real *x, const real *weight, real rstd, const real *dy, real *dx, real *dweight) {
  double sum_xhat = 0;
  for (int64_t i = 0; i < n; i++) {
    const real xhat = x[i] * rstd;
    sum_xhat += (double)(dy[i] * weight[i] * xhat);
    if (dweight) dweight[i] += dy[i] * xhat;
  }
  if (!dx) return;
  const real mean_g_xhat = (real)(sum_xhat / (double)n);
  for (int64_t i = 0; i < n; i++) dx[i] += rstd * (dy[i] * weight[i] - x[i] * rstd * mean_g_xhat);
}

static real softmax(int64_t n, real scale, real *s) {
  real max = scale * s[0];
  for (int64_t i = 1; i < n; i++) max = scale * s[i] > max ? scale * s[i] : max;
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    s[i] = exp(scale * s[i] - max);
    sum += (double)s[i];
  }
  const real inverse = (real)(1 / sum);
  for (int64_t i = 0; i < n; i++) s[i] *= inverse;
  return max + (real)log(sum);
}

static void softmax_tile(int64_t rows, int64_t n, int64_t stride, real scale, real *s, real *max, real *sum, real *factor) {
  for (int64_t r = 0; r < rows; r++) {
    real *row = s + r * stride, highest = max[r];
    for (int64_t i = 0; i < n; i++) highest = scale * row[i] > highest ? scale * row[i] : highest;
    double total = 0;
    for (int64_t i = 0; i < n; i++) {
      row[i] = exp(scale * row[i] - highest);
      total += (double)row[i];
    }
    factor[r] = exp(max[r] - highest);
    sum[r] = factor[r] * sum[r] + (real)total;
    max[r] = highest;
  }
}

static void softmax_tile_backward(int64_t rows, int64_t n, int64_t stride, real scale, const real *lse, const real *dot_of_row, real *s,
                                  real *dp) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = r * stride; i < r * stride + n; i++) {
      s[i] = exp(scale * s[i] - lse[r]);
      dp[i] = scale * s[i] * (dp[i] - dot_of_row[r]);
    }
}

static void scale_rows(int64_t rows, int64_t n, int64_t stride, const real *factor, real *x) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < n; i++) x[r * stride + i] *= factor[r];
}

static void product(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const real *a, int64_t lda, const real *b,
                    int64_t ldb, bool adding, real *c, int64_t ldc) {
  for (int64_t r = 0; r < m; r++) {
    if (!adding) memset(c + r * ldc, 0, (size_t)n * sizeof *c);
    for (int64_t i = 0; i < k; i++) {
      const real x = transpose_a ? a[i * lda + r] : a[r * lda + i];
      for (int64_t j = 0; j < n; j++) c[r * ldc + j] += x * (transpose_b ? b[j * ldb + i] : b[i * ldb + j]);
    }
  }
}

static void product_bf16(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                         const uint16_t *b, int64_t ldb, bool adding, real *c, int64_t ldc) {
  for (int64_t r = 0; r < m; r++)
    for (int64_t j = 0; j < n; j++) {
      double sum = adding ? (double)c[r * ldc + j] : 0;
      for (int64_t i = 0; i < k; i++)
        sum += (double)narrow_bfloat_to_float(transpose_a ? a[i * lda + r] : a[r * lda + i]) *
               (double)narrow_bfloat_to_float(transpose_b ? b[j * ldb + i] : b[i * ldb + j]);
      c[r * ldc + j] = (real)sum;
    }
}

static int32_t nearest(int64_t n, const real *half_norm, const real *s, real *best) {
  real min = (real)INFINITY;
  int32_t index = 0;
  for (int64_t i = 0; i < n; i++) {
    const real value = half_norm[i] - s[i];
    if (value < min) {
      min = value;
      index = (int32_t)i;
    }
  }
  *best = min;
  return index;
}

static void nearest_words(int64_t rows, int64_t k, int64_t d, const real *x, int64_t ldx, const real *words, const real *half_norm,
                          int32_t *codes, int64_t stride) {
  for (int64_t r = 0; r < rows; r++) {
    real min = INFINITY;
    codes[r * stride] = 0;
    for (int64_t j = 0; j < k; j++) {
      const real value = half_norm[j] - dot(d, x + r * ldx, words + j * d);
      if (!(value < min)) continue;
      min = value;
      codes[r * stride] = (int32_t)j;
    }
  }
}

static void nearer(int64_t n, int64_t d, const real *columns, int64_t count, const real *points, const real *distances, real *nearest_yet,
                   int64_t stride, double *sums) {
  for (int64_t c = 0; c < count; c++) {
    sums[c] = 0;
    for (int64_t first = 0; first < n; first += NEARER_LANES) {
      real found[NEARER_LANES] = {0};
      for (int64_t j = 0; j < d; j++)
        for (int64_t i = 0; i < NEARER_LANES; i++) {
          const real difference = columns[j * n + first + i] - points[c * d + j];
          found[i] += difference * difference;
        }
      for (int64_t i = 0; i < NEARER_LANES; i++) {
        const real distance = distances[first + i];
        nearest_yet[c * stride + first + i] = found[i] < distance ? found[i] : distance;
        sums[c] += (double)nearest_yet[c * stride + first + i];
      }
    }
  }
}

static int64_t word_at(const WordList *list, int64_t item) {
  return item * list->word_step + list->codes[item * list->code_step] * list->d;
}

static void words_copy(const WordList *list, real *out, int64_t step) {
  for (int64_t item = 0; item < list->count; item++)
    memcpy(out + item * step, list->words + word_at(list, item), (size_t)list->n * sizeof *out);
}

static double words_distance(const WordList *list, const real *x, int64_t step) {
  double sum = 0;
  for (int64_t item = 0; item < list->count; item++)
    for (int64_t i = 0; i < list->n; i++) {
      const double difference = (double)x[item * step + i] - (double)list->words[word_at(list, item) + i];
      sum += difference * difference;
    }
  return sum;
}

static void words_pull(const WordList *list, real factor, const real *x, int64_t step, real *y) {
  for (int64_t item = 0; item < list->count; item++)
    for (int64_t i = 0; i < list->n; i++) y[item * step + i] += factor * (x[item * step + i] - list->words[word_at(list, item) + i]);
}

static void words_add(const WordList *list, real gain, const real *x, int64_t step, real *sums) {
  for (int64_t item = 0; item < list->count; item++)
    for (int64_t i = 0; i < list->n; i++) sums[word_at(list, item) + i] += gain * x[item * step + i];
}

static void words_sum(const WordList *list, const real *x, int64_t step, double *sums) {
  for (int64_t item = 0; item < list->count; item++)
    for (int64_t i = 0; i < list->n; i++) sums[word_at(list, item) + i] += (double)x[item * step + i];
}

static void triangles(int64_t groups, int64_t d, real scale, const real *mean, const real *columns, const real *x, real *out) {
  for (int64_t g = 0; g < groups; g++)
    for (int64_t i = 0; i < d; i++) {
      real sum = mean[g * d + i];
      for (int64_t j = 0; j <= i; j++) sum += columns[(g * d + j) * d + i] * x[g * d + j];
      out[g * d + i] = scale * sum;
    }
}

static void widen(NarrowKind kind, int64_t n, const uint16_t *x, real *y) {
  for (int64_t i = 0; i < n; i++) y[i] = (real)narrow_to_float(kind, x[i]);
}

static void narrow(int64_t n, const real *x, uint16_t *y) {
  for (int64_t i = 0; i < n; i++) y[i] = narrow_bfloat((float)x[i]);
}

static bool narrow_halves(int64_t n, const real *x, uint16_t *y) {
  unsigned bad = 0;
  for (int64_t i = 0; i < n; i++) {
    y[i] = narrow_half((float)x[i]);
    bad |= (y[i] & 0x7c00u) == 0x7c00u;
  }
  return !bad;
}

static void narrow_dots(NarrowKind kind, int64_t rows, int64_t n, const uint16_t *w, int64_t stride, const real *x, real *y) {
  for (int64_t r = 0; r < rows; r++) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)narrow_to_float(kind, w[r * stride + i]) * (double)x[i];
    y[r] += (real)sum;
  }
}

static void narrow_sums(NarrowKind kind, int64_t rows, int64_t n, const uint16_t *w, int64_t stride, const real *x, real *y) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < n; i++) y[i] += x[r] * (real)narrow_to_float(kind, w[r * stride + i]);
}

static void adamw(int64_t n, real *w, const real *grad, real *m, real *v, const AdamwStep *step) {
  for (int64_t i = 0; i < n; i++) {
    const real g = step->scale * grad[i];
    m[i] = step->b1 * m[i] + (1 - step->b1) * g;
    v[i] = step->b2 * v[i] + (1 - step->b2) * g * g;
    w[i] -= step->rate * (m[i] / step->c1 / (sqrt(v[i] / step->c2) + step->eps) + step->decay * w[i]);
  }
}

/* 16 random bits for each number of a block, the lower half of a word first. */
static void draw_halves(uint64_t seed, uint64_t counter, uint16_t half[ADAMW_BLOCK]) {
  for (int i = 0; i < ADAMW_BLOCK; i += ADAMW_DRAWS, counter++) {
    uint32_t word[PHILOX_WORDS];
    philox(seed, counter, word);
    for (int j = 0; j < ADAMW_DRAWS; j++) half[i + j] = (uint16_t)(word[j / 2] >> (j % 2 == 0 ? 0 : 16));
  }
}

static uint32_t bits_of(real number) {
  const float narrow = (float)number;
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof bits);
  return bits;
}

static void adamw_bf16(int64_t n, real *w, const real *grad, uint16_t *m, uint16_t *v, const AdamwStep *step, uint64_t counter) {
  for (int64_t at = 0; at < n; at += ADAMW_BLOCK, counter += ADAMW_BLOCK / ADAMW_DRAWS) {
    const int64_t count = n - at < ADAMW_BLOCK ? n - at : ADAMW_BLOCK;
    real first[ADAMW_BLOCK], second[ADAMW_BLOCK];
    uint16_t draw[ADAMW_BLOCK];
    widen(NARROW_BF16, count, m + at, first);
    widen(NARROW_BF16, count, v + at, second);
    adamw(count, w + at, grad + at, first, second, step);
    draw_halves(step->seed, counter, draw);
    for (int64_t i = 0; i < count; i++) {
      m[at + i] = narrow_bfloat((float)first[i]);
      v[at + i] = (uint16_t)((bits_of(second[i]) + draw[i]) >> 16);
    }
  }
}

/* A scale below this counts as 0, so that its inverse is a number. */
#define MIN_SCALE ((real)1e-30)

static real largest(const real *x, int64_t n) {
  real max = 0;
  for (int64_t i = 0; i < n; i++) max = fabs(x[i]) > max ? fabs(x[i]) : max;
  return max < MIN_SCALE ? 0 : max;
}

static real fourth_power(real x) { return x * x * (x * x); }

static uint8_t first_to_byte(real share) {
  const real root = rint(127 * sqrt(sqrt(fabs(share))));
  return (uint8_t)(128 + (share < 0 ? -root : root));
}

/* root is between two codes; the upper one is taken with the probability that keeps the mean. */
static uint8_t second_to_byte(real share, uint16_t draw) {
  const real root = 255 * sqrt(sqrt(share)), below = rint(root - (real)0.5);
  const real low = fourth_power(below), high = fourth_power(below + 1);
  const real code = below + (((real)draw + (real)0.5) * (real)0x1p-16 * (high - low) < fourth_power(root) - low ? 1 : 0);
  const real min = share > 0 ? 1 : 0;
  return (uint8_t)(code > 255 ? 255 : code < min ? min : code);
}

static void adamw_bytes(int64_t n, real *w, const real *grad, uint8_t *m, uint8_t *v, float *m_scale, float *v_scale, const AdamwStep *step,
                        uint64_t counter) {
  for (int64_t at = 0; at < n; at += ADAMW_BLOCK, counter += ADAMW_BLOCK / ADAMW_DRAWS, m_scale++, v_scale++) {
    const int64_t count = n - at < ADAMW_BLOCK ? n - at : ADAMW_BLOCK;
    real first[ADAMW_BLOCK], second[ADAMW_BLOCK];
    uint16_t draw[ADAMW_BLOCK];
    for (int64_t i = 0; i < count; i++) {
      const real root = (real)(m[at + i] - 128) / 127;
      first[i] = fourth_power(root) * (real)*m_scale * (root < 0 ? -1 : 1);
      second[i] = fourth_power((real)v[at + i] / 255) * (real)*v_scale;
    }
    adamw(count, w + at, grad + at, first, second, step);
    draw_halves(step->seed, counter, draw);
    const real max1 = largest(first, count), max2 = largest(second, count);
    const real inverse1 = max1 > 0 ? 1 / max1 : 0, inverse2 = max2 > 0 ? 1 / max2 : 0;
    for (int64_t i = 0; i < count; i++) {
      m[at + i] = first_to_byte(first[i] * inverse1);
      v[at + i] = second_to_byte(second[i] * inverse2, draw[i]);
    }
    *m_scale = (float)max1;
    *v_scale = (float)max2;
  }
}

/* Box and Muller: a radius from the first word (31 bits, never 0), an angle from the second. */
static void box_muller(const uint32_t word[2], real x[2]) {
  const real u = ((real)(word[0] >> 1) + (real)0.5) * (real)0x1p-31;
  const real radius = sqrt(-2 * log(u));
  const double angle = 2 * 3.14159265358979323846 * 0x1p-32 * (double)word[1];
  x[0] = radius * (real)cos(angle);
  x[1] = radius * (real)sin(angle);
}

static void normal(int64_t n, uint64_t seed, uint64_t counter, real *x) {
  for (int64_t i = 0; i < n; i += PHILOX_WORDS, counter++) {
    uint32_t word[PHILOX_WORDS];
    real block[PHILOX_WORDS];
    philox(seed, counter, word);
    box_muller(word, block);
    box_muller(word + 2, block + 2);
    memcpy(x + i, block, (size_t)(n - i < PHILOX_WORDS ? n - i : PHILOX_WORDS) * sizeof *x);
  }
}

const Kernels *kernels_portable(void) {
  static const Kernels table = {
      .name = "portable",
      .axpy = add_scaled,
      .add = add,
      .dot = dot,
      .sum_squares = sum_squares,
      .bias_gelu = bias_gelu,
      .bias_gelu_tanh = bias_gelu_tanh,
      .gelu_backward = gelu_backward,
      .gelu_tanh_backward = gelu_tanh_backward,
      .swiglu = swiglu,
      .swiglu_backward = swiglu_backward,
      .rotate = rotate,
      .layer_norm = layer_norm,
      .layer_norm_backward = layer_norm_backward,
      .rms_norm = rms_norm,
      .rms_norm_backward = rms_norm_backward,
      .softmax = softmax,
      .softmax_tile = softmax_tile,
      .softmax_tile_backward = softmax_tile_backward,
      .scale_rows = scale_rows,
      .product = product,
      .product_bf16 = product_bf16,
      .nearest = nearest,
      .nearest_words = nearest_words,
      .words_copy = words_copy,
      .words_distance = words_distance,
      .words_pull = words_pull,
      .words_add = words_add,
      .words_sum = words_sum,
      .triangles = triangles,
      .nearer = nearer,
      .widen = widen,
      .narrow = narrow,
      .narrow_half = narrow_halves,
      .narrow_dots = narrow_dots,
      .narrow_sums = narrow_sums,
      .adamw = adamw,
      .adamw_bf16 = adamw_bf16,
      .adamw_bytes = adamw_bytes,
      .normal = normal,
  };
  return &table;
}
