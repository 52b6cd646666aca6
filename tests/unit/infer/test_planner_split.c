/* Tokens for devices and links that were measured: whatever is known of them. */
#include "infer/plan/planner.h"
#include <cmocka.h>
#include <math.h>

enum { TOKENS = 1024 };

/* `gflops` at everything; nothing else takes time. */
static DeviceMeasure device(double gflops, double mbit, double round_trip) {
  DeviceMeasure measure = {.here = true, .linked = mbit > 0, .to = 2e6 * mbit, .from = 1e6 * mbit, .round_trip = round_trip};
  for (int i = 0; i < PROFILE_SIZES; i++)
    measure.profile.linear[i] = measure.profile.attention[i] = measure.profile.assign[i] = 1e-9 / gflops;
  return measure;
}

static ModelConfig encoder(void) {
  ModelConfig config;
  assert_int_equal(config_preset(&config, "vit-base", 10), STATUS_OK);
  config.astra = (AstraConfig){.groups = 1, .codebook_size = 1024, .devices = 4, .devices_min = 2, .site = SITE_X};
  config.astra.class_token = CLASS_DISTRIBUTED;
  return config;
}

static MeasuredSplit run(const DeviceMeasure *measured, int nodes, const LinkOptions *given) {
  ModelConfig config = encoder();
  const PlanCase plan = {.config = &config, .strategy = STRATEGY_ASTRA, .tokens = TOKENS, .parts = 1, .min_packets = 1};
  MeasuredSplit split;
  int64_t sum = 0;
  assert_int_equal(planner_split(&plan, measured, nodes, given, &split), STATUS_OK);
  for (int d = 0; d < nodes; d++) sum += split.counts[d];
  assert_int_equal(sum, TOKENS);
  config_release(&config);
  return split;
}

static void links_are_as_they_were_seen(void **state) {
  (void)state;
  DeviceMeasure four[] = {device(10, 0, 0), device(10, 50, 0.004), device(10, 20, 0.001), device(10, 5, 0.1)};
  LinkEnd ends[4];
  four[3].here = false;
  planner_link_ends(four, 4, ends);
  assert_true(ends[1].in == 100e6 && ends[1].out == 50e6 && ends[1].latency == 0.002);
  assert_true(ends[2].in == 40e6 && ends[2].out == 20e6);
  assert_true(ends[0].out == 100e6 && ends[0].in == 50e6 && ends[0].latency == 0);    /* the leader's own, which both shared */
  assert_true(ends[3].in == 40e6 && ends[3].out == 20e6 && ends[3].latency == 0.002); /* not here: the slowest of those that are */
  const LinkEnd slowest = planner_slowest_link(ends, 4);
  assert_true(slowest.in == 40e6 && slowest.out == 20e6 && slowest.latency == 0.002);
  const LinkEnd leader = planner_leader_end(four, 4);
  assert_true(leader.out == 100e6 && leader.in == 50e6 && leader.latency == 0);
  planner_link_ends(four, 1, ends);
  assert_true(ends[0].out == 0 && ends[0].in == 0); /* nothing was measured: no limit */
}

static void links_may_be_given(void **state) {
  (void)state;
  const DeviceMeasure two[] = {device(10, 0, 0), device(10, 50, 0.004)};
  const LinkOptions given = {.bits_per_second = 7e6, .latency = 0.5};
  MeasuredSplit split = run(two, 2, &given);
  assert_true(split.bits_per_second == 7e6 && split.latency == 0.5);
  split = run(two, 2, NULL);
  assert_true(split.bits_per_second == 50e6 && split.latency == 0.002);
}

/* Of four equals, one whose codes leave slowly: all others wait for them, and the fewer they are the shorter. */
static void a_device_that_sends_slowly_gets_fewer(void **state) {
  (void)state;
  DeviceMeasure four[] = {device(1000, 0, 0), device(1000, 1000, 0), device(1000, 1000, 0), device(1000, 1000, 0)};
  MeasuredSplit even = run(four, 4, NULL);
  four[2].from = 1e6;
  MeasuredSplit uneven = run(four, 4, NULL);
  assert_int_equal(even.counts[2], TOKENS / 4);
  assert_true(uneven.counts[2] < TOKENS / 8);
  assert_true(uneven.predicted > even.predicted);
  for (int d = 0; d < 4; d++) assert_true(d == 2 || uneven.counts[d] > TOKENS / 4);
}

/* As planner_split predicts the split that it finds, and more for one that it does not. */
static void a_given_split_is_predicted(void **state) {
  (void)state;
  DeviceMeasure two[] = {device(100, 0, 0), device(100, 50, 0.001)};
  ModelConfig config = encoder();
  const int64_t extreme[] = {TOKENS - 1, 1};
  PlanCase plan = {.config = &config, .strategy = STRATEGY_ASTRA, .tokens = TOKENS, .min_packets = 1, .input_bytes = 3 * 16 * 16};
  MeasuredSplit split;
  double best, other;
  assert_int_equal(planner_split(&plan, two, 2, NULL, &split), STATUS_OK);
  plan.parts = split.parts;
  plan.counts = split.counts;
  assert_int_equal(planner_given_split(&plan, two, 2, NULL, &best), STATUS_OK);
  assert_true(fabs(best - split.predicted) < 1e-12);
  plan.counts = extreme;
  assert_int_equal(planner_given_split(&plan, two, 2, NULL, &other), STATUS_OK);
  assert_true(other > 1.5 * best);
  config_release(&config);
}

static void a_signal_ends_it(void **state) {
  (void)state;
  DeviceMeasure two[] = {device(100, 0, 0), device(100, 50, 0.001)};
  ModelConfig config = encoder();
  volatile sig_atomic_t stop = 0;
  const PlanCase plan = {.config = &config, .strategy = STRATEGY_ASTRA, .tokens = TOKENS, .parts = 1, .min_packets = 1, .stop = &stop};
  MeasuredSplit split;
  assert_int_equal(planner_split(&plan, two, 2, NULL, &split), STATUS_OK);
  stop = SIGINT;
  assert_int_equal(planner_split(&plan, two, 2, NULL, &split), STATUS_INTERRUPTED);
  config_release(&config);
}

static void blocks_are_cut_where_it_helps(void **state) {
  (void)state;
  DeviceMeasure two[] = {device(100, 0, 0), device(100, 0, 0)};
  ModelConfig config = encoder();
  config.astra.groups = 32;
  for (int d = 0; d < 2; d++) two[d].profile.linear[0] *= 1.2, two[d].profile.linear[1] *= 1.05; /* products of few rows are slower */
  PlanCase plan = {.config = &config, .strategy = STRATEGY_ASTRA, .tokens = TOKENS, .min_packets = 1};
  const LinkOptions slow = {.bits_per_second = 3e6}, fast = {.bits_per_second = 10e9};
  MeasuredSplit chosen, whole;
  assert_int_equal(planner_split(&plan, two, 2, &slow, &chosen), STATUS_OK);
  assert_true(chosen.parts > 1);
  plan.parts = 1;
  assert_int_equal(planner_split(&plan, two, 2, &slow, &whole), STATUS_OK);
  assert_int_equal(whole.parts, 1);
  assert_true(chosen.predicted < whole.predicted);
  plan.parts = 0;
  assert_int_equal(planner_split(&plan, two, 2, &fast, &chosen), STATUS_OK);
  assert_int_equal(chosen.parts, 1);
  config_release(&config);
}

static void a_device_half_as_fast_gets_fewer_tokens(void **state) {
  (void)state;
  const DeviceMeasure two[] = {device(10, 0, 0), device(5, 1000, 0)};
  MeasuredSplit split = run(two, 2, NULL);
  /* Twice the work in the same time, but that remote tokens are projected by both, the more of them by the slower one. */
  assert_true(split.counts[0] > 1.9 * split.counts[1] && split.counts[0] < 4.0 * split.counts[1]);
  assert_true(split.predicted > 0 && split.without <= split.predicted);
  assert_int_equal(split.fewer, 3); /* both are needed */
}

static void one_that_is_not_here_counts_as_the_slowest(void **state) {
  (void)state;
  DeviceMeasure three[] = {device(10, 0, 0), device(2, 100, 0), device(500, 100, 0)};
  const MeasuredSplit here = run(three, 3, NULL);
  three[2].here = false;
  const MeasuredSplit gone = run(three, 3, NULL);
  three[2] = three[1];
  const MeasuredSplit slow = run(three, 3, NULL);
  for (int d = 0; d < 3; d++) assert_int_equal(gone.counts[d], slow.counts[d]);
  assert_true(gone.predicted == slow.predicted && gone.counts[2] < here.counts[2] / 2);
}

/* The input of a token takes longer than computing it: the device that has it at once gets more. (Where computing takes longer an even
 * split is the best: after its first block a device waits for the other's codes, early or not.) */
static void a_device_that_waits_for_its_input_gets_fewer(void **state) {
  (void)state;
  const DeviceMeasure two[] = {device(1000, 0, 0), device(1000, 10, 0)};
  ModelConfig config = encoder();
  PlanCase plan = {.config = &config, .strategy = STRATEGY_ASTRA, .tokens = TOKENS, .parts = 1, .min_packets = 1, .input_bytes = 768};
  MeasuredSplit with, without;
  assert_int_equal(planner_split(&plan, two, 2, NULL, &with), STATUS_OK);
  plan.input_bytes = 0;
  assert_int_equal(planner_split(&plan, two, 2, NULL, &without), STATUS_OK);
  config_release(&config);
  assert_int_equal(without.counts[0], TOKENS / 2);
  assert_true(with.counts[0] > TOKENS / 2 + TOKENS / 16);
  assert_true(with.predicted > without.predicted);
}

/* The leader sends the input of all: with three devices behind its one link none has it three times as early as with one. */
static void the_input_of_all_comes_through_one_link(void **state) {
  (void)state;
  enum { BYTES = 768 };
  const double rate = 2e6 * 10; /* what device() says of 10 Mbit/s */
  const DeviceMeasure four[] = {device(1000, 0, 0), device(1000, 10, 0), device(1000, 10, 0), device(1000, 10, 0)};
  ModelConfig config = encoder();
  PlanCase plan = {.config = &config, .strategy = STRATEGY_ASTRA, .tokens = TOKENS, .parts = 1, .min_packets = 1, .input_bytes = BYTES};
  MeasuredSplit split;
  assert_int_equal(planner_split(&plan, four, 4, NULL, &split), STATUS_OK);
  config_release(&config);
  const int64_t elsewhere = split.counts[1] + split.counts[2] + split.counts[3];
  assert_true(split.predicted >= 8.0 * BYTES * (double)elsewhere / rate);
  assert_true(elsewhere < TOKENS / 2); /* the one that has it at once takes more than it would if links were apart */
}

/* One that was lost while it was measured, and may come back, waits for its input as the slowest does. */
static void one_that_is_not_here_waits_for_its_input(void **state) {
  (void)state;
  DeviceMeasure three[] = {device(1000, 0, 0), device(1000, 10, 0), device(1000, 10, 0)};
  ModelConfig config = encoder();
  PlanCase plan = {.config = &config, .strategy = STRATEGY_ASTRA, .tokens = TOKENS, .parts = 1, .min_packets = 1, .input_bytes = 768};
  MeasuredSplit all, without;
  assert_int_equal(planner_split(&plan, three, 3, NULL, &all), STATUS_OK);
  three[2].here = three[2].linked = false;
  assert_int_equal(planner_split(&plan, three, 3, NULL, &without), STATUS_OK);
  config_release(&config);
  assert_true(all.counts[2] == without.counts[2] && all.predicted == without.predicted);
}

static void a_link_too_slow_is_said(void **state) {
  (void)state;
  const DeviceMeasure two[] = {device(100, 0, 0), device(100, 0.001, 0)};
  MeasuredSplit split = run(two, 2, NULL);
  assert_true(split.without < split.predicted);
  assert_true(split.fewer == 1 || split.fewer == 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(links_are_as_they_were_seen),
                                     cmocka_unit_test(links_may_be_given),
                                     cmocka_unit_test(the_input_of_all_comes_through_one_link),
                                     cmocka_unit_test(a_device_that_sends_slowly_gets_fewer),
                                     cmocka_unit_test(a_given_split_is_predicted),
                                     cmocka_unit_test(a_signal_ends_it),
                                     cmocka_unit_test(blocks_are_cut_where_it_helps),
                                     cmocka_unit_test(a_device_half_as_fast_gets_fewer_tokens),
                                     cmocka_unit_test(one_that_is_not_here_counts_as_the_slowest),
                                     cmocka_unit_test(a_link_too_slow_is_said),
                                     cmocka_unit_test(a_device_that_waits_for_its_input_gets_fewer),
                                     cmocka_unit_test(one_that_is_not_here_waits_for_its_input)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
