/* Random numbers: the published sequence, moments of each distribution, streams, resuming. */
#include "base/rng.h"
#include <cmocka.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static void the_sequence_is_the_published_one(void **state) {
  (void)state;
  const uint64_t expected[] = {11520,
                               0,
                               1509978240,
                               UINT64_C(1215971899390074240),
                               UINT64_C(1216172134540287360),
                               UINT64_C(607988272756665600),
                               UINT64_C(16172922978634559625),
                               UINT64_C(8476171486693032832)};
  Rng rng = {{1, 2, 3, 4}};
  for (int i = 0; i < 8; i++) assert_true(rng_next(&rng) == expected[i]);
}

static void seeding_is_splitmix64(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 0, 0);
  assert_true(rng.state[0] == UINT64_C(0xe220a8397b1dcdaf));
  assert_true(rng.state[1] == UINT64_C(0x6e789e6aa1b965f4));
  assert_true(rng.state[2] == UINT64_C(0x06c45d188009454f));
  assert_true(rng.state[3] == UINT64_C(0xf88bb8a8724c81ec));
}

static void streams_differ_and_repeat(void **state) {
  (void)state;
  Rng a, b, c;
  rng_init(&a, 42, 1);
  rng_init(&b, 42, 2);
  rng_init(&c, 42, 1);
  int equal = 0;
  for (int i = 0; i < 1000; i++) {
    uint64_t draw = rng_next(&a);
    equal += draw == rng_next(&b);
    assert_true(draw == rng_next(&c));
  }
  assert_int_equal(equal, 0);
}

static void a_copied_state_resumes(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 7, 0);
  rng_normal(&rng);
  Rng stored = rng;
  double expected[10];
  for (int i = 0; i < 10; i++) expected[i] = rng_normal(&rng);
  for (int i = 0; i < 10; i++) assert_true(rng_normal(&stored) == expected[i]);
}

enum { DRAWS = 400000 };

/* Mean and variance of DRAWS values; the seeds are fixed, the bounds are about four standard errors. */
static void check_moments(double (*draw)(Rng *), double mean, double variance, double mean_bound, double variance_bound) {
  Rng rng;
  rng_init(&rng, 42, 9);
  double sum = 0, squares = 0;
  for (int i = 0; i < DRAWS; i++) {
    double x = draw(&rng);
    sum += x;
    squares += x * x;
  }
  double m = sum / DRAWS, v = squares / DRAWS - m * m;
  assert_true(fabs(m - mean) < mean_bound);
  assert_true(fabs(v - variance) < variance_bound);
}

static double small_gamma(Rng *rng) { return rng_gamma(rng, 0.3); }
static double large_gamma(Rng *rng) { return rng_gamma(rng, 4); }

static void moments_are_right(void **state) {
  (void)state;
  check_moments(rng_uniform, 0.5, 1.0 / 12, 0.002, 0.0005);
  check_moments(rng_normal, 0, 1, 0.0064, 0.009);
  check_moments(small_gamma, 0.3, 0.3, 0.0035, 0.009);
  check_moments(large_gamma, 4, 4, 0.013, 0.05);
}

static void normal_tails_are_right(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 3, 0);
  int one = 0, three = 0;
  for (int i = 0; i < DRAWS; i++) {
    double x = fabs(rng_normal(&rng));
    one += x > 1;
    three += x > 3;
  }
  assert_true(fabs((double)one / DRAWS - 0.31731) < 0.003);
  assert_true(fabs((double)three / DRAWS - 0.00270) < 0.00033);
}

static void below_is_unbiased_and_in_range(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 5, 0);
  int counts[7] = {0};
  for (int i = 0; i < 70000; i++) {
    uint64_t x = rng_below(&rng, 7);
    assert_true(x < 7);
    counts[x]++;
  }
  for (int i = 0; i < 7; i++) assert_in_range(counts[i], 9600, 10400);
  assert_true(rng_below(&rng, 1) == 0);
  int high = 0; /* plain modulo would give the lower half of this bound twice as often */
  uint64_t bound = UINT64_C(3) << 62;
  for (int i = 0; i < 30000; i++) high += rng_below(&rng, bound) >= bound / 3 * 2;
  assert_in_range(high, 9600, 10400);
}

static void shuffle_permutes_evenly(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 11, 0);
  int places[5][5] = {{0}};
  for (int round = 0; round < 20000; round++) {
    int32_t list[5] = {0, 1, 2, 3, 4};
    rng_shuffle(&rng, list, 5);
    int seen = 0;
    for (int i = 0; i < 5; i++) {
      seen |= 1 << list[i];
      places[list[i]][i]++;
    }
    assert_int_equal(seen, 31);
  }
  for (int i = 0; i < 25; i++) assert_in_range(places[i / 5][i % 5], 3770, 4230);
  rng_shuffle(&rng, NULL, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_sequence_is_the_published_one),
      cmocka_unit_test(seeding_is_splitmix64),
      cmocka_unit_test(streams_differ_and_repeat),
      cmocka_unit_test(a_copied_state_resumes),
      cmocka_unit_test(moments_are_right),
      cmocka_unit_test(normal_tails_are_right),
      cmocka_unit_test(below_is_unbiased_and_in_range),
      cmocka_unit_test(shuffle_permutes_evenly),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
