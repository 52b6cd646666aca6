/* The basis of quantisation: it can be undone, its numbers are uncorrelated in the metric, its groups equally hard, and codes of it are
 * better than codes of the numbers as they are. */
#include "unit/vq/vq_check.h"
#include "unit/vq/vq_points.h"
#include "vq/basis.h"
#include "vq/kmeans.h"
#include <stdlib.h>

enum { N = 12, GROUPS = 3, COUNT = 6000 };

/* Samples A z + 5 of independent normal z, whose deviations fall from 4 to 1/8; A mixes neighbours. */
static real *samples(void) {
  real *x = points_normal(COUNT * N, 21);
  for (int64_t row = 0; row < COUNT; row++) {
    real *at = x + row * N, z[N];
    for (int i = 0; i < N; i++) z[i] = (real)(4 * pow(0.73, i)) * at[i];
    for (int i = 0; i < N; i++) at[i] = (real)(z[i] + 0.8 * z[(i + 5) % N] - 0.5 * z[(i + 1) % N] + 5);
  }
  return x;
}

/* A symmetric, positive metric in which the last numbers count most. */
static void make_metric(double *m) {
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++) m[i * N + j] = (i == j ? 1.0 + i : 0) + 0.3 * (i + 1) * (j + 1) / (N * N);
}

static double error_of(const double *metric, const double *e) {
  double sum = 0;
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++) sum += e[i] * metric[i * N + j] * e[j];
  return sum;
}

static void back(const Rotation *rotation, const real *y, double *x) {
  for (int i = 0; i < N; i++) {
    x[i] = rotation->mean[i];
    for (int j = 0; j < N; j++) x[i] += rotation->from[i * N + j] * (double)y[j];
  }
}

static int ascending(const void *a, const void *b) {
  const double left = *(const double *)a, right = *(const double *)b;
  return left < right ? -1 : left > right;
}

static double spread(const double *numbers) {
  double min = numbers[0], max = numbers[0];
  for (int g = 1; g < GROUPS; g++) min = fmin(min, numbers[g]), max = fmax(max, numbers[g]);
  return max - min;
}

static void its_numbers_are_uncorrelated_and_equally_hard(void **state) {
  (void)state;
  double metric[N * N], total = 0, rotated = 0, product[GROUPS] = {0};
  real *x = samples(), *y = malloc(COUNT * N * sizeof *y);
  Rotation rotation;
  make_metric(metric);
  assert_int_equal(rotation_fit(&rotation, x, COUNT, N, metric, GROUPS), STATUS_OK);
  memcpy(y, x, COUNT * N * sizeof *y);
  assert_int_equal(rotation_apply(&rotation, y, COUNT), STATUS_OK);
  for (int row = 0; row < COUNT; row += 97) {
    double again[N];
    back(&rotation, y + row * N, again);
    for (int i = 0; i < N; i++) CHECK_NEAR(again[i], x[row * N + i], 2e-4);
  }
  double c[N][N] = {{0}};
  for (int row = 0; row < COUNT; row++)
    for (int i = 0; i < N; i++) {
      const double centred = (double)x[row * N + i] - rotation.mean[i];
      total += centred * centred / COUNT;
      for (int j = 0; j < N; j++) c[i][j] += (double)y[row * N + i] * (double)y[row * N + j] / COUNT;
    }
  for (int i = 0; i < N; i++) {
    rotated += c[i][i];
    product[i / (N / GROUPS)] += log(c[i][i]);
    for (int j = 0; j < i; j++) CHECK_NEAR(c[i][j], 0, 1e-3 * sqrt(c[i][i] * c[j][j]));
  }
  CHECK_NEAR(rotated, total, 1e-3 * total);
  double sorted[N], in_order[GROUPS] = {0};
  for (int i = 0; i < N; i++) sorted[i] = c[i][i];
  qsort(sorted, N, sizeof *sorted, ascending);
  for (int i = 0; i < N; i++) in_order[i / (N / GROUPS)] += log(sorted[i]);
  assert_true(spread(product) < 0.4 * spread(in_order)); /* than if components were simply cut into groups */
  rotation_release(&rotation);
  free(x);
  free(y);
}

/* e^T M e of quantised samples, by the codes of the numbers as they are, or of the basis. */
static double quantised_error(const real *x, const double *metric, const Rotation *rotation) {
  Codebook book;
  KmeansOptions options;
  KmeansResult result;
  double sum = 0;
  real *rows = malloc(COUNT * N * sizeof *rows), *q = malloc(COUNT * N * sizeof *q);
  int32_t *codes = malloc(COUNT * GROUPS * sizeof *codes);
  assert_int_equal(codebook_init(&book, GROUPS, 16, N, NULL), STATUS_OK);
  kmeans_defaults(&options);
  memcpy(rows, x, COUNT * N * sizeof *rows);
  if (rotation) assert_int_equal(rotation_apply(rotation, rows, COUNT), STATUS_OK);
  assert_int_equal(kmeans_fit(&book, rows, COUNT, &options, &result), STATUS_OK);
  void *scratch = malloc(codebook_assign_scratch(&book, COUNT));
  codebook_assign(&book, rows, COUNT, codes, NULL, scratch);
  codebook_lookup(&book, codes, COUNT, q);
  for (int row = 0; row < COUNT; row++) {
    double e[N], again[N];
    if (rotation) back(rotation, q + row * N, again);
    for (int i = 0; i < N; i++) e[i] = (rotation ? again[i] : (double)q[row * N + i]) - (double)x[row * N + i];
    sum += error_of(metric, e) / COUNT;
  }
  codebook_release(&book);
  free(scratch);
  free(codes);
  free(q);
  free(rows);
  return sum;
}

static void its_codes_are_better(void **state) {
  (void)state;
  double metric[N * N];
  real *x = samples();
  Rotation rotation;
  make_metric(metric);
  assert_int_equal(rotation_fit(&rotation, x, COUNT, N, metric, GROUPS), STATUS_OK);
  assert_true(quantised_error(x, metric, &rotation) < 0.6 * quantised_error(x, metric, NULL));
  rotation_release(&rotation);
  free(x);
}

/* Numbers that never change, or a metric that ignores some, leave a basis that can be undone; numbers that are not finite do not. */
static void degenerate_samples_have_one(void **state) {
  (void)state;
  double metric[N * N] = {0};
  real *x = samples();
  Rotation rotation;
  for (int i = 0; i < N / 2; i++) metric[i * N + i] = 1;
  for (int row = 0; row < COUNT; row++) x[row * N + 3] = 1, x[row * N + 7] = x[row * N + 8];
  assert_int_equal(rotation_fit(&rotation, x, COUNT, N, metric, GROUPS), STATUS_OK);
  for (int i = 0; i < N * N; i++) assert_true(isfinite(rotation.to[i]) && isfinite(rotation.from[i]));
  real y[N];
  double again[N];
  memcpy(y, x, sizeof y);
  assert_int_equal(rotation_apply(&rotation, y, 1), STATUS_OK);
  back(&rotation, y, again);
  for (int i = 0; i < N; i++) CHECK_NEAR(again[i], x[i], 2e-3);
  rotation_release(&rotation);
  for (int row = 1; row < COUNT; row++) memcpy(x + row * N, x, N * sizeof *x); /* all alike */
  assert_int_equal(rotation_fit(&rotation, x, COUNT, N, metric, GROUPS), STATUS_OK);
  for (int i = 0; i < N * N; i++) assert_true(isfinite(rotation.to[i]) && isfinite(rotation.from[i]));
  rotation_release(&rotation);
  x[5] = (real)NAN;
  assert_int_equal(rotation_fit(&rotation, x, COUNT, N, metric, GROUPS), STATUS_NUMERIC);
  rotation_release(&rotation);
  free(x);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(its_numbers_are_uncorrelated_and_equally_hard),
                                     cmocka_unit_test(its_codes_are_better), cmocka_unit_test(degenerate_samples_have_one)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
