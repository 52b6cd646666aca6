/* Noise: moments against plain loops in double, moments of the samples against those they are drawn from, degenerate covariances, and
 * independence of the thread count. */
#include "base/threads.h"
#include "unit/vq/vq_check.h"
#include "unit/vq/vq_points.h"
#include "vq/navq.h"

static const double TOLERANCE = REAL_IS_DOUBLE ? 1e-12 : 1e-5;

static void plain_moments(const real *x, const real *q, int64_t rows, int64_t width, double *mean, double *covariance /* [W, W] */) {
  for (int64_t i = 0; i < width; i++) {
    mean[i] = 0;
    for (int64_t r = 0; r < rows; r++) mean[i] += ((double)x[r * width + i] - (double)q[r * width + i]) / (double)rows;
  }
  for (int64_t i = 0; i < width; i++)
    for (int64_t j = 0; j < width; j++) {
      double sum = 0;
      for (int64_t r = 0; r < rows; r++)
        sum += ((double)x[r * width + i] - (double)q[r * width + i] - mean[i]) *
               ((double)x[r * width + j] - (double)q[r * width + j] - mean[j]);
      covariance[i * width + j] = sum / (double)rows;
    }
}

static void check_moments(int64_t groups, NoiseCovariance kind) {
  enum { W = 12, ROWS = 90, STEPS = 3 };
  const int64_t d = kind == NOISE_JOINT ? W : W / groups;
  Navq navq;
  assert_int_equal(navq_init(&navq, groups, W, kind), STATUS_OK);
  navq.decay = 0.75;
  void *scratch = malloc(navq_scratch(&navq, ROWS));
  double mean[W] = {0}, covariance[W * W] = {0}, batch_mean[W], batch[W * W];
  for (int step = 0; step < STEPS; step++) {
    real *x = points_normal(ROWS * W, 10 + (uint64_t)step), *q = points_normal(ROWS * W, 20 + (uint64_t)step);
    for (int i = 0; i < ROWS * W; i++) x[i] += (real)(i % W); /* a mean that is not zero */
    navq_update(&navq, x, q, ROWS, scratch);
    plain_moments(x, q, ROWS, W, batch_mean, batch);
    double gain = step == 0 ? 1 : 0.25;
    for (int i = 0; i < W; i++) mean[i] += gain * (batch_mean[i] - mean[i]);
    for (int i = 0; i < W * W; i++) covariance[i] += gain * (batch[i] - covariance[i]);
    free(x);
    free(q);
  }
  for (int i = 0; i < W; i++) CHECK_NEAR(navq.mean[i], mean[i], TOLERANCE * 4);
  for (int64_t i = 0; i < W; i++)
    for (int64_t j = i / d * d; j < i / d * d + d; j++) {
      if (kind != NOISE_DIAGONAL)
        CHECK_NEAR(navq.covariance[i * d + j % d], covariance[i * W + j], TOLERANCE * 4);
      else if (i == j)
        CHECK_NEAR(navq.covariance[i], covariance[i * W + i], TOLERANCE * 4);
    }
  assert_int_equal(navq.updates, STEPS);
  free(scratch);
  navq_release(&navq);
}

static void moments(void **state) {
  (void)state;
  for (int64_t groups = 1; groups <= 12; groups++) {
    if (12 % groups != 0) continue;
    check_moments(groups, NOISE_FULL);
    check_moments(groups, NOISE_DIAGONAL);
    check_moments(groups, NOISE_JOINT);
  }
}

/* Restored: Cov X - Cov X^ by plain loops, of quantised rows that the residual depends on. */
static void restored_covariance(void **state) {
  (void)state;
  enum { W = 12, ROWS = 90, STEPS = 3 };
  Navq navq;
  assert_int_equal(navq_init(&navq, 4, W, NOISE_RESTORED), STATUS_OK);
  navq.decay = 0.75;
  void *scratch = malloc(navq_scratch(&navq, ROWS));
  double covariance[W * W] = {0}, mean[W], of_x[W * W], of_q[W * W];
  real zero[ROWS * W] = {0};
  for (int step = 0; step < STEPS; step++) {
    real *x = points_normal(ROWS * W, 10 + (uint64_t)step), *q = points_normal(ROWS * W, 20 + (uint64_t)step);
    for (int i = 0; i < ROWS * W; i++) x[i] += (real)(i % W), q[i] = (real)0.5 * (q[i] + x[i]);
    navq_update(&navq, x, q, ROWS, scratch);
    plain_moments(x, zero, ROWS, W, mean, of_x);
    plain_moments(q, zero, ROWS, W, mean, of_q);
    for (int i = 0; i < W * W; i++) covariance[i] += (step == 0 ? 1 : 0.25) * (of_x[i] - of_q[i] - covariance[i]);
    free(x);
    free(q);
  }
  for (int i = 0; i < W * W; i++) CHECK_NEAR(navq.covariance[i], covariance[i], TOLERANCE * 40);
  free(scratch);
  navq_release(&navq);
}

/* Numbers 0 to 7 of X^ lack variance, 8 to 11 have too much: the factor's product is the first part alone. */
static void restored_noise_is_the_positive_part(void **state) {
  (void)state;
  enum { W = 12, ROWS = 4000, LACKING = 8 };
  Navq navq;
  assert_int_equal(navq_init(&navq, 4, W, NOISE_RESTORED), STATUS_OK);
  real *x = points_normal(ROWS * W, 1), *q = malloc(ROWS * W * sizeof *q);
  for (int i = 0; i < ROWS * W; i++) q[i] = x[i] * (real)(i % W < LACKING ? 0.5 : 2);
  void *scratch = malloc(navq_scratch(&navq, ROWS));
  navq_update(&navq, x, q, ROWS, scratch);
  for (int i = 0; i < W; i++)
    for (int j = 0; j < W; j++) {
      double product = 0;
      for (int k = 0; k < W; k++) product += (double)navq.factor[i * W + k] * (double)navq.factor[j * W + k];
      CHECK_NEAR(product, i == j && i < LACKING ? 0.75 : 0, 0.08);
    }
  for (int i = LACKING; i < W; i++) assert_true((double)navq.covariance[i * W + i] < -2.5);
  free(x);
  free(q);
  free(scratch);
  navq_release(&navq);
}

/* Residuals with strong correlations: x - q = A z + b, [rows, W]. */
static real *correlated(int64_t rows, int64_t width, uint64_t stream) {
  real *mix = points_normal(width * width, 99), *z = points_normal(rows * width, stream), *x = calloc((size_t)(rows * width), sizeof *x);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < width; i++) {
      x[r * width + i] = (real)(0.5 * (double)(i % 5) - 1);
      for (int64_t j = 0; j < width; j++) x[r * width + i] += mix[i * width + j] * z[r * width + j] / (real)sqrt((double)width);
    }
  free(mix);
  free(z);
  return x;
}

/* The deviation of an estimated covariance is about sqrt((s_ii s_jj + s_ij^2) / rows); six of them are allowed. */
static void check_samples(int64_t width, int64_t groups, NoiseCovariance kind, double scale) {
  enum { WIDEST = 96, FIT = 4000 };
  const int64_t rows = width > 16 ? 5000 : 40000;
  const int64_t d = kind == NOISE_JOINT || kind == NOISE_RESTORED ? width : width / groups;
  Navq navq;
  assert_int_equal(navq_init(&navq, groups, width, kind), STATUS_OK);
  real *x = correlated(FIT, width, 30), *q = calloc((size_t)(FIT * width), sizeof *q),
       *noise = malloc((size_t)(rows * width) * sizeof *noise), *zero = calloc((size_t)(rows * width), sizeof *zero);
  void *scratch = malloc(navq_scratch(&navq, rows));
  navq_update(&navq, x, q, FIT, scratch);
  navq_sample(&navq, scale, 5, 1000, rows, noise, scratch);
  double mean[WIDEST], covariance[WIDEST * WIDEST], deviation[WIDEST];
  plain_moments(noise, zero, rows, width, mean, covariance);
  for (int64_t i = 0; i < width; i++) {
    double variance = kind != NOISE_DIAGONAL ? (double)navq.covariance[i * d + i % d] : (double)navq.covariance[i];
    deviation[i] = scale * sqrt(variance);
    CHECK_NEAR(mean[i], scale * (double)navq.mean[i], 6 * deviation[i] / sqrt(rows));
  }
  for (int64_t i = 0; i < width; i++)
    for (int64_t j = 0; j < width; j++) {
      double wanted = i == j ? deviation[i] * deviation[i] : 0;
      if (kind != NOISE_DIAGONAL && i / d == j / d) wanted = scale * scale * (double)navq.covariance[i * d + j % d];
      CHECK_NEAR(covariance[i * width + j], wanted, 6 * sqrt(2.0 / rows) * deviation[i] * deviation[j] + 1e-5);
    }
  free(x);
  free(q);
  free(noise);
  free(zero);
  free(scratch);
  navq_release(&navq);
}

static void samples_have_the_moments(void **state) {
  (void)state;
  check_samples(16, 1, NOISE_FULL, 1);
  check_samples(16, 4, NOISE_FULL, 0.3);
  check_samples(16, 4, NOISE_JOINT, 1);
  check_samples(16, 4, NOISE_RESTORED, 1);
  check_samples(16, 16, NOISE_FULL, 1);
  check_samples(16, 1, NOISE_DIAGONAL, 1);
  check_samples(16, 4, NOISE_DIAGONAL, 0.3);
  for (NoiseCovariance kind = NOISE_FULL; kind <= NOISE_RESTORED; kind++) check_samples(96, 1, kind, 0.5); /* a product for each group */
}

/* A row's noise depends on its number alone: any cut of the rows gives the same numbers as one call. Width 10 is not a multiple of 4. */
static void rows_by_number(void **state) {
  (void)state;
  enum { W = 10, ROWS = 200, CUT = 64 };
  Navq navq;
  assert_int_equal(navq_init(&navq, 1, W, NOISE_FULL), STATUS_OK);
  real *x = correlated(ROWS, W, 31), *q = calloc(ROWS * W, sizeof *q), whole[ROWS * W], parts[ROWS * W];
  void *scratch = malloc(navq_scratch(&navq, ROWS));
  navq_sample(&navq, 1, 5, 0, ROWS, whole, scratch);
  for (int i = 0; i < ROWS * W; i++) assert_true(whole[i] == 0); /* before the first update */
  navq_update(&navq, x, q, ROWS, scratch);
  navq_sample(&navq, 1, 5, 7, ROWS, whole, scratch);
  navq_sample(&navq, 1, 5, 7, CUT, parts, scratch);
  navq_sample(&navq, 1, 5, 7 + CUT, ROWS - CUT, parts + CUT * W, scratch);
  for (int i = 0; i < ROWS * W; i++) CHECK_NEAR(parts[i], whole[i], TOLERANCE);
  navq_sample(&navq, 1, 6, 7, ROWS, parts, scratch);
  assert_memory_not_equal(parts, whole, sizeof whole);
  free(x);
  free(q);
  free(scratch);
  navq_release(&navq);
}

/* Fewer rows than dimensions, a constant dimension, no residual at all, a residual that is not finite: always a factor, finite where the
 * moments are. */
static void degenerate_covariance(void **state) {
  (void)state;
  enum { W = 60, ROWS = 8 };
  real *x = correlated(ROWS, W, 32), *q = calloc(ROWS * W, sizeof *q), noise[ROWS * W];
  for (int r = 0; r < ROWS; r++) x[r * W] = x[r * W + 1] = 3;
  for (int groups = 1; groups <= 2; groups++) {
    Navq navq;
    assert_int_equal(navq_init(&navq, groups, W, NOISE_FULL), STATUS_OK);
    void *scratch = malloc(navq_scratch(&navq, ROWS));
    navq_update(&navq, x, q, ROWS, scratch);
    navq_sample(&navq, 1, 1, 0, ROWS, noise, scratch);
    for (int i = 0; i < ROWS * W; i++) assert_true(isfinite(noise[i]));
    CHECK_NEAR(noise[0], 3, 0.02); /* the ridge is all that moves a constant dimension */
    free(scratch);
    navq_release(&navq);
    assert_int_equal(navq_init(&navq, groups, W, NOISE_FULL), STATUS_OK);
    scratch = malloc(navq_scratch(&navq, ROWS));
    navq_update(&navq, x, x, ROWS, scratch);
    navq_sample(&navq, 1, 1, 0, ROWS, noise, scratch);
    for (int i = 0; i < ROWS * W; i++) assert_true(noise[i] == 0);
    q[5] = (real)NAN;
    navq.refresh = 1;
    navq_update(&navq, x, q, ROWS, scratch); /* the factorisation ends */
    q[5] = 0;
    free(scratch);
    navq_release(&navq);
  }
  free(x);
  free(q);
}

/* The factor changes at updates 1, 1 + refresh, ..., and is then that of the covariance. */
static void refresh(void **state) {
  (void)state;
  enum { W = 6, ROWS = 50 };
  Navq navq;
  assert_int_equal(navq_init(&navq, 1, W, NOISE_FULL), STATUS_OK);
  navq.refresh = 3;
  void *scratch = malloc(navq_scratch(&navq, ROWS));
  real *q = calloc(ROWS * W, sizeof *q), before[W * W];
  for (int update = 0; update < 7; update++) {
    memcpy(before, navq.factor, sizeof before);
    real *x = points_normal(ROWS * W, 50 + (uint64_t)update);
    navq_update(&navq, x, q, ROWS, scratch);
    free(x);
    assert_int_equal(memcmp(before, navq.factor, sizeof before) != 0, update % 3 == 0);
  }
  real *x = points_normal(ROWS * W, 70);
  navq_update(&navq, x, q, ROWS, scratch);
  memcpy(before, navq.factor, sizeof before);
  navq.refresh = 1;
  navq_update(&navq, x, q, ROWS, scratch);
  assert_memory_not_equal(before, navq.factor, sizeof before);
  for (int i = 0; i < W; i++)
    for (int j = 0; j < W; j++) {
      double sum = 0;
      for (int k = 0; k < W; k++) sum += (double)navq.factor[i * W + k] * (double)navq.factor[j * W + k];
      CHECK_NEAR(sum, navq.covariance[i * W + j], 1e-5);
    }
  free(x);
  free(q);
  free(scratch);
  navq_release(&navq);
}

static void same_for_any_thread_count(void **state) {
  (void)state;
  enum { W = 40, ROWS = 300 };
  real *x = correlated(ROWS, W, 33), *q = points_normal(ROWS * W, 34), *noise = malloc(ROWS * W * sizeof *noise),
       *first = malloc(ROWS * W * sizeof *first);
  for (int groups = 1; groups <= 5; groups += 4)
    for (int threads = 1; threads <= 4; threads++) {
      Navq navq;
      assert_int_equal(threads_start(threads), STATUS_OK);
      assert_int_equal(navq_init(&navq, groups, W, NOISE_FULL), STATUS_OK);
      void *scratch = malloc(navq_scratch(&navq, ROWS));
      navq.updates = 1; /* samples alone are compared: the factor is given */
      for (int64_t i = 0; i < W * W / groups; i++) navq.factor[i] = i % (W / groups) <= i / (W / groups) % (W / groups) ? q[i] : 0;
      navq_sample(&navq, 0.7, 3, 11, ROWS, noise, scratch);
      if (threads == 1) memcpy(first, noise, ROWS * W * sizeof *first);
      assert_memory_equal(noise, first, ROWS * W * sizeof *first);
      free(scratch);
      navq_release(&navq);
      threads_stop();
    }
  free(x);
  free(q);
  free(noise);
  free(first);
}

static void what_is_refused(void **state) {
  (void)state;
  Navq navq;
  assert_int_equal(navq_init(&navq, 5, 12, NOISE_FULL), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "5 groups do not divide the width 12"));
  assert_int_equal(navq_init(&navq, 0, 12, NOISE_FULL), STATUS_BAD_VALUE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(moments),
      cmocka_unit_test(restored_covariance),
      cmocka_unit_test(restored_noise_is_the_positive_part),
      cmocka_unit_test(samples_have_the_moments),
      cmocka_unit_test(rows_by_number),
      cmocka_unit_test(refresh),
      cmocka_unit_test(degenerate_covariance),
      cmocka_unit_test(same_for_any_thread_count),
      cmocka_unit_test(what_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
