/* Products of small matrices on vectors of floats, for which a library's call costs as much as the work (attention of a few rows). Lanes
 * are columns: a block of C stays in registers while rows of B pass by, each number of A spread over the lanes. A strip of B as wide as a
 * block is copied first where it is stored transposed, where it would end inside a vector, or where many rows of A will read it: rows that
 * lie kilobytes apart fall into few sets of the first-level cache.
 *
 * Cost: m n k multiply-adds at 24 for each 4 loads of B and 6 of A (AVX-512), and n k copies. Against OpenBLAS and oneDNN on one core of
 * AVX-512: 2 to 3 times as fast at 17 x 17 x 64, 1.3 times at 64 x 64 x 64, as fast at 128 x 128 x 64. Sums run over k in order, in a
 * chain for each number of C, whatever the block. */
#ifndef AUTOGRAD_VECTOR_PRODUCT_H
#define AUTOGRAD_VECTOR_PRODUCT_H

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

/* Columns [0, width) of k rows, zeros behind them up to a whole vector. */
static void product_copy(int64_t k, int64_t width, const float *b, int64_t ldb, float *strip) {
  for (int64_t row = 0; row < k; row++)
    EACH_VECTOR(width, v_store(strip + row * PRODUCT_STRIP + i, v_load(b + row * ldb + i, left), VECTOR_WIDTH););
}

/* The same of a matrix stored as [width, k]: four of its rows at a time, turned in squares of four. */
static void product_turn(int64_t k, int64_t width, const float *b, int64_t ldb, float *strip) {
  const int64_t whole = (width + VECTOR_WIDTH - 1) / VECTOR_WIDTH * VECTOR_WIDTH;
  for (int64_t row = 0; row < whole; row += 4)
    EACH_VECTOR(k, {
      Vector v[4];
      for (int64_t r = 0; r < 4; r++) v[r] = row + r < width ? v_load(b + (row + r) * ldb + i, left) : v_set(0);
      v_transpose_4x4(v);
      for (int64_t lane = 0; lane < left; lane++)
        memcpy(strip + (i + lane) * PRODUCT_STRIP + row, (const float *)&v[lane % 4] + lane / 4 * 4, 4 * sizeof(float));
    });
}

static void vector_product(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                           int64_t ldb, bool add, float *c, int64_t ldc) {
  static ProductRows *const run[PRODUCT_ROWS][PRODUCT_VECTORS] = {PRODUCT_LIST(1), PRODUCT_LIST(2), PRODUCT_LIST(3),
                                                                  PRODUCT_LIST(4), PRODUCT_LIST(5), PRODUCT_LIST(6)};
  float strip[PRODUCT_INNER * PRODUCT_STRIP] __attribute__((aligned(64)));
  for (int64_t inner = 0; inner < k; inner += PRODUCT_INNER)
    for (int64_t column = 0; column < n; column += PRODUCT_STRIP) {
      const int64_t width = n - column < PRODUCT_STRIP ? n - column : PRODUCT_STRIP, vectors = (width + VECTOR_WIDTH - 1) / VECTOR_WIDTH;
      ProductBlock block = {.k = k - inner < PRODUCT_INNER ? k - inner : PRODUCT_INNER,
                            .row_step = transpose_a ? 1 : lda,
                            .inner_step = transpose_a ? lda : 1,
                            .b = transpose_b ? b + column * ldb + inner : b + inner * ldb + column,
                            .ldb = ldb,
                            .add = add || inner > 0,
                            .ldc = ldc,
                            .left = width - (vectors - 1) * VECTOR_WIDTH};
      if (transpose_b || width % VECTOR_WIDTH != 0 || m > 4 * PRODUCT_ROWS) {
        (transpose_b ? product_turn : product_copy)(block.k, width, block.b, ldb, strip);
        block.b = strip, block.ldb = PRODUCT_STRIP;
      }
      for (int64_t row = 0; row < m; row += PRODUCT_ROWS) {
        const int64_t rows = m - row < PRODUCT_ROWS ? m - row : PRODUCT_ROWS;
        block.a = a + row * block.row_step + inner * block.inner_step;
        block.c = c + row * ldc + column;
        run[rows - 1][vectors - 1](&block);
      }
    }
}

#endif
