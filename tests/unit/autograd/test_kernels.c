/* Every kernel of every table that this machine has, on awkward lengths, against a reference in double written here. Buffers have their
 * exact length plus a watched margin, so that a tail that runs over is seen. */
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/lowbit_kernels.h"
#include "autograd/kernels/matmul.h"
#include "base/rng.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int64_t lengths[] = {1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 192, 1000};
enum { LENGTHS = sizeof lengths / sizeof *lengths, LONGEST = 1000, MARGIN = 16 };

#define TIGHT (REAL_IS_DOUBLE ? 1e-13 : 1e-6)
#define WATCH ((real)12345.0)

static const char *const table_names[] = {"portable", "avx2", "avx512"};
enum { TABLES = sizeof table_names / sizeof *table_names };

typedef struct Buffer {
  real number[LONGEST + MARGIN];
  int64_t length;
} Buffer;

static Rng rng;

static real *fill(Buffer *buffer, int64_t n, double spread) {
  buffer->length = n;
  for (int64_t i = 0; i < n; i++) buffer->number[i] = (real)(spread * rng_normal(&rng));
  for (int64_t i = n; i < n + MARGIN; i++) buffer->number[i] = WATCH;
  return buffer->number;
}

static void check_margin(const Buffer *buffer) {
  for (int64_t i = buffer->length; i < buffer->length + MARGIN; i++)
    if (buffer->number[i] != WATCH) fail_msg("number %d behind a row of %d was written", (int)(i - buffer->length), (int)buffer->length);
}

static void check_close(const char *what, const Kernels *table, int64_t n, int64_t i, double got, double want, double absolute,
                        double relative) {
  if (fabs(got - want) <= absolute + relative * fabs(want)) return;
  fail_msg("%s of %s, length %d, number %d: %.9g, expected %.9g", what, table->name, (int)n, (int)i, got, want);
}

/* Runs check(table, length) for every table and length. */
typedef void Check(const Kernels *table, int64_t n);
static void for_each(Check *check) {
  for (int t = 0; t < TABLES; t++) {
    const Kernels *table = kernels_named(table_names[t]);
    rng_init(&rng, 7, (uint64_t)t);
    if (!table) continue;
    for (int l = 0; l < LENGTHS; l++) check(table, lengths[l]);
  }
}

static void check_axpy_add(const Kernels *table, int64_t n) {
  Buffer x, y;
  fill(&x, n, 1), fill(&y, n, 1);
  const Buffer before = y;
  table->axpy(n, (real)0.7, x.number, y.number);
  for (int64_t i = 0; i < n; i++)
    check_close("axpy", table, n, i, (double)y.number[i], (double)before.number[i] + (double)(real)0.7 * (double)x.number[i], TIGHT, 0);
  y = before;
  table->add(n, x.number, y.number);
  for (int64_t i = 0; i < n; i++) check_close("add", table, n, i, (double)y.number[i], (double)(before.number[i] + x.number[i]), 0, 0);
  check_margin(&y);
}

static void check_sums(const Kernels *table, int64_t n) {
  Buffer x, y;
  fill(&x, n, 1), fill(&y, n, 1);
  double product = 0, squares = 0, size = 0;
  for (int64_t i = 0; i < n; i++) {
    product += (double)x.number[i] * (double)y.number[i];
    size += fabs((double)x.number[i] * (double)y.number[i]);
    squares += (double)x.number[i] * (double)x.number[i];
  }
  check_close("dot", table, n, 0, (double)table->dot(n, x.number, y.number), product, TIGHT * size, 0);
  check_close("sum_squares", table, n, 0, table->sum_squares(n, x.number), squares, 0, 1e-13);
}

/* ---- activations ---- */

static double gelu(double z) { return 0.5 * z * erfc(-z * sqrt(0.5)); }
static double gelu_tanh(double z) { return 0.5 * z * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (z + 0.044715 * z * z * z))); }
static double slope(double (*f)(double), double z) { return (f(z + 1e-5) - f(z - 1e-5)) / 2e-5; }

static void check_activation(const Kernels *table, int64_t n, bool exact) {
  double (*reference)(double) = exact ? gelu : gelu_tanh;
  void (*forward)(int64_t, const real *, real *, real *) = exact ? table->bias_gelu : table->bias_gelu_tanh;
  void (*backward)(int64_t, const real *, const real *, real *) = exact ? table->gelu_backward : table->gelu_tanh_backward;
  const double gradient_tolerance = REAL_IS_DOUBLE ? 1e-9 : exact ? 1e-6 : 2e-6;
  Buffer z, bias, y, dy, dz;
  fill(&z, n, 3), fill(&bias, n, 1), fill(&y, n, 0), fill(&dy, n, 1), fill(&dz, n, 0);
  const Buffer before = z;
  forward(n, bias.number, z.number, y.number);
  for (int64_t i = 0; i < n; i++) {
    const double sum = (double)z.number[i];
    check_close("bias", table, n, i, sum, (double)(before.number[i] + bias.number[i]), 0, 0);
    check_close("gelu", table, n, i, (double)y.number[i], reference(sum), TIGHT * fmax(1, fabs(sum)), 0);
  }
  backward(n, z.number, dy.number, dz.number);
  for (int64_t i = 0; i < n; i++) {
    const double want = (double)dy.number[i] * slope(reference, (double)z.number[i]);
    check_close("gelu_backward", table, n, i, (double)dz.number[i], want, gradient_tolerance * fmax(1, fabs((double)dy.number[i])), 0);
  }
  backward(n, z.number, dy.number, dy.number); /* in place */
  assert_memory_equal(dy.number, dz.number, (size_t)n * sizeof(real));
  forward(n, NULL, z.number, z.number); /* in place, without a bias */
  assert_memory_equal(z.number, y.number, (size_t)n * sizeof(real));
  check_margin(&z), check_margin(&y), check_margin(&dz);
}

static void check_gelu(const Kernels *table, int64_t n) { check_activation(table, n, true); }
static void check_gelu_tanh(const Kernels *table, int64_t n) { check_activation(table, n, false); }

/* The tails keep their relative precision down to the smallest normal floats; beyond, 0 and x. NaN stays. */
static void check_gelu_tails(const Kernels *table, int64_t n) {
  if (n != LONGEST) return;
  for (double z = -12.5; z < 12.5; z += 0.0625) {
    real number = (real)z, y, ty;
    table->bias_gelu(1, NULL, &number, &y);
    table->bias_gelu_tanh(1, NULL, &number, &ty);
    check_close("gelu tail", table, 1, 0, (double)y, gelu(z), 0, REAL_IS_DOUBLE ? 1e-12 : 2e-5);
    check_close("gelu_tanh", table, 1, 0, (double)ty, gelu_tanh(z), TIGHT * fmax(1, fabs(z)), 0);
  }
  real edge[] = {(real)NAN, (real)-1e4, (real)1e4, 0, (real)-1e15, (real)1e15, (real)-1e30, (real)1e30}, y[8], slopes[8];
  const real ones[] = {1, 1, 1, 1, 1, 1, 1, 1};
  for (int exact = 0; exact < 2; exact++) {
    (exact ? table->bias_gelu : table->bias_gelu_tanh)(8, NULL, edge, y);
    (exact ? table->gelu_backward : table->gelu_tanh_backward)(8, edge, ones, slopes);
    assert_true(isnan(y[0]) && isnan(slopes[0]));
    assert_true(y[1] == 0 && y[2] == (real)1e4 && y[3] == 0);
    assert_true(slopes[1] == 0 && slopes[2] == 1 && fabs((double)slopes[3] - 0.5) < TIGHT);
    for (int i = 4; i < 8; i += 2) assert_true(y[i] == 0 && y[i + 1] == edge[i + 1] && slopes[i] == 0 && slopes[i + 1] == 1);
  }
}

static double silu(double z) { return z / (1 + exp(-z)); }

static void check_swiglu(const Kernels *table, int64_t n) {
  Buffer gate, up, y, dy, dgate, dup;
  fill(&gate, n, 4), fill(&up, n, 1), fill(&y, n, 0), fill(&dy, n, 1), fill(&dgate, n, 0), fill(&dup, n, 1);
  const Buffer before = dup;
  table->swiglu(n, gate.number, up.number, y.number);
  table->swiglu_backward(n, gate.number, up.number, dy.number, dgate.number, dup.number);
  for (int64_t i = 0; i < n; i++) {
    const double z = (double)gate.number[i], u = (double)up.number[i], d = (double)dy.number[i];
    check_close("swiglu", table, n, i, (double)y.number[i], silu(z) * u, TIGHT, 4 * TIGHT);
    check_close("dgate", table, n, i, (double)dgate.number[i], d * u * slope(silu, z), REAL_IS_DOUBLE ? 1e-9 : 4e-6 * fmax(1, fabs(d * u)),
                0);
    check_close("dup", table, n, i, (double)dup.number[i], (double)before.number[i] + d * silu(z), TIGHT * 4, 4 * TIGHT);
  }
  table->swiglu_backward(n, gate.number, up.number, dy.number, dy.number, NULL); /* in place, and alone */
  assert_memory_equal(dy.number, dgate.number, (size_t)n * sizeof(real));
  check_margin(&y), check_margin(&dgate), check_margin(&dup);
  real edge[] = {(real)NAN, (real)-1e4, (real)1e4, 0}, slopes[4], none[4];
  const real ones[] = {1, 1, 1, 1};
  table->swiglu_backward(4, edge, ones, ones, slopes, NULL);
  table->swiglu(4, edge, ones, none);
  assert_true(isnan(none[0]) && none[1] == 0 && none[2] == (real)1e4 && none[3] == 0);
  assert_true(isnan(slopes[0]) && slopes[1] == 0 && slopes[2] == 1 && fabs((double)slopes[3] - 0.5) < TIGHT);
}

static void check_rotate(const Kernels *table, int64_t n) {
  const int64_t half = n / 2;
  Buffer x, y, cosine, sine;
  fill(&x, 2 * half, 1), fill(&y, 2 * half, 0), fill(&cosine, half, 1), fill(&sine, half, 1);
  for (int back = 0; back < 2; back++) {
    table->rotate(half, back ? -1 : 1, cosine.number, sine.number, x.number, y.number);
    for (int64_t i = 0; i < half; i++) {
      const double a = (double)x.number[i], b = (double)x.number[i + half], c = (double)cosine.number[i];
      const double s = (back ? -1 : 1) * (double)sine.number[i], size = TIGHT * (fabs(a) + fabs(b) + 1) * 4;
      check_close("rotate", table, n, i, (double)y.number[i], a * c - b * s, size, 0);
      check_close("rotate", table, n, i + half, (double)y.number[i + half], b * c + a * s, size, 0);
    }
    check_margin(&y);
  }
  table->rotate(half, -1, cosine.number, sine.number, x.number, x.number); /* in place */
  assert_memory_equal(x.number, y.number, (size_t)(2 * half) * sizeof(real));
}

/* ---- norms ---- */

static void check_layer_norm(const Kernels *table, int64_t n) {
  Buffer x, weight, bias, y, dy, dx, dweight, dbias;
  fill(&x, n, 2), fill(&weight, n, 1), fill(&bias, n, 1), fill(&y, n, 0), fill(&dy, n, 1);
  fill(&dx, n, 1), fill(&dweight, n, 1), fill(&dbias, n, 1);
  for (int64_t i = 0; i < n; i++) x.number[i] += 3;
  double sum = 0, squares = 0, g = 0, g_xhat = 0;
  for (int64_t i = 0; i < n; i++) sum += (double)x.number[i];
  const double average = sum / (double)n;
  for (int64_t i = 0; i < n; i++) squares += ((double)x.number[i] - average) * ((double)x.number[i] - average);
  const double inverse = 1 / sqrt(squares / (double)n + 1e-5);
  real mean, rstd;
  table->layer_norm(n, x.number, weight.number, bias.number, (real)1e-5, y.number, &mean, &rstd);
  check_close("mean", table, n, 0, (double)mean, average, 0, 4 * TIGHT);
  check_close("rstd", table, n, 0, (double)rstd, inverse, 0, n == 1 ? 1e-3 : 10 * TIGHT); /* one number: mean rounds against eps */
  const double amplified = n == 1 ? 300 : 20;
  for (int64_t i = 0; i < n; i++) {
    const double xhat = ((double)x.number[i] - average) * inverse;
    check_close("layer_norm", table, n, i, (double)y.number[i], xhat * (double)weight.number[i] + (double)bias.number[i], amplified * TIGHT,
                0);
    g += (double)dy.number[i] * (double)weight.number[i];
    g_xhat += (double)dy.number[i] * (double)weight.number[i] * xhat;
  }
  const Buffer dx0 = dx, dweight0 = dweight, dbias0 = dbias;
  table->layer_norm_backward(n, x.number, weight.number, mean, rstd, dy.number, dx.number, dweight.number, dbias.number);
  for (int64_t i = 0; i < n; i++) {
    const double xhat = ((double)x.number[i] - average) * inverse, gi = (double)dy.number[i] * (double)weight.number[i];
    const double want = (double)dx0.number[i] + inverse * (gi - g / (double)n - xhat * g_xhat / (double)n);
    check_close("dx", table, n, i, (double)dx.number[i], want, 50 * TIGHT * fmax(1, inverse), 0);
    check_close("dweight", table, n, i, (double)dweight.number[i], (double)dweight0.number[i] + (double)dy.number[i] * xhat,
                amplified * TIGHT, 0);
    check_close("dbias", table, n, i, (double)dbias.number[i], (double)(dbias0.number[i] + dy.number[i]), 0, 0);
  }
  Buffer alone = dx0; /* each output by itself gives the same */
  table->layer_norm_backward(n, x.number, weight.number, mean, rstd, dy.number, alone.number, NULL, NULL);
  assert_memory_equal(alone.number, dx.number, (size_t)n * sizeof(real));
  alone = dweight0;
  table->layer_norm_backward(n, x.number, weight.number, mean, rstd, dy.number, NULL, alone.number, NULL);
  assert_memory_equal(alone.number, dweight.number, (size_t)n * sizeof(real));
  check_margin(&y), check_margin(&dx), check_margin(&dweight), check_margin(&dbias);
}

static void check_rms_norm(const Kernels *table, int64_t n) {
  Buffer x, weight, y, dy, dx, dweight;
  fill(&x, n, 2), fill(&weight, n, 1), fill(&y, n, 0), fill(&dy, n, 1), fill(&dx, n, 1), fill(&dweight, n, 1);
  double squares = 0, g_xhat = 0;
  for (int64_t i = 0; i < n; i++) squares += (double)x.number[i] * (double)x.number[i];
  const double inverse = 1 / sqrt(squares / (double)n + 1e-6);
  real rstd;
  table->rms_norm(n, x.number, weight.number, (real)1e-6, y.number, &rstd);
  check_close("rstd", table, n, 0, (double)rstd, inverse, 0, 4 * TIGHT);
  for (int64_t i = 0; i < n; i++) {
    const double xhat = (double)x.number[i] * inverse;
    check_close("rms_norm", table, n, i, (double)y.number[i], xhat * (double)weight.number[i], 20 * TIGHT, 0);
    g_xhat += (double)dy.number[i] * (double)weight.number[i] * xhat;
  }
  const Buffer dx0 = dx, dweight0 = dweight;
  table->rms_norm_backward(n, x.number, weight.number, rstd, dy.number, dx.number, dweight.number);
  for (int64_t i = 0; i < n; i++) {
    const double xhat = (double)x.number[i] * inverse, gi = (double)dy.number[i] * (double)weight.number[i];
    const double want = (double)dx0.number[i] + inverse * (gi - xhat * g_xhat / (double)n);
    check_close("dx", table, n, i, (double)dx.number[i], want, 50 * TIGHT * fmax(1, inverse), 0);
    check_close("dweight", table, n, i, (double)dweight.number[i], (double)dweight0.number[i] + (double)dy.number[i] * xhat, 20 * TIGHT, 0);
  }
  check_margin(&y), check_margin(&dx), check_margin(&dweight);
}

/* Rows whose squares are beyond a float. */
static void check_large_norms(const Kernels *table, int64_t n) {
  Buffer x, weight, bias, y;
  fill(&x, n, 1), fill(&weight, n, 1), fill(&bias, n, 1), fill(&y, n, 0);
  double sum = 0, squares = 0, apart = 0;
  for (int64_t i = 0; i < n; i++) x.number[i] = (x.number[i] + 2) * (real)1e20, sum += (double)x.number[i];
  for (int64_t i = 0; i < n; i++) {
    squares += (double)x.number[i] * (double)x.number[i];
    apart += ((double)x.number[i] - sum / (double)n) * ((double)x.number[i] - sum / (double)n);
  }
  real mean, rstd;
  table->rms_norm(n, x.number, weight.number, (real)1e-6, y.number, &rstd);
  for (int64_t i = 0; i < n; i++)
    check_close("rms_norm", table, n, i, (double)y.number[i], (double)x.number[i] / sqrt(squares / (double)n) * (double)weight.number[i],
                20 * TIGHT, 0);
  if (n < 8) return; /* a row of one number has no deviation, one of few nearly none */
  table->layer_norm(n, x.number, weight.number, bias.number, (real)1e-5, y.number, &mean, &rstd);
  for (int64_t i = 0; i < n; i++)
    check_close("layer_norm", table, n, i, (double)y.number[i],
                ((double)x.number[i] - sum / (double)n) / sqrt(apart / (double)n) * (double)weight.number[i] + (double)bias.number[i],
                100 * TIGHT, 0);
}

/* Rows of one number, which have no deviation: what a sum of floats loses is not one. In double sums of so short a number are exact. */
static void check_constant_norms(const Kernels *table, int64_t n) {
  Buffer x, weight, bias, y;
  fill(&x, n, 0), fill(&weight, n, 1), fill(&bias, n, 1), fill(&y, n, 0);
  for (int64_t i = 0; i < n; i++) x.number[i] = (real)100.1f;
  real mean, rstd;
  table->layer_norm(n, x.number, weight.number, bias.number, (real)1e-12, y.number, &mean, &rstd);
  assert_true(mean == (real)100.1f);
  check_close("layer_norm", table, n, 0, (double)rstd, 1e6, 1e-3, 0);
  for (int64_t i = 0; i < n; i++) assert_true(y.number[i] == bias.number[i]);
}

/* ---- softmax ---- */

static void check_softmax(const Kernels *table, int64_t n) {
  const double scale = 0.37;
  Buffer s, p;
  fill(&s, n, 20);
  if (n > 3) s.number[2] = (real)-INFINITY; /* masked out */
  p = s;
  double max = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; i++) max = fmax(max, scale * (double)s.number[i]);
  for (int64_t i = 0; i < n; i++) sum += exp(scale * (double)s.number[i] - max);
  const real lse = table->softmax(n, (real)scale, p.number);
  check_close("lse", table, n, 0, (double)lse, max + log(sum), 4 * TIGHT, 4 * TIGHT);
  for (int64_t i = 0; i < n; i++) {
    const double logit = scale * (double)s.number[i], want = exp(logit - max) / sum;
    const double rounding = isfinite(logit) ? TIGHT * (4 + fabs(logit) + fabs(max)) : 0;
    check_close("softmax", table, n, i, (double)p.number[i], want, 1e-37, rounding);
  }
  if (n > 3) assert_true(p.number[2] == 0);
  check_margin(&p);
  p = s;
  p.number[n / 2] = (real)NAN;
  table->softmax(n, (real)scale, p.number);
  for (int64_t i = 0; i < n; i++) assert_true(isnan(p.number[i]));
}

enum { TILE_ROWS = 3, CUTS = 3 };

/* Rows of n columns in up to CUTS tiles, each with a margin of its own behind every row: probabilities, with what later tiles scale them
 * by, and log-sum-exps are those of the whole rows. The second row's maximum comes first, the third one's last. */
static void check_softmax_tiles(const Kernels *table, int64_t n) {
  enum { STRIDE = LONGEST + MARGIN };
  static real s[TILE_ROWS][STRIDE], tile[TILE_ROWS * STRIDE], dp[TILE_ROWS * STRIDE];
  static double p[TILE_ROWS][LONGEST];
  const double scale = 0.37;
  const int64_t cut[CUTS + 1] = {0, (n + 2) / 3, (2 * n + 2) / 3, n};
  real max[TILE_ROWS], sum[TILE_ROWS], factor[TILE_ROWS], lse[TILE_ROWS], dot[TILE_ROWS];
  for (int r = 0; r < TILE_ROWS; r++) {
    for (int64_t i = 0; i < n; i++) s[r][i] = (real)(20 * rng_normal(&rng));
    max[r] = (real)-INFINITY, sum[r] = 0, dot[r] = (real)(0.25 * r);
  }
  s[1][0] = s[2][n - 1] = 200;
  if (n > 3) s[0][2] = s[1][n - 1] = (real)-INFINITY; /* masked out */
  for (int c = 0; c < CUTS; c++) {
    const int64_t from = cut[c], width = cut[c + 1] - from, stride = width + 5;
    if (width == 0) continue;
    for (int64_t i = 0; i < TILE_ROWS * stride; i++) tile[i] = i % stride < width ? s[i / stride][from + i % stride] : WATCH;
    table->softmax_tile(TILE_ROWS, width, stride, (real)scale, tile, max, sum, factor);
    for (int64_t i = 0; i < TILE_ROWS * stride; i++) {
      if (i % stride < width)
        p[i / stride][from + i % stride] = (double)tile[i];
      else
        assert_true(tile[i] == WATCH);
    }
    for (int r = 0; r < TILE_ROWS; r++)
      for (int64_t i = 0; i < from; i++) p[r][i] *= (double)factor[r];
  }
  for (int r = 0; r < TILE_ROWS; r++) {
    double peak = -INFINITY, total = 0;
    for (int64_t i = 0; i < n; i++) peak = fmax(peak, scale * (double)s[r][i]);
    for (int64_t i = 0; i < n; i++) total += exp(scale * (double)s[r][i] - peak);
    lse[r] = max[r] + (real)log((double)sum[r]);
    check_close("lse of tiles", table, n, r, (double)lse[r], peak + log(total), 4 * TIGHT, 4 * TIGHT);
    for (int64_t i = 0; i < n; i++) {
      const double logit = scale * (double)s[r][i], rounding = isfinite(logit) ? TIGHT * (8 + fabs(logit) + 2 * fabs(peak)) : 0;
      check_close("softmax_tile", table, n, i, p[r][i] / (double)sum[r], exp(logit - peak) / total, 1e-37, rounding);
    }
  }
  const int64_t stride = n + 5;
  for (int64_t i = 0; i < TILE_ROWS * stride; i++) {
    tile[i] = i % stride < n ? s[i / stride][i % stride] : WATCH;
    dp[i] = i % stride < n ? (real)(0.1 * (double)(i % 11)) : WATCH;
  }
  table->softmax_tile_backward(TILE_ROWS, n, stride, (real)scale, lse, dot, tile, dp);
  for (int64_t i = 0; i < TILE_ROWS * stride; i++) {
    const int64_t r = i / stride, column = i % stride;
    if (column >= n) {
      assert_true(tile[i] == WATCH && dp[i] == WATCH);
      continue;
    }
    const double logit = scale * (double)s[r][column], want = exp(logit - (double)lse[r]);
    const double rounding = isfinite(logit) ? TIGHT * (4 + fabs(logit) + 2 * fabs((double)lse[r])) : 0;
    check_close("softmax_tile_backward", table, n, i, (double)tile[i], want, 1e-37, rounding);
    check_close("softmax_tile_backward, gradient", table, n, i, (double)dp[i],
                scale * (double)tile[i] * ((double)(real)(0.1 * (double)(i % 11)) - (double)dot[r]), 1e-37, 4 * TIGHT);
  }
}

/* Scores so large that their roundings are larger than what exp can hold, as of weights that run away: all of the probability is the
 * largest one's, and nothing is infinite. */
static void check_softmax_of_huge_scores(const Kernels *table, int64_t n) {
  static real s[LONGEST], dp[LONGEST];
  const int64_t largest = n / 2;
  real max = (real)-INFINITY, sum = 0, factor, dot = 0;
  for (int i = 0; i < 3; i++) {
    for (int64_t j = 0; j < n; j++) s[j] = (real)(-1.3e12 - 1e11 * (double)(j % 7)), dp[j] = 1;
    s[largest] = (real)3.1e12;
    if (i == 0) table->softmax_tile(1, n, n, (real)0.37, s, &max, &sum, &factor);
    if (i == 1) table->softmax_tile_backward(1, n, n, (real)0.37, &max, &dot, s, dp);
    if (i == 2) assert_true(table->softmax(n, (real)0.37, s) == max);
    for (int64_t j = 0; j < n; j++) assert_true(s[j] == (j == largest ? 1 : 0));
    assert_true(sum == 1);
  }
}

/* Two rows, with a number between them that stays when n is odd. */
static void check_scale_rows(const Kernels *table, int64_t n) {
  Buffer x;
  const real factor[] = {(real)0.7, (real)-1.3};
  const int64_t width = n / 2, stride = n - width;
  fill(&x, n, 1);
  const Buffer before = x;
  table->scale_rows(2, width, stride, factor, x.number);
  for (int64_t i = 0; i < n; i++) {
    const real scale = i < width ? factor[0] : i >= stride ? factor[1] : 1;
    check_close("scale_rows", table, n, i, (double)x.number[i], (double)(before.number[i] * scale), 0, 0);
  }
  check_margin(&x);
}

/* ---- small products ---- */

/* The same matrices in bf16, by the table's kernel and by the one that this machine would take. */
static void check_narrow_product(const Kernels *table, bool transpose_a, bool transpose_b, const int64_t size[3], bool add, const real *a,
                                 const real *b, const real *before) {
  const int64_t m = size[0], n = size[1], k = size[2], lda = (transpose_a ? m : k) + 3, ldb = (transpose_b ? k : n) + 5, ldc = n + 2;
  const int64_t count_a = (transpose_a ? k : m) * lda, count_b = (transpose_b ? n : k) * ldb;
  uint16_t *narrow_a = malloc((size_t)count_a * sizeof *narrow_a), *narrow_b = malloc((size_t)count_b * sizeof *narrow_b);
  real *c = malloc((size_t)(m * ldc) * sizeof *c);
  assert_true(narrow_a && narrow_b && c);
  for (int64_t i = 0; i < count_a; i++) narrow_a[i] = narrow_bfloat((float)a[i]);
  for (int64_t i = 0; i < count_b; i++) narrow_b[i] = narrow_bfloat((float)b[i]);
  for (int native = 0; native < 2; native++) {
    memcpy(c, before, (size_t)(m * ldc) * sizeof *c);
    (native ? kernels_native()->product_bf16 : table->product_bf16)(transpose_a, transpose_b, m, n, k, narrow_a, lda, narrow_b, ldb, add, c,
                                                                    ldc);
    for (int64_t i = 0; i < m * ldc; i++) {
      const int64_t row = i / ldc, column = i % ldc;
      double sum = add ? (double)before[i] : 0;
      if (column >= n) {
        assert_true(c[i] == WATCH);
        continue;
      }
      for (int64_t j = 0; j < k; j++)
        sum += (double)narrow_bfloat_to_float(narrow_a[transpose_a ? j * lda + row : row * lda + j]) *
               (double)narrow_bfloat_to_float(narrow_b[transpose_b ? column * ldb + j : j * ldb + column]);
      check_close("product_bf16", table, n, i, (double)c[i], sum, TIGHT * (4 + sqrt((double)k)), TIGHT);
    }
  }
  free(narrow_a), free(narrow_b), free(c);
}

/* Rows further apart than they are long, with no numbers in between; behind the rows of C nothing is written. */
static void check_small_product(const Kernels *table, bool transpose_a, bool transpose_b, const int64_t size[3], bool add) {
  const int64_t m = size[0], n = size[1], k = size[2], lda = (transpose_a ? m : k) + 3, ldb = (transpose_b ? k : n) + 5, ldc = n + 2;
  const int64_t rows_a = transpose_a ? k : m, rows_b = transpose_b ? n : k;
  real *a = malloc((size_t)(rows_a * lda) * sizeof *a), *b = malloc((size_t)(rows_b * ldb) * sizeof *b);
  real *c = malloc((size_t)(m * ldc) * sizeof *c), *before = malloc((size_t)(m * ldc) * sizeof *c);
  assert_true(a && b && c && before);
  for (int64_t i = 0; i < rows_a * lda; i++) a[i] = i % lda < lda - 3 ? (real)rng_normal(&rng) : (real)NAN;
  for (int64_t i = 0; i < rows_b * ldb; i++) b[i] = i % ldb < ldb - 5 ? (real)rng_normal(&rng) : (real)NAN;
  for (int64_t i = 0; i < m * ldc; i++) before[i] = c[i] = i % ldc < n ? (add ? (real)rng_normal(&rng) : (real)NAN) : WATCH;
  table->product(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, add, c, ldc);
  for (int64_t i = 0; i < m * ldc; i++) {
    if (i % ldc >= n) {
      assert_true(c[i] == WATCH);
      continue;
    }
    const int64_t row = i / ldc, column = i % ldc;
    double sum = add ? (double)before[i] : 0;
    for (int64_t j = 0; j < k; j++)
      sum += (double)a[transpose_a ? j * lda + row : row * lda + j] * (double)b[transpose_b ? column * ldb + j : j * ldb + column];
    check_close("product", table, n, i, (double)c[i], sum, TIGHT * (4 + sqrt((double)k)), TIGHT);
  }
  check_narrow_product(table, transpose_a, transpose_b, size, add, a, b, before);
  free(a), free(b), free(c), free(before);
}

static void check_products(const Kernels *table, int64_t n) {
  if (n > 65 && n != 192) return;
  for (int form = 0; form < 8; form++) {
    check_small_product(table, form & 1, form & 2, (int64_t[]){n, 17, 33}, form & 4);
    check_small_product(table, form & 1, form & 2, (int64_t[]){25, n, 5}, form & 4);
    check_small_product(table, form & 1, form & 2, (int64_t[]){7, 64, n}, form & 4);
  }
}

/* The exponentials by themselves: as the ratio of two probabilities, and from a log-sum-exp of 0, where the argument is rounded too. */
static void check_exponential(const Kernels *table, int64_t n) {
  if (n != LONGEST) return;
  const real lse = 0, dot = 0;
  for (double x = -86; x < 88; x += 0.01171875) {
    real pair[] = {0, (real)x}, number = (real)x, gradient = 0;
    table->softmax(2, 1, pair);
    check_close("exp of softmax", table, 2, 0, x < 0 ? (double)pair[1] / (double)pair[0] : (double)pair[0] / (double)pair[1], exp(-fabs(x)),
                1e-37, REAL_IS_DOUBLE ? 1e-14 : 4e-7);
    table->softmax_tile_backward(1, 1, 1, 1, &lse, &dot, &number, &gradient);
    check_close("exp", table, 1, 0, (double)number, exp(x), 0, REAL_IS_DOUBLE ? 1e-14 : 3e-7 + 8e-8 * fabs(x));
  }
  real edge[] = {(real)-INFINITY, (real)INFINITY, (real)NAN, 0, -1000, 1000}, gradient[6] = {0};
  table->softmax_tile_backward(1, 6, 6, 1, &lse, &dot, edge, gradient);
  assert_true(edge[0] == 0 && isinf(edge[1]) && isnan(edge[2]) && edge[3] == 1 && edge[4] == 0 && isinf(edge[5]));
}

/* ---- search ---- */

/* Values from a handful, so that ties are everywhere. */
static void check_nearest(const Kernels *table, int64_t n) {
  Buffer half_norm, s;
  for (int round = 0; round < 20; round++) {
    fill(&half_norm, n, 0), fill(&s, n, 0);
    for (int64_t i = 0; i < n; i++) {
      half_norm.number[i] = (real)rng_below(&rng, 1u << (round % 4));
      s.number[i] = (real)rng_below(&rng, 1u << (round % 3));
    }
    if (round % 5 == 4) s.number[rng_below(&rng, (uint64_t)n)] = (real)NAN; /* never the nearest */
    int32_t want = 0;
    real min = (real)INFINITY, best = 0;
    for (int64_t i = 0; i < n; i++)
      if (half_norm.number[i] - s.number[i] < min) min = half_norm.number[i] - s.number[i], want = (int32_t)i;
    assert_int_equal(table->nearest(n, half_norm.number, s.number, &best), want);
    assert_true(best == min);
  }
  for (int64_t i = 0; i < n; i++) half_norm.number[i] = s.number[i] = 2;
  real best;
  assert_int_equal(table->nearest(n, half_norm.number, s.number, &best), 0);
  half_norm.number[n - 1] = 1; /* the last lane of the tail */
  assert_int_equal(table->nearest(n, half_norm.number, s.number, &best), n - 1);
  assert_true(best == -1);
}

enum { WORD_ROWS = 131, APART = 3, UNTOUCHED = -7 }; /* rows that fill whole blocks, part of one and part of a vector */

/* Rows, words and norms of small whole numbers: scores are exact and ties everywhere. One row is not a number. */
static void fill_words(real *x, int64_t ldx, real *words, real *half_norm, int64_t k, int64_t d) {
  for (int64_t i = 0; i < WORD_ROWS * ldx; i++) x[i] = (real)rng_below(&rng, 3) - 1;
  for (int64_t i = 0; i < k * d; i++) words[i] = (real)rng_below(&rng, 3) - 1;
  for (int64_t i = 0; i < k; i++) half_norm[i] = (real)rng_below(&rng, 2);
  x[17 * ldx] = (real)NAN;
}

static int32_t nearest_word(const real *x, const real *words, const real *half_norm, int64_t k, int64_t d) {
  int32_t found = 0;
  double min = INFINITY;
  for (int64_t j = 0; j < k; j++) {
    double value = (double)half_norm[j];
    for (int64_t i = 0; i < d; i++) value -= (double)x[i] * (double)words[j * d + i];
    if (value < min) min = value, found = (int32_t)j;
  }
  return found;
}

static void check_nearest_words(const Kernels *table, int64_t k) {
  static const int64_t widths[] = {1, 5, 6, 24, NEAREST_MAX_WIDTH};
  for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
    int64_t d = widths[w], ldx = d + APART;
    real *x = malloc((size_t)(WORD_ROWS * ldx) * sizeof *x), *words = malloc((size_t)(k * d) * sizeof *words);
    real *half_norm = malloc((size_t)k * sizeof *half_norm);
    int32_t codes[WORD_ROWS * 2], alone;
    assert_true(x && words && half_norm);
    fill_words(x, ldx, words, half_norm, k, d);
    for (int64_t rows = 1; rows <= WORD_ROWS; rows += rows < 20 ? 1 : 37) {
      for (int64_t i = 0; i < WORD_ROWS * 2; i++) codes[i] = UNTOUCHED;
      table->nearest_words(rows, k, d, x, ldx, words, half_norm, codes, 2);
      for (int64_t r = 0; r < WORD_ROWS; r++) {
        assert_int_equal(codes[2 * r], r < rows ? nearest_word(x + r * ldx, words, half_norm, k, d) : UNTOUCHED);
        assert_int_equal(codes[2 * r + 1], UNTOUCHED);
      }
    }
    for (int64_t i = 0; i < WORD_ROWS * ldx; i++) x[i] = (real)rng_normal(&rng);
    table->nearest_words(WORD_ROWS, k, d, x, ldx, words, half_norm, codes, 1);
    for (int64_t r = 0; r < WORD_ROWS; r++) { /* no rounding hangs on where a row stands */
      table->nearest_words(1, k, d, x + r * ldx, ldx, words, half_norm, &alone, 1);
      assert_int_equal(alone, codes[r]);
    }
    free(x), free(words), free(half_norm);
  }
}

/* Lists of codewords as groups of a row and as rows of a group, of a word's first n numbers: against plain loops. */
static void check_words_list(const Kernels *table, int64_t n, bool groups) {
  enum { COUNT = 37, K = 5, EXTRA = 2, CODES = 3 };
  const int64_t d = n + EXTRA, word_step = groups ? K * d : 0, code_step = groups ? 1 : CODES, numbers = (groups ? COUNT : 1) * K * d;
  const int64_t step = d + 1, rows = COUNT * step;
  int32_t codes[COUNT * CODES];
  real *words = malloc((size_t)numbers * sizeof *words), *sums = malloc((size_t)numbers * sizeof *sums);
  real *x = malloc((size_t)rows * sizeof *x), *y = malloc((size_t)rows * sizeof *y), *expected = malloc((size_t)rows * sizeof *expected);
  double *sums_expected = malloc((size_t)numbers * sizeof *sums_expected), distance = 0;
  assert_true(words && sums && x && y && expected && sums_expected);
  for (int i = 0; i < COUNT * CODES; i++) codes[i] = (int32_t)rng_below(&rng, K);
  for (int64_t i = 0; i < numbers; i++) words[i] = (real)rng_normal(&rng), sums_expected[i] = (double)(sums[i] = (real)rng_normal(&rng));
  for (int64_t i = 0; i < rows; i++) x[i] = (real)rng_normal(&rng), expected[i] = y[i] = (real)rng_normal(&rng);
  const WordList list = {COUNT, n, d, words, word_step, codes, code_step};

  table->words_pull(&list, (real)0.5, x, step, y);
  for (int64_t item = 0; item < COUNT; item++)
    for (int64_t i = 0; i < n; i++) {
      int64_t at = item * word_step + codes[item * code_step] * d + i;
      double difference = (double)x[item * step + i] - (double)words[at];
      check_close("words_pull", table, n, i, (double)y[item * step + i], (double)expected[item * step + i] + 0.5 * difference, 4 * TIGHT,
                  0);
      expected[item * step + i] = y[item * step + i];
      distance += difference * difference;
      sums_expected[at] += 0.25 * (double)x[item * step + i];
    }
  assert_memory_equal(y, expected, (size_t)rows * sizeof *y); /* nothing beside them */
  check_close("words_distance", table, n, 0, table->words_distance(&list, x, step), distance, 0, 1e-12);
  table->words_add(&list, (real)0.25, x, step, sums);
  for (int64_t i = 0; i < numbers; i++) check_close("words_add", table, n, i, (double)sums[i], sums_expected[i], COUNT * TIGHT, 0);
  double *doubles = calloc((size_t)numbers, sizeof *doubles);
  assert_non_null(doubles);
  table->words_sum(&list, x, step, doubles);
  for (int64_t item = 0; item < COUNT; item++) /* to nothing, in the same order */
    for (int64_t i = 0; i < n; i++) doubles[item * word_step + codes[item * code_step] * d + i] -= (double)x[item * step + i];
  for (int64_t i = 0; i < numbers; i++) check_close("words_sum", table, n, i, doubles[i], 0, 1e-13, 0);
  free(doubles);
  table->words_copy(&list, y, step);
  for (int64_t item = 0; item < COUNT; item++)
    memcpy(expected + item * step, words + item * word_step + codes[item * code_step] * d, (size_t)n * sizeof *y);
  assert_memory_equal(y, expected, (size_t)rows * sizeof *y);
  free(words), free(sums), free(x), free(y), free(expected), free(sums_expected);
}

static void check_words(const Kernels *table, int64_t n) {
  check_words_list(table, n, false);
  check_words_list(table, n, true);
}

/* Against doubles; a sample equal to a point is at distance 0 exactly. */
static void check_nearer(const Kernels *table, int64_t points) {
  enum { LANES = 3 * NEARER_LANES, WIDEST = 24, MAX_POINTS = 9 };
  static const int64_t widths[] = {1, 6, WIDEST};
  static real columns[WIDEST * LANES], at[MAX_POINTS * WIDEST], distances[LANES], found[MAX_POINTS * (LANES + APART)];
  if (points > MAX_POINTS) return;
  for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
    int64_t d = widths[w], stride = LANES + APART;
    double sums[MAX_POINTS];
    for (int64_t i = 0; i < d * LANES; i++) columns[i] = (real)rng_normal(&rng);
    for (int64_t i = 0; i < points * d; i++) at[i] = (real)rng_normal(&rng);
    for (int64_t j = 0; j < d; j++) at[(points - 1) * d + j] = columns[j * LANES + 100];
    for (int64_t i = 0; i < LANES; i++) distances[i] = (real)(2 * (double)d * rng_uniform(&rng));
    for (int64_t i = 0; i < points * stride; i++) found[i] = UNTOUCHED;
    table->nearer(LANES, d, columns, points, at, distances, found, stride, sums);
    for (int64_t p = 0; p < points; p++) {
      double sum = 0;
      for (int64_t i = 0; i < LANES; i++) {
        double want = 0;
        for (int64_t j = 0; j < d; j++) want += pow((double)columns[j * LANES + i] - (double)at[p * d + j], 2);
        want = fmin(want, (double)distances[i]);
        sum += want;
        check_close("nearer", table, LANES, i, (double)found[p * stride + i], want, REAL_IS_DOUBLE ? 1e-13 : 1e-6,
                    REAL_IS_DOUBLE ? 1e-13 : 1e-6);
      }
      check_close("sum of nearer", table, LANES, p, sums[p], sum, 0, REAL_IS_DOUBLE ? 1e-13 : 1e-6);
      for (int64_t i = LANES; i < stride; i++) assert_true(found[p * stride + i] == UNTOUCHED);
    }
    assert_true(found[(points - 1) * stride + 100] == 0);
  }
}

/* ---- optimizer ---- */

static const AdamwStep adamw_step = {(real)0.5, (real)1e-2, (real)0.9, (real)0.999, (real)0.19, (real)0.002, (real)1e-8, (real)0.01, 42};

typedef struct Expected { /* one number after the step, in double */
  double m, v, w;
} Expected;

static Expected adamw_by_hand(double w, double grad, double m, double v) {
  const double g = 0.5 * grad, first = 0.9 * m + (1 - 0.9) * g, second = 0.999 * v + (1 - 0.999) * g * g;
  return (Expected){first, second, w - 1e-2 * (first / 0.19 / (sqrt(second / 0.002) + 1e-8) + 0.01 * w)};
}

static void check_adamw(const Kernels *table, int64_t n) {
  Buffer w, grad, m, v;
  fill(&w, n, 1), fill(&grad, n, 1), fill(&m, n, 0.1), fill(&v, n, 0.1);
  for (int64_t i = 0; i < n; i++) v.number[i] *= v.number[i];
  const Buffer w0 = w, m0 = m, v0 = v;
  table->adamw(n, w.number, grad.number, m.number, v.number, &adamw_step);
  for (int64_t i = 0; i < n; i++) {
    const Expected e = adamw_by_hand((double)w0.number[i], (double)grad.number[i], (double)m0.number[i], (double)v0.number[i]);
    check_close("m", table, n, i, (double)m.number[i], e.m, TIGHT, 0);
    check_close("v", table, n, i, (double)v.number[i], e.v, TIGHT, 50 * TIGHT);
    check_close("w", table, n, i, (double)w.number[i], e.w, 2 * TIGHT, TIGHT);
  }
  check_margin(&w), check_margin(&m), check_margin(&v);
}

/* Several steps from zero, each from what the last one left: every table rounds m to the nearest and v to a neighbour, and all draw alike.
 */
enum { NARROW_STEPS = 4, BLOCKS = LONGEST / ADAMW_BLOCK + 1 };

static void check_adamw_bf16(const Kernels *table, int64_t n) {
  Buffer w, grad;
  uint16_t m[LONGEST + MARGIN] = {0}, v[LONGEST + MARGIN] = {0}, oracle_m[LONGEST] = {0}, oracle_v[LONGEST] = {0};
  m[n] = v[n] = 12345;
  fill(&w, n, 1);
  int64_t apart = 0;
  for (uint64_t counter = 1; counter <= NARROW_STEPS; counter++) {
    fill(&grad, n, 1);
    Buffer w0 = w;
    memcpy(oracle_m, m, (size_t)n * sizeof *m);
    memcpy(oracle_v, v, (size_t)n * sizeof *v);
    Expected e[LONGEST];
    for (int64_t i = 0; i < n; i++)
      e[i] = adamw_by_hand((double)w.number[i], (double)grad.number[i], (double)narrow_bfloat_to_float(m[i]),
                           (double)narrow_bfloat_to_float(v[i]));
    table->adamw_bf16(n, w.number, grad.number, m, v, &adamw_step, counter);
    kernels_named("portable")->adamw_bf16(n, w0.number, grad.number, oracle_m, oracle_v, &adamw_step, counter);
    for (int64_t i = 0; i < n; i++) {
      check_close("m in bf16", table, n, i, (double)narrow_bfloat_to_float(m[i]), e[i].m, TIGHT, 1.0 / 256 + 1e-4);
      check_close("v in bf16", table, n, i, (double)narrow_bfloat_to_float(v[i]), e[i].v, 0, 1.0 / 128 + 1e-4);
      check_close("w of bf16", table, n, i, (double)w.number[i], e[i].w, 2 * TIGHT, 10 * TIGHT);
      apart += m[i] != oracle_m[i] || v[i] != oracle_v[i];
    }
  }
  assert_true(apart <= n / 50 + 1); /* where the last bits of the sums differ */
  assert_true(m[n] == 12345 && v[n] == 12345);
  check_margin(&w);
}

static double first_of_byte(uint8_t code, float scale) {
  const double root = (code - 128) / 127.0;
  return root * fabs(root) * root * root * (double)scale;
}

static double second_of_byte(uint8_t code, float scale) { return pow(code / 255.0, 4) * (double)scale; }

/* Between the neighbours of v's code: a share of the scale. */
static bool is_neighbour(uint8_t code, double v, float scale) {
  const double slack = 1e-5 * (double)scale;
  const double below = code > 0 ? second_of_byte((uint8_t)(code - 1), scale) : 0, above = pow((code + 1) / 255.0, 4) * (double)scale;
  return v >= below - slack && v <= above + slack;
}

static void check_adamw_bytes(const Kernels *table, int64_t n) {
  Buffer w, grad;
  uint8_t m[LONGEST + MARGIN] = {0}, v[LONGEST + MARGIN] = {0}, oracle_m[LONGEST] = {0}, oracle_v[LONGEST] = {0};
  float m_scale[BLOCKS] = {0}, v_scale[BLOCKS] = {0}, oracle_m_scale[BLOCKS], oracle_v_scale[BLOCKS];
  m[n] = v[n] = 123;
  fill(&w, n, 1);
  int64_t apart = 0;
  for (uint64_t counter = 1; counter <= NARROW_STEPS; counter++) {
    fill(&grad, n, 1);
    grad.number[n / 2] = 0; /* no moments at all: alone in its block it has no scale either */
    Buffer w0 = w;
    memcpy(oracle_m, m, (size_t)n);
    memcpy(oracle_v, v, (size_t)n);
    memcpy(oracle_m_scale, m_scale, sizeof m_scale);
    memcpy(oracle_v_scale, v_scale, sizeof v_scale);
    Expected e[LONGEST];
    for (int64_t i = 0; i < n; i++)
      e[i] = adamw_by_hand((double)w.number[i], (double)grad.number[i], first_of_byte(m[i], m_scale[i / ADAMW_BLOCK]),
                           second_of_byte(v[i], v_scale[i / ADAMW_BLOCK]));
    table->adamw_bytes(n, w.number, grad.number, m, v, m_scale, v_scale, &adamw_step, counter);
    kernels_named("portable")
        ->adamw_bytes(n, w0.number, grad.number, oracle_m, oracle_v, oracle_m_scale, oracle_v_scale, &adamw_step, counter);
    for (int64_t i = 0; i < n; i++) {
      const int64_t block = i / ADAMW_BLOCK;
      const double max = (double)m_scale[block];
      const double step = max > 0 ? 4.0 / 127 * pow(fabs(e[i].m) / max, 0.75) * max : 0; /* from code to code */
      check_close("m in a byte", table, n, i, first_of_byte(m[i], m_scale[block]), e[i].m, 0.6 * step + 1e-7 * max, 0);
      assert_true(is_neighbour(v[i], e[i].v, v_scale[block]));
      assert_true(v[i] > 0 || e[i].v == 0);
      check_close("w of bytes", table, n, i, (double)w.number[i], e[i].w, 1e-5, 1e-5);
      apart += m[i] != oracle_m[i] || v[i] != oracle_v[i];
    }
    for (int64_t block = 0; block * ADAMW_BLOCK < n; block++) {
      check_close("scale of m", table, n, block, (double)m_scale[block], (double)oracle_m_scale[block], 0, 10 * TIGHT);
      check_close("scale of v", table, n, block, (double)v_scale[block], (double)oracle_v_scale[block], 0, 50 * TIGHT);
    }
  }
  assert_true(apart <= n / 50 + 1);
  assert_true(m[n] == 123 && v[n] == 123);
  check_margin(&w);
}

/* Without gradients v falls by 1 - b2 in a step, less than a rounding: its mean does so all the same. */
static void check_rounding(const Kernels *table, int64_t n) {
  enum { FALLS = 400, NUMBERS = 8192 };
  if (n != LONGEST) return;
  static real w[NUMBERS], grad[NUMBERS];
  static uint16_t m[NUMBERS], v[NUMBERS];
  static uint8_t m8[NUMBERS], v8[NUMBERS];
  static float m_scale[NUMBERS / ADAMW_BLOCK], v_scale[NUMBERS / ADAMW_BLOCK];
  AdamwStep step = adamw_step;
  step.b2 = (real)0.999;
  memset(m, 0, sizeof m), memset(v, 0, sizeof v), memset(m_scale, 0, sizeof m_scale), memset(v_scale, 0, sizeof v_scale);
  for (int i = 0; i < NUMBERS; i++) grad[i] = (real)(i % ADAMW_BLOCK == 0 ? 4 : 2);
  for (int t = 0; t < FALLS; t++) {
    step.seed = (uint64_t)t;
    if (t == 1)
      for (int i = 0; i < NUMBERS; i++) grad[i] = 0;
    for (int i = 0; i < NUMBERS; i++) w[i] = 0;
    table->adamw_bf16(NUMBERS, w, grad, m, v, &step, 0);
    for (int i = 0; i < NUMBERS; i += ADAMW_BLOCK) grad[i] = 4; /* so that the scale of a block does not fall with the others */
    table->adamw_bytes(NUMBERS, w, grad, m8, v8, m_scale, v_scale, &step, 0);
    for (int i = 0; t > 0 && i < NUMBERS; i += ADAMW_BLOCK) grad[i] = 0;
  }
  double narrow = 0, bytes = 0, expected = 0.001 * pow(0.999, FALLS - 1);
  for (int i = 0; i < NUMBERS; i++) {
    if (i % ADAMW_BLOCK == 0) continue;
    narrow += (double)narrow_bfloat_to_float(v[i]) / (NUMBERS - NUMBERS / ADAMW_BLOCK);
    bytes += second_of_byte(v8[i], v_scale[i / ADAMW_BLOCK]) / (NUMBERS - NUMBERS / ADAMW_BLOCK);
  }
  check_close("mean of v in bf16", table, n, 0, narrow, expected, 0, 0.01);
  check_close("mean of v in bytes", table, n, 0, bytes, expected, 0, 0.03);
}

/* ---- normal numbers ---- */

enum { DRAWN = 1 << 18 };

static void check_moments(const Kernels *table, int64_t n) {
  if (n != LONGEST) return;
  real *x = malloc(DRAWN * sizeof *x);
  assert_non_null(x);
  table->normal(DRAWN, 42, 1000, x);
  double mean = 0, square = 0, cube = 0, fourth = 0, follow[5] = {0}, beyond2 = 0, beyond3 = 0;
  for (int i = 0; i < DRAWN; i++) {
    const double d = (double)x[i];
    assert_true(fabs(d) < 6.7);
    mean += d, square += d * d, cube += d * d * d, fourth += d * d * d * d;
    beyond2 += fabs(d) > 2, beyond3 += fabs(d) > 3;
    for (int lag = 1; lag < 5 && lag <= i; lag++) follow[lag] += d * (double)x[i - lag];
  }
  free(x);
  const double deviation = 1 / sqrt(DRAWN); /* of the mean; four deviations each */
  check_close("mean", table, DRAWN, 0, mean / DRAWN, 0, 4 * deviation, 0);
  check_close("variance", table, DRAWN, 0, square / DRAWN, 1, 4 * sqrt(2) * deviation, 0);
  check_close("skewness", table, DRAWN, 0, cube / DRAWN, 0, 4 * sqrt(15) * deviation, 0);
  check_close("kurtosis", table, DRAWN, 0, fourth / DRAWN, 3, 4 * sqrt(96) * deviation, 0);
  check_close("share beyond 2", table, DRAWN, 0, beyond2 / DRAWN, 0.0455003, 4 * sqrt(0.0455) * deviation, 0);
  check_close("share beyond 3", table, DRAWN, 0, beyond3 / DRAWN, 0.0026998, 4 * sqrt(0.0027) * deviation, 0);
  for (int lag = 1; lag < 5; lag++) check_close("correlation", table, DRAWN, lag, follow[lag] / DRAWN, 0, 4 * deviation, 0);
}

/* A row drawn whole, in pieces, and across the carry of the counter's low half: the same numbers. Other tables round differently only. */
static void check_normal_split(const Kernels *table, int64_t n) {
  static const uint64_t starts[] = {0, 5, UINT32_MAX - 10, UINT64_MAX - 3};
  for (int c = 0; c < 4; c++) {
    Buffer whole, pieces, oracle;
    fill(&whole, n, 0), fill(&pieces, n, 0), fill(&oracle, n, 0);
    table->normal(n, 99, starts[c], whole.number);
    for (int64_t begin = 0, piece; begin < n; begin += piece) {
      piece = 4 * (int64_t)(1 + rng_below(&rng, 30));
      table->normal(piece < n - begin ? piece : n - begin, 99, starts[c] + (uint64_t)begin / 4, pieces.number + begin);
    }
    assert_memory_equal(whole.number, pieces.number, (size_t)n * sizeof(real));
    kernels_named("portable")->normal(n, 99, starts[c], oracle.number);
    for (int64_t i = 0; i < n; i++)
      check_close("normal", table, n, i, (double)whole.number[i], (double)oracle.number[i], REAL_IS_DOUBLE ? 0 : 3e-6, 0);
    check_margin(&whole);
    table->normal(n, 100, starts[c], oracle.number);
    assert_memory_not_equal(whole.number, oracle.number, (size_t)n * sizeof(real));
  }
}

static void test_axpy_add(void **state) { (void)state, for_each(check_axpy_add); }
static void test_sums(void **state) { (void)state, for_each(check_sums); }
static void test_gelu(void **state) { (void)state, for_each(check_gelu); }
static void test_gelu_tanh(void **state) { (void)state, for_each(check_gelu_tanh); }
static void test_gelu_tails(void **state) { (void)state, for_each(check_gelu_tails); }
static void test_swiglu(void **state) { (void)state, for_each(check_swiglu); }
static void test_rotate(void **state) { (void)state, for_each(check_rotate); }
static void test_layer_norm(void **state) { (void)state, for_each(check_layer_norm); }
static void test_rms_norm(void **state) { (void)state, for_each(check_rms_norm); }
static void test_large_norms(void **state) { (void)state, for_each(check_large_norms); }
static void test_constant_norms(void **state) { (void)state, for_each(check_constant_norms); }
static void test_softmax(void **state) { (void)state, for_each(check_softmax); }
static void test_softmax_tiles(void **state) {
  (void)state, for_each(check_softmax_tiles), for_each(check_softmax_of_huge_scores), for_each(check_scale_rows);
}
static void test_products(void **state) { (void)state, for_each(check_products); }
static void test_exponential(void **state) { (void)state, for_each(check_exponential); }
static void test_nearest(void **state) { (void)state, for_each(check_nearest); }
static void test_nearer(void **state) { (void)state, for_each(check_nearer); }
static void check_triangles(const Kernels *table, int64_t d) {
  enum { GROUPS = 3 };
  if (d > TRIANGLE_MAX_WIDTH) return;
  real columns[GROUPS * TRIANGLE_MAX_WIDTH * TRIANGLE_MAX_WIDTH];
  Buffer x, mean, out;
  fill(&x, GROUPS * d, 1), fill(&mean, GROUPS * d, 1), fill(&out, GROUPS * d, 1);
  for (int64_t g = 0; g < GROUPS; g++)
    for (int64_t j = 0; j < d; j++)
      for (int64_t i = 0; i < d; i++) columns[(g * d + j) * d + i] = i < j ? 0 : (real)rng_normal(&rng);
  table->triangles(GROUPS, d, (real)0.5, mean.number, columns, x.number, out.number);
  for (int64_t g = 0; g < GROUPS; g++)
    for (int64_t i = 0; i < d; i++) {
      double sum = (double)mean.number[g * d + i];
      for (int64_t j = 0; j <= i; j++) sum += (double)columns[(g * d + j) * d + i] * (double)x.number[g * d + j];
      check_close("triangles", table, d, g * d + i, (double)out.number[g * d + i], sum / 2, 8 * TIGHT, TIGHT);
    }
  check_margin(&out);
}

static void test_triangles(void **state) { (void)state, for_each(check_triangles); }
static void test_words(void **state) { (void)state, for_each(check_words); }

static void test_nearest_words(void **state) { (void)state, for_each(check_nearest_words); }
static void test_adamw(void **state) { (void)state, for_each(check_adamw); }
static void test_adamw_bf16(void **state) { (void)state, for_each(check_adamw_bf16); }
static void test_adamw_bytes(void **state) { (void)state, for_each(check_adamw_bytes); }
static void test_rounding(void **state) { (void)state, for_each(check_rounding); }
static void test_moments(void **state) { (void)state, for_each(check_moments); }
static void test_normal_split(void **state) { (void)state, for_each(check_normal_split); }

static void test_choice(void **state) {
  (void)state;
  assert_non_null(kernels_named("portable"));
  assert_null(kernels_named("sse9"));
  if (REAL_IS_DOUBLE) assert_null(kernels_named("avx2"));
  char text[KERNELS_TEXT];
  setenv("ASTRA_KERNELS", "sse9", 1);
  assert_int_equal(kernels_check(matmul_core(), text, sizeof text), STATUS_BAD_USAGE);
  assert_non_null(strstr(status_message(), "ASTRA_KERNELS=sse9"));
  assert_non_null(strstr(status_message(), "portable"));
  setenv("ASTRA_KERNELS", "portable", 1);
  assert_int_equal(kernels_check(matmul_core(), text, sizeof text), STATUS_OK);
  assert_string_equal(kernels()->name, "portable");
  unsetenv("ASTRA_KERNELS");
  assert_string_equal(kernels()->name, "portable"); /* chosen once */
}

static bool slowed(char text[KERNELS_TEXT]) {
  assert_int_equal(kernels_check(matmul_core(), text, KERNELS_TEXT), STATUS_OK);
  return text[0] != 0;
}

/* What runs is named; a choice that makes nothing slower is no reason to warn. OPENBLAS_CORETYPE takes effect before main. */
static void test_description(void **state) {
  (void)state;
  char text[KERNELS_TEXT], expected[KERNELS_TEXT];
  const bool vectors = kernels_named("avx2") != NULL || lowbit_kernels_named("neon") != NULL;
  matmul_describe(text, sizeof text);
  snprintf(expected, sizeof expected, "kernels %s, ", kernels()->name);
  assert_memory_equal(text, expected, strlen(expected));
  snprintf(expected, sizeof expected, "BLAS kernels %s (OpenBLAS ", matmul_core());
  assert_non_null(strstr(text, expected));
  assert_int_equal(strstr(text, "oneDNN") != NULL, matmul_backend().onednn);
  unsetenv("OPENBLAS_CORETYPE");
  assert_false(slowed(text));
  setenv("OPENBLAS_CORETYPE", "no such core", 1);
  assert_false(slowed(text));
  setenv("ASTRA_KERNELS", "portable", 1);
  assert_int_equal(slowed(text), vectors);
  if (vectors) assert_non_null(strstr(text, "ASTRA_KERNELS=portable; unset it"));
  unsetenv("ASTRA_KERNELS");
  unsetenv("OPENBLAS_CORETYPE");
}

/* An OpenBLAS that is older than the processor runs without its vectors, unless the environment asked for that. */
static void test_unknown_processor(void **state) {
  (void)state;
  char text[KERNELS_TEXT];
  const bool vectors = kernels_named("avx2") != NULL;
  unsetenv("OPENBLAS_CORETYPE");
  kernels_check_core("Prescott", text, KERNELS_TEXT);
  assert_int_equal(text[0] != 0, vectors);
  if (vectors) assert_non_null(strstr(text, kernels_named("avx512") ? "OPENBLAS_CORETYPE=SkylakeX" : "OPENBLAS_CORETYPE=Haswell"));
  kernels_check_core("haswell", text, KERNELS_TEXT);
  assert_string_equal(text, "");
  setenv("OPENBLAS_CORETYPE", "Prescott", 1);
  kernels_check_core("Prescott", text, KERNELS_TEXT);
  assert_string_equal(text, "");
  unsetenv("OPENBLAS_CORETYPE");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_unknown_processor),
      cmocka_unit_test(test_choice),
      cmocka_unit_test(test_description),
      cmocka_unit_test(test_axpy_add),
      cmocka_unit_test(test_sums),
      cmocka_unit_test(test_gelu),
      cmocka_unit_test(test_gelu_tanh),
      cmocka_unit_test(test_gelu_tails),
      cmocka_unit_test(test_layer_norm),
      cmocka_unit_test(test_rms_norm),
      cmocka_unit_test(test_large_norms),
      cmocka_unit_test(test_constant_norms),
      cmocka_unit_test(test_softmax),
      cmocka_unit_test(test_softmax_tiles),
      cmocka_unit_test(test_products),
      cmocka_unit_test(test_exponential),
      cmocka_unit_test(test_nearest),
      cmocka_unit_test(test_adamw),
      cmocka_unit_test(test_moments),
      cmocka_unit_test(test_normal_split),
      cmocka_unit_test(test_nearest_words),
      cmocka_unit_test(test_words),
      cmocka_unit_test(test_triangles),
      cmocka_unit_test(test_swiglu),
      cmocka_unit_test(test_rotate),
      cmocka_unit_test(test_nearer),
      cmocka_unit_test(test_adamw_bf16),
      cmocka_unit_test(test_adamw_bytes),
      cmocka_unit_test(test_rounding),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
