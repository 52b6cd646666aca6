/* Measured cases of a small model: what is said about how much runs differed is about all of them. */
#include "cli/bench_latency_internal.h"
#include "unit/float_equal.h"
#include <cmocka.h>

enum { TOKENS = 16 };

/* The single device is measured first and again at the end. */
static void the_last_measurement_counts_as_well(void **state) {
  (void)state;
  LatencyBench bench = {.repeats = 3, .quality = {.min_share = 1}, .arena = arena_new((size_t)1 << 30)};
  double seconds;
  assert_non_null(bench.arena);
  assert_int_equal(bench_latency_model_open(&bench.model, &(LatencySize){.width = 32, .blocks = 1, .heads = 2, .entries = 16}), STATUS_OK);
  assert_int_equal(bench_latency_cases_single(&bench, TOKENS, false, &seconds), STATUS_OK);
  assert_true(bench.single.first == seconds && bench.quality.spread == bench.single.spread);
  bench.quality.spread = bench.single.spread = 0;
  assert_int_equal(bench_latency_cases_single(&bench, TOKENS, true, &seconds), STATUS_OK);
  assert_float_equal(seconds, (bench.single.first + bench.single.last) / 2, 1e-12);
  assert_true(bench.single.spread > 0 && bench.quality.spread == bench.single.spread);
  bench_latency_cases_release(&bench);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_last_measurement_counts_as_well)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
