/* The planner: profiles and links that are known, and the choice that follows from them. */
#include "infer/plan/planner.h"
#include "infer/virtual/strategy_events.h"
#include <cmocka.h>
#include <math.h>
#include <string.h>

static const Reliability RULES = {.mode = RELIABILITY_DEADLINE, .timeout = 10};

/* 10 GFLOP/s whatever the rows; nothing else takes time. */
static DeviceProfile core(double speed) {
  DeviceProfile profile = {.byte = 0, .fixed = 0};
  for (int i = 0; i < PROFILE_SIZES; i++) profile.linear[i] = profile.attention[i] = profile.assign[i] = 1e-10 / speed;
  return profile;
}

static ModelConfig encoder(int groups) {
  ModelConfig config;
  assert_int_equal(config_preset(&config, "vit-base", 10), STATUS_OK);
  config.astra = (AstraConfig){.groups = groups, .codebook_size = 1024, .devices = 4, .devices_least = 2, .site = SITE_X};
  config.astra.class_token = CLASS_DISTRIBUTED;
  return config;
}

static PlannerSetup setup_of(const ModelConfig *config, const DeviceProfile *profiles, int devices, const LinkOptions *links) {
  return (PlannerSetup){.config = config,
                        .tokens = 1024,
                        .devices = devices,
                        .profiles = profiles,
                        .counts_tried = ~0ull,
                        .groups = {1, 16},
                        .group_count = 2,
                        .strategies = ~0u,
                        .links = links,
                        .reliability = &RULES,
                        .least_packets = 2,
                        .retained = 1,
                        .table_bytes = 512e6,
                        .all_rows = true};
}

static PlanCase case_of(const ModelConfig *config, Strategy strategy, int devices, const int64_t *counts, const DeviceProfile *profiles,
                        const LinkOptions *links) {
  return (PlanCase){.config = config,
                    .strategy = strategy,
                    .tokens = 1024,
                    .devices = devices,
                    .counts = counts,
                    .profiles = profiles,
                    .links = links,
                    .reliability = &RULES,
                    .parts = 1,
                    .least_packets = 1,
                    .retained = 1,
                    .table_blocks = 12,
                    .all_rows = true};
}

static void within(double value, double expected, double share) {
  if (fabs(value - expected) > share * expected) fail_msg("%g is not within %g of %g", value, share, expected);
}

static SimResult predict(const PlanCase *plan) {
  SimResult result;
  if (predict_latency(plan, &result) != STATUS_OK) fail_msg("%s", status_message());
  return result;
}

/* ---- profiles */

static void speed_depends_on_rows(void **state) {
  (void)state;
  const double rates[PROFILE_SIZES] = {8, 4, 2};
  assert_true(device_profile_rate(rates, 1024, 1) == 8 && device_profile_rate(rates, 1024, 64) == 8);
  within(device_profile_rate(rates, 1024, 128), 6, 1e-9);
  within(device_profile_rate(rates, 1024, 256), 4, 1e-9);
  within(device_profile_rate(rates, 1024, 512), 3, 1e-9);
  assert_true(device_profile_rate(rates, 1024, 5000) == 2);
  assert_true(device_profile_rate(rates, 64, 500) == 4); /* a model of 64 tokens: the last size says nothing new */
  DeviceProfile twice = device_profile_scaled(&(DeviceProfile){.linear = {1, 2, 3}, .byte = 4, .fixed = 5}, 2);
  assert_true(twice.linear[2] == 1.5 && twice.byte == 2 && twice.fixed == 2.5);
}

static void groups_have_the_size_of_their_packets(void **state) {
  (void)state;
  GroupSize size = group_size_codes(256, 10, GROUP_PACKET_MOST, 1); /* 320 bytes of codes */
  assert_true(size.packets == 1 && size.bytes == 332);
  size = group_size_codes(256, 160, GROUP_PACKET_MOST, 1); /* 5,120 bytes: 71 tokens of 20 bytes fit in a packet */
  assert_true(size.packets == 4 && size.bytes == 5120 + 48);
  size = group_size_codes(3, 10, GROUP_PACKET_MOST, 2); /* two bytes and three: 20 and 10 bits */
  assert_true(size.packets == 2 && size.bytes == 3 + 2 + 24);
  assert_int_equal(group_size_codes(4, 1e6, GROUP_PACKET_MOST, 1).packets, 0);
  size = group_size_stream(1000);
  assert_true(size.packets == 1 && size.bytes == 1012);
  size = group_size_stream(GROUP_SEGMENT_MOST * 2000.0 - 12);
  assert_true(size.packets == 16 && size.bytes == GROUP_SEGMENT_MOST * 2000 + 1984 * GROUP_SEGMENT_OVERHEAD);
}

/* ---- prediction */

static void computing_is_divided(void **state) {
  (void)state;
  const ModelConfig config = encoder(1);
  const DeviceProfile profiles[4] = {core(1), core(1), core(1), core(1)};
  const LinkOptions links = {0};
  const int64_t all[1] = {1024}, even[4] = {256, 256, 256, 256};
  PlanCase plan = case_of(&config, STRATEGY_SINGLE, 1, all, profiles, &links);
  SimResult single = predict(&plan);
  plan = case_of(&config, STRATEGY_ASTRA, 4, even, profiles, &links);
  SimResult four = predict(&plan);
  within(single.latency / four.latency, 4 / 1.1, 0.05); /* assignment is 2 K D to 24 D^2, about a tenth */
  within(four.device[2].compute, four.latency, 1e-9);
  plan.scale = 0.1;
  within(predict(&plan).latency, 0.1 * four.latency, 1e-9);
  plan.strategy = STRATEGY_TP;
  plan.scale = 1;
  within(single.latency / predict(&plan).latency, 4, 0.01);
}

static void what_is_sent_takes_its_time(void **state) {
  (void)state;
  const ModelConfig config = encoder(1);
  const DeviceProfile profiles[4] = {core(1e6), core(1e6), core(1e6), core(1e6)}; /* computing takes nothing */
  const LinkOptions links = {.bits_per_second = 1e6, .latency = 0.001};
  const int64_t even[4] = {256, 256, 256, 256};
  PlanCase plan = case_of(&config, STRATEGY_ASTRA, 4, even, profiles, &links);
  within(predict(&plan).latency, 12 * (8 * (320 + 78) / 1e6 + 0.001), 0.001);
  double own = 256 * 768 * 4, tcp = 1 + 66.0 / 1448;
  plan.strategy = STRATEGY_SP; /* and the class token's row */
  within(predict(&plan).latency, 12 * (8 * own * 257 / 256 * tcp / 1e6 + 0.001), 0.003);
  plan.strategy = STRATEGY_TP; /* four of what sp sends once, of a row more on device 0, whose links are the last */
  within(predict(&plan).latency, 12 * 4 * (8 * own * 257 / 256 * tcp / 1e6 + 0.001), 0.003);
  plan.strategy = STRATEGY_BP_AG;
  within(predict(&plan).latency, 8 * own * 1025 / 1024 * tcp / 1e6 + 0.001, 0.003);
  plan.strategy = STRATEGY_BP_SP;
  within(predict(&plan).latency, 2 * (8 * own * 1025 / 1024 * tcp / 1e6 + 0.001), 0.003);
}

static void parts_hide_what_is_sent(void **state) {
  (void)state;
  const ModelConfig config = encoder(16);
  const DeviceProfile profiles[4] = {core(100), core(100), core(100), core(100)};
  const LinkOptions links = {.bits_per_second = 10e6};
  const int64_t even[4] = {256, 256, 256, 256};
  PlanCase plan = case_of(&config, STRATEGY_ASTRA, 4, even, profiles, &links);
  double whole = predict(&plan).latency;
  plan.parts = 4;
  SimResult parts = predict(&plan);
  assert_true(parts.latency < 0.9 * whole);
  assert_true(net_sim_hidden(&parts.device[0]) > 0.3);
}

static void a_decoder_sends_to_those_behind(void **state) {
  (void)state;
  ModelConfig config;
  assert_int_equal(config_preset(&config, "gpt2", 0), STATUS_OK);
  config.astra = (AstraConfig){.groups = 4, .codebook_size = 256, .site = SITE_X, .class_token = CLASS_NONE};
  const DeviceProfile profiles[3] = {core(1), core(1), core(1)};
  const LinkOptions links = {.bits_per_second = 1e4};
  const int64_t even[3] = {342, 341, 341};
  PlanCase plan = case_of(&config, STRATEGY_ASTRA, 3, even, profiles, &links);
  plan.reliability = NULL; /* nobody asks */
  SimResult result = predict(&plan);
  assert_int_equal(result.device[2].bytes_sent, 0);
  within((double)result.device[0].bytes_sent, 2 * (double)result.device[1].bytes_sent, 0.01);
  assert_true(result.device[0].wait == 0 && result.device[1].wait > 0);
  config_release(&config);
}

/* ---- splits */

static void tokens_follow_speed(void **state) {
  (void)state;
  const ModelConfig config = encoder(1);
  const LinkOptions links = {.bits_per_second = 1e9};
  const DeviceProfile equal[4] = {core(1), core(1), core(1), core(1)}, uneven[4] = {core(3), core(1), core(1), core(1)};
  int64_t counts[4];
  SimResult result;
  PlanCase plan = case_of(&config, STRATEGY_ASTRA, 4, NULL, equal, &links);
  assert_int_equal(split_auto_counts(&plan, counts, &result), STATUS_OK);
  for (int d = 0; d < 4; d++) assert_int_equal(counts[d], 256);
  plan.profiles = uneven;
  assert_int_equal(split_auto_counts(&plan, counts, &result), STATUS_OK);
  assert_in_range(counts[0], 500, 524);
  assert_int_equal(counts[0] + counts[1] + counts[2] + counts[3], 1024);
  const int64_t even[4] = {256, 256, 256, 256};
  plan.counts = even;
  assert_true(result.latency < 0.7 * predict(&plan).latency);
}

/* The split is as good as the best of all splits of two devices. */
static void no_split_of_two_is_better(void **state) {
  (void)state;
  const ModelConfig config = encoder(16);
  const LinkOptions links = {.bits_per_second = 5e6, .latency = 0.002};
  const DeviceProfile profiles[2] = {core(20), core(7)};
  int64_t counts[2];
  SimResult result;
  PlanCase plan = case_of(&config, STRATEGY_ASTRA, 2, NULL, profiles, &links);
  plan.tokens = 96;
  assert_int_equal(split_auto_counts(&plan, counts, &result), STATUS_OK);
  double best = INFINITY;
  for (int64_t n = 1; n < 96; n++) {
    const int64_t tried[2] = {n, 96 - n};
    plan.counts = tried;
    best = fmin(best, predict(&plan).latency);
  }
  within(result.latency, best, 0.01);
}

static void a_device_that_slows_all_is_left_out(void **state) {
  (void)state;
  const ModelConfig config = encoder(1);
  const LinkOptions links = {.bits_per_second = 1e8};
  const DeviceProfile profiles[3] = {core(1), core(1e-5), core(1)};
  int64_t counts[3];
  int chosen[3], used;
  SimResult result;
  PlanCase plan = case_of(&config, STRATEGY_ASTRA, 3, NULL, profiles, &links);
  assert_int_equal(split_auto_devices(&plan, chosen, &used, counts, &result), STATUS_OK);
  assert_int_equal(used, 2);
  assert_true(chosen[0] == 0 && chosen[1] == 2);
  assert_true(counts[0] == 512 && counts[1] == 512);
}

/* ---- plans */

static const PlanRow *row_of(const Plan *plan, Strategy strategy, int groups, int devices) {
  for (int i = 0; i < plan->count; i++)
    if (plan->rows[i].strategy == strategy && plan->rows[i].groups == groups && plan->rows[i].devices == devices) return &plan->rows[i];
  return NULL;
}

static void codes_win_on_a_slow_network(void **state) {
  (void)state;
  const ModelConfig config = encoder(16);
  const DeviceProfile profiles[4] = {core(1), core(1), core(1), core(1)};
  const LinkOptions links = {.bits_per_second = 10e6, .latency = 0.001};
  const PlannerSetup setup = setup_of(&config, profiles, 4, &links);
  char text[160];
  Plan plan;
  assert_int_equal(planner_run(&setup, &plan), STATUS_OK);
  assert_int_equal(plan.count, 1 + 3 * 6); /* one device; tp, sp, bp-ag, bp-sp and astra twice on 2, 3, 4 */
  for (int i = 1; i < plan.count; i++) assert_true(plan.rows[i].latency >= plan.rows[i - 1].latency);
  assert_true(plan.best->strategy == STRATEGY_ASTRA && plan.best->groups == 16 && plan.best->devices == 4);
  assert_true(row_of(&plan, STRATEGY_ASTRA, 1, 4)->other_groups && row_of(&plan, STRATEGY_ASTRA, 1, 4)->tables);
  assert_false(row_of(&plan, STRATEGY_ASTRA, 16, 4)->other_groups);
  within(row_of(&plan, STRATEGY_ASTRA, 16, 4)->bytes_per_token, 12 * 20, 1e-9);
  within(row_of(&plan, STRATEGY_SP, 0, 4)->bytes_per_token, 12 * 768 * 4, 1e-9); /* 4 D L */
  within(row_of(&plan, STRATEGY_ASTRA, 16, 4)->fpar, 0.25, 0.01);
  assert_non_null(strstr(planner_verdict(&plan, text), "use astra with 16 groups on 4 devices"));
  planner_release(&plan);
}

static void one_device_is_faster_on_a_slower_one(void **state) {
  (void)state;
  const ModelConfig config = encoder(16);
  const DeviceProfile profiles[4] = {core(20), core(20), core(20), core(20)};
  const LinkOptions links = {.bits_per_second = 2e5, .latency = 0.02};
  const PlannerSetup setup = setup_of(&config, profiles, 4, &links);
  char text[160];
  Plan plan;
  assert_int_equal(planner_run(&setup, &plan), STATUS_OK);
  assert_true(plan.best->strategy == STRATEGY_SINGLE);
  assert_non_null(strstr(planner_verdict(&plan, text), "one device is faster"));
  planner_release(&plan);
}

static void whole_rows_win_on_a_fast_network(void **state) {
  (void)state;
  const ModelConfig config = encoder(16);
  const DeviceProfile profiles[4] = {core(1), core(1), core(1), core(1)};
  const LinkOptions links = {.bits_per_second = 1e12};
  const PlannerSetup setup = setup_of(&config, profiles, 4, &links);
  Plan plan;
  assert_int_equal(planner_run(&setup, &plan), STATUS_OK);
  assert_true(plan.best->strategy == STRATEGY_TP && plan.best->devices == 4); /* the only one without work done twice */
  planner_release(&plan);
}

static void senseless_plans_are_refused(void **state) {
  (void)state;
  const ModelConfig config = encoder(16), plain = encoder(0);
  const DeviceProfile profiles[2] = {core(1), core(1)};
  const LinkOptions links = {0};
  const int64_t counts[2] = {1000, 25}, none[2] = {1024, 0}, all[1] = {1024};
  SimResult result;
  PlanCase plan = case_of(&config, STRATEGY_ASTRA, 2, counts, profiles, &links);
  assert_int_equal(predict_latency(&plan, &result), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "1025 tokens of 1024"));
  plan.counts = none;
  assert_int_equal(predict_latency(&plan, &result), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "device 1 has 0 tokens"));
  plan = case_of(&plain, STRATEGY_ASTRA, 1, all, profiles, &links);
  assert_int_equal(predict_latency(&plan, &result), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "--groups"));
  PlannerSetup setup = setup_of(&config, profiles, 2, &links);
  setup.groups[0] = 7;
  Plan all_rows;
  assert_int_equal(planner_run(&setup, &all_rows), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "7 groups do not divide a width of 768"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(speed_depends_on_rows),
                                     cmocka_unit_test(groups_have_the_size_of_their_packets),
                                     cmocka_unit_test(computing_is_divided),
                                     cmocka_unit_test(what_is_sent_takes_its_time),
                                     cmocka_unit_test(parts_hide_what_is_sent),
                                     cmocka_unit_test(a_decoder_sends_to_those_behind),
                                     cmocka_unit_test(tokens_follow_speed),
                                     cmocka_unit_test(no_split_of_two_is_better),
                                     cmocka_unit_test(a_device_that_slows_all_is_left_out),
                                     cmocka_unit_test(codes_win_on_a_slow_network),
                                     cmocka_unit_test(one_device_is_faster_on_a_slower_one),
                                     cmocka_unit_test(whole_rows_win_on_a_fast_network),
                                     cmocka_unit_test(senseless_plans_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
