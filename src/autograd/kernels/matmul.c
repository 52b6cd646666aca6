/* Matrix products through CBLAS or oneDNN, in float and bf16, and those too small for either. A product is cut along its larger output
 * dimension into one piece a thread (never along the inner dimension: no sum is split between threads); each piece is a single-threaded
 * call. Measured: BLAS threading one product by itself loses against this on attention shapes and costs a second pool that spins against
 * ours. */
#include "autograd/kernels/matmul.h"
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/onednn.h"
#include "base/clock.h"
#include "base/threads.h"
#include <cblas.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if REAL_IS_DOUBLE
#define blas_gemm cblas_dgemm
#define blas_gemv cblas_dgemv
#else
#define blas_gemm cblas_sgemm
#define blas_gemv cblas_sgemv
#endif

enum {
  GRAIN = 16,             /* rows or columns of a thread's piece: a whole number of register tiles */
  ONEDNN_MIN = 64 * 1024, /* multiply-adds under which finding the primitive costs more than it saves */
  NARROW_N = 256,         /* a widened panel of a 16-bit matrix: half a megabyte, in the second-level cache */
  NARROW_K = 512,
  NARROW_VECTORS = 8, /* rows up to which they are multiplied one by one: from 16 on widened panels win */
  BUFFERS_MAX = 64    /* work buffers made ahead; OpenBLAS has room for twice the threads that it was built for */
};

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

double matmul_count_begin(void) { return timed ? clock_now() : 0; }

void matmul_count_end(int64_t m, int64_t n, int64_t k, double begun) {
  count_product(m, n, k);
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

/* y = alpha A x + beta y or with A^T; A [rows, columns] as stored. BLAS may scale what y holds, so a beta of 0 is done here. */
static void gemv(bool transpose, int64_t rows, int64_t columns, real alpha, const real *a, int64_t lda, const real *x, int64_t step_x,
                 real beta, real *y) {
  if (beta == 0) {
    memset(y, 0, (size_t)(transpose ? columns : rows) * sizeof *y);
    beta = 1;
  }
  blas_gemv(CblasRowMajor, transpose ? CblasTrans : CblasNoTrans, (int)rows, (int)columns, alpha, a, (int)lda, x, (int)step_x, beta, y, 1);
}

#if REAL_IS_DOUBLE
static bool run_onednn(const Product *p) { return (void)p, false; }
#else
/* False: this product is not for oneDNN, which follows from its shape alone. */
static bool run_onednn(const Product *p) {
  if (matmul_backend() != MATMUL_ONEDNN || p->alpha != 1 || (p->beta != 0 && p->beta != 1)) return false;
  if ((double)p->m * (double)p->n * (double)p->k < ONEDNN_MIN) return false;
  return onednn_product(&(OnednnProduct){.transpose_a = p->transpose_a,
                                         .transpose_b = p->transpose_b,
                                         .add = p->beta == 1,
                                         .m = p->m,
                                         .n = p->n,
                                         .k = p->k,
                                         .lda = p->lda,
                                         .ldb = p->ldb,
                                         .ldc = p->ldc,
                                         .a = p->a,
                                         .b = p->b,
                                         .c = p->c});
}
#endif

static void run(const Product *p) {
  if (p->m == 1 && p->k > 0) { /* c^T = op(B)^T a^T: at memory speed, which gemm is not */
    gemv(!p->transpose_b, p->transpose_b ? p->n : p->k, p->transpose_b ? p->k : p->n, p->alpha, p->b, p->ldb, p->a,
         p->transpose_a ? p->lda : 1, p->beta, p->c);
    return;
  }
  if (run_onednn(p)) return;
  blas_gemm(CblasRowMajor, p->transpose_a ? CblasTrans : CblasNoTrans, p->transpose_b ? CblasTrans : CblasNoTrans, (int)p->m, (int)p->n,
            (int)p->k, p->alpha, p->a, (int)p->lda, p->b, (int)p->ldb, p->beta, p->c, (int)p->ldc);
}

/* Computes a product [m, n] over k on the pool, by the longer of its sides; a small one on the calling thread alone. Counts it. */
static void divide(int64_t m, int64_t n, int64_t k, ThreadsBody *rows, ThreadsBody *columns, void *product) {
  const double begun = matmul_count_begin();
  if ((double)m * (double)n * (double)k < MATMUL_POOLED_MIN)
    rows(product, 0, m, 0);
  else if (m >= n)
    threads_for(m, GRAIN, rows, product);
  else
    threads_for(n, GRAIN, columns, product);
  matmul_count_end(m, n, k, begun);
}

static void run_rows(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Product piece = *(const Product *)context;
  piece.m = end - begin;
  piece.a += piece.transpose_a ? begin : begin * piece.lda;
  piece.c += begin * piece.ldc;
  run(&piece);
}

static void run_columns(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Product piece = *(const Product *)context;
  piece.n = end - begin;
  piece.b += piece.transpose_b ? begin * piece.ldb : begin;
  piece.c += begin;
  run(&piece);
}

void matmul(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, real alpha, const real *a, int64_t lda, const real *b,
            int64_t ldb, real beta, real *c, int64_t ldc) {
  if (m <= 0 || n <= 0) return;
  Product product = {transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc};
  divide(m, n, k, run_rows, run_columns, &product);
}

void matmul_single(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, real alpha, const real *a, int64_t lda,
                   const real *b, int64_t ldb, real beta, real *c, int64_t ldc) {
  if (m <= 0 || n <= 0) return;
  const Product product = {transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc};
  const double begun = matmul_count_begin();
  run(&product);
  matmul_count_end(m, n, k, begun);
}

void matmul_nearest(int64_t rows, int64_t k, int64_t d, const real *x, int64_t ldx, const real *words, const real *half_norm,
                    int32_t *codes, int64_t stride) {
  if (rows <= 0 || k <= 0) return;
  const double begun = matmul_count_begin();
  kernels()->nearest_words(rows, k, d, x, ldx, words, half_norm, codes, stride);
  matmul_count_end(rows, k, d, begun);
}

void matmul_nearest_packed(const NearestPack *pack, int64_t rows, int64_t k, int64_t d, const real *x, int64_t ldx, int32_t *codes,
                           int64_t stride, void *memory) {
  if (rows <= 0) return;
  const double begun = matmul_count_begin();
  kernels_nearest_packed()->search(pack, rows, x, ldx, codes, stride, memory);
  matmul_count_end(rows, k, d, begun);
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
  run(&(Product){false, p->transpose_b, p->m, n, k, 1, p->a + row, p->lda, wide, width, p->add || row > 0 ? 1 : 0, p->c + column, p->ldc});
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
      narrow_panel(p, column, matmul_lesser(NARROW_N, end - column), row, matmul_lesser(NARROW_K, p->k - row), wide);
}

void matmul_narrow(bool transpose_b, int64_t m, int64_t n, int64_t k, const real *a, int64_t lda, NarrowKind kind, const uint16_t *b,
                   int64_t ldb, bool add, real *c, int64_t ldc, real *scratch) {
  if (m <= 0 || n <= 0) return;
  NarrowProduct product = {transpose_b, m, k, a, lda, kind, b, ldb, add, c, ldc, scratch};
  const double begun = matmul_count_begin();
  const bool small = (double)m * (double)n * (double)k < MATMUL_POOLED_MIN;
  threads_for(n, small ? n : GRAIN, narrow_columns, &product); /* it knows whose scratch is free */
  matmul_count_end(m, n, k, begun);
}

int64_t matmul_narrow_scratch(void) { return (int64_t)threads_count() * NARROW_N * NARROW_K; }

/* ---- products of bf16 matrices: in oneDNN where the processor has instructions for them, otherwise tile by tile in float, of panels that
 * are widened into scratch in the second-level cache ---- */

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
    run(&(Product){p->transpose_a, p->transpose_b, m, n, k, 1, scratch->a, p->transpose_a ? m : k, scratch->b, p->transpose_b ? k : n, 1,
                   scratch->c, n});
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
static bool run_bf16_in_onednn(const Bf16Product *p) { return (void)p, false; }
#else
static bool run_bf16_in_onednn(const Bf16Product *p) {
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
  if (run_bf16_in_onednn(p)) return;
  Scratch *scratch = scratch_of_thread();
  for (int64_t row = 0; row < p->m; row += TILE_M)
    for (int64_t column = 0; column < p->n; column += TILE_N) run_tile(p, row, column, scratch);
}

static void run_bf16_rows(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Bf16Product piece = *(const Bf16Product *)context;
  piece.m = end - begin;
  piece.a += piece.transpose_a ? begin : begin * piece.lda;
  piece.c = numbers_from(piece.c, begin * piece.ldc);
  run_bf16(&piece);
}

static void run_bf16_columns(void *context, int64_t begin, int64_t end, int thread) {
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
  divide(m, n, k, run_bf16_rows, run_bf16_columns, &product);
}

/* ---- whether bf16 is worth it ---- */

enum { PROBE = 512, PROBES = 5 };

/* The best of a few, in seconds. */
static double time_probe(bool narrow, const uint16_t *a, const real *wide, real *c) {
  double best = INFINITY;
  for (int i = 0; i < PROBES; i++) {
    const double begun = clock_now();
    if (narrow)
      run_bf16(&(Bf16Product){false, true, false, PROBE, PROBE, PROBE, a, PROBE, a, PROBE, NULL, {.wide = c}, PROBE});
    else
      run(&(Product){false, true, PROBE, PROBE, PROBE, 1, wide, PROBE, wide, PROBE, 0, c, PROBE});
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

/* ---- products too small for a library ---- */

static void run_small_bf16(const MatmulSmall *p) {
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

static void run_in_library(const MatmulSmall *p) {
  if (p->a.narrow)
    run_small_bf16(p);
  else
    run(&(Product){p->transpose_a, p->transpose_b, p->m, p->n, p->k, 1, p->a.wide, p->lda, p->b.wide, p->ldb, p->add ? 1 : 0, p->c,
                   p->ldc});
}

void matmul_small(int count, const MatmulSmall *product) {
  const double begun = matmul_count_begin();
  const bool vectors = kernels() != kernels_named("portable");
  ProductBf16 *narrow = kernels_product_bf16();
  int64_t multiplied = 0;
  for (const MatmulSmall *p = product; p < product + count; p++) {
    if (!vectors)
      run_in_library(p);
    else if (p->a.narrow)
      narrow(p->transpose_a, p->transpose_b, p->m, p->n, p->k, p->a.narrow, p->lda, p->b.narrow, p->ldb, p->add, p->c, p->ldc);
    else
      kernels()->product(p->transpose_a, p->transpose_b, p->m, p->n, p->k, p->a.wide, p->lda, p->b.wide, p->ldb, p->add, p->c, p->ldc);
    multiplied += p->m * p->n * p->k;
  }
  matmul_count_end(multiplied, 1, 1, begun);
}

/* ---- which library ---- */

static const struct {
  const char *name;
  MatmulBackend backend;
  bool int8; /* on any processor */
} backend_names[] = {{"openblas", MATMUL_OPENBLAS, false}, {"onednn", MATMUL_ONEDNN, false}, {"onednn-int8", MATMUL_ONEDNN, true}};
enum { BACKENDS = sizeof backend_names / sizeof *backend_names };

static _Atomic int chosen_backend = -1; /* a row of these; not yet */

/* By the processor: with AVX-512 oneDNN was faster on every shape that was measured. A slower table of kernels that the environment asks
 * for stands for a lesser processor. */
static int fitting_backend(void) {
  return !REAL_IS_DOUBLE && onednn_has_float() && strcmp(kernels()->name, "avx512") == 0 ? MATMUL_ONEDNN : MATMUL_OPENBLAS;
}

static int backend_named(const char *name) {
  if (strcmp(name, "auto") == 0) return fitting_backend();
  for (int i = 0; i < BACKENDS; i++) {
    if (strcmp(name, backend_names[i].name) == 0) return i;
  }
  return -1;
}

Status matmul_choose_backend(const char *name) {
  const char *source = name ? "--backend" : "environment variable ASTRA_BACKEND";
  if (name == NULL) name = getenv("ASTRA_BACKEND");
  if (name == NULL) name = "auto";
  const int backend = backend_named(name);
  if (backend < 0) return status_set(STATUS_BAD_USAGE, "%s: \"%s\" is none of auto, openblas, onednn and onednn-int8", source, name);
  if (backend_names[backend].int8 && onednn_has_float() && !onednn_has_int8())
    return status_set(STATUS_BAD_USAGE, "%s: onednn-int8 needs a processor with VNNI or AMX; openblas, onednn and auto are accepted",
                      source);
  if (backend_names[backend].backend == MATMUL_ONEDNN && !onednn_has_float())
    return status_set(STATUS_BAD_USAGE, "%s: oneDNN %s; openblas and auto are accepted", source,
                      onednn_version() ? "needs a processor with AVX-512 here" : "was not found when this program was built");
  atomic_store(&chosen_backend, backend);
  return STATUS_OK;
}

static int backend_row(void) {
  const int row = atomic_load_explicit(&chosen_backend, memory_order_relaxed);
  if (row >= 0) return row;
  if (matmul_choose_backend(NULL) != STATUS_OK) atomic_store(&chosen_backend, fitting_backend()); /* programs have asked before */
  return atomic_load(&chosen_backend);
}

MatmulBackend matmul_backend(void) { return backend_names[backend_row()].backend; }
const char *matmul_backend_name(void) { return backend_names[backend_row()].name; }

bool matmul_int8_in_onednn(void) {
  return matmul_backend() == MATMUL_ONEDNN && onednn_has_int8() && (backend_names[backend_row()].int8 || onednn_has_amx());
}

bool matmul_bf16_is_native(void) { return matmul_backend() == MATMUL_ONEDNN && onednn_has_bf16(); }

/* ---- what runs, and its start ---- */

const char *matmul_core(void) { return openblas_get_corename(); }

void matmul_describe(char *text, size_t size) {
  const char *library = openblas_get_config(); /* name, version, options of its build */
  const char *version = strchr(library, ' ');
  size_t length = version ? (size_t)(version - library) + 1 : 0;
  length += strcspn(library + length, " ");
  const bool onednn = matmul_backend() == MATMUL_ONEDNN;
  snprintf(text, size, "kernels %s, %s%sBLAS kernels %s (%.*s)", kernels()->name, onednn ? onednn_version() : "", onednn ? ", " : "",
           matmul_core(), (int)length, library);
}

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
  void *buffer[BUFFERS_MAX];
  int count = threads_count() < BUFFERS_MAX ? threads_count() : BUFFERS_MAX;
  if (!blas_memory_alloc || !blas_memory_free) return;
  for (int i = 0; i < count; i++) buffer[i] = blas_memory_alloc(0);
  for (int i = 0; i < count; i++) blas_memory_free(buffer[i]);
}

void matmul_start(void) { timed = true; }
