/* The cost model of a job against closed forms: a slow link, a fast one, overlap, divided states, copies in memory; and the buckets of a
 * block. */
#define bench_scaling_command tested_bench_scaling_command
#include "cli/bench_scaling.c" /* its cost model is inside of it */
#undef bench_scaling_command
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

enum { BUCKETS = 4, EACH = 1 << 20 };

static double ready[BUCKETS] = {0.1, 0.2, 0.3, 0.4};
static int64_t numbers[BUCKETS] = {EACH, EACH, EACH, EACH};
static const ScalingStep sample = {.forward = 0.2,
                                   .backward = 0.4,
                                   .rest = 0.05,
                                   .optimizer = 0.08,
                                   .buckets = BUCKETS,
                                   .total = BUCKETS * EACH,
                                   .ready = ready,
                                   .numbers = numbers,
                                   .units = 10};

static ScalingResult predicted(ScalingLink link, int ranks, Wire wire, bool divided) {
  ScalingResult result;
  scaling_predict(&sample, &link, ranks, wire, divided, &result);
  return result;
}

static void near(double got, double expected) {
  if (!(fabs(got - expected) <= 1e-12 * (1 + fabs(expected)))) fail_msg("%.15g instead of %.15g", got, expected);
}

static void one_rank_computes_alone(void **state) {
  (void)state;
  ScalingResult result = predicted((ScalingLink){1, 1, 1, false}, 1, WIRE_FP32, false);
  near(result.step, 0.73);
  near(result.traffic, 0);
}

/* Each bucket is over before the next one is ready: only the last one's way is left behind the backward pass. */
static void a_fast_link_is_hidden(void **state) {
  (void)state;
  const double x = 0.75 * 4 * EACH / 1e9;
  const ScalingLink link = {1e-3, 1e9, 0, false};
  ScalingResult result = predicted(link, 4, WIRE_FP32, false);
  near(result.step, 0.73 + 2 * x + 2e-3 + 2e-3);
  near(result.traffic, BUCKETS * 2 * 0.75 * 4 * EACH);
  near(result.exposed, result.step - 0.73);
  near(predicted(link, 4, WIRE_BF16, false).step, 0.73 + x + 4e-3);
}

/* The link never rests from the first bucket on. */
static void a_slow_link_decides(void **state) {
  (void)state;
  const double x = 0.5 * 4 * EACH / 1e6;
  near(predicted((ScalingLink){0, 1e6, 1e-9, false}, 2, WIRE_FP32, false).step, 0.33 + 0.1 + BUCKETS * 2 * x);
  ScalingStep step = sample;
  ScalingResult result;
  step.statistics = EACH; /* which go first, in full precision */
  scaling_predict(&step, &(ScalingLink){0, 1e6, 0, false}, 2, WIRE_BF16, false, &result);
  near(result.step, 0.33 + 2 * x + BUCKETS * x);
}

static void divided_states(void **state) {
  (void)state;
  const double x = 0.5 * 4 * EACH / 1e6;
  const ScalingLink link = {0, 1e6, 0, false};
  ScalingResult result = predicted(link, 2, WIRE_FP32, true);
  near(result.step, 0.25 + 0.04 + 0.1 + BUCKETS * x + BUCKETS * x);
  near(result.traffic, predicted(link, 2, WIRE_FP32, false).traffic);
}

static void memory_overlaps_nothing(void **state) {
  (void)state;
  const double x = 0.5 * 4 * EACH / 1e9;
  near(predicted((ScalingLink){0, 1e9, 0, true}, 2, WIRE_FP32, false).step, 0.73 + BUCKETS * 2 * x);
}

/* Every number is in one bucket, the first of which is the end of the block; a process by itself owns them all, and sums change nothing. */
static void buckets_cover_a_block(void **state) {
  (void)state;
  enum { TOTAL = 2 * EACH + 4800 };
  const int64_t cuts[] = {0, 100 * 16, EACH - 320, EACH + 3200, 2 * EACH};
  real *block = calloc(TOTAL, sizeof *block);
  for (int with = 0; with < 2; with++) {
    AllReduce *reduce;
    AllReduceOptions options = {.cuts = with ? cuts : NULL, .cut_count = sizeof cuts / sizeof *cuts};
    assert_int_equal(all_reduce_new(&reduce, block, TOTAL, &options), STATUS_OK);
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
    block[5] = 7;
    all_reduce_finish(reduce);
    assert_true(block[5] == 7 && block[TOTAL - 1] == 0);
    assert_true(all_reduce_owns(reduce, 0) && all_reduce_owns(reduce, TOTAL - 1));
    all_reduce_free(reduce);
  }
  free(block);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_rank_computes_alone), cmocka_unit_test(a_fast_link_is_hidden),   cmocka_unit_test(a_slow_link_decides),
      cmocka_unit_test(divided_states),          cmocka_unit_test(memory_overlaps_nothing), cmocka_unit_test(buckets_cover_a_block),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
