/* Matrix products against the textbook loop: transposes, odd sizes, strides wider than the rows, factors, one thread and two; and that a
 * signal in the middle of one changes nothing, which is so only if the product keeps to the stack that is its own. */
#include "autograd/kernels/matmul.h"
#include "base/rng.h"
#include "base/threads.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unit/autograd/signal_flood.h"

typedef struct Case {
  int64_t m, n, k;
  int pad; /* stride minus row length, of all three */
} Case;

static const Case cases[] = {{1, 1, 1, 0},      {1, 7, 5, 3},    {1, 300, 129, 1}, {3, 1, 17, 2},    {5, 7, 9, 0},
                             {16, 16, 16, 4},   {17, 33, 65, 1}, {100, 31, 64, 5}, {257, 96, 33, 0}, {31, 400, 40, 3},
                             {200, 200, 50, 1}, {4, 6, 0, 1},    {1, 6, 0, 1}};
enum { CASES = sizeof cases / sizeof *cases };
static const double factors[][2] = {{1, 0}, {1, 1}, {-0.5, 0}, {0.25, -2}};

static Rng rng;

static real *random_matrix(int64_t rows, int64_t stride) {
  real *matrix = malloc((size_t)(rows * stride + 1) * sizeof *matrix);
  assert_non_null(matrix);
  for (int64_t i = 0; i < rows * stride; i++) matrix[i] = (real)rng_normal(&rng);
  return matrix;
}

static real *copy_matrix(const real *matrix, int64_t rows, int64_t stride) {
  real *copy = malloc((size_t)(rows * stride) * sizeof *copy);
  assert_non_null(copy);
  return memcpy(copy, matrix, (size_t)(rows * stride) * sizeof *copy);
}

typedef void Multiply(bool, bool, int64_t, int64_t, int64_t, real, const real *, int64_t, const real *, int64_t, real, real *, int64_t);

static void check_product(Multiply *multiply, const Case *c, bool transpose_a, bool transpose_b, double alpha, double beta) {
  const int64_t lda = (transpose_a ? c->m : c->k) + c->pad, ldb = (transpose_b ? c->k : c->n) + c->pad, ldc = c->n + c->pad;
  real *a = random_matrix(transpose_a ? c->k : c->m, lda), *b = random_matrix(transpose_b ? c->n : c->k, ldb);
  real *before = random_matrix(c->m, ldc);
  if (beta == 0) /* C must not be read then */
    for (int64_t i = 0; i < c->m; i++)
      for (int64_t j = 0; j < c->n; j++) before[i * ldc + j] = (real)NAN;
  real *got = copy_matrix(before, c->m, ldc);
  multiply(transpose_a, transpose_b, c->m, c->n, c->k, (real)alpha, a, lda, b, ldb, (real)beta, got, ldc);
  for (int64_t i = 0; i < c->m; i++) {
    for (int64_t j = 0; j < c->n; j++) {
      double sum = 0, size = 1;
      for (int64_t l = 0; l < c->k; l++) {
        const double term =
            (double)(transpose_a ? a[l * lda + i] : a[i * lda + l]) * (double)(transpose_b ? b[j * ldb + l] : b[l * ldb + j]);
        sum += term, size += fabs(term);
      }
      const double want = alpha * sum + (beta == 0 ? 0 : beta * (double)before[i * ldc + j]), deviation = (double)got[i * ldc + j] - want;
      if (!(fabs(deviation) <= (REAL_IS_DOUBLE ? 1e-14 : 1e-6) * size))
        fail_msg("%dx%dx%d transposes %d %d factors %g %g: [%d, %d] is off by %g", (int)c->m, (int)c->n, (int)c->k, transpose_a,
                 transpose_b, alpha, beta, (int)i, (int)j, deviation);
    }
    for (int64_t j = c->n; j < ldc; j++) assert_true(got[i * ldc + j] == before[i * ldc + j]); /* between the rows */
  }
  free(a), free(b), free(before), free(got);
}

static void check_all(Multiply *multiply) {
  rng_init(&rng, 3, 0);
  for (int c = 0; c < CASES; c++)
    for (int transposes = 0; transposes < 4; transposes++)
      for (int f = 0; f < 4; f++) check_product(multiply, &cases[c], transposes & 1, transposes & 2, factors[f][0], factors[f][1]);
}

static void test_one_thread(void **state) {
  (void)state;
  assert_int_equal(threads_count(), 1);
  check_all(matmul);
  check_all(matmul_single);
}

static void test_two_threads(void **state) {
  (void)state;
  assert_int_equal(threads_start(2), STATUS_OK);
  check_all(matmul);
  threads_stop();
}

/* Twice the same product with two threads: the same bits. */
static void test_repeats(void **state) {
  (void)state;
  assert_int_equal(threads_start(2), STATUS_OK);
  rng_init(&rng, 4, 0);
  enum { M = 150, N = 140, K = 77 };
  real *a = random_matrix(M, K), *b = random_matrix(K, N), *c = random_matrix(M, N), *d = random_matrix(M, N);
  matmul(false, false, M, N, K, 1, a, K, b, N, 0, c, N);
  matmul(false, false, M, N, K, 1, a, K, b, N, 0, d, N);
  assert_memory_equal(c, d, M * N * sizeof *c);
  free(a), free(b), free(c), free(d);
  threads_stop();
}

typedef struct Repeated {
  const Case *size;
  bool transpose_a, transpose_b;
  int64_t lda, ldb, ldc;
  real *a, *b, *c;
} Repeated;

static void repeat(void *context) {
  const Repeated *r = context;
  matmul(r->transpose_a, r->transpose_b, r->size->m, r->size->n, r->size->k, 1, r->a, r->lda, r->b, r->ldb, 0, r->c, r->ldc);
}

static void test_signals(void **state) {
  (void)state;
  static const Case interrupted[] = {{16, 48, 1700, 32}, {64, 48, 100, 32}, {256, 300, 197, 512}, {1, 300, 500, 8}};
  rng_init(&rng, 6, 0);
  for (size_t i = 0; i < sizeof interrupted / sizeof *interrupted; i++)
    for (int transposes = 0; transposes < 4; transposes++) {
      const Case *c = &interrupted[i];
      Repeated r = {.size = c, .transpose_a = transposes & 1, .transpose_b = transposes & 2, .ldc = c->n + c->pad};
      r.lda = (r.transpose_a ? c->m : c->k) + c->pad, r.ldb = (r.transpose_b ? c->k : c->n) + c->pad;
      r.a = random_matrix(r.transpose_a ? c->k : c->m, r.lda), r.b = random_matrix(r.transpose_b ? c->n : c->k, r.ldb);
      r.c = random_matrix(c->m, r.ldc);
      repeat(&r);
      real *want = copy_matrix(r.c, c->m, r.ldc);
      flood(repeat, &r, r.c, want, (size_t)(c->m * r.ldc) * sizeof *want);
      free(r.a), free(r.b), free(r.c), free(want);
    }
}

static void test_vector(void **state) {
  (void)state;
  rng_init(&rng, 5, 0);
  for (int64_t m = 1; m < 140; m += 23) {
    const int64_t k = 2 * m + 3, lda = k + 2;
    real *a = random_matrix(m, lda), *x = random_matrix(1, k), *y = random_matrix(1, m), *before = copy_matrix(y, 1, m);
    matmul_single(false, true, 1, m, k, 2, x, k, a, lda, (real)0.5, y, m); /* as a matrix times a vector */
    for (int64_t i = 0; i < m; i++) {
      double sum = 0;
      for (int64_t l = 0; l < k; l++) sum += (double)a[i * lda + l] * (double)x[l];
      assert_true(fabs((double)y[i] - 2 * sum - 0.5 * (double)before[i]) < (REAL_IS_DOUBLE ? 1e-12 : 1e-4));
    }
    free(a), free(x), free(y), free(before);
  }
}

static void multiply_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  real *numbers = context; /* three 8 x 8 matrices an item */
  for (int64_t i = begin; i < end; i++) {
    real *a = numbers + i * 192;
    matmul_single(false, true, 8, 8, 8, 1, a, 8, a + 64, 8, 0, a + 128, 8);
  }
}

static void test_counts(void **state) {
  (void)state;
  enum { ITEMS = 64 };
  rng_init(&rng, 6, 0);
  real *numbers = random_matrix(ITEMS, 192), *large = random_matrix(300, 300);
  real *result = random_matrix(300, 300);
  assert_int_equal(threads_start(2), STATUS_OK);
  matmul_reset_count();
  assert_int_equal(matmul_counted().calls, 0);
  threads_for(ITEMS, 1, multiply_range, numbers);
  matmul(false, false, 300, 300, 300, 1, large, 300, large, 300, 0, result, 300);
  matmul_count_only(1000, 1000, 1000);
  const MatmulCount count = matmul_counted();
  assert_int_equal(count.calls, ITEMS + 2);
  assert_true(count.flops == ITEMS * 1024.0 + 2 * 300.0 * 300.0 * 300.0 + 2e9);
  assert_true(count.seconds > 0 && count.seconds < 5);
  const MatmulSmall small[] = {
      {.m = 8, .n = 8, .k = 8, .a = {.wide = large}, .lda = 8, .b = {.wide = large}, .ldb = 8, .c = result, .ldc = 8},
      {.m = 4, .n = 2, .k = 3, .a = {.wide = large}, .lda = 3, .b = {.wide = large}, .ldb = 2, .c = result, .ldc = 2}};
  matmul_small(2, small);
  assert_int_equal(matmul_counted().calls, count.calls + 1);
  assert_true(matmul_counted().flops == count.flops + 1024 + 48);
  matmul_reset_count();
  assert_true(matmul_counted().flops == 0 && matmul_counted().seconds == 0);
  threads_stop();
  free(numbers), free(large), free(result);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_thread), cmocka_unit_test(test_two_threads), cmocka_unit_test(test_repeats),
      cmocka_unit_test(test_vector),     cmocka_unit_test(test_counts),      cmocka_unit_test(test_signals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
