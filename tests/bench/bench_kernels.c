/* Nanoseconds a number for each kernel of each table, on rows that lie in the second-level cache, and GFLOP/s of the products of vision
 * transformers on one thread and on all. Best of several runs; not a test. */
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/threads.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROW = 768, ROWS = 32, NUMBERS = ROW * ROWS, ARRAYS = 5, RUNS = 5 };

static real *array[ARRAYS]; /* [ROWS, ROW] each */
static real sink;

typedef void Body(const Kernels *table, int64_t row); /* one row's work */

static void axpy(const Kernels *table, int64_t at) { table->axpy(ROW, (real)1e-3, array[0] + at, array[1] + at); }
static void add(const Kernels *table, int64_t at) { table->add(ROW, array[0] + at, array[1] + at); }
static void dot(const Kernels *table, int64_t at) { sink += table->dot(ROW, array[0] + at, array[1] + at); }
static void sum_squares(const Kernels *table, int64_t at) { sink += (real)table->sum_squares(ROW, array[0] + at); }
static void bias_gelu(const Kernels *table, int64_t at) { table->bias_gelu(ROW, NULL, array[0] + at, array[1] + at); }
static void bias_gelu_tanh(const Kernels *table, int64_t at) { table->bias_gelu_tanh(ROW, NULL, array[0] + at, array[1] + at); }
static void gelu_backward(const Kernels *table, int64_t at) { table->gelu_backward(ROW, array[0] + at, array[2] + at, array[1] + at); }
static void gelu_tanh_backward(const Kernels *table, int64_t at) {
  table->gelu_tanh_backward(ROW, array[0] + at, array[2] + at, array[1] + at);
}
static void swiglu(const Kernels *table, int64_t at) { table->swiglu(ROW, array[0] + at, array[2] + at, array[1] + at); }
static void swiglu_backward(const Kernels *table, int64_t at) {
  table->swiglu_backward(ROW, array[0] + at, array[2] + at, array[3] + at, array[1] + at, array[4] + at);
}
static void rotate(const Kernels *table, int64_t at) { table->rotate(ROW / 2, 1, array[2], array[3], array[0] + at, array[1] + at); }
static void layer_norm(const Kernels *table, int64_t at) {
  real mean, rstd;
  table->layer_norm(ROW, array[0] + at, array[2], array[3], (real)1e-5, array[1] + at, &mean, &rstd);
}
static void layer_norm_backward(const Kernels *table, int64_t at) {
  table->layer_norm_backward(ROW, array[0] + at, array[2], 0, (real)1e-3, array[3] + at, array[1] + at, array[4], array[4] + ROW);
}
static void rms_norm(const Kernels *table, int64_t at) {
  real rstd;
  table->rms_norm(ROW, array[0] + at, array[2], (real)1e-5, array[1] + at, &rstd);
}
static void softmax(const Kernels *table, int64_t at) { sink += table->softmax(ROW, 1, array[1] + at); }
static void softmax_tile(const Kernels *table, int64_t at) {
  real max = (real)-INFINITY, sum = 0, factor;
  table->softmax_tile(1, ROW, ROW, 1, array[1] + at, &max, &sum, &factor);
  sink += sum;
}
static void softmax_tile_backward(const Kernels *table, int64_t at) {
  const real lse = 7, dot_of_row = (real)0.1;
  table->softmax_tile_backward(1, ROW, ROW, 1, &lse, &dot_of_row, array[0] + at, array[1] + at);
}
static void scale_rows(const Kernels *table, int64_t at) {
  const real factor = (real)0.999;
  table->scale_rows(1, ROW, ROW, &factor, array[1] + at);
}
static void product(const Kernels *table, int64_t at) { /* 24 rows of 32 and as many columns; the numbers are those of its inputs */
  table->product(false, true, 24, 24, 32, array[0] + at, 32, array[1], 32, false, array[2], 24);
}
static void nearest(const Kernels *table, int64_t at) {
  real best;
  sink += (real)table->nearest(ROW, array[0], array[1] + at, &best);
}
enum { WORDS = ROW / 24 }; /* of 24 numbers: one row of numbers, against as many */
static void nearest_words(const Kernels *table, int64_t at) {
  int32_t codes[WORDS];
  table->nearest_words(WORDS, WORDS, 24, array[0] + at, 24, array[1], array[2], codes, 1);
  sink += (real)codes[0];
}
static void nearer(const Kernels *table, int64_t at) { /* one tile against the candidates of K = 1,024 */
  enum { CANDIDATES = 8, WIDTH = ROW / NEARER_LANES };
  static real found[CANDIDATES * NEARER_LANES];
  double sums[CANDIDATES];
  table->nearer(NEARER_LANES, WIDTH, array[0] + at, CANDIDATES, array[1], array[2], found, NEARER_LANES, sums);
  sink += (real)sums[0];
}
static const AdamwStep adamw_step = {1, (real)1e-3, (real)0.9, (real)0.999, (real)0.1, (real)0.001, (real)1e-8, (real)0.01, 42};
static void adamw(const Kernels *table, int64_t at) {
  table->adamw(ROW, array[0] + at, array[1] + at, array[2] + at, array[3] + at, &adamw_step);
}
static void adamw_bf16(const Kernels *table, int64_t at) {
  static uint16_t m[NUMBERS], v[NUMBERS];
  table->adamw_bf16(ROW, array[0] + at, array[1] + at, m + at, v + at, &adamw_step, (uint64_t)at / ADAMW_DRAWS);
}
static void adamw_bytes(const Kernels *table, int64_t at) {
  static uint8_t m[NUMBERS], v[NUMBERS];
  static float scale[2][ROW];
  table->adamw_bytes(ROW, array[0] + at, array[1] + at, m + at, v + at, scale[0], scale[1], &adamw_step, (uint64_t)at / ADAMW_DRAWS);
}
static uint16_t narrow[NUMBERS]; /* zeros: what they are takes no time */
static void widen_half(const Kernels *table, int64_t at) { table->widen(NARROW_F16, ROW, narrow + at, array[1] + at); }
static void widen_bfloat(const Kernels *table, int64_t at) { table->widen(NARROW_BF16, ROW, narrow + at, array[1] + at); }
static void normal(const Kernels *table, int64_t at) { table->normal(ROW, 42, (uint64_t)at / 4, array[1] + at); }

static const struct {
  const char *name;
  Body *body;
} bodies[] = {{"axpy", axpy},
              {"add", add},
              {"dot", dot},
              {"sum_squares", sum_squares},
              {"bias_gelu", bias_gelu},
              {"bias_gelu_tanh", bias_gelu_tanh},
              {"gelu_backward", gelu_backward},
              {"gelu_tanh_backward", gelu_tanh_backward},
              {"swiglu", swiglu},
              {"swiglu_backward", swiglu_backward},
              {"rotate", rotate},
              {"layer_norm", layer_norm},
              {"layer_norm_backward", layer_norm_backward},
              {"rms_norm", rms_norm},
              {"softmax", softmax},
              {"softmax_tile", softmax_tile},
              {"softmax_tile_backward", softmax_tile_backward},
              {"scale_rows", scale_rows},
              {"product, 24 x 24 x 32", product},
              {"nearest", nearest},
              {"nearest_words", nearest_words},
              {"nearer", nearer},
              {"adamw", adamw},
              {"adamw, bf16", adamw_bf16},
              {"adamw, bytes", adamw_bytes},
              {"widen, half", widen_half},
              {"widen, bfloat", widen_bfloat},
              {"normal", normal}};

static void reset_arrays(void) {
  Rng rng;
  rng_init(&rng, 1, 0);
  for (int a = 0; a < ARRAYS; a++)
    for (int64_t i = 0; i < NUMBERS; i++) array[a][i] = (real)(a == 3 ? rng_uniform(&rng) : rng_normal(&rng));
}

static double nanoseconds(const Kernels *table, Body *body) {
  double best = 1e30;
  for (int run = 0; run < RUNS; run++) {
    reset_arrays();
    const int sweeps = 20;
    const double begun = clock_now();
    for (int sweep = 0; sweep < sweeps; sweep++)
      for (int64_t row = 0; row < ROWS; row++) body(table, row * ROW);
    const double each = (clock_now() - begun) / sweeps / NUMBERS * 1e9;
    best = each < best ? each : best;
  }
  return best;
}

static void print_kernels(void) {
  static const char *const names[] = {"portable", "avx2", "avx512"};
  printf("%-22s", "ns a number");
  for (int t = 0; t < 3; t++)
    if (kernels_named(names[t])) printf("%10s", names[t]);
  printf("\n");
  for (size_t b = 0; b < sizeof bodies / sizeof *bodies; b++) {
    printf("%-22s", bodies[b].name);
    for (int t = 0; t < 3; t++)
      if (kernels_named(names[t])) printf("%10.3f", nanoseconds(kernels_named(names[t]), bodies[b].body));
    printf("\n");
  }
}

typedef void Multiply(bool, bool, int64_t, int64_t, int64_t, real, const real *, int64_t, const real *, int64_t, real, real *, int64_t);

static double gflops(Multiply *multiply, int64_t m, int64_t n, int64_t k, const real *a, const real *b, real *c) {
  double best = 0;
  for (int run = 0; run < RUNS; run++) {
    const double begun = clock_now();
    multiply(false, true, m, n, k, 1, a, k, b, k, 0, c, n);
    const double rate = 2e-9 * (double)m * (double)n * (double)k / (clock_now() - begun);
    best = rate > best ? rate : best;
  }
  return best;
}

static void print_products(void) {
  static const int64_t shapes[][3] = {{8320, 192, 192},  {8320, 768, 192}, {1576, 768, 768},
                                      {1576, 3072, 768}, {1, 768, 768},    {1, 3072, 768}};
  const size_t room = 8320 * 768;
  real *a = calloc(room, sizeof *a), *b = calloc(room, sizeof *b), *c = calloc(room, sizeof *c);
  if (!a || !b || !c) exit(1);
  for (size_t i = 0; i < room; i++) a[i] = b[i] = (real)1 / (real)(1 + i % 7);
  printf("\n%-22s%10s%10s\n", "GFLOP/s, x W^T", "1 thread", "pool");
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
    const int64_t *d = shapes[s];
    printf("%5d x %4d x %-7d", (int)d[0], (int)d[1], (int)d[2]);
    printf("%10.1f%10.1f\n", gflops(matmul_single, d[0], d[1], d[2], a, b, c), gflops(matmul, d[0], d[1], d[2], a, b, c));
  }
  free(a), free(b), free(c);
}

int main(void) {
  matmul_start();
  if (threads_start(0) != STATUS_OK) return 1;
  for (int i = 0; i < ARRAYS; i++)
    if (!(array[i] = malloc(NUMBERS * sizeof(real)))) return 1;
  print_kernels();
  print_products();
  threads_stop();
  for (int i = 0; i < ARRAYS; i++) free(array[i]);
  return sink == (real)-1;
}
