/* Numbers of the paper stand beside runs of what the paper ran, and of nothing else. */
#include "cli/bench_latency_internal.h"
#include "unit/float_equal.h"
#include <cmocka.h>

static const LinkOptions mesh = {.topology = LINK_MESH};

static PaperRun the_papers(void) {
  return (PaperRun){.width = 768, .blocks = 12, .heads = 12, .entries = 1024, .tokens = 1024, .single = 0.0999, .links = &mesh};
}

static void only_its_own_runs_count(void **state) {
  (void)state;
  const LinkOptions others[] = {{.topology = LINK_SWITCH},
                                {.topology = LINK_MESH, .latency = 0.001},
                                {.topology = LINK_MESH, .jitter = 0.001},
                                {.topology = LINK_MESH, .loss = 0.05}};
  PaperRun runs[12];
  for (int i = 0; i < 12; i++) runs[i] = the_papers();
  assert_true(bench_latency_paper_applies(&runs[0]));
  runs[0].tokens = 512, runs[1].heads = 8, runs[2].entries = 512, runs[3].entries = 2048, runs[4].tokens = 2048, runs[5].single = 0.1;
  runs[6].width = 384, runs[7].blocks = 6;
  for (int i = 0; i < 4; i++) runs[8 + i].links = &others[i];
  for (int i = 0; i < 12; i++)
    if (bench_latency_paper_applies(&runs[i])) fail_msg("run %d is not the paper's", i);
}

static void doubtful_numbers_are_noted(void **state) {
  (void)state;
  const char *note;
  assert_float_equal(bench_latency_paper_speedup(STRATEGY_BP_SP, 0, 4, 1024, 10, &note), 0.17, 1e-9);
  assert_string_not_equal(note, "");
  double implied = bench_latency_paper_speedup(STRATEGY_ASTRA, 1, 4, 1024, 10, &note) / bench_latency_paper_over(STRATEGY_BP_SP, 10);
  assert_string_equal(note, "");
  assert_float_equal(implied, 0.09, 0.001);
  assert_float_equal(bench_latency_paper_speedup(STRATEGY_BP_SP, 0, 4, 512, 10, &note), 0, 0);
  assert_string_equal(note, "");
}

static void milliseconds_by_size_of_codebooks(void **state) {
  (void)state;
  double sending;
  assert_float_equal(bench_latency_paper_milliseconds(32, 1024, 100, &sending), 44.24, 1e-9);
  assert_float_equal(bench_latency_paper_milliseconds(32, 256, 100, &sending), 41.43, 1e-9);
  assert_float_equal(bench_latency_paper_milliseconds(32, 256, 200, &sending), 0, 0);
  assert_float_equal(bench_latency_paper_milliseconds(32, 2048, 100, &sending), 49.19, 1e-9);
  assert_float_equal(sending, 3.60, 1e-9);
  bench_latency_paper_milliseconds(32, 1024, 200, &sending);
  assert_float_equal(sending, 0, 0); /* printed together */
}

static void milliseconds_of_llama(void **state) {
  (void)state;
  assert_float_equal(bench_latency_paper_llama(STRATEGY_ASTRA, 16, 0, 20), 1659, 1e-9);
  assert_float_equal(bench_latency_paper_llama(STRATEGY_BP_AG, 0, 8, 10), 8011, 1e-9);
  assert_float_equal(bench_latency_paper_llama(STRATEGY_BP_AG, 0, 1, 10), 0, 0);
  assert_float_equal(bench_latency_paper_llama(STRATEGY_TP, 0, 0, 30), 0, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(only_its_own_runs_count), cmocka_unit_test(doubtful_numbers_are_noted),
                                     cmocka_unit_test(milliseconds_by_size_of_codebooks), cmocka_unit_test(milliseconds_of_llama)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
