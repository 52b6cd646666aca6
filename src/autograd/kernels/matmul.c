/* Matrix products through CBLAS. A product is cut along its larger output dimension into one piece a thread (never along the inner
 * dimension: no sum is split between threads); each piece is a single-threaded BLAS call. Measured: BLAS threading one product by itself
 * loses against this on attention shapes and costs a second pool that spins against ours. */
#include "autograd/kernels/matmul.h"
#include "autograd/kernels/kernels.h"
#include "base/clock.h"
#include "base/threads.h"
#include <cblas.h>
#include <stdatomic.h>
#include <string.h>

#if REAL_IS_DOUBLE
#define blas_gemm cblas_dgemm
#define blas_gemv cblas_dgemv
#else
#define blas_gemm cblas_sgemm
#define blas_gemv cblas_sgemv
#endif

enum {
  PIECE_GRAIN = 16,          /* rows or columns: a whole number of BLAS register tiles */
  POOLED_LEAST = 256 * 1024, /* multiply-adds under which waking the pool costs more than it saves */
  NARROW_N = 256,            /* a widened panel of a 16-bit matrix: half a megabyte, in the second-level cache */
  NARROW_K = 512,
  NARROW_VECTORS = 8, /* rows up to which they are multiplied one by one: from 16 on widened panels win */
  BUFFERS_MOST = 64   /* work buffers made ahead; OpenBLAS has room for twice the threads that it was built for */
};

typedef struct Product {
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  real alpha;
  const real *a;
  int64_t lda;
  const real *b;
  int64_t ldb;
  real beta;
  real *c;
  int64_t ldc;
} Product;

/* ---- counting ---- */

static _Atomic int64_t counted_calls;
static _Atomic uint64_t counted_flops; /* the bits of a double */
static double counted_seconds;         /* the timed thread's alone */
static _Thread_local bool timed;       /* the thread that started or reset the count: thread 0 of the pool */

static double bits_to_double(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void count_product(int64_t m, int64_t n, int64_t k) {
  atomic_fetch_add_explicit(&counted_calls, 1, memory_order_relaxed);
  uint64_t old = atomic_load_explicit(&counted_flops, memory_order_relaxed), fresh;
  do {
    const double sum = bits_to_double(old) + 2.0 * (double)m * (double)n * (double)k;
    memcpy(&fresh, &sum, sizeof fresh);
  } while (!atomic_compare_exchange_weak_explicit(&counted_flops, &old, fresh, memory_order_relaxed, memory_order_relaxed));
}

static double count_begin(void) { return timed ? clock_now() : 0; }

static void count_end(double begun) {
  if (timed) counted_seconds += clock_now() - begun;
}

void matmul_count_only(int64_t m, int64_t n, int64_t k) { count_product(m, n, k); }

MatmulCount matmul_counted(void) {
  return (MatmulCount){.calls = atomic_load_explicit(&counted_calls, memory_order_relaxed),
                       .flops = bits_to_double(atomic_load_explicit(&counted_flops, memory_order_relaxed)),
                       .seconds = counted_seconds};
}

void matmul_reset_count(void) {
  timed = true;
  counted_seconds = 0;
  atomic_store_explicit(&counted_calls, 0, memory_order_relaxed);
  atomic_store_explicit(&counted_flops, 0, memory_order_relaxed);
}

/* ---- products ---- */

/* y = alpha A x + beta y or with A^T; A [rows, columns] as stored. BLAS may scale what y holds, so a beta of 0 is done here. */
static void gemv(bool transpose, int64_t rows, int64_t columns, real alpha, const real *a, int64_t lda, const real *x, int64_t step_x,
                 real beta, real *y) {
  if (beta == 0) {
    memset(y, 0, (size_t)(transpose ? columns : rows) * sizeof *y);
    beta = 1;
  }
  blas_gemv(CblasRowMajor, transpose ? CblasTrans : CblasNoTrans, (int)rows, (int)columns, alpha, a, (int)lda, x, (int)step_x, beta, y, 1);
}

static void run_product(const Product *p) {
  if (p->m == 1 && p->k > 0) { /* c^T = op(B)^T a^T: at memory speed, which gemm is not */
    gemv(!p->transpose_b, p->transpose_b ? p->n : p->k, p->transpose_b ? p->k : p->n, p->alpha, p->b, p->ldb, p->a,
         p->transpose_a ? p->lda : 1, p->beta, p->c);
    return;
  }
  blas_gemm(CblasRowMajor, p->transpose_a ? CblasTrans : CblasNoTrans, p->transpose_b ? CblasTrans : CblasNoTrans, (int)p->m, (int)p->n,
            (int)p->k, p->alpha, p->a, (int)p->lda, p->b, (int)p->ldb, p->beta, p->c, (int)p->ldc);
}

static void run_rows(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Product piece = *(const Product *)context;
  piece.m = end - begin;
  piece.a += piece.transpose_a ? begin : begin * piece.lda;
  piece.c += begin * piece.ldc;
  run_product(&piece);
}

static void run_columns(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Product piece = *(const Product *)context;
  piece.n = end - begin;
  piece.b += piece.transpose_b ? begin * piece.ldb : begin;
  piece.c += begin;
  run_product(&piece);
}

void matmul(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, real alpha, const real *a, int64_t lda, const real *b,
            int64_t ldb, real beta, real *c, int64_t ldc) {
  if (m <= 0 || n <= 0) return;
  Product product = {transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc};
  const double begun = count_begin();
  if ((double)m * (double)n * (double)k < POOLED_LEAST)
    run_product(&product);
  else if (m >= n)
    threads_for(m, PIECE_GRAIN, run_rows, &product);
  else
    threads_for(n, PIECE_GRAIN, run_columns, &product);
  count_product(m, n, k);
  count_end(begun);
}

void matmul_single(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, real alpha, const real *a, int64_t lda,
                   const real *b, int64_t ldb, real beta, real *c, int64_t ldc) {
  if (m <= 0 || n <= 0) return;
  const Product product = {transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc};
  const double begun = count_begin();
  run_product(&product);
  count_product(m, n, k);
  count_end(begun);
}

void matmul_vector(int64_t m, int64_t k, real alpha, const real *a, int64_t lda, const real *x, real beta, real *y) {
  matmul_single(false, true, 1, m, k, alpha, x, k, a, lda, beta, y, m);
}

void matmul_nearest(int64_t rows, int64_t k, int64_t d, const real *x, int64_t ldx, const real *words, const real *half_norm,
                    int32_t *codes, int64_t stride) {
  if (rows <= 0 || k <= 0) return;
  const double begun = count_begin();
  kernels()->nearest_words(rows, k, d, x, ldx, words, half_norm, codes, stride);
  count_product(rows, k, d);
  count_end(begun);
}

/* ---- products with 16-bit matrices ---- */

typedef struct NarrowProduct {
  bool transpose_b;
  int64_t m, k;
  const real *a;
  int64_t lda;
  NarrowKind kind;
  const uint16_t *b;
  int64_t ldb;
  bool add;
  real *c;
  int64_t ldc;
  real *scratch; /* [threads, NARROW_N, NARROW_K] */
} NarrowProduct;

static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

static void narrow_vectors(const NarrowProduct *p, int64_t begin, int64_t end) {
  for (int64_t i = 0; i < p->m; i++) {
    real *c = p->c + i * p->ldc + begin;
    if (!p->add) memset(c, 0, (size_t)(end - begin) * sizeof *c);
    if (p->transpose_b)
      kernels()->narrow_dots(p->kind, end - begin, p->k, p->b + begin * p->ldb, p->ldb, p->a + i * p->lda, c);
    else
      kernels()->narrow_sums(p->kind, p->k, end - begin, p->b + begin, p->ldb, p->a + i * p->lda, c);
  }
}

/* Columns [column, column + n) of C, with [row, row + k) of the inner dimension. */
static void narrow_panel(const NarrowProduct *p, int64_t column, int64_t n, int64_t row, int64_t k, real *wide) {
  const int64_t rows = p->transpose_b ? n : k, width = p->transpose_b ? k : n;
  const uint16_t *b = p->b + (p->transpose_b ? column * p->ldb + row : row * p->ldb + column);
  for (int64_t r = 0; r < rows; r++) kernels()->widen(p->kind, width, b + r * p->ldb, wide + r * width);
  run_product(
      &(Product){false, p->transpose_b, p->m, n, k, 1, p->a + row, p->lda, wide, width, p->add || row > 0 ? 1 : 0, p->c + column, p->ldc});
}

static void narrow_columns(void *context, int64_t begin, int64_t end, int thread) {
  const NarrowProduct *p = context;
  real *wide = p->scratch + thread * NARROW_N * NARROW_K;
  if (p->m <= NARROW_VECTORS) {
    narrow_vectors(p, begin, end);
    return;
  }
  for (int64_t column = begin; column < end; column += NARROW_N)
    for (int64_t row = 0; row < p->k; row += NARROW_K)
      narrow_panel(p, column, lesser(NARROW_N, end - column), row, lesser(NARROW_K, p->k - row), wide);
}

void matmul_narrow(bool transpose_b, int64_t m, int64_t n, int64_t k, const real *a, int64_t lda, NarrowKind kind, const uint16_t *b,
                   int64_t ldb, bool add, real *c, int64_t ldc, real *scratch) {
  if (m <= 0 || n <= 0) return;
  NarrowProduct product = {transpose_b, m, k, a, lda, kind, b, ldb, add, c, ldc, scratch};
  const double begun = count_begin();
  const bool small = (double)m * (double)n * (double)k < POOLED_LEAST;
  threads_for(n, small ? n : PIECE_GRAIN, narrow_columns, &product); /* it knows whose scratch is free */
  count_product(m, n, k);
  count_end(begun);
}

int64_t matmul_narrow_scratch(void) { return (int64_t)threads_count() * NARROW_N * NARROW_K; }

/* ---- start ---- */

const char *matmul_core(void) { return openblas_get_corename(); }
const char *matmul_library(void) { return openblas_get_config(); }

/* OpenBLAS's own, exported but in none of its headers; another BLAS may lack them. */
void *blas_memory_alloc(int place) __attribute__((weak));
void blas_memory_free(void *buffer) __attribute__((weak));
int blas_thread_shutdown_(void) __attribute__((weak));

/* The threads that OpenBLAS starts as it is loaded would idle for ever, each asking for a work buffer whenever it first gets to run. */
__attribute__((constructor)) static void use_one_blas_thread(void) {
  openblas_set_num_threads(1);
  if (blas_thread_shutdown_) blas_thread_shutdown_();
}

void matmul_reserve(void) {
  void *buffer[BUFFERS_MOST];
  int count = threads_count() < BUFFERS_MOST ? threads_count() : BUFFERS_MOST;
  if (!blas_memory_alloc || !blas_memory_free) return;
  for (int i = 0; i < count; i++) buffer[i] = blas_memory_alloc(0);
  for (int i = 0; i < count; i++) blas_memory_free(buffer[i]);
}

void matmul_start(void) { timed = true; }
