/* Matrix products through CBLAS or oneDNN, in float and bf16, those with packed weights, and those too small for a library. A product is
 * cut along its larger output dimension into one piece a thread (never along the inner dimension: no sum is split between threads); each
 * piece is a single-threaded call. Measured: BLAS threading one product by itself loses against this on attention shapes and costs a second
 * pool that spins against ours. */
#include "autograd/kernels/matmul.h"
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/kernels_tables.h"
#include "autograd/kernels/lowbit_kernels.h"
#include "autograd/kernels/onednn.h"
#include "base/clock.h"
#include "base/number.h"
#include "base/text.h"
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
  NARROW_VECTORS = 8, /* rows up to which they are multiplied one by one: from 16 on widened panels are faster */
  BUFFERS_MAX = 64    /* work buffers allocated in advance; OpenBLAS has room for twice the threads that it was built for */
};

/* ---- counting ---- */

static _Atomic int64_t counted_calls;
static _Atomic uint64_t counted_flops; /* the bits of a double */
static double counted_seconds;         /* only of the timed thread */
static _Thread_local bool timed;       /* the thread that started or reset the count: thread 0 of the pool */

static double bits_to_double(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

void matmul_count_only(int64_t m, int64_t n, int64_t k) {
  atomic_fetch_add_explicit(&counted_calls, 1, memory_order_relaxed);
  uint64_t old = atomic_load_explicit(&counted_flops, memory_order_relaxed), fresh;
  do {
    const double sum = bits_to_double(old) + 2.0 * (double)m * (double)n * (double)k;
    memcpy(&fresh, &sum, sizeof fresh);
  } while (!atomic_compare_exchange_weak_explicit(&counted_flops, &old, fresh, memory_order_relaxed, memory_order_relaxed));
}

double matmul_count_begin(void) { return timed ? clock_now() : 0; }

void matmul_count_end(int64_t m, int64_t n, int64_t k, double begun) {
  matmul_count_only(m, n, k);
  if (timed) counted_seconds += clock_now() - begun;
}

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

/* ---- which library ---- */

static const struct {
  const char *name;
  bool onednn, int8; /* int8: on any processor */
} backends[] = {{"openblas", false, false}, {"onednn", true, false}, {"onednn-int8", true, true}};
enum { OPENBLAS, ONEDNN, BACKENDS = sizeof backends / sizeof *backends };

static _Atomic int chosen_backend = -1; /* a row of these; not yet */

/* By the processor: with AVX-512 oneDNN was faster on every shape that was measured. A slower table of kernels that the environment asks
 * for counts as an older processor. */
static int fitting_backend(void) {
  return !REAL_IS_DOUBLE && onednn_has_float() && strcmp(kernels()->name, "avx512") == 0 ? ONEDNN : OPENBLAS;
}

Status matmul_choose_backend(const char *name) {
  const char *source = name ? "--backend" : "environment variable ASTRA_BACKEND";
  if (name == NULL) name = text_environment("ASTRA_BACKEND");
  if (name == NULL) name = "auto";
  int backend = strcmp(name, "auto") == 0 ? fitting_backend() : 0;
  if (strcmp(name, "auto") != 0)
    while (backend < BACKENDS && strcmp(name, backends[backend].name) != 0) backend++;
  if (backend == BACKENDS)
    return status_set(STATUS_BAD_USAGE, "%s: \"%s\" is none of auto, openblas, onednn and onednn-int8", source, name);
  if (backends[backend].int8 && onednn_has_float() && !onednn_has_int8())
    return status_set(STATUS_BAD_USAGE, "%s: onednn-int8 needs a processor with VNNI or AMX; openblas, onednn and auto are accepted",
                      source);
  if (backends[backend].onednn && !onednn_has_float())
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

static bool onednn_is_chosen(void) { return backends[backend_row()].onednn; }
static bool bf16_is_native(void) { return onednn_is_chosen() && onednn_has_bf16(); }

MatmulBackend matmul_backend(void) {
  const int row = backend_row();
  return (MatmulBackend){.name = backends[row].name,
                         .onednn = backends[row].onednn,
                         .bf16 = bf16_is_native(),
                         .int8 = backends[row].onednn && onednn_has_int8() && (backends[row].int8 || onednn_has_amx())};
}

/* ---- products ---- */

/* C [m, n] = alpha op(A) op(B) + beta C, in full or, with alpha 1 and beta 0 or 1, of bf16 matrices. */
typedef struct Product {
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  real alpha;
  Numbers a; /* both in full or both in bf16; only read */
  int64_t lda;
  Numbers b;
  int64_t ldb;
  real beta;
  Numbers c; /* in full, or of bf16 matrices also in bf16 */
  int64_t ldc;
  const real *bias; /* [n], only of bf16 matrices; or NULL */
} Product;

static Numbers in_full(const real *numbers) { return (Numbers){.wide = (real *)(uintptr_t)numbers}; }
static Numbers in_bf16(const uint16_t *numbers) { return (Numbers){.narrow = (uint16_t *)(uintptr_t)numbers}; }

#if REAL_IS_DOUBLE
static bool run_in_onednn(const Product *p) { return (void)p, false; }
#else
static const void *first_of(Numbers numbers) { return numbers.wide ? (const void *)numbers.wide : numbers.narrow; }

/* False: this product is not for oneDNN, which depends only on its shape; or there is no memory for it there. */
static bool run_in_onednn(const Product *p) {
  const bool narrow = p->a.narrow != NULL, large = (double)p->m * (double)p->n * (double)p->k >= ONEDNN_MIN;
  if (narrow && !bf16_is_native()) return false;
  if (!narrow && (!onednn_is_chosen() || p->alpha != 1 || (p->beta != 0 && p->beta != 1) || !large)) return false;
  return onednn_product(&(OnednnProduct){.transpose_a = p->transpose_a,
                                         .transpose_b = p->transpose_b,
                                         .add = p->beta == 1,
                                         .inputs = narrow ? ONEDNN_BF16 : ONEDNN_F32,
                                         .output = p->c.wide ? ONEDNN_F32 : ONEDNN_BF16,
                                         .m = p->m,
                                         .n = p->n,
                                         .k = p->k,
                                         .lda = p->lda,
                                         .ldb = p->ldb,
                                         .ldc = p->ldc,
                                         .a = first_of(p->a),
                                         .b = first_of(p->b),
                                         .c = (void *)(uintptr_t)first_of(p->c),
                                         .bias = p->bias});
}
#endif

static void run_in_full(const Product *p) {
  if (p->m == 1 && p->k > 0) { /* c^T = op(B)^T a^T: at memory speed, which gemm is not */
    const bool transpose = !p->transpose_b;
    const int64_t rows = transpose ? p->k : p->n, columns = transpose ? p->n : p->k, step = p->transpose_a ? p->lda : 1;
    if (p->beta == 0) memset(p->c.wide, 0, (size_t)p->n * sizeof(real)); /* BLAS may scale what is there, NaNs too */
    blas_gemv(CblasRowMajor, transpose ? CblasTrans : CblasNoTrans, (int)rows, (int)columns, p->alpha, p->b.wide, (int)p->ldb, p->a.wide,
              (int)step, p->beta == 0 ? 1 : p->beta, p->c.wide, 1);
    return;
  }
  if (run_in_onednn(p)) return;
  blas_gemm(CblasRowMajor, p->transpose_a ? CblasTrans : CblasNoTrans, p->transpose_b ? CblasTrans : CblasNoTrans, (int)p->m, (int)p->n,
            (int)p->k, p->alpha, p->a.wide, (int)p->lda, p->b.wide, (int)p->ldb, p->beta, p->c.wide, (int)p->ldc);
}

/* ---- products of bf16 matrices: in oneDNN where the processor has instructions for them, otherwise tile by tile in float, of panels that
 * are widened into scratch in the second-level cache ---- */

enum { TILE_M = 256, TILE_N = 256, TILE_K = 512 };

/* Memory that a thread widens into, freed when the thread ends. */
typedef struct Scratch {
  real a[TILE_M * TILE_K], b[TILE_N * TILE_K], c[TILE_M * TILE_N];
} Scratch;

static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;
static pthread_key_t scratch_key;
static bool keyed;

static void make_scratch_key(void) { keyed = pthread_key_create(&scratch_key, free) == 0; }

/* NULL: there is no memory for it. */
static Scratch *scratch_of_thread(void) {
  pthread_once(&scratch_once, make_scratch_key);
  Scratch *scratch = keyed ? pthread_getspecific(scratch_key) : NULL;
  if (scratch != NULL || !keyed) return scratch;
  scratch = malloc(sizeof *scratch);
  if (scratch == NULL || pthread_setspecific(scratch_key, scratch) == 0) return scratch;
  free(scratch);
  return NULL;
}

/* Threads without scratch of their own take turns with this one: products cannot fail. */
static Scratch spare_scratch;
static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;

/* Rows [row, row + rows), columns [column, column + columns) of op(matrix), as stored. */
static void widen_panel(bool transposed, const uint16_t *matrix, int64_t stride, int64_t row, int64_t rows, int64_t column, int64_t columns,
                        real *wide) {
  if (transposed) {
    const int64_t swap_first = row, swap_count = rows;
    row = column, rows = columns, column = swap_first, columns = swap_count;
  }
  for (int64_t r = 0; r < rows; r++) kernels()->widen(NARROW_BF16, columns, matrix + (row + r) * stride + column, wide + r * columns);
}

static void run_tile(const Product *p, int64_t row, int64_t column, Scratch *scratch) {
  const int64_t m = number_lesser(TILE_M, p->m - row), n = number_lesser(TILE_N, p->n - column);
  for (int64_t i = 0; i < m; i++) {
    real *c = scratch->c + i * n;
    const int64_t at = (row + i) * p->ldc + column;
    if (p->beta == 1)
      memcpy(c, numbers_read(p->c, at, n, scratch->a), (size_t)n * sizeof *c);
    else
      memset(c, 0, (size_t)n * sizeof *c);
    if (p->bias) kernels()->add(n, p->bias + column, c);
  }
  for (int64_t inner = 0; inner < p->k; inner += TILE_K) {
    const int64_t k = number_lesser(TILE_K, p->k - inner), lda = p->transpose_a ? m : k, ldb = p->transpose_b ? k : n;
    widen_panel(p->transpose_a, p->a.narrow, p->lda, row, m, inner, k, scratch->a);
    widen_panel(p->transpose_b, p->b.narrow, p->ldb, inner, k, column, n, scratch->b);
    run_in_full(&(Product){p->transpose_a, p->transpose_b, m, n, k, 1, in_full(scratch->a), lda, in_full(scratch->b), ldb, 1,
                           in_full(scratch->c), n, NULL});
  }
  for (int64_t i = 0; i < m; i++) {
    const int64_t at = (row + i) * p->ldc + column;
    if (p->c.wide)
      memcpy(p->c.wide + at, scratch->c + i * n, (size_t)n * sizeof(real));
    else
      numbers_written(p->c, at, n, scratch->c + i * n);
  }
}

/* ---- products of either width, on the calling thread or over the pool ---- */

static void run(const Product *p) {
  if (p->a.narrow == NULL) {
    run_in_full(p);
    return;
  }
  if (run_in_onednn(p)) return;
  Scratch *own = scratch_of_thread();
  if (!own) pthread_mutex_lock(&spare_lock);
  for (int64_t row = 0; row < p->m; row += TILE_M)
    for (int64_t column = 0; column < p->n; column += TILE_N) run_tile(p, row, column, own ? own : &spare_scratch);
  if (!own) pthread_mutex_unlock(&spare_lock);
}

static void run_rows(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Product piece = *(const Product *)context;
  piece.m = end - begin;
  piece.a = numbers_from(piece.a, piece.transpose_a ? begin : begin * piece.lda);
  piece.c = numbers_from(piece.c, begin * piece.ldc);
  run(&piece);
}

static void run_columns(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Product piece = *(const Product *)context;
  piece.n = end - begin;
  piece.b = numbers_from(piece.b, piece.transpose_b ? begin * piece.ldb : begin);
  piece.c = numbers_from(piece.c, begin);
  if (piece.bias) piece.bias += begin;
  run(&piece);
}

/* Computes a product on the pool, by the longer of its sides; a small one on the calling thread alone. Counts it. */
static void divide(Product *p) {
  if (p->m <= 0 || p->n <= 0) return;
  const double begun = matmul_count_begin();
  if ((double)p->m * (double)p->n * (double)p->k < MATMUL_POOLED_MIN)
    run(p);
  else if (p->m >= p->n)
    threads_for(p->m, GRAIN, run_rows, p);
  else
    threads_for(p->n, GRAIN, run_columns, p);
  matmul_count_end(p->m, p->n, p->k, begun);
}

void matmul(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, real alpha, const real *a, int64_t lda, const real *b,
            int64_t ldb, real beta, real *c, int64_t ldc) {
  divide(&(Product){transpose_a, transpose_b, m, n, k, alpha, in_full(a), lda, in_full(b), ldb, beta, {.wide = c}, ldc, NULL});
}

void matmul_single(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, real alpha, const real *a, int64_t lda,
                   const real *b, int64_t ldb, real beta, real *c, int64_t ldc) {
  if (m <= 0 || n <= 0) return;
  const double begun = matmul_count_begin();
  run_in_full(&(Product){transpose_a, transpose_b, m, n, k, alpha, in_full(a), lda, in_full(b), ldb, beta, {.wide = c}, ldc, NULL});
  matmul_count_end(m, n, k, begun);
}

void matmul_bf16(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda, const uint16_t *b,
                 int64_t ldb, const real *bias, bool add, Numbers c, int64_t ldc) {
  divide(&(Product){transpose_a, transpose_b, m, n, k, 1, in_bf16(a), lda, in_bf16(b), ldb, add ? 1 : 0, c, ldc, bias});
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
  const real beta = p->add || row > 0 ? 1 : 0;
  run_in_full(&(Product){false,
                         p->transpose_b,
                         p->m,
                         n,
                         k,
                         1,
                         in_full(p->a + row),
                         p->lda,
                         in_full(wide),
                         width,
                         beta,
                         {.wide = p->c + column},
                         p->ldc,
                         NULL});
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
      narrow_panel(p, column, number_lesser(NARROW_N, end - column), row, number_lesser(NARROW_K, p->k - row), wide);
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

/* ---- products with packed weights, divided into pieces of some rows by some strips, which threads take in order ---- */

enum {
  PACKED_ROWS = 256,    /* their part of A stays in the second-level cache beside a strip */
  MIN_PACKED_ROWS = 48, /* rows that a strip is read for, where many threads share few strips */
  PIECE_STRIPS = 4,     /* strips of a piece: its numbers are still in the cache when `after` gets them */
  PIECES_A_THREAD = 2   /* at least, where there are as many */
};

static int64_t strips_of(int64_t outputs) { return (outputs + PACKED_STRIP - 1) / PACKED_STRIP; }
static int64_t words_of(const PackedMatrix *matrix, int64_t inputs) {
  if (matrix->int8) return (inputs + LOWBIT_PIECE - 1) / LOWBIT_PIECE * (LOWBIT_PIECE / 4);
  return matrix->bf16 ? inputs / 2 : inputs;
}

_Static_assert((int)PACKED_STRIP == (int)ONEDNN_STRIP && LOWBIT_PIECE % 64 == 0, "int8 strips are laid out as onednn.h asks");

/* Tests it, since another version of oneDNN may not support strips of int8. */
static bool strips_multiply(void) {
  enum { SIZE = 64 };
  static _Alignas(SIZE) const uint8_t zeros[SIZE * SIZE];
  static _Thread_local int32_t result[SIZE * SIZE];
  return onednn_product(&(OnednnProduct){.inputs = ONEDNN_INT8,
                                         .output = ONEDNN_INT8,
                                         .m = SIZE,
                                         .n = SIZE,
                                         .k = SIZE,
                                         .lda = SIZE,
                                         .ldc = SIZE,
                                         .a = zeros,
                                         .b = zeros,
                                         .c = result});
}

/* The strips' products in floats or bf16. NULL: none, or oneDNN is faster, which multiplies bf16 with AMX. */
static ProductPacked *product_of(const PackedMatrix *matrix) {
  if (!matrix->bf16) return kernels_native()->product_packed;
  return matrix->inputs % 2 == 0 && !onednn_has_amx() ? kernels_native()->product_packed_bf16 : NULL;
}

size_t matmul_packed_bytes(const PackedMatrix *matrix) {
  const int64_t of_output = words_of(matrix, matrix->inputs) + (matrix->int8 ? 1 : 0); /* and its sum */
  const bool faster = matrix->int8 ? matmul_backend().int8 && lowbit_kernels()->scale != NULL && strips_multiply()
                                   : onednn_is_chosen() && product_of(matrix) != NULL;
  return faster ? (size_t)(strips_of(matrix->outputs) * of_output * PACKED_STRIP) * sizeof *matrix->words : 0;
}

enum { PART_INPUTS = 128 }; /* of a strip: as many numbers as stay in the first-level cache are widened at a time */

typedef struct Packing {
  PackedMatrix *matrix;
  const void *weight;
  NarrowKind kind;
  bool transposed;
} Packing;

/* Inputs of a strip: the number of its output o for input i is at o output_step + i input_step. */
typedef struct StripPart {
  const real *at;
  int64_t output_step, input_step;
} StripPart;

/* Of an array in full a view, else its rows widened into `stage` [PACKED_STRIP PART_INPUTS]. */
static StripPart strip_part(const Packing *job, int64_t output, int64_t outputs, int64_t input, int64_t inputs, real *stage) {
  const PackedMatrix *matrix = job->matrix;
  const int64_t stride = job->transposed ? matrix->outputs : matrix->inputs;
  const int64_t first = job->transposed ? input * stride + output : output * stride + input;
  const int64_t rows = job->transposed ? inputs : outputs, width = job->transposed ? outputs : inputs;
  const bool wide = job->kind == NARROW_NONE;
  for (int64_t row = 0; !wide && row < rows; row++)
    kernels()->widen(job->kind, width, (const uint16_t *)job->weight + first + row * stride, stage + row * width);
  const int64_t step = wide ? stride : width;
  return (StripPart){wide ? (const real *)job->weight + first : stage, job->transposed ? 1 : step, job->transposed ? step : 1};
}

static uint32_t word_of(const StripPart *part, bool bf16, int64_t output, int64_t word) {
  const real *number = part->at + output * part->output_step + (bf16 ? 2 : 1) * word * part->input_step;
  if (bf16) return (uint32_t)narrow_bfloat((float)number[0]) | (uint32_t)narrow_bfloat((float)number[part->input_step]) << 16;
  const float single = (float)*number;
  uint32_t bits;
  memcpy(&bits, &single, sizeof bits);
  return bits;
}

static void pack_strips(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Packing *job = context;
  const PackedMatrix *matrix = job->matrix;
  real stage[PACKED_STRIP * PART_INPUTS];
  uint32_t *to = matrix->words + begin * words_of(matrix, matrix->inputs) * PACKED_STRIP;
  for (int64_t first = begin * PACKED_STRIP; first < end * PACKED_STRIP; first += PACKED_STRIP)
    for (int64_t input = 0; input < matrix->inputs; input += PART_INPUTS) {
      const int64_t outputs = number_lesser(PACKED_STRIP, matrix->outputs - first);
      const int64_t inputs = number_lesser(PART_INPUTS, matrix->inputs - input);
      const StripPart part = strip_part(job, first, outputs, input, inputs, stage);
      for (int64_t word = 0; word < words_of(matrix, inputs); word++)
        for (int64_t output = 0; output < PACKED_STRIP; output++) *to++ = output < outputs ? word_of(&part, matrix->bf16, output, word) : 0;
    }
}

typedef struct BytesPacking {
  PackedMatrix *matrix;
  const int8_t *numbers;
} BytesPacking;

static void pack_bytes(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const BytesPacking *job = context;
  const PackedMatrix *matrix = job->matrix;
  const int64_t words = words_of(matrix, matrix->inputs), outputs = matrix->outputs, inputs = matrix->inputs;
  for (int64_t output = begin * PACKED_STRIP; output < end * PACKED_STRIP; output++) {
    uint32_t *to = matrix->words + output / PACKED_STRIP * words * PACKED_STRIP + output % PACKED_STRIP;
    const int8_t *row = job->numbers + output * inputs;
    int32_t sum = 0;
    for (int64_t word = 0; word < words; word++, to += PACKED_STRIP) {
      const int64_t left = output < outputs ? inputs - 4 * word : 0;
      int8_t four[4] = {0};
      if (left > 0) memcpy(four, row + 4 * word, (size_t)number_lesser(4, left));
      memcpy(to, four, sizeof four);
      sum += four[0] + four[1] + four[2] + four[3];
    }
    matrix->offset_sums[output] = lowbit_offset(LOWBIT_INT8) * sum;
  }
}

void matmul_pack(PackedMatrix *matrix, const void *weight, NarrowKind kind, bool transposed) {
  const int64_t strips = strips_of(matrix->outputs);
  if (!matrix->int8) {
    matrix->product = product_of(matrix);
    threads_for(strips, 1, pack_strips, &(Packing){matrix, weight, kind, transposed});
    return;
  }
  matrix->offset_sums = (int32_t *)matrix->words + strips * words_of(matrix, matrix->inputs) * PACKED_STRIP;
  threads_for(strips, 1, pack_bytes, &(BytesPacking){matrix, weight});
}

typedef struct PackedJob {
  const MatmulPacked *p;
  int64_t strips, tile_rows;
} PackedJob;

static void run_strip(const PackedJob *job, int64_t row, int64_t rows, int64_t strip) {
  const MatmulPacked *p = job->p;
  const PackedMatrix *matrix = p->weight;
  const int64_t column = strip * PACKED_STRIP, number = matrix->bf16 ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float);
  const int64_t first = (p->first_output / PACKED_STRIP + strip) * words_of(matrix, matrix->inputs) + words_of(matrix, p->first_input);
  const Numbers c = numbers_from(p->c, row * p->outputs + column);
  matrix->product(&(PackedStrip){.rows = rows,
                                 .words = words_of(matrix, p->inputs),
                                 .a = (const uint8_t *)p->x + row * p->inputs * number,
                                 .row_bytes = p->inputs * number,
                                 .b = matrix->words + first * PACKED_STRIP,
                                 .bias = p->bias ? p->bias + column : NULL,
                                 .add = p->add,
                                 .wide = c.wide,
                                 .narrow = c.narrow,
                                 .ldc = p->outputs,
                                 .columns = number_lesser(PACKED_STRIP, p->outputs - column)});
}

/* Items are strips of the first tile of rows, of the second, ... */
static void run_items(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const PackedJob *job = context;
  const MatmulPacked *p = job->p;
  for (int64_t item = begin, count; item < end; item += count) {
    const int64_t row = item / job->strips * job->tile_rows, strip = item % job->strips, column = strip * PACKED_STRIP;
    const int64_t rows = number_lesser(job->tile_rows, p->rows - row);
    count = number_lesser(PIECE_STRIPS, number_lesser(end - item, job->strips - strip));
    const int64_t columns = number_lesser(count * PACKED_STRIP, p->outputs - column);
    if (p->before) p->before(p->context, row, rows, column, columns);
    for (int64_t i = 0; i < count; i++) run_strip(job, row, rows, strip + i);
    if (p->after) p->after(p->context, row, rows, column, columns);
  }
}

/* Even tiles; more than the cache needs where threads would otherwise have no strips. */
static int64_t tile_rows(int64_t rows, int64_t strips) {
  const int64_t wanted = PIECES_A_THREAD * threads_count() / strips, max = (rows + MIN_PACKED_ROWS - 1) / MIN_PACKED_ROWS;
  int64_t tiles = (rows + PACKED_ROWS - 1) / PACKED_ROWS;
  if (tiles < wanted) tiles = number_lesser(wanted, max);
  return (rows + tiles - 1) / tiles;
}

void matmul_packed(const MatmulPacked *p) {
  if (p->rows <= 0 || p->outputs <= 0) return;
  const double begun = matmul_count_begin();
  PackedJob job = {.p = p, .strips = strips_of(p->outputs)};
  job.tile_rows = tile_rows(p->rows, job.strips);
  const int64_t items = job.strips * ((p->rows + job.tile_rows - 1) / job.tile_rows);
  const bool small = (double)p->rows * (double)p->outputs * (double)p->inputs < MATMUL_POOLED_MIN;
  threads_for(items, small ? items : 1, run_items, &job);
  matmul_count_end(p->rows, p->outputs, p->inputs, begun);
}

/* ---- whether bf16 is worth it ---- */

enum { PROBE = 512, PROBES = 5 };

/* Seconds of one product, where that is less than `best` so far. */
static double time_probe(Numbers a, real *c, double best) {
  const Product probe = {false, true, PROBE, PROBE, PROBE, 1, a, PROBE, a, PROBE, 0, {.wide = c}, PROBE, NULL};
  const double begun = clock_now();
  run(&probe);
  return fmin(best, clock_now() - begun);
}

/* In turn, so that other work on the machine slows both: the processes of a cluster each measure for themselves, and must agree. */
bool matmul_bf16_is_faster(void) {
  const size_t count = (size_t)PROBE * PROBE;
  if (!bf16_is_native()) return false;
  uint16_t *a = calloc(count, sizeof *a);
  real *wide = calloc(count, sizeof *wide), *c = malloc(count * sizeof *c);
  double narrow_best = INFINITY, wide_best = INFINITY;
  for (int i = 0; a && wide && c && i < PROBES; i++) {
    narrow_best = time_probe(in_bf16(a), c, narrow_best);
    wide_best = time_probe(in_full(wide), c, wide_best);
  }
  free(a), free(wide), free(c);
  return 1.1 * narrow_best < wide_best; /* false where there was no memory */
}

/* ---- products too small for a library ---- */

void matmul_small(int count, const MatmulSmall *product) {
  const double begun = matmul_count_begin();
  const bool vectors = kernels() != kernels_portable();
  ProductBf16 *narrow = kernels_native()->product_bf16;
  int64_t multiplied = 0;
  for (const MatmulSmall *p = product; p < product + count; p++) {
    if (!vectors)
      run(&(Product){
          p->transpose_a, p->transpose_b, p->m, p->n, p->k, 1, p->a, p->lda, p->b, p->ldb, p->add ? 1 : 0, {.wide = p->c}, p->ldc, NULL});
    else if (p->a.narrow)
      narrow(p->transpose_a, p->transpose_b, p->m, p->n, p->k, p->a.narrow, p->lda, p->b.narrow, p->ldb, p->add, p->c, p->ldc);
    else
      kernels()->product(p->transpose_a, p->transpose_b, p->m, p->n, p->k, p->a.wide, p->lda, p->b.wide, p->ldb, p->add, p->c, p->ldc);
    multiplied += p->m * p->n * p->k;
  }
  matmul_count_end(multiplied, 1, 1, begun);
}

/* ---- what runs, and its start ---- */

const char *matmul_core(void) { return openblas_get_corename(); }

bool matmul_core_is_picked(void) { return strstr(openblas_get_config(), "DYNAMIC_ARCH") != NULL; }

void matmul_describe(char *text, size_t size) {
  const char *library = openblas_get_config(); /* name, version, options of its build */
  const char *version = strchr(library, ' ');
  size_t length = version ? (size_t)(version - library) + 1 : 0;
  length += strcspn(library + length, " ");
  const bool onednn = onednn_is_chosen();
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
