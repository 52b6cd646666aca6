/* The cost model of a job against closed forms: a slow link, a fast one, overlap, divided states, copies in memory; and the buckets of a
 * block. */
#include "train/scaling.h"
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

enum { BUCKETS = 4, EACH = 1 << 20 };

static ScalingStep sample(double ready[BUCKETS], int64_t numbers[BUCKETS]) {
  for (int k = 0; k < BUCKETS; k++) {
    ready[k] = 0.1 * (k + 1);
    numbers[k] = EACH;
  }
  return (ScalingStep){.forward = 0.2,
                       .backward = 0.4,
                       .rest = 0.05,
                       .optimizer = 0.08,
                       .buckets = BUCKETS,
                       .total = BUCKETS * EACH,
                       .ready = ready,
                       .numbers = numbers,
                       .units = 10};
}

static void near(double got, double expected) {
  if (fabs(got - expected) > 1e-12 * (1 + fabs(expected))) fail_msg("%.15g instead of %.15g", got, expected);
}

static void one_rank_computes_alone(void **state) {
  (void)state;
  double ready[BUCKETS];
  int64_t numbers[BUCKETS];
  ScalingStep step = sample(ready, numbers);
  ScalingResult result;
  scaling_predict(&step, &(ScalingLink){1, 1, 1, false}, 1, WIRE_FP32, false, &result);
  near(result.step, 0.73);
  near(result.traffic, 0);
}

/* Each bucket is over before the next one is ready: only the last one's way is left behind the backward pass. */
static void a_fast_link_is_hidden(void **state) {
  (void)state;
  double ready[BUCKETS], x = 0.75 * 4 * EACH / 1e9;
  int64_t numbers[BUCKETS];
  ScalingStep step = sample(ready, numbers);
  ScalingResult result;
  scaling_predict(&step, &(ScalingLink){1e-3, 1e9, 0, false}, 4, WIRE_FP32, false, &result);
  near(result.step, 0.73 + 2 * x + 2e-3 + 2e-3);
  near(result.traffic, BUCKETS * 2 * 0.75 * 4 * EACH);
  near(result.exposed, result.step - 0.73);
  scaling_predict(&step, &(ScalingLink){1e-3, 1e9, 0, false}, 4, WIRE_BF16, false, &result);
  near(result.step, 0.73 + x + 4e-3);
}

/* The link never rests from the first bucket on. */
static void a_slow_link_decides(void **state) {
  (void)state;
  double ready[BUCKETS], x = 0.5 * 4 * EACH / 1e6;
  int64_t numbers[BUCKETS];
  ScalingStep step = sample(ready, numbers);
  ScalingResult result;
  scaling_predict(&step, &(ScalingLink){0, 1e6, 1e-9, false}, 2, WIRE_FP32, false, &result);
  near(result.step, 0.33 + 0.1 + BUCKETS * 2 * x);
  step.statistics = EACH; /* which go first, in full precision */
  scaling_predict(&step, &(ScalingLink){0, 1e6, 0, false}, 2, WIRE_BF16, false, &result);
  near(result.step, 0.33 + 2 * x + BUCKETS * x);
}

static void divided_states(void **state) {
  (void)state;
  double ready[BUCKETS], x = 0.5 * 4 * EACH / 1e6;
  int64_t numbers[BUCKETS];
  ScalingStep step = sample(ready, numbers);
  ScalingResult result, whole;
  scaling_predict(&step, &(ScalingLink){0, 1e6, 0, false}, 2, WIRE_FP32, true, &result);
  scaling_predict(&step, &(ScalingLink){0, 1e6, 0, false}, 2, WIRE_FP32, false, &whole);
  near(result.step, 0.25 + 0.04 + 0.1 + BUCKETS * x + BUCKETS * x);
  near(result.traffic, whole.traffic);
}

static void memory_overlaps_nothing(void **state) {
  (void)state;
  double ready[BUCKETS], x = 0.5 * 4 * EACH / 1e9;
  int64_t numbers[BUCKETS];
  ScalingStep step = sample(ready, numbers);
  ScalingResult result;
  scaling_predict(&step, &(ScalingLink){0, 1e9, 0, true}, 2, WIRE_FP32, false, &result);
  near(result.step, 0.73 + BUCKETS * 2 * x);
}

/* Every number is in one bucket, the first of which is the end of the block; a process by itself owns them all, and sums change nothing. */
static void buckets_cover_a_block(void **state) {
  (void)state;
  enum { TOTAL = 2 * EACH + 4800 };
  const int64_t cuts[] = {0, 100 * 16, EACH - 320, EACH + 3200, 2 * EACH};
  real *numbers = calloc(TOTAL, sizeof *numbers);
  for (int with = 0; with < 2; with++) {
    AllReduce *reduce;
    AllReduceOptions options = {.cuts = with ? cuts : NULL, .cut_count = sizeof cuts / sizeof *cuts};
    assert_int_equal(all_reduce_new(&reduce, numbers, TOTAL, &options), STATUS_OK);
    int64_t expected = TOTAL, begin = TOTAL, end;
    for (int64_t bucket = 0; bucket < all_reduce_buckets(reduce); bucket++, expected = begin) {
      bool cut = !with;
      all_reduce_bucket(reduce, bucket, &begin, &end);
      assert_int_equal(end, expected);
      assert_true(begin < end);
      for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) cut |= cuts[i] == begin;
      assert_true(cut);
      all_reduce_ready(reduce, bucket);
    }
    assert_int_equal(begin, 0);
    numbers[5] = 7;
    all_reduce_finish(reduce);
    assert_true(numbers[5] == 7 && numbers[TOTAL - 1] == 0);
    assert_true(all_reduce_owns(reduce, 0) && all_reduce_owns(reduce, TOTAL - 1));
    all_reduce_free(reduce);
  }
  free(numbers);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_rank_computes_alone), cmocka_unit_test(a_fast_link_is_hidden),   cmocka_unit_test(a_slow_link_decides),
      cmocka_unit_test(divided_states),          cmocka_unit_test(memory_overlaps_nothing), cmocka_unit_test(buckets_cover_a_block),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
