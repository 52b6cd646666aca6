/* The planner: profiles and links that are known, and the choice that follows from them. */
#include "infer/plan/planner.c"
#include "infer/sim/schedule.h"
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

/* Without labels, so that nothing is owned. */
static ModelConfig encoder(int groups) {
  ModelConfig owner, config;
  assert_int_equal(config_preset(&owner, "vit-base", 10), STATUS_OK);
  config = owner;
  config.labels = NULL;
  config_release(&owner);
  config.astra = (AstraConfig){.groups = groups, .codebook_size = 1024, .devices = 4, .devices_min = 2, .site = SITE_X};
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
                        .min_packets = 2,
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
                    .min_packets = 1,
                    .retained = 1,
                    .table_blocks = 12,
                    .all_rows = true};
}

static void within(double value, double expected, double share) {
  if (!(fabs(value - expected) <= share * expected)) fail_msg("%g is not within %g of %g", value, share, expected);
}

static SimResult predict(const PlanCase *plan) {
  SimResult result;
  if (planner_latency(plan, &result) != STATUS_OK) fail_msg("%s", status_message());
  return result;
}

static const PlanRow *row_of(const Plan *plan, Strategy strategy, int groups, int devices) {
  for (int i = 0; i < plan->count; i++)
    if (plan->rows[i].strategy == strategy && plan->rows[i].groups == groups && plan->rows[i].devices == devices) return &plan->rows[i];
  return NULL;
}

/* ---- profiles */

static void speed_depends_on_rows(void **state) {
  (void)state;
  const double rates[PROFILE_SIZES] = {8, 4, 2};
  assert_true(profile_rate(rates, 1024, 64) == 8);
  /* 64 rows take 512, 256 rows 1024: 1024 / 3 for the weights, 8 / 3 a row */
  within(profile_rate(rates, 1024, 32), 32.0 / 3 + 8.0 / 3, 1e-9);
  within(profile_rate(rates, 1024, 1), 1024.0 / 3 + 8.0 / 3, 1e-9);
  const double noisy[PROFILE_SIZES] = {50, 4, 2}; /* as long as 64 rows take, not longer */
  within(profile_rate(noisy, 1024, 1), 50 * 64, 1e-9);
  const double odd[PROFILE_SIZES] = {4, 5, 6}; /* small ones are not slower: nothing to add */
  assert_true(profile_rate(odd, 1024, 8) == 4);
  within(profile_rate(rates, 1024, 128), 6, 1e-9);
  within(profile_rate(rates, 1024, 256), 4, 1e-9);
  within(profile_rate(rates, 1024, 512), 3, 1e-9);
  assert_true(profile_rate(rates, 1024, 5000) == 2);
  assert_true(profile_rate(rates, 64, 500) == 4); /* a model of 64 tokens: the last size says nothing new */
  DeviceProfile twice = device_profile_scaled(&(DeviceProfile){.linear = {1, 2, 3}, .byte = 4, .table = 6, .fixed = 5}, 2);
  assert_true(twice.linear[2] == 1.5 && twice.byte == 2 && twice.table == 3 && twice.fixed == 2.5);
}

static void groups_have_the_size_of_their_packets(void **state) {
  (void)state;
  MessageSize size = size_of_codes(256, 10, SCHEDULE_PACKET_MAX, 1); /* 320 bytes of codes */
  assert_true(size.packets == 1 && size.bytes == 332);
  size = size_of_codes(256, 160, SCHEDULE_PACKET_MAX, 1); /* 5,120 bytes: 71 tokens of 20 bytes fit in a packet */
  assert_true(size.packets == 4 && size.bytes == 5120 + 48);
  size = size_of_codes(3, 10, SCHEDULE_PACKET_MAX, 2); /* two bytes and three: 20 and 10 bits */
  assert_true(size.packets == 2 && size.bytes == 3 + 2 + 24);
  assert_int_equal(size_of_codes(4, 1e6, SCHEDULE_PACKET_MAX, 1).packets, 0);
  size = schedule_stream(1000);
  assert_true(size.packets == 1 && size.bytes == 1012);
  size = schedule_stream(LINK_SEGMENT_MAX * 2000.0 - 12);
  assert_true(size.packets == 16 && size.bytes == LINK_SEGMENT_MAX * 2000 + 1984 * LINK_SEGMENT_OVERHEAD);
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
  within(predict(&plan).latency, 12 * 4 * (8 * own * 257 / 256 * tcp / 1e6 + 0.001), 0.001);
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
  assert_true(simulate_hidden(&parts.device[0]) > 0.3);
}

static int parts_of(PlanCase *plan) {
  if (planner_parts(plan) != STATUS_OK) fail_msg("%s", status_message());
  return plan->parts;
}

/* On a slow link; not where it gains nothing, nor where a node would not cut. */
static void parts_are_chosen_where_they_pay(void **state) {
  (void)state;
  const ModelConfig config = encoder(16);
  const DeviceProfile profiles[4] = {core(100), core(100), core(100), core(100)};
  const LinkOptions slow = {.bits_per_second = 10e6}, unlimited = {0};
  const int64_t even[4] = {256, 256, 256, 256};
  PlanCase plan = case_of(&config, STRATEGY_ASTRA, 4, even, profiles, &slow);
  const double whole = predict(&plan).latency;
  int chosen = parts_of(&plan);
  assert_true(chosen > 1);
  const double least = predict(&plan).latency;
  assert_true(least < 0.98 * whole);
  for (int parts = 1; parts <= 8; parts *= 2) {
    plan.parts = parts;
    assert_true(0.98 * least <= predict(&plan).latency);
  }
  plan.links = &unlimited;
  assert_int_equal(parts_of(&plan), 1);
  ModelConfig decoder;
  assert_int_equal(config_preset(&decoder, "gpt2", 0), STATUS_OK);
  decoder.astra = (AstraConfig){.groups = 32, .codebook_size = 1024, .site = SITE_X, .class_token = CLASS_NONE};
  plan = case_of(&decoder, STRATEGY_ASTRA, 4, even, profiles, &slow);
  const double uncut = predict(&plan).latency;
  plan.parts = 4;
  assert_true(predict(&plan).latency < 0.98 * uncut); /* it would pay, but no node cuts a decoder's blocks */
  assert_int_equal(parts_of(&plan), 1);
  config_release(&decoder);
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
  SimResult result = predict(&plan);
  assert_true(result.device[0].wait == 0 && result.device[1].wait > 0); /* datagrams: there is room for all that it sends ahead */
  plan.reliability = NULL;                                              /* nobody asks */
  result = predict(&plan);
  assert_int_equal(result.device[2].bytes_sent, 0);
  within((double)result.device[0].bytes_sent, 2 * (double)result.device[1].bytes_sent, 0.01);
  config_release(&config);
}

/* 12 heads on 8 devices: the slowest has 2 of them, 1/6 of the attention, not 1/8. */
static void the_device_with_the_most_heads_decides(void **state) {
  (void)state;
  const ModelConfig config = encoder(1);
  DeviceProfile attention = core(1);
  for (int i = 0; i < PROFILE_SIZES; i++) attention.linear[i] = 0;
  const DeviceProfile profiles[8] = {attention, attention, attention, attention, attention, attention, attention, attention};
  const LinkOptions links = {0};
  const int64_t all[1] = {1024}, even[8] = {128, 128, 128, 128, 128, 128, 128, 128};
  PlanCase plan = case_of(&config, STRATEGY_SINGLE, 1, all, profiles, &links);
  double single = predict(&plan).latency;
  plan = case_of(&config, STRATEGY_TP, 8, even, profiles, &links);
  SimResult result = predict(&plan);
  within(result.latency, single / 6, 1e-9);
  within(result.device[7].compute, single / 12, 1e-9);
}

/* Of the last block every strategy computes what is wanted alone, tp and bp-ag as much as astra and one device; bp-sp whole rows, which it
 * needs for its second join. Sums of the last block are of a row. */
static void the_last_block_is_short_for_all(void **state) {
  (void)state;
  const ModelConfig config = encoder(1);
  const DeviceProfile profiles[4] = {core(1), core(1), core(1), core(1)};
  const LinkOptions links = {0};
  const int64_t even[4] = {256, 256, 256, 256}, all[4] = {1024, 0, 0, 0};
  static const struct {
    Strategy strategy;
    double left; /* of a block's work: products of keys and values; those of the others without tables */
  } cases[] = {{STRATEGY_SINGLE, 0.136}, {STRATEGY_TP, 0.136}, {STRATEGY_BP_AG, 0.136}, {STRATEGY_BP_SP, 1}, {STRATEGY_SP, 0.39}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    bool single = cases[i].strategy == STRATEGY_SINGLE;
    PlanCase plan = case_of(&config, cases[i].strategy, single ? 1 : 4, single ? all : even, profiles, &links);
    const DeviceShare share = {.devices = plan.devices, .own = plan.counts[0], .tokens = 1024};
    const DeviceCost block = device_cost(&config, cases[i].strategy, &share, false);
    double whole = predict(&plan).latency, of_block = (block.linear + block.attention) * 1e-10;
    plan.all_rows = false;
    within((of_block - (whole - predict(&plan).latency)) / of_block, cases[i].left, 0.02);
  }
  const DeviceProfile fast[4] = {core(1e6), core(1e6), core(1e6), core(1e6)};
  const LinkOptions slow = {.bits_per_second = 1e6};
  PlanCase plan = case_of(&config, STRATEGY_TP, 4, even, fast, &slow);
  double whole = predict(&plan).latency;
  plan.all_rows = false;
  within(predict(&plan).latency, whole * 11 / 12, 0.005);
}

/* Grouped queries: keys and values are fewer numbers than rows, and are what sp sends. They are computed before they leave, by the product
 * of all rows also in the last block, of which the first devices compute nothing else. */
static void keys_are_computed_before_they_are_sent(void **state) {
  (void)state;
  ModelConfig config;
  assert_int_equal(config_preset(&config, "llama-3-8b", 0), STATUS_OK);
  config.astra.groups = 1, config.astra.site = SITE_KV;
  DeviceProfile profiles[4] = {core(1), core(1), core(1), core(1)};
  for (int d = 0; d < 4; d++) profiles[d].linear[0] *= 2; /* products of few rows are slower */
  const LinkOptions links = {0};
  const int64_t even[4] = {256, 256, 256, 256};
  const double keys = 4.0 * 256 * 4096 * 1024 * 1e-10, codewords = 2.0 * 256 * 2 * 1024 * 1024 * 1e-10;
  for (int coded = 0; coded < 2; coded++) {
    PlanCase plan = case_of(&config, coded ? STRATEGY_ASTRA : STRATEGY_SP, 4, even, profiles, &links);
    Timeline timeline = {0};
    assert_int_equal(device_timeline(&plan, &timeline, 0), STATUS_OK);
    assert_true(timeline.list[0].kind == EVENT_COMPUTE && timeline.list[1].kind == EVENT_SEND);
    within(timeline.list[0].seconds, keys + coded * codewords, 1e-9);
    timeline_release(&timeline);
    const double whole = predict(&plan).device[0].compute;
    plan.all_rows = false;
    within(predict(&plan).device[0].compute - whole * 31 / 32, keys + coded * codewords, 1e-3);
  }
  config_release(&config);
}

/* As many blocks as there is memory for; with more than one group only where they are faster than the product. */
static void tables_are_used_where_they_help(void **state) {
  (void)state;
  ModelConfig config = encoder(1);
  DeviceProfile profiles[4] = {core(1), core(1), core(1), core(1)};
  const LinkOptions links = {0};
  const int64_t even[4] = {256, 256, 256, 256};
  PlanCase plan = case_of(&config, STRATEGY_ASTRA, 4, even, profiles, &links);
  double all = predict(&plan).latency;
  plan.table_blocks = 0;
  double none = predict(&plan).latency;
  plan.table_blocks = 6;
  within(none - predict(&plan).latency, (none - all) / 2, 1e-6);
  config.astra.groups = 16; /* 256 rows: 24,576 bytes x 16 x byte against 2.4 MFLOP a row */
  for (int d = 0; d < 4; d++) profiles[d].table = 1e-11;
  assert_true(uses_tables(&plan, 0));
  for (int d = 0; d < 4; d++) profiles[d].table = 1e-8;
  assert_false(uses_tables(&plan, 0));
  double slow = predict(&plan).latency;
  plan.table_blocks = 0;
  assert_true(predict(&plan).latency == slow);
  config.astra.groups = 1; /* one group's are taken unmeasured */
  plan.table_blocks = 6;
  assert_true(uses_tables(&plan, 0));
}

/* Each device seals what it sends to three others and opens what comes from them, in each block, however fast it computes. */
static void packets_take_time(void **state) {
  (void)state;
  const ModelConfig config = encoder(1);
  const DeviceProfile profiles[4] = {core(1), core(1), core(1), core(1)};
  const LinkOptions links = {0};
  const PacketWork work = {.out = {.packet = 1e-3}, .in = {.packet = 2e-3}};
  const int64_t even[4] = {256, 256, 256, 256};
  for (double scale = 1; scale > 0.01; scale /= 20) {
    PlanCase plan = case_of(&config, STRATEGY_ASTRA, 4, even, profiles, &links);
    plan.scale = scale;
    double free = predict(&plan).latency;
    plan.work = &work;
    within(predict(&plan).latency - free, 12 * 3 * 3e-3, 1e-3);
  }
}

/* A device's patches of 16 x 16 in three colours are 768 bytes a token; texts go whole to everybody. */
static void the_input_has_to_come(void **state) {
  (void)state;
  const ModelConfig config = encoder(1);
  const DeviceProfile profiles[4] = {core(1), core(1), core(1), core(1)};
  LinkOptions links = {.bits_per_second = 10e6, .latency = 0.001};
  const int64_t all[1] = {1024}, even[4] = {256, 256, 256, 256};
  const double tcp = 1 + 66.0 / 1448, own = 8 * 256 * 768 * tcp / 10e6;
  double seconds = 0;
  PlanCase plan = case_of(&config, STRATEGY_ASTRA, 4, even, profiles, &links);
  assert_int_equal(input_seconds(&plan, &seconds), STATUS_OK);
  within(seconds, own + 0.001, 0.003);
  double without = predict(&plan).latency;
  plan.with_input = true;
  within(predict(&plan).latency, without + seconds, 1e-9);
  links.topology = LINK_SWITCH; /* one port for three of them */
  assert_int_equal(input_seconds(&plan, &seconds), STATUS_OK);
  within(seconds, 3 * own + 0.001, 0.003);
  plan.strategy = STRATEGY_TP; /* all tokens to each */
  assert_int_equal(input_seconds(&plan, &seconds), STATUS_OK);
  within(seconds, 3 * 4 * own + 0.001, 0.003);
  plan = case_of(&config, STRATEGY_SINGLE, 1, all, profiles, &links);
  assert_int_equal(input_seconds(&plan, &seconds), STATUS_OK);
  assert_true(seconds == 0);
  ModelConfig decoder;
  assert_int_equal(config_preset(&decoder, "gpt2", 0), STATUS_OK);
  plan = case_of(&decoder, STRATEGY_SP, 4, even, profiles, &links);
  assert_int_equal(input_seconds(&plan, &seconds), STATUS_OK);
  within(seconds, 3 * 8 * (1024 * 4 + 36 + 3 * 66) / 10e6 + 0.001, 0.01);
  config_release(&decoder);
}

/* Which is as fast as the link of the machine that has it: one of the devices, or one beside them. */
static void the_input_comes_from_the_leader(void **state) {
  (void)state;
  const ModelConfig config = encoder(1);
  const DeviceProfile profiles[3] = {core(1), core(1), core(1)};
  const LinkOptions links = {.topology = LINK_SWITCH};
  const LinkEnd ends[3] = {{.out = 1e6, .in = 1e9}, {.out = 20e6, .in = 1e9}, {.out = 4e6, .in = 1e9}}, fast = {.out = 100e6};
  const int64_t even[2] = {512, 512};
  const double own = 8 * 512 * 768 * (1 + 66.0 / 1448);
  double seconds = 0;
  PlanCase plan = case_of(&config, STRATEGY_ASTRA, 2, even, profiles, &links);
  plan.ends = ends;
  for (plan.leader = 0; plan.leader < 2; plan.leader++) {
    assert_int_equal(input_seconds(&plan, &seconds), STATUS_OK);
    within(seconds, own / ends[plan.leader].out, 0.003);
  }
  plan.leader = 0, plan.beside = &fast; /* which sends both theirs */
  assert_int_equal(input_seconds(&plan, &seconds), STATUS_OK);
  within(seconds, 2 * own / 100e6, 0.003);
  PlannerSetup setup = setup_of(&config, profiles, 3, &links);
  setup.ends = ends, setup.leader = 2, setup.even = true;
  Plan all;
  if (planner_run(&setup, &all) != STATUS_OK) fail_msg("%s", status_message());
  within(row_of(&all, STRATEGY_ASTRA, 1, 3)->input, 2 * own * 2 / 3 / 4e6, 0.005);
  within(row_of(&all, STRATEGY_ASTRA, 1, 2)->input, 2 * own / 4e6, 0.003);  /* the two fastest, of which the leader's is none */
  within(row_of(&all, STRATEGY_SINGLE, 0, 1)->input, 2 * own / 4e6, 0.003); /* all tokens */
  planner_release(&all);
  setup.leader = -1, setup.beside = fast; /* on a machine that takes no part */
  if (planner_run(&setup, &all) != STATUS_OK) fail_msg("%s", status_message());
  within(row_of(&all, STRATEGY_ASTRA, 1, 2)->input, 2 * own / 100e6, 0.003);
  planner_release(&all);
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
  assert_int_equal(best_counts(&plan, counts, &result), STATUS_OK);
  for (int d = 0; d < 4; d++) assert_int_equal(counts[d], 256);
  plan.profiles = uneven;
  assert_int_equal(best_counts(&plan, counts, &result), STATUS_OK);
  assert_in_range(counts[0], 500, 524);
  assert_int_equal(counts[0] + counts[1] + counts[2] + counts[3], 1024);
  const int64_t even[4] = {256, 256, 256, 256};
  plan.counts = even;
  assert_true(result.latency < 0.7 * predict(&plan).latency);
}

/* Medians of draws that overlap in all but one are the same now and then; draws of their own never are. */
static void luck_delays_no_input(void **state) {
  (void)state;
  const ModelConfig config = encoder(1);
  const DeviceProfile profiles[4] = {core(1), core(1), core(1), core(1)};
  const int64_t even[4] = {256, 256, 256, 256};
  double before = 0, seconds;
  int same = 0;
  for (uint64_t seed = 1; seed <= 12; seed++) {
    const LinkOptions links = {.bits_per_second = 20e6, .latency = 0.002, .jitter = 0.002, .seed = seed};
    const PlanCase plan = case_of(&config, STRATEGY_ASTRA, 4, even, profiles, &links);
    assert_int_equal(input_seconds(&plan, &seconds), STATUS_OK);
    same += seconds == before;
    before = seconds;
  }
  assert_true(same > 0);
}

/* What one request happens to lose does not divide tokens among equal devices. */
static void luck_divides_nothing(void **state) {
  (void)state;
  const ModelConfig config = encoder(1);
  const DeviceProfile equal[4] = {core(10), core(10), core(10), core(10)};
  int64_t counts[4];
  SimResult result, calm;
  for (uint64_t seed = 1; seed <= 3; seed++) {
    LinkOptions links = {.bits_per_second = 20e6, .latency = 0.002, .jitter = 0.001, .loss = 0.05, .seed = seed};
    PlanCase plan = case_of(&config, STRATEGY_ASTRA, 4, NULL, equal, &links);
    assert_int_equal(best_counts(&plan, counts, &result), STATUS_OK);
    for (int d = 0; d < 4; d++) assert_int_equal(counts[d], 256);
    links.loss = links.jitter = 0;
    assert_int_equal(best_counts(&plan, counts, &calm), STATUS_OK);
    assert_true(result.latency > calm.latency); /* which is predicted with both */
  }
}

/* Devices of a decoder look at the tokens before them, so that the first ones, which have less to look at, take more. */
static void early_devices_of_a_decoder_take_more(void **state) {
  (void)state;
  ModelConfig config;
  assert_int_equal(config_preset(&config, "gpt2", 0), STATUS_OK);
  config.astra = (AstraConfig){.groups = 4, .codebook_size = 256, .site = SITE_X, .class_token = CLASS_NONE};
  const DeviceProfile profiles[4] = {core(1), core(1), core(1), core(1)};
  const LinkOptions links = {.bits_per_second = 1e9};
  const int64_t even[4] = {256, 256, 256, 256};
  int64_t counts[4];
  SimResult result;
  PlanCase plan = case_of(&config, STRATEGY_ASTRA, 4, NULL, profiles, &links);
  plan.table_blocks = 0;
  assert_int_equal(best_counts(&plan, counts, &result), STATUS_OK);
  for (int d = 1; d < 4; d++)
    if (counts[d] >= counts[d - 1])
      fail_msg("device %d has %lld tokens, the one before %lld", d, (long long)counts[d], (long long)counts[d - 1]);
  plan.counts = even;
  assert_true(result.latency < 0.95 * predict(&plan).latency);
  config_release(&config);
}

/* The shortest latency of all splits of 96 tokens over two devices. */
static double best_of_two(PlanCase *plan) {
  double best = INFINITY;
  for (int64_t n = 1; n < 96; n++) {
    const int64_t tried[2] = {n, 96 - n};
    plan->counts = tried;
    best = fmin(best, predict(plan).latency);
  }
  return best;
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
  assert_int_equal(best_counts(&plan, counts, &result), STATUS_OK);
  within(result.latency, best_of_two(&plan), 0.01);
}

/* The device beside the leader has its input at once: it is not like the others, and more is moved to it. */
static void the_leaders_device_takes_more(void **state) {
  (void)state;
  const ModelConfig config = encoder(1);
  const LinkOptions links = {.bits_per_second = 5e6};
  const DeviceProfile profiles[2] = {core(20), core(20)};
  int64_t counts[2];
  SimResult result;
  PlanCase plan = case_of(&config, STRATEGY_ASTRA, 2, NULL, profiles, &links);
  plan.tokens = 96;
  plan.with_input = true;
  assert_int_equal(best_counts(&plan, counts, &result), STATUS_OK);
  within(result.latency, best_of_two(&plan), 0.01);
  assert_true(counts[0] > 60);
}

static void a_device_that_slows_all_is_left_out(void **state) {
  (void)state;
  const ModelConfig config = encoder(1);
  const LinkOptions links = {.bits_per_second = 1e8};
  DeviceMeasure devices[3] = {
      {.here = true, .profile = core(1)}, {.here = true, .profile = core(1e-5)}, {.here = true, .profile = core(1)}};
  MeasuredSplit three, two;
  PlanCase plan = case_of(&config, STRATEGY_ASTRA, 3, NULL, NULL, &links);
  assert_int_equal(planner_split(&plan, devices, 3, &links, &three), STATUS_OK);
  assert_int_equal(three.fewer, 1 << 0 | 1 << 2);
  devices[1] = devices[2];
  assert_int_equal(planner_split(&plan, devices, 2, &links, &two), STATUS_OK);
  assert_true(two.counts[0] == 512 && two.counts[1] == 512);
  assert_true(three.without == two.predicted && three.without < three.predicted);
}

/* ---- plans */

static void codes_win_on_a_slow_network(void **state) {
  (void)state;
  const ModelConfig config = encoder(16);
  const DeviceProfile profiles[4] = {core(1), core(1), core(1), core(1)};
  const LinkOptions links = {.bits_per_second = 10e6, .latency = 0.001};
  const PlannerSetup setup = setup_of(&config, profiles, 4, &links);
  Plan plan;
  assert_int_equal(planner_run(&setup, &plan), STATUS_OK);
  assert_int_equal(plan.count, 1 + 3 * 6); /* one device; tp, sp, bp-ag, bp-sp and astra twice on 2, 3, 4 */
  for (int i = 1; i < plan.count; i++) assert_true(plan.rows[i].latency >= plan.rows[i - 1].latency);
  assert_true(plan.best->strategy == STRATEGY_ASTRA && plan.best->groups == 16 && plan.best->devices == 4);
  assert_true(row_of(&plan, STRATEGY_ASTRA, 1, 4)->other_groups && row_of(&plan, STRATEGY_ASTRA, 1, 4)->table_blocks > 0);
  assert_false(row_of(&plan, STRATEGY_ASTRA, 16, 4)->other_groups);
  within(row_of(&plan, STRATEGY_ASTRA, 16, 4)->bytes_per_token, 12 * 20, 1e-9);
  within(row_of(&plan, STRATEGY_SP, 0, 4)->bytes_per_token, 12 * 768 * 4, 1e-9); /* 4 D L */
  within(row_of(&plan, STRATEGY_ASTRA, 16, 4)->fpar, 0.25, 0.01);
  assert_non_null(strstr(plan.decision, "use astra with 16 groups on 4 devices"));
  planner_release(&plan);
}

static void one_device_is_faster_on_a_slower_one(void **state) {
  (void)state;
  const ModelConfig config = encoder(16);
  const DeviceProfile profiles[4] = {core(20), core(20), core(20), core(20)};
  const LinkOptions links = {.bits_per_second = 2e5, .latency = 0.02};
  const PlannerSetup setup = setup_of(&config, profiles, 4, &links);
  Plan plan;
  assert_int_equal(planner_run(&setup, &plan), STATUS_OK);
  assert_true(plan.best->strategy == STRATEGY_SINGLE);
  assert_non_null(strstr(plan.decision, "one device is faster"));
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

/* sp, tp and one device with others go over streams, whose waiting for what is sent again nobody knows: never recommended. */
static void loss_over_streams_is_not_recommended(void **state) {
  (void)state;
  const ModelConfig config = encoder(16);
  const DeviceProfile profiles[4] = {core(1), core(1), core(1), core(1)};
  LinkOptions links = {.bits_per_second = 1e12, .loss = 0.05, .seed = 1}; /* on which tp is the fastest */
  const PlannerSetup setup = setup_of(&config, profiles, 4, &links);
  Plan plan;
  if (planner_run(&setup, &plan) != STATUS_OK) fail_msg("%s", status_message());
  for (int i = 0; i < plan.count; i++) {
    const PlanRow *row = &plan.rows[i];
    assert_true(row->loss_not_modelled == (row->strategy != STRATEGY_ASTRA && row->strategy != STRATEGY_SINGLE));
  }
  assert_true(plan.rows[0].loss_not_modelled); /* though it is the first */
  assert_true(plan.best->strategy == STRATEGY_ASTRA && plan.best->groups == 16);
  planner_release(&plan);
  links.loss = 0;
  assert_int_equal(planner_run(&setup, &plan), STATUS_OK);
  assert_true(plan.best->strategy == STRATEGY_TP && !plan.best->loss_not_modelled);
  planner_release(&plan);
}

/* A preset has no codes that another number of groups would differ from; a plain checkpoint has, and is told of both. */
static void what_needs_no_training(void **state) {
  (void)state;
  const ModelConfig config = encoder(0);
  const DeviceProfile profiles[4] = {core(1), core(1), core(1), core(1)};
  const LinkOptions links = {.bits_per_second = 10e6, .latency = 0.001};
  PlannerSetup setup = setup_of(&config, profiles, 4, &links);
  Plan plan;
  assert_int_equal(planner_run(&setup, &plan), STATUS_OK);
  assert_true(plan.best->strategy != STRATEGY_ASTRA && plan.trained->strategy == STRATEGY_ASTRA);
  assert_true(plan.trained->latency < plan.best->latency);
  assert_non_null(strstr(plan.decision, "; with training, astra with 1 group on 4 devices: "));
  planner_release(&plan);
  setup.untrained = true;
  assert_int_equal(planner_run(&setup, &plan), STATUS_OK);
  assert_true(plan.best == &plan.rows[0] && plan.best->strategy == STRATEGY_ASTRA && !plan.best->other_groups && !plan.trained);
  assert_non_null(strstr(plan.decision, "use astra with 1 group on 4 devices"));
  assert_null(strstr(plan.decision, "training"));
  planner_release(&plan);
}

/* Memory for the tables of half the blocks is used; the row says of how many. */
static void tables_fit_block_by_block(void **state) {
  (void)state;
  const ModelConfig config = encoder(1);
  const DeviceProfile profiles[2] = {core(1), core(1)};
  const LinkOptions links = {.bits_per_second = 10e6};
  PlannerSetup setup = setup_of(&config, profiles, 2, &links);
  Plan plan;
  setup.table_bytes = 6.5 * 1024 * 2 * 768 * 4;
  assert_int_equal(planner_run(&setup, &plan), STATUS_OK);
  assert_true(row_of(&plan, STRATEGY_ASTRA, 1, 2)->table_blocks == 6);
  assert_true(row_of(&plan, STRATEGY_ASTRA, 16, 2)->table_blocks == 0 && row_of(&plan, STRATEGY_SP, 0, 2)->table_blocks == 0);
  assert_true(row_of(&plan, STRATEGY_ASTRA, 1, 2)->input > 0 && row_of(&plan, STRATEGY_SINGLE, 0, 1)->input == 0);
  planner_release(&plan);
  const ModelConfig plain = encoder(0); /* which has no rates: planned for the groups of the set-up */
  setup.config = &plain;
  assert_int_equal(planner_run(&setup, &plan), STATUS_OK);
  assert_true(row_of(&plan, STRATEGY_ASTRA, 1, 2)->table_blocks == 6);
  planner_release(&plan);
  setup.table_bytes = 0;
  assert_int_equal(planner_run(&setup, &plan), STATUS_OK);
  assert_true(row_of(&plan, STRATEGY_ASTRA, 1, 2)->table_blocks == 0);
  planner_release(&plan);
}

/* Fewer tokens than devices; more devices in sums than packets can number, or more sums. */
static void what_no_cluster_can_run_is_left_out(void **state) {
  (void)state;
  ModelConfig config = encoder(16);
  DeviceProfile profiles[17];
  const LinkOptions links = {.bits_per_second = 1e12};
  for (int d = 0; d < 17; d++) profiles[d] = core(1);
  config.heads = config.kv_heads = 32;
  PlannerSetup setup = setup_of(&config, profiles, 17, &links);
  setup.even = true;
  setup.counts_tried = 1 << 15 | 1 << 16;
  Plan plan;
  assert_int_equal(planner_run(&setup, &plan), STATUS_OK);
  assert_true(row_of(&plan, STRATEGY_TP, 0, 16) && row_of(&plan, STRATEGY_BP_AG, 0, 16) && row_of(&plan, STRATEGY_SP, 0, 17));
  assert_true(!row_of(&plan, STRATEGY_TP, 0, 17) && !row_of(&plan, STRATEGY_BP_AG, 0, 17) && !row_of(&plan, STRATEGY_BP_SP, 0, 17));
  planner_release(&plan);
  config.blocks = 128;
  assert_int_equal(planner_run(&setup, &plan), STATUS_OK);
  assert_true(!row_of(&plan, STRATEGY_TP, 0, 16) && row_of(&plan, STRATEGY_BP_AG, 0, 16));
  planner_release(&plan);
  setup.tokens = 15;
  if (planner_run(&setup, &plan) != STATUS_OK) fail_msg("%s", status_message());
  assert_int_equal(plan.count, 1); /* one device */
  planner_release(&plan);
}

/* Three heads, or four tokens, are no work for more devices; a number of devices that is left out is not tried. */
static void no_more_devices_than_there_is_to_share(void **state) {
  (void)state;
  enum { DEVICES = 6 };
  ModelConfig config = encoder(16);
  config.heads = config.kv_heads = 3;
  DeviceProfile profiles[DEVICES];
  for (int d = 0; d < DEVICES; d++) profiles[d] = core(1);
  const LinkOptions links = {0};
  PlannerSetup setup = setup_of(&config, profiles, DEVICES, &links);
  setup.tokens = 4, setup.counts_tried &= ~(1ull << 1);
  Plan plan;
  assert_int_equal(planner_run(&setup, &plan), STATUS_OK);
  int rows[STRATEGY_COUNT][DEVICES + 1] = {{0}};
  for (int i = 0; i < plan.count; i++) rows[plan.rows[i].strategy][plan.rows[i].devices]++;
  for (int s = 0; s < STRATEGY_COUNT; s++)
    for (int n = 1; n <= DEVICES; n++) {
      const bool heads = s == STRATEGY_TP || s == STRATEGY_BP_AG || s == STRATEGY_BP_SP;
      const int most = s == STRATEGY_SINGLE ? 1 : heads ? 3 : 4, least = s == STRATEGY_SINGLE ? 1 : 3;
      assert_int_equal(rows[s][n], n < least || n > most ? 0 : s == STRATEGY_ASTRA ? setup.group_count : 1);
    }
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
  assert_int_equal(planner_latency(&plan, &result), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "1025 tokens of 1024"));
  plan.counts = none;
  assert_int_equal(planner_latency(&plan, &result), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "device 1 has 0 tokens"));
  plan = case_of(&plain, STRATEGY_ASTRA, 1, all, profiles, &links);
  assert_int_equal(planner_latency(&plan, &result), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "--groups"));
  PlannerSetup setup = setup_of(&config, profiles, 2, &links);
  setup.groups[0] = 7;
  Plan all_rows;
  assert_int_equal(planner_run(&setup, &all_rows), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "7 groups do not divide a width of 768"));
}

/* 100,000 tokens of 32 groups, 35 to a datagram, are more than the 1,024 datagrams of a message for two devices and enough for four: over a
 * stream they are planned all the same, and no plan in datagrams is made that could not be run. */
static void more_codes_than_datagrams_hold(void **state) {
  (void)state;
  const ModelConfig config = encoder(32);
  const DeviceProfile profiles[4] = {core(1), core(1), core(1), core(1)};
  const LinkOptions links = {.bits_per_second = 10e6};
  const Reliability stream = {.mode = RELIABILITY_STREAM};
  PlannerSetup setup = setup_of(&config, profiles, 4, &links);
  setup.tokens = 100000, setup.groups[0] = 32, setup.group_count = 1, setup.even = true, setup.parts = 1;
  for (int streams = 0; streams < 2; streams++) {
    Plan plan;
    if (streams) setup.reliability = &stream;
    if (planner_run(&setup, &plan) != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(row_of(&plan, STRATEGY_ASTRA, 32, 2) != NULL, streams);
    assert_non_null(row_of(&plan, STRATEGY_ASTRA, 32, 4));
    planner_release(&plan);
  }
}

/* Half of the bits take half of the time on the way. */
static void coded_codes_are_shorter(void **state) {
  (void)state;
  const ModelConfig config = encoder(32);
  const DeviceProfile profiles[2] = {core(1e9), core(1e9)};
  const LinkOptions links = {.bits_per_second = 1e6};
  const int64_t even[2] = {512, 512};
  PlanCase plan = case_of(&config, STRATEGY_ASTRA, 2, even, profiles, &links);
  const double packed = predict(&plan).latency;
  plan.coded_share = 0.5;
  within(predict(&plan).latency, packed / 2, 0.02);
}

/* Rates that were measured with 64 rows say nothing of 1,024. */
static void products_are_as_large_as_they_were_measured(void **state) {
  (void)state;
  const ModelConfig config = encoder(16);
  DeviceProfile profile = core(1);
  const LinkOptions links = {0};
  const int64_t all[1] = {1024};
  for (int i = 0; i < PROFILE_SIZES; i++) profile.linear[i] = profile.attention[i] = i == 1 ? 1e-10 : 4e-10;
  PlanCase plan = case_of(&config, STRATEGY_SINGLE, 1, all, &profile, &links);
  const double as_many = predict(&plan).latency;
  plan.rows_measured = 64;
  within(predict(&plan).latency, as_many / 4, 0.01);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(speed_depends_on_rows),
                                     cmocka_unit_test(groups_have_the_size_of_their_packets),
                                     cmocka_unit_test(computing_is_divided),
                                     cmocka_unit_test(what_is_sent_takes_its_time),
                                     cmocka_unit_test(parts_hide_what_is_sent),
                                     cmocka_unit_test(parts_are_chosen_where_they_pay),
                                     cmocka_unit_test(a_decoder_sends_to_those_behind),
                                     cmocka_unit_test(the_device_with_the_most_heads_decides),
                                     cmocka_unit_test(the_last_block_is_short_for_all),
                                     cmocka_unit_test(keys_are_computed_before_they_are_sent),
                                     cmocka_unit_test(tables_are_used_where_they_help),
                                     cmocka_unit_test(packets_take_time),
                                     cmocka_unit_test(the_input_has_to_come),
                                     cmocka_unit_test(the_input_comes_from_the_leader),
                                     cmocka_unit_test(tokens_follow_speed),
                                     cmocka_unit_test(luck_divides_nothing),
                                     cmocka_unit_test(early_devices_of_a_decoder_take_more),
                                     cmocka_unit_test(no_split_of_two_is_better),
                                     cmocka_unit_test(the_leaders_device_takes_more),
                                     cmocka_unit_test(a_device_that_slows_all_is_left_out),
                                     cmocka_unit_test(codes_win_on_a_slow_network),
                                     cmocka_unit_test(one_device_is_faster_on_a_slower_one),
                                     cmocka_unit_test(whole_rows_win_on_a_fast_network),
                                     cmocka_unit_test(luck_delays_no_input),
                                     cmocka_unit_test(loss_over_streams_is_not_recommended),
                                     cmocka_unit_test(what_needs_no_training),
                                     cmocka_unit_test(tables_fit_block_by_block),
                                     cmocka_unit_test(what_no_cluster_can_run_is_left_out),
                                     cmocka_unit_test(no_more_devices_than_there_is_to_share),
                                     cmocka_unit_test(more_codes_than_datagrams_hold),
                                     cmocka_unit_test(coded_codes_are_shorter),
                                     cmocka_unit_test(products_are_as_large_as_they_were_measured),
                                     cmocka_unit_test(senseless_plans_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
