/* Products on vectors of floats: of small matrices, and of a vector with a matrix of 16-bit numbers. */
#ifndef AUTOGRAD_VECTOR_PRODUCT_H
#define AUTOGRAD_VECTOR_PRODUCT_H
#include "autograd/kernels/vector_math.h"

/* ---- small matrices ---- */

/* Products of small matrices on vectors of floats, for which a library's call costs as much as the work (attention of a few rows). Lanes
 * are columns: a block of C stays in registers while rows of B pass by, each number of A spread over the lanes. A strip of B as wide as a
 * block is copied first where it is stored transposed, where it would end inside a vector, or where many rows of A will read it: rows that
 * lie kilobytes apart fall into few sets of the first-level cache.
 *
 * Cost: m n k multiply-adds at 24 for each 4 loads of B and 6 of A (AVX-512), and n k copies. Against OpenBLAS and oneDNN on one core of
 * AVX-512: 2 to 3 times as fast at 17 x 17 x 64, 1.3 times at 64 x 64 x 64, as fast at 128 x 128 x 64. Sums run over k in order, in a
 * chain for each number of C, whatever the block. */
enum {
  PRODUCT_ROWS = 6,
  PRODUCT_VECTORS = VECTOR_WIDTH == 16 ? 4 : 2, /* as many sums as fit into the registers */
  PRODUCT_STRIP = PRODUCT_VECTORS * VECTOR_WIDTH,
  PRODUCT_INNER = 128 /* of k at a time: a strip's copy stays in the first-level cache */
};

typedef struct ProductBlock {
  int64_t k;
  const float *a;
  int64_t row_step, inner_step; /* of a */
  const float *b;               /* [k, whole vectors] */
  int64_t ldb;
  bool add;
  float *c;
  int64_t ldc, left; /* lanes of the last vector */
} ProductBlock;

static inline __attribute__((always_inline)) void product_block(int rows, int vectors, const ProductBlock *p) {
  Vector sum[PRODUCT_ROWS][PRODUCT_VECTORS];
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
      sum[r][v] = p->add ? v_load(p->c + r * p->ldc + v * VECTOR_WIDTH, v < vectors - 1 ? VECTOR_WIDTH : p->left) : v_set(0);
  const float *a = p->a, *b = p->b;
  for (int64_t i = 0; i < p->k; i++, a += p->inner_step, b += p->ldb) {
    Vector x[PRODUCT_VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) x[v] = v_load(b + v * VECTOR_WIDTH, VECTOR_WIDTH);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
      const Vector number = v_set(a[r * p->row_step]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) sum[r][v] = v_fma(number, x[v], sum[r][v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) v_store(p->c + r * p->ldc + v * VECTOR_WIDTH, sum[r][v], v < vectors - 1 ? VECTOR_WIDTH : p->left);
}

typedef void ProductRows(const ProductBlock *block);
#define PRODUCT_CASE(rows, vectors)                                                                                                        \
  static void product_##rows##_##vectors(const ProductBlock *p) { product_block(rows, vectors, p); }
#if VECTOR_WIDTH == 16
#define PRODUCT_CASES(rows) PRODUCT_CASE(rows, 1) PRODUCT_CASE(rows, 2) PRODUCT_CASE(rows, 3) PRODUCT_CASE(rows, 4)
#define PRODUCT_LIST(rows)                                                                                                                 \
  { product_##rows##_1, product_##rows##_2, product_##rows##_3, product_##rows##_4 }
#else
#define PRODUCT_CASES(rows) PRODUCT_CASE(rows, 1) PRODUCT_CASE(rows, 2)
#define PRODUCT_LIST(rows)                                                                                                                 \
  { product_##rows##_1, product_##rows##_2 }
#endif
PRODUCT_CASES(1)
PRODUCT_CASES(2)
PRODUCT_CASES(3)
PRODUCT_CASES(4)
PRODUCT_CASES(5)
PRODUCT_CASES(6)

/* Lanes from number `at` on, of an array of floats or, `narrow`, of bf16. */
static inline __attribute__((always_inline)) Vector product_load(bool narrow, const void *array, int64_t at, int64_t left) {
  return narrow ? v_load_bfloat((const uint16_t *)array + at, left) : v_load((const float *)array + at, left);
}

/* Columns [column, column + width) of rows [row, row + k), zeros behind them up to a whole vector. */
static inline __attribute__((always_inline)) void product_copy(bool narrow, int64_t k, int64_t width, const void *b, int64_t at,
                                                               int64_t ldb, float *strip) {
  for (int64_t row = 0; row < k; row++)
    EACH_VECTOR(width, v_store(strip + row * PRODUCT_STRIP + i, product_load(narrow, b, at + row * ldb + i, left), VECTOR_WIDTH););
}

/* The same of a matrix stored as [width, k]: four of its rows at a time, turned in squares of four. */
static inline __attribute__((always_inline)) void product_turn(bool narrow, int64_t k, int64_t width, const void *b, int64_t at,
                                                               int64_t ldb, float *strip) {
  const int64_t whole = (width + VECTOR_WIDTH - 1) / VECTOR_WIDTH * VECTOR_WIDTH;
  for (int64_t row = 0; row < whole; row += 4)
    EACH_VECTOR(k, {
      Vector v[4];
      for (int64_t r = 0; r < 4; r++) v[r] = row + r < width ? product_load(narrow, b, at + (row + r) * ldb + i, left) : v_set(0);
      v_transpose_4x4(v);
      for (int64_t lane = 0; lane < left; lane++)
        memcpy(strip + (i + lane) * PRODUCT_STRIP + row, (const float *)&v[lane % 4] + lane / 4 * 4, 4 * sizeof(float));
    });
}

enum { PRODUCT_PANEL = 8 /* numbers between the columns of a panel of A that is stored transposed */ };

/* Rows [row, row + rows) of op(A), numbers [inner, inner + k) of each, in full: a panel for one block. */
static void product_widen(bool transposed, int64_t rows, int64_t k, const uint16_t *a, int64_t lda, float *panel) {
  if (transposed) {
    for (int64_t i = 0; i < k; i++)
      for (int64_t r = 0; r < rows; r++) panel[i * PRODUCT_PANEL + r] = narrow_bfloat_to_float(a[i * lda + r]);
  } else {
    for (int64_t r = 0; r < rows; r++) EACH_VECTOR(k, v_store(panel + r * PRODUCT_INNER + i, v_load_bfloat(a + r * lda + i, left), left););
  }
}

static inline __attribute__((always_inline)) void product_strips(bool narrow, bool transpose_a, bool transpose_b, int64_t m, int64_t n,
                                                                 int64_t k, const void *a, int64_t lda, const void *b, int64_t ldb,
                                                                 bool add, float *c, int64_t ldc) {
  static ProductRows *const run[PRODUCT_ROWS][PRODUCT_VECTORS] = {PRODUCT_LIST(1), PRODUCT_LIST(2), PRODUCT_LIST(3),
                                                                  PRODUCT_LIST(4), PRODUCT_LIST(5), PRODUCT_LIST(6)};
  float strip[PRODUCT_INNER * PRODUCT_STRIP] __attribute__((aligned(64))), panel[PRODUCT_INNER * PRODUCT_PANEL];
  const int64_t row_step = transpose_a ? 1 : lda, inner_step = transpose_a ? lda : 1;
  for (int64_t inner = 0; inner < k; inner += PRODUCT_INNER)
    for (int64_t column = 0; column < n; column += PRODUCT_STRIP) {
      const int64_t width = n - column < PRODUCT_STRIP ? n - column : PRODUCT_STRIP, vectors = (width + VECTOR_WIDTH - 1) / VECTOR_WIDTH;
      const int64_t depth = k - inner < PRODUCT_INNER ? k - inner : PRODUCT_INNER;
      ProductBlock block = {.k = depth, .b = strip, .ldb = PRODUCT_STRIP, .add = add || inner > 0, .ldc = ldc};
      block.left = width - (vectors - 1) * VECTOR_WIDTH;
      if (transpose_b)
        product_turn(narrow, depth, width, b, column * ldb + inner, ldb, strip);
      else if (narrow || width % VECTOR_WIDTH != 0 || m > 4 * PRODUCT_ROWS)
        product_copy(narrow, depth, width, b, inner * ldb + column, ldb, strip);
      else
        block.b = (const float *)b + inner * ldb + column, block.ldb = ldb;
      for (int64_t row = 0; row < m; row += PRODUCT_ROWS) {
        const int64_t rows = m - row < PRODUCT_ROWS ? m - row : PRODUCT_ROWS, at = row * row_step + inner * inner_step;
        if (narrow) product_widen(transpose_a, rows, depth, (const uint16_t *)a + at, lda, panel);
        block.a = narrow ? panel : (const float *)a + at;
        block.row_step = !narrow ? row_step : transpose_a ? 1 : PRODUCT_INNER;
        block.inner_step = !narrow ? inner_step : transpose_a ? PRODUCT_PANEL : 1;
        block.c = c + row * ldc + column;
        run[rows - 1][vectors - 1](&block);
      }
    }
}

static void vector_product(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                           int64_t ldb, bool add, float *c, int64_t ldc) {
  product_strips(false, transpose_a, transpose_b, m, n, k, a, lda, b, ldb, add, c, ldc);
}

static void vector_product_bf16(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                                const uint16_t *b, int64_t ldb, bool add, float *c, int64_t ldc) {
  product_strips(true, transpose_a, transpose_b, m, n, k, a, lda, b, ldb, add, c, ldc);
}

/* ---- 16-bit matrices ---- */

/* Products of 16-bit matrices with float vectors, widened in registers: bound by reading the matrix, at half the bytes of floats. Four rows
 * go side by side, which gives the adders enough independent sums and reads (or writes) the vector once for four rows. Each function is
 * compiled for both kinds: `kind` is a constant where v_load_narrow is inlined. */
enum { NARROW_ROWS = 4 };

#define FOR_EACH_KIND(kind, function, ...)                                                                                                 \
  do {                                                                                                                                     \
    if ((kind) == NARROW_F16)                                                                                                              \
      function(NARROW_F16, __VA_ARGS__);                                                                                                   \
    else                                                                                                                                   \
      function(NARROW_BF16, __VA_ARGS__);                                                                                                  \
  } while (0)

static inline __attribute__((always_inline)) Vector v_load_narrow(NarrowKind kind, const uint16_t *p, int64_t left) {
  return kind == NARROW_F16 ? v_load_half(p, left) : v_load_bfloat(p, left);
}

static inline __attribute__((always_inline)) void widen_kind(NarrowKind kind, int64_t n, const uint16_t *x, float *y) {
  EACH_VECTOR(n, v_store(y + i, v_load_narrow(kind, x + i, left), left););
}

static void vector_widen(NarrowKind kind, int64_t n, const uint16_t *x, float *y) { FOR_EACH_KIND(kind, widen_kind, n, x, y); }

static void vector_narrow(int64_t n, const float *x, uint16_t *y) { EACH_VECTOR(n, v_store_bfloat(y + i, v_load(x + i, left), left);); }

/* What rounds to no finite half: a number too large shows in the largest of |x|, infinities and NaNs in the sum of x - x. */
static bool vector_narrow_half(int64_t n, const float *x, uint16_t *y) {
  Vector largest = v_set(0), differences = v_set(0);
  EACH_VECTOR(n, {
    const Vector number = v_load(x + i, left);
    largest = v_max(v_max(number, -number), largest);
    differences += number - number;
    v_store_half(y + i, number, left);
  });
  return v_reduce_max(largest) < 65520 && v_sum(differences) == 0;
}

static inline __attribute__((always_inline)) void dots_kind(NarrowKind kind, int64_t rows, int64_t n, const uint16_t *w, int64_t stride,
                                                            const float *x, float *y) {
  int64_t r = 0;
  for (; r + NARROW_ROWS <= rows; r += NARROW_ROWS) {
    const uint16_t *row = w + r * stride;
    Vector a = v_set(0), b = v_set(0), c = v_set(0), d = v_set(0);
    EACH_VECTOR(n, {
      const Vector number = v_load(x + i, left);
      a = v_fma(v_load_narrow(kind, row + i, left), number, a);
      b = v_fma(v_load_narrow(kind, row + stride + i, left), number, b);
      c = v_fma(v_load_narrow(kind, row + 2 * stride + i, left), number, c);
      d = v_fma(v_load_narrow(kind, row + 3 * stride + i, left), number, d);
    });
    y[r] += v_sum(a), y[r + 1] += v_sum(b), y[r + 2] += v_sum(c), y[r + 3] += v_sum(d);
  }
  for (; r < rows; r++) {
    Vector sum = v_set(0);
    EACH_VECTOR(n, sum = v_fma(v_load_narrow(kind, w + r * stride + i, left), v_load(x + i, left), sum););
    y[r] += v_sum(sum);
  }
}

static void vector_narrow_dots(NarrowKind kind, int64_t rows, int64_t n, const uint16_t *w, int64_t stride, const float *x, float *y) {
  FOR_EACH_KIND(kind, dots_kind, rows, n, w, stride, x, y);
}

static inline __attribute__((always_inline)) void sums_kind(NarrowKind kind, int64_t rows, int64_t n, const uint16_t *w, int64_t stride,
                                                            const float *x, float *y) {
  int64_t r = 0;
  for (; r + NARROW_ROWS <= rows; r += NARROW_ROWS) {
    const uint16_t *row = w + r * stride;
    const Vector a = v_set(x[r]), b = v_set(x[r + 1]), c = v_set(x[r + 2]), d = v_set(x[r + 3]);
    EACH_VECTOR(n, {
      Vector sum = v_fma(a, v_load_narrow(kind, row + i, left), v_load(y + i, left));
      sum = v_fma(b, v_load_narrow(kind, row + stride + i, left), sum);
      sum = v_fma(c, v_load_narrow(kind, row + 2 * stride + i, left), sum);
      v_store(y + i, v_fma(d, v_load_narrow(kind, row + 3 * stride + i, left), sum), left);
    });
  }
  for (; r < rows; r++) {
    const Vector factor = v_set(x[r]);
    EACH_VECTOR(n, v_store(y + i, v_fma(factor, v_load_narrow(kind, w + r * stride + i, left), v_load(y + i, left)), left););
  }
}

static void vector_narrow_sums(NarrowKind kind, int64_t rows, int64_t n, const uint16_t *w, int64_t stride, const float *x, float *y) {
  FOR_EACH_KIND(kind, sums_kind, rows, n, w, stride, x, y);
}

#endif
