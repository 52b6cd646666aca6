/* How far a row of logits may be from the emulation's where activations are rounded: by what all of them differ, and by what one does. */
#include "infer/selftest.c"
#include <cmocka.h>

enum { COUNT = 1024 };

/* Logits of this standard deviation around 3, and the same with differences of this size, half of them negative. */
static void fill(real *expected, real *actual, int64_t count, double deviation, double difference) {
  for (int64_t i = 0; i < count; i++) {
    expected[i] = (real)(3 + (i % 2 ? deviation : -deviation));
    actual[i] = (real)((double)expected[i] + (i / 2 % 2 ? difference : -difference));
  }
}

static double of(double deviation, double difference) {
  real expected[COUNT], actual[COUNT];
  fill(expected, actual, COUNT, deviation, difference);
  return row_deviation(actual, expected, COUNT);
}

static bool near(double a, double b) { return fabs(a - b) < 1e-3 * b; }

static void differences_are_a_share_of_the_deviation(void **state) {
  (void)state;
  assert_true(near(of(4, 0.079), 0.079 / 0.08));
  assert_true(of(4, 0.081) > 1);
  assert_true(of(4, 0) == 0);
}

/* Two classes between which nothing is decided are rounded as others are. */
static void logits_near_each_other_are_allowed_what_others_are(void **state) {
  (void)state;
  assert_true(near(of(0.01, 0.019), 0.019 / 0.02));
  assert_true(of(0, 0.021) > 1);
  const real equal[] = {1, 1}, moved[] = {(real)1.01, (real)0.99}, off[] = {(real)1.03, (real)0.97};
  assert_true(row_deviation(moved, equal, 2) < 1 && row_deviation(off, equal, 2) > 1);
}

/* Which the mean of a thousand squares would hide. */
static void one_wrong_logit_fails(void **state) {
  (void)state;
  real expected[COUNT], actual[COUNT];
  fill(expected, actual, COUNT, 4, 0);
  actual[7] += (real)0.79;
  assert_true(row_deviation(actual, expected, COUNT) < 1);
  actual[7] += (real)0.02;
  assert_true(row_deviation(actual, expected, COUNT) > 1);
}

static void what_is_no_number_fails(void **state) {
  (void)state;
  real expected[COUNT], actual[COUNT];
  const double wrong[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
  for (int i = 0; i < 3; i++) {
    fill(expected, actual, COUNT, 1, 0);
    actual[COUNT - 1] = (real)wrong[i];
    assert_true(isinf(row_deviation(actual, expected, COUNT)));
    fill(expected, actual, COUNT, 1, 0);
    expected[0] = (real)wrong[i];
    assert_true(isinf(row_deviation(actual, expected, COUNT)));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(differences_are_a_share_of_the_deviation),
                                     cmocka_unit_test(logits_near_each_other_are_allowed_what_others_are),
                                     cmocka_unit_test(one_wrong_logit_fails), cmocka_unit_test(what_is_no_number_fails)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
