/* Rounding of weights to 8 and 4 bits: errors that the layouts allow, numbers that are kept exactly, rows that end inside a block, and
 * numbers outside the range of half-precision scales. */
#include "autograd/lowbit.h"
#include "autograd/narrow.h"
#include "base/rng.h"
#include <cmocka.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { MAX = 200 };
static const LowbitKind KINDS[] = {LOWBIT_INT8, LOWBIT_Q8_0, LOWBIT_Q4_0};
enum { KIND_COUNT = 3 };

/* A row there and back again. */
static void round_trip(LowbitKind kind, int64_t n, const float *x, real *back) {
  uint8_t numbers[2 * MAX];
  float scale;
  memset(numbers, 0x5a, sizeof numbers);
  lowbit_quantise(kind, n, x, numbers, &scale);
  for (size_t i = lowbit_row_bytes(kind, n); i < sizeof numbers; i++) assert_int_equal(numbers[i], 0x5a);
  lowbit_widen(&(LowbitMatrix){kind, 1, n, numbers, &scale}, 0, 0, n, back);
}

static float peak_near(LowbitKind kind, int64_t n, const float *x, int64_t i) {
  const int64_t size = kind == LOWBIT_INT8 ? n : LOWBIT_BLOCK, first = i / size * size;
  float peak = 0;
  for (int64_t j = first; j < n && j < first + size; j++) peak = fmaxf(peak, fabsf(x[j]));
  return peak;
}

/* Half a step, and what a scale rounded to half precision adds to it. Q4_0: the scale with the least squared error may cut single numbers.
 */
static void errors_are_below_half_a_step(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 3, 0);
  for (int64_t n = 1; n <= MAX; n += 7) {
    float x[MAX];
    real back[MAX];
    for (int64_t i = 0; i < n; i++) x[i] = (float)(0.05 * rng_normal(&rng));
    for (int k = 0; k < 2; k++) {
      round_trip(KINDS[k], n, x, back);
      for (int64_t i = 0; i < n; i++)
        assert_true(fabs((double)back[i] - (double)x[i]) <= 0.57 * (double)peak_near(KINDS[k], n, x, i) / 127);
    }
  }
}

/* Squared error of a block with a given scale, numbers rounded and cut. */
static double error_with(const float *x, float scale) {
  double error = 0;
  for (int i = 0; i < LOWBIT_BLOCK; i++) {
    const float q = fmaxf(-8, fminf(7, rintf(x[i] / scale)));
    error += pow((double)(x[i] - q * scale), 2);
  }
  return error;
}

static void four_bits_take_a_scale_with_little_error(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 4, 0);
  double own = 0, plain = 0, best = 0;
  for (int run = 0; run < 300; run++) {
    float x[LOWBIT_BLOCK], max = 0;
    real back[LOWBIT_BLOCK];
    for (int i = 0; i < LOWBIT_BLOCK; i++) {
      x[i] = (float)rng_normal(&rng);
      if (fabsf(x[i]) > fabsf(max)) max = x[i];
    }
    round_trip(LOWBIT_Q4_0, LOWBIT_BLOCK, x, back);
    for (int i = 0; i < LOWBIT_BLOCK; i++) own += pow((double)back[i] - (double)x[i], 2);
    plain += error_with(x, max / -8);
    double min = 1e30;
    for (int s = 1; s < 2000; s++) min = fmin(min, fmin(error_with(x, 0.0003f * (float)s), error_with(x, -0.0003f * (float)s)));
    best += min;
  }
  if (own >= 0.95 * plain || own >= 1.03 * best) fail_msg("%g plain %g best %g", own, plain, best);
}

static void what_can_be_kept_is_kept(void **state) {
  (void)state;
  float x[64], y[64];
  real back[64];
  for (int i = 0; i < 64; i++) x[i] = 0.25f * (float)(i % 16 - 8), y[i] = 2 * (float)(i * 37 % 255 - 127);
  y[0] = y[32] = 254;
  round_trip(LOWBIT_Q4_0, 64, x, back);
  for (int i = 0; i < 64; i++) assert_true(back[i] == (real)x[i]);
  for (int k = 0; k < 2; k++) {
    round_trip(KINDS[k], 64, y, back);
    for (int i = 0; i < 64; i++) assert_true(back[i] == (real)y[i]);
  }
}

static void zeros_stay_and_extremes_are_finite(void **state) {
  (void)state;
  static const float extremes[] = {0, 1e-30f, -1e-7f, 6e4f, -1e7f, 3e38f};
  for (int k = 0; k < KIND_COUNT; k++)
    for (size_t e = 0; e < sizeof extremes / sizeof *extremes; e++) {
      float x[40] = {0};
      real back[40];
      x[5] = extremes[e], x[35] = -extremes[e];
      round_trip(KINDS[k], 40, x, back);
      for (int i = 0; i < 40; i++) assert_true(isfinite(back[i]) && (x[i] != 0 || back[i] == 0));
      if (fabsf(extremes[e]) > 1e-3f && fabsf(extremes[e]) < 1e5f) assert_true(fabs((double)(back[5] / (real)x[5]) - 1) < 0.01);
    }
}

/* Scales are the nearest halves, ties to even: all of them come back. */
static void scales_are_halves(void **state) {
  (void)state;
  for (uint32_t bits = 1; bits < 0x7c00; bits += 3) {
    const float scale = narrow_half_to_float((uint16_t)bits);
    float x[1] = {127 * scale};
    LowbitQ8Block block;
    lowbit_quantise(LOWBIT_Q8_0, 1, x, &block, NULL);
    assert_int_equal(block.scale, bits);
    assert_int_equal(block.number[0], 127);
  }
}

/* Scales below 2^-14 are multiples of 2^-24: the nearest one of a block of such numbers may be a third too small. */
static void small_numbers_are_not_cut(void **state) {
  (void)state;
  for (float max = 8e-6f; max < 1e-3f; max *= 1.01f) {
    float x[LOWBIT_BLOCK];
    real back[LOWBIT_BLOCK];
    LowbitQ8Block block;
    for (int i = 0; i < LOWBIT_BLOCK; i++) x[i] = max * (float)(i - 16) / 16;
    lowbit_quantise(LOWBIT_Q8_0, LOWBIT_BLOCK, x, &block, NULL);
    round_trip(LOWBIT_Q8_0, LOWBIT_BLOCK, x, back);
    for (int i = 0; i < LOWBIT_BLOCK; i++)
      assert_true(fabs((double)back[i] - (double)x[i]) <= 0.501 * (double)narrow_half_to_float(block.scale));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(errors_are_below_half_a_step),
                                     cmocka_unit_test(four_bits_take_a_scale_with_little_error),
                                     cmocka_unit_test(what_can_be_kept_is_kept),
                                     cmocka_unit_test(zeros_stay_and_extremes_are_finite),
                                     cmocka_unit_test(scales_are_halves),
                                     cmocka_unit_test(small_numbers_are_not_cut)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
