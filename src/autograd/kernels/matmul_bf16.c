/* Products of bf16 matrices: through oneDNN where the processor has instructions for them, otherwise tile by tile in float, of panels that
 * are widened into scratch in the second-level cache. See matmul.h. */
#include "autograd/kernels/matmul.h"
#include "autograd/kernels/matmul_parts.h"
#include "autograd/kernels/onednn.h"
#include "base/clock.h"
#include "base/threads.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { TILE_M = 256, TILE_N = 256, TILE_K = 512 };

typedef struct Bf16Product {
  bool transpose_a, transpose_b, add;
  int64_t m, n, k;
  const uint16_t *a;
  int64_t lda;
  const uint16_t *b;
  int64_t ldb;
  const real *bias;
  Numbers c;
  int64_t ldc;
} Bf16Product;

/* What a thread widens into; it goes with its thread. */
typedef struct Scratch {
  real a[TILE_M * TILE_K], b[TILE_N * TILE_K], c[TILE_M * TILE_N];
} Scratch;

static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;
static pthread_key_t scratch_key;

static void make_scratch_key(void) {
  if (pthread_key_create(&scratch_key, free) != 0) abort();
}

static Scratch *scratch_of_thread(void) {
  pthread_once(&scratch_once, make_scratch_key);
  Scratch *scratch = pthread_getspecific(scratch_key);
  if (scratch != NULL) return scratch;
  scratch = malloc(sizeof *scratch);
  if (scratch == NULL) abort(); /* 1.25 MiB, once a thread: there is nothing left to go on with */
  pthread_setspecific(scratch_key, scratch);
  return scratch;
}

/* Rows [row, row + rows), columns [column, column + columns) of op(matrix), as stored. */
static void widen_panel(bool transposed, const uint16_t *matrix, int64_t stride, int64_t row, int64_t rows, int64_t column, int64_t columns,
                        real *wide) {
  if (transposed) {
    const int64_t swap_first = row, swap_count = rows;
    row = column, rows = columns, column = swap_first, columns = swap_count;
  }
  for (int64_t r = 0; r < rows; r++) kernels()->widen(NARROW_BF16, columns, matrix + (row + r) * stride + column, wide + r * columns);
}

static void run_tile(const Bf16Product *p, int64_t row, int64_t column, Scratch *scratch) {
  const int64_t m = matmul_lesser(TILE_M, p->m - row), n = matmul_lesser(TILE_N, p->n - column);
  for (int64_t i = 0; i < m; i++) {
    real *c = scratch->c + i * n;
    const int64_t at = (row + i) * p->ldc + column;
    if (p->add)
      memcpy(c, numbers_read(p->c, at, n, scratch->a), (size_t)n * sizeof *c);
    else
      memset(c, 0, (size_t)n * sizeof *c);
    if (p->bias) kernels()->add(n, p->bias + column, c);
  }
  for (int64_t inner = 0; inner < p->k; inner += TILE_K) {
    const int64_t k = matmul_lesser(TILE_K, p->k - inner);
    widen_panel(p->transpose_a, p->a, p->lda, row, m, inner, k, scratch->a);
    widen_panel(p->transpose_b, p->b, p->ldb, inner, k, column, n, scratch->b);
    matmul_run(&(MatmulProduct){p->transpose_a, p->transpose_b, m, n, k, 1, scratch->a, p->transpose_a ? m : k, scratch->b,
                                p->transpose_b ? k : n, 1, scratch->c, n});
  }
  for (int64_t i = 0; i < m; i++) {
    const int64_t at = (row + i) * p->ldc + column;
    if (p->c.wide)
      memcpy(p->c.wide + at, scratch->c + i * n, (size_t)n * sizeof(real));
    else
      numbers_written(p->c, at, n, scratch->c + i * n);
  }
}

#if REAL_IS_DOUBLE
static bool run_onednn(const Bf16Product *p) { return (void)p, false; }
#else
static bool run_onednn(const Bf16Product *p) {
  if (!matmul_bf16_is_native()) return false;
  return onednn_product(&(OnednnProduct){.transpose_a = p->transpose_a,
                                         .transpose_b = p->transpose_b,
                                         .add = p->add,
                                         .inputs = ONEDNN_BF16,
                                         .output = p->c.wide ? ONEDNN_F32 : ONEDNN_BF16,
                                         .m = p->m,
                                         .n = p->n,
                                         .k = p->k,
                                         .lda = p->lda,
                                         .ldb = p->ldb,
                                         .ldc = p->ldc,
                                         .a = p->a,
                                         .b = p->b,
                                         .c = p->c.wide ? (void *)p->c.wide : (void *)p->c.narrow,
                                         .bias = p->bias});
}
#endif

static void run_bf16(const Bf16Product *p) {
  if (run_onednn(p)) return;
  Scratch *scratch = scratch_of_thread();
  for (int64_t row = 0; row < p->m; row += TILE_M)
    for (int64_t column = 0; column < p->n; column += TILE_N) run_tile(p, row, column, scratch);
}

static void run_rows(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Bf16Product piece = *(const Bf16Product *)context;
  piece.m = end - begin;
  piece.a += piece.transpose_a ? begin : begin * piece.lda;
  piece.c = numbers_from(piece.c, begin * piece.ldc);
  run_bf16(&piece);
}

static void run_columns(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Bf16Product piece = *(const Bf16Product *)context;
  piece.n = end - begin;
  piece.b += piece.transpose_b ? begin * piece.ldb : begin;
  piece.c = numbers_from(piece.c, begin);
  if (piece.bias) piece.bias += begin;
  run_bf16(&piece);
}

void matmul_bf16(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda, const uint16_t *b,
                 int64_t ldb, const real *bias, bool add, Numbers c, int64_t ldc) {
  if (m <= 0 || n <= 0) return;
  Bf16Product product = {transpose_a, transpose_b, add, m, n, k, a, lda, b, ldb, bias, c, ldc};
  const double begun = matmul_count_begin();
  if ((double)m * (double)n * (double)k < MATMUL_POOLED_MIN)
    run_bf16(&product);
  else if (m >= n)
    threads_for(m, MATMUL_GRAIN, run_rows, &product);
  else
    threads_for(n, MATMUL_GRAIN, run_columns, &product);
  matmul_count_end(m, n, k, begun);
}

void matmul_bf16_single(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                        const uint16_t *b, int64_t ldb, const real *bias, bool add, Numbers c, int64_t ldc) {
  if (m <= 0 || n <= 0) return;
  const double begun = matmul_count_begin();
  run_bf16(&(Bf16Product){transpose_a, transpose_b, add, m, n, k, a, lda, b, ldb, bias, c, ldc});
  matmul_count_end(m, n, k, begun);
}

void matmul_bf16_uncounted(const MatmulSmall *p) {
  run_bf16(&(Bf16Product){.transpose_a = p->transpose_a,
                          .transpose_b = p->transpose_b,
                          .add = p->add,
                          .m = p->m,
                          .n = p->n,
                          .k = p->k,
                          .a = p->a.narrow,
                          .lda = p->lda,
                          .b = p->b.narrow,
                          .ldb = p->ldb,
                          .c = {.wide = p->c},
                          .ldc = p->ldc});
}

/* ---- is it worth it? */

enum { PROBE = 512, PROBES = 5 };

/* The best of a few, in seconds. */
static double time_probe(bool narrow, const uint16_t *a, const real *wide, real *c) {
  double best = INFINITY;
  for (int i = 0; i < PROBES; i++) {
    const double begun = clock_now();
    if (narrow)
      run_bf16(&(Bf16Product){false, true, false, PROBE, PROBE, PROBE, a, PROBE, a, PROBE, NULL, {.wide = c}, PROBE});
    else
      matmul_run(&(MatmulProduct){false, true, PROBE, PROBE, PROBE, 1, wide, PROBE, wide, PROBE, 0, c, PROBE});
    best = fmin(best, clock_now() - begun);
  }
  return best;
}

bool matmul_bf16_is_faster(void) {
  const size_t count = (size_t)PROBE * PROBE;
  if (!matmul_bf16_is_native()) return false;
  uint16_t *a = calloc(count, sizeof *a);
  real *wide = calloc(count, sizeof *wide), *c = malloc(count * sizeof *c);
  const bool faster = a && wide && c && 1.1 * time_probe(true, a, wide, c) < time_probe(false, a, wide, c);
  free(a), free(wide), free(c);
  return faster;
}
