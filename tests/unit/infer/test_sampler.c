/* Drawing tokens: the likeliest without a temperature; with one as often as the probabilities say, among the likeliest k and the nucleus p
 * alone; the same for the same seed; logits that are no numbers. */
#include "infer/sampler.h"
#include <cmocka.h>
#include <math.h>
#include <string.h>

enum { COUNT = 6, DRAWS = 20000 };
/* Probabilities at temperature 1: 0.40, 0.05, 0.25, 0.15, 0.10, 0.05. */
static const double share[COUNT] = {0.40, 0.05, 0.25, 0.15, 0.10, 0.05};

static void fill(real *logits) {
  for (int i = 0; i < COUNT; i++) logits[i] = (real)(log(share[i]) + 3);
}

static Sampling usual(void) { return (Sampling){.max = 1, .vocabulary = COUNT, .temperature = 1, .top_p = 1, .seed = 5}; }

static void count_draws(const Sampling *sampling, int64_t counts[COUNT]) {
  Sampler sampler;
  real logits[COUNT];
  fill(logits);
  memset(counts, 0, COUNT * sizeof *counts);
  assert_int_equal(sampler_init(&sampler, COUNT), STATUS_OK);
  sampler_start(&sampler, sampling);
  for (int i = 0; i < DRAWS; i++) {
    int32_t id;
    assert_int_equal(sampler_pick(&sampler, logits, &id), STATUS_OK);
    assert_in_range(id, 0, COUNT - 1);
    counts[id]++;
  }
  sampler_release(&sampler);
}

/* Expected shares, those of 0 never: within five deviations of the binomial distribution. */
static void assert_shares(const Sampling *sampling, const double *expected) {
  int64_t counts[COUNT];
  count_draws(sampling, counts);
  for (int i = 0; i < COUNT; i++) {
    double mean = DRAWS * expected[i], deviation = sqrt(mean * (1 - expected[i]));
    if (fabs((double)counts[i] - mean) > 5 * deviation + 1e-9)
      fail_msg("token %d came %d times; %.0f were expected", i, (int)counts[i], mean);
  }
}

static void all_as_often_as_they_are_likely(void **state) {
  (void)state;
  Sampling sampling = usual();
  assert_shares(&sampling, share);
  sampling.temperature = 0.5; /* squares */
  double squares[COUNT], sum = 0;
  for (int i = 0; i < COUNT; i++) sum += squares[i] = share[i] * share[i];
  for (int i = 0; i < COUNT; i++) squares[i] /= sum;
  assert_shares(&sampling, squares);
}

static void only_the_likeliest_k(void **state) {
  (void)state;
  Sampling sampling = usual();
  sampling.top_k = 3;
  assert_shares(&sampling, (double[COUNT]){0.5, 0, 0.3125, 0.1875, 0, 0});
  sampling.top_k = 1;
  assert_shares(&sampling, (double[COUNT]){1, 0, 0, 0, 0, 0});
  sampling.top_k = 100;
  assert_shares(&sampling, share);
}

/* As many of the likeliest as are needed to reach p. */
static void only_the_nucleus(void **state) {
  (void)state;
  Sampling sampling = usual();
  sampling.top_p = 0.6; /* 0.40 + 0.25 */
  assert_shares(&sampling, (double[COUNT]){0.40 / 0.65, 0, 0.25 / 0.65, 0, 0, 0});
  sampling.top_p = 0.01;
  assert_shares(&sampling, (double[COUNT]){1, 0, 0, 0, 0, 0});
  sampling.top_p = 0.85;
  sampling.top_k = 3; /* of 0.40, 0.25 and 0.15: all three are needed for 85% of their 0.80 */
  assert_shares(&sampling, (double[COUNT]){0.5, 0, 0.3125, 0.1875, 0, 0});
  sampling.top_p = 0.8; /* 0.40 + 0.25 are 81% of it */
  assert_shares(&sampling, (double[COUNT]){0.40 / 0.65, 0, 0.25 / 0.65, 0, 0, 0});
}

static void only_ids_of_the_vocabulary(void **state) {
  (void)state;
  Sampling sampling = usual();
  sampling.vocabulary = 2;
  assert_shares(&sampling, (double[COUNT]){0.40 / 0.45, 0.05 / 0.45, 0, 0, 0, 0});
}

static void the_same_seed_the_same_draws(void **state) {
  (void)state;
  Sampling sampling = usual();
  int64_t first[COUNT], second[COUNT];
  count_draws(&sampling, first);
  count_draws(&sampling, second);
  assert_memory_equal(first, second, sizeof first);
  sampling.seed = 6;
  count_draws(&sampling, second);
  assert_memory_not_equal(first, second, sizeof first);
}

static void the_likeliest_without_a_temperature(void **state) {
  (void)state;
  Sampler sampler;
  Sampling sampling = usual();
  real logits[COUNT] = {1, 7, 3, 7, (real)NAN, (real)-INFINITY};
  int32_t id;
  sampling.temperature = 0;
  assert_int_equal(sampler_init(&sampler, COUNT), STATUS_OK);
  sampler_start(&sampler, &sampling);
  assert_int_equal(sampler_pick(&sampler, logits, &id), STATUS_OK);
  assert_int_equal(id, 1); /* the first of equals */
  logits[0] = (real)NAN;
  assert_int_equal(sampler_pick(&sampler, logits, &id), STATUS_OK);
  assert_int_equal(id, 1);
  for (int i = 0; i < COUNT; i++) logits[i] = (real)NAN;
  assert_int_equal(sampler_pick(&sampler, logits, &id), STATUS_NUMERIC);
  logits[2] = (real)INFINITY;
  assert_int_equal(sampler_pick(&sampler, logits, &id), STATUS_NUMERIC);
  sampler_release(&sampler);
}

static void numbers_that_are_none_are_never_drawn(void **state) {
  (void)state;
  Sampler sampler;
  Sampling sampling = usual();
  real logits[COUNT] = {(real)NAN, 1, (real)-INFINITY, 1, (real)NAN, (real)-INFINITY};
  assert_int_equal(sampler_init(&sampler, COUNT), STATUS_OK);
  for (int way = 0; way < 3; way++) {
    sampling.top_k = way == 1 ? 4 : 0;
    sampling.top_p = way == 2 ? 0.99 : 1;
    sampler_start(&sampler, &sampling);
    for (int i = 0; i < 500; i++) {
      int32_t id;
      assert_int_equal(sampler_pick(&sampler, logits, &id), STATUS_OK);
      assert_true(id == 1 || id == 3);
    }
  }
  sampler_release(&sampler);
}

static void ends_are_told(void **state) {
  (void)state;
  Sampler sampler;
  Sampling sampling = usual();
  sampling.ends = 2, sampling.end[0] = 4, sampling.end[1] = 1;
  assert_int_equal(sampler_init(&sampler, COUNT), STATUS_OK);
  sampler_start(&sampler, &sampling);
  assert_true(sampler_ends(&sampler, 4) && sampler_ends(&sampler, 1));
  assert_false(sampler_ends(&sampler, 0));
  sampler_release(&sampler);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_as_often_as_they_are_likely),
                                     cmocka_unit_test(only_the_likeliest_k),
                                     cmocka_unit_test(only_the_nucleus),
                                     cmocka_unit_test(only_ids_of_the_vocabulary),
                                     cmocka_unit_test(the_same_seed_the_same_draws),
                                     cmocka_unit_test(the_likeliest_without_a_temperature),
                                     cmocka_unit_test(numbers_that_are_none_are_never_drawn),
                                     cmocka_unit_test(ends_are_told)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
