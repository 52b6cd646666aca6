/* Matrix products against the textbook loop: transposes, odd sizes, strides wider than the rows, factors, one thread and two; and that a
 * signal in the middle of one changes nothing, which is so only if the product keeps to the stack that is its own. */
#include "autograd/kernels/matmul.h"
#include "base/rng.h"
#include "base/threads.h"
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include <cmocka.h>

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

static volatile sig_atomic_t signals;

static void count_signal(int number) {
  volatile char frame[2048]; /* more stack than the frame of the signal takes */
  (void)number;
  memset((char *)frame, 0xff, sizeof frame);
  signals++;
}

/* An interval of 0 ends them. */
static void signal_every(int microseconds) {
  const struct itimerval timer = {{0, microseconds}, {0, microseconds}};
  assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

/* A product that keeps numbers below its stack writes anywhere when they are overwritten: the program may also be killed. */
static void test_signals(void **state) {
  (void)state;
  static const Case interrupted[] = {{48, 48, 700, 0}, {16, 48, 1700, 32}, {64, 48, 100, 32}, {128, 200, 197, 512}, {1, 300, 500, 8}};
  enum { SIGNALS = 60, REPEATS_MOST = 100000 };
  struct sigaction action = {.sa_handler = count_signal}, former;
  rng_init(&rng, 6, 0);
  sigaction(SIGALRM, &action, &former);
  for (size_t i = 0; i < sizeof interrupted / sizeof *interrupted; i++)
    for (int transposes = 0; transposes < 4; transposes++) {
      const Case *c = &interrupted[i];
      const int64_t lda = (transposes & 1 ? c->m : c->k) + c->pad, ldb = (transposes & 2 ? c->k : c->n) + c->pad, ldc = c->n + c->pad;
      real *a = random_matrix(transposes & 1 ? c->k : c->m, lda), *b = random_matrix(transposes & 2 ? c->n : c->k, ldb);
      real *want = random_matrix(c->m, ldc), *got = copy_matrix(want, c->m, ldc);
      matmul(transposes & 1, transposes & 2, c->m, c->n, c->k, 1, a, lda, b, ldb, 0, want, ldc);
      int repeats = 0;
      signals = 0;
      signal_every(50);
      for (; signals < SIGNALS && repeats < REPEATS_MOST; repeats++) {
        matmul(transposes & 1, transposes & 2, c->m, c->n, c->k, 1, a, lda, b, ldb, 0, got, ldc);
        if (memcmp(want, got, (size_t)(c->m * ldc) * sizeof *got) != 0) break;
      }
      signal_every(0);
      assert_memory_equal(want, got, (size_t)(c->m * ldc) * sizeof *got);
      assert_true(repeats < REPEATS_MOST);
      free(a), free(b), free(want), free(got);
    }
  sigaction(SIGALRM, &former, NULL);
}

static void test_vector(void **state) {
  (void)state;
  rng_init(&rng, 5, 0);
  for (int64_t m = 1; m < 140; m += 23) {
    const int64_t k = 2 * m + 3, lda = k + 2;
    real *a = random_matrix(m, lda), *x = random_matrix(1, k), *y = random_matrix(1, m), *before = copy_matrix(y, 1, m);
    matmul_vector(m, k, 2, a, lda, x, (real)0.5, y);
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
