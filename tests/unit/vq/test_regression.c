/* Least squares: an exact linear relation is found; of a noisy one the rest is uncorrelated with what it is told from. */
#include "unit/float_equal.h"
#include "unit/vq/vq_check.h"
#include "unit/vq/vq_points.h"
#include "vq/basis.h"
#include <stdlib.h>

enum { N = 10, COUNT = 3000 };

/* y = B x + 3 + noise z */
static void make(real *x, real *y, double noise) {
  real *z = points_normal(COUNT * N, 5);
  for (int64_t row = 0; row < COUNT; row++)
    for (int i = 0; i < N; i++) {
      const real *at = x + row * N;
      y[row * N + i] = (real)(0.7 * (double)at[i] - 0.4 * (double)at[(i + 3) % N] + 3 + noise * (double)z[row * N + i]);
    }
  free(z);
}

static void a_relation_is_found(void **state) {
  (void)state;
  double weight[N * N], bias[N];
  real *x = points_normal(COUNT * N, 4), *y = malloc(COUNT * N * sizeof *y);
  make(x, y, 0);
  assert_int_equal(regression_fit(x, y, COUNT, N, N, weight, bias), STATUS_OK);
  for (int i = 0; i < N; i++) {
    assert_float_equal(bias[i], 3, 1e-3);
    for (int j = 0; j < N; j++) assert_float_equal(weight[i * N + j], j == i ? 0.7 : j == (i + 3) % N ? -0.4 : 0, 1e-3);
  }
  for (int64_t i = 0; i < COUNT * N; i++) assert_float_equal((double)y[i], 0, 5e-3);
  free(x);
  free(y);
}

static void the_rest_is_uncorrelated(void **state) {
  (void)state;
  double weight[N * N], bias[N], sum[N * N] = {0}, mean = 0, squares = 0;
  real *x = points_normal(COUNT * N, 4), *y = malloc(COUNT * N * sizeof *y);
  make(x, y, 0.5);
  assert_int_equal(regression_fit(x, y, COUNT, N, N, weight, bias), STATUS_OK);
  for (int64_t row = 0; row < COUNT; row++)
    for (int i = 0; i < N; i++) {
      mean += (double)y[row * N + i] / (COUNT * N);
      squares += (double)y[row * N + i] * (double)y[row * N + i] / (COUNT * N);
      for (int j = 0; j < N; j++) sum[i * N + j] += (double)y[row * N + i] * (double)x[row * N + j] / COUNT;
    }
  assert_float_equal(mean, 0, 1e-5);
  assert_float_equal(squares, 0.25, 0.02);
  for (int i = 0; i < N * N; i++) assert_float_equal(sum[i], 0, 1e-3);
  free(x);
  free(y);
}

/* 6 numbers of 10. */
static void there_may_be_fewer_numbers(void **state) {
  (void)state;
  enum { FEW = 6 };
  double weight[FEW * N], bias[FEW];
  real *x = points_normal(COUNT * N, 4), *y = malloc(COUNT * N * sizeof *y), *few = malloc(COUNT * FEW * sizeof *few);
  make(x, y, 0);
  for (int64_t row = 0; row < COUNT; row++)
    for (int i = 0; i < FEW; i++) few[row * FEW + i] = y[row * N + i];
  assert_int_equal(regression_fit(x, few, COUNT, N, FEW, weight, bias), STATUS_OK);
  for (int i = 0; i < FEW; i++) {
    assert_float_equal(bias[i], 3, 1e-3);
    for (int j = 0; j < N; j++) assert_float_equal(weight[i * N + j], j == i ? 0.7 : j == (i + 3) % N ? -0.4 : 0, 1e-3);
  }
  for (int64_t i = 0; i < COUNT * FEW; i++) assert_float_equal((double)few[i], 0, 5e-3);
  free(x);
  free(y);
  free(few);
}

static void numbers_that_are_not_finite_are_refused(void **state) {
  (void)state;
  double weight[N * N], bias[N];
  real *x = points_normal(COUNT * N, 4), *y = malloc(COUNT * N * sizeof *y);
  make(x, y, 0);
  x[17] = (real)NAN;
  assert_int_equal(regression_fit(x, y, COUNT, N, N, weight, bias), STATUS_NUMERIC);
  free(x);
  free(y);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_relation_is_found), cmocka_unit_test(the_rest_is_uncorrelated),
                                     cmocka_unit_test(there_may_be_fewer_numbers),
                                     cmocka_unit_test(numbers_that_are_not_finite_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
