/* The factor times its transpose is the matrix, at sizes on both sides of the block; what is not positive definite is refused. */
#include "unit/vq/vq_check.h"
#include "unit/vq/vq_points.h"
#include "vq/navq.c" /* the factorisation by itself */

/* a [n, n] = z z^T / m + 0.1 I, z [n, m] */
static real *covariance(int64_t n, int64_t m) {
  real *z = points_normal(n * m, 1), *a = malloc((size_t)(n * n) * sizeof *a);
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++) {
      double sum = 0;
      for (int64_t k = 0; k < m; k++) sum += (double)z[i * m + k] * (double)z[j * m + k];
      a[i * n + j] = (real)(sum / (double)m + (i == j ? 0.1 : 0));
    }
  free(z);
  return a;
}

static void product_is_the_matrix(void **state) {
  (void)state;
  const int64_t sizes[] = {1, 2, 3, 24, 47, 48, 49, 96, 100, 145};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    int64_t n = sizes[s];
    real *a = covariance(n, n + 20), *l = malloc((size_t)(n * n) * sizeof *l);
    memcpy(l, a, (size_t)(n * n) * sizeof *l);
    assert_true(cholesky_factor(n, l));
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j < n; j++) {
        if (j > i) assert_true(l[i * n + j] == 0);
        double sum = 0;
        for (int64_t k = 0; k < n; k++) sum += (double)l[i * n + k] * (double)l[j * n + k];
        CHECK_NEAR(sum, a[i * n + j], REAL_IS_DOUBLE ? 1e-13 : 1e-5);
      }
    free(a);
    free(l);
  }
}

static void upper_triangle_is_not_read(void **state) {
  (void)state;
  enum { N = 60 };
  real *a = covariance(N, 80), *b = malloc(N * N * sizeof *b);
  memcpy(b, a, N * N * sizeof *b);
  for (int i = 0; i < N; i++)
    for (int j = i + 1; j < N; j++) b[i * N + j] = (real)NAN;
  assert_true(cholesky_factor(N, a));
  assert_true(cholesky_factor(N, b));
  for (int i = 0; i < N * N; i++) CHECK_NEAR(b[i], a[i], REAL_IS_DOUBLE ? 1e-13 : 1e-5);
  free(a);
  free(b);
}

static void not_positive_definite(void **state) {
  (void)state;
  real indefinite[4] = {1, 2, 2, 1}, zero[1] = {0}, nan[1] = {(real)NAN}, infinite[1] = {(real)INFINITY};
  assert_false(cholesky_factor(2, indefinite));
  assert_false(cholesky_factor(1, zero));
  assert_false(cholesky_factor(1, nan));
  assert_false(cholesky_factor(1, infinite));
  real *a = covariance(100, 150);
  a[90 * 100 + 90] = -1; /* found in the second block */
  assert_false(cholesky_factor(100, a));
  free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(product_is_the_matrix),
      cmocka_unit_test(upper_triangle_is_not_read),
      cmocka_unit_test(not_positive_definite),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
