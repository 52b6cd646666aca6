/* A device that is measured alone: its timeline has the exchange of a real node, event for event; tables of keys and values give the same
 * numbers as products; what a plan says of it holds; and what cannot be measured is refused. */
#include "infer/plan/planner.h"
#include "infer/sim/measure.c" /* with its recorders, of which one test looks at what a device computes */
#include "infer/sim/schedule.h"
#include "infer/sim/simulate.h"
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 32, BLOCKS = 3, TOKENS = 64, ENTRIES = 16, NODES = 4 };

typedef struct Sample {
  Weights weights;
  Codebook books[BLOCKS];
} Sample;

static void open_model(Sample *sample, ModelConfig *config) {
  Rng rng;
  rng_init(&rng, 5, 0);
  *sample = (Sample){.weights = {.model = NULL}};
  if (model_new(&sample->weights.model, config) != STATUS_OK) fail_msg("%s", status_message());
  const int groups = config->astra.groups;
  config_release(config);
  assert_int_equal(param_allocate(model_params(sample->weights.model), false), STATUS_OK);
  model_initialise(sample->weights.model, &rng);
  sample->weights.config = model_config(sample->weights.model);
  for (int b = 0; b < BLOCKS; b++) {
    assert_int_equal(codebook_init(&sample->books[b], groups, ENTRIES, WIDTH, NULL), STATUS_OK);
    for (int64_t i = 0; i < ENTRIES * WIDTH; i++) sample->books[b].codewords[i] = (real)(rng_uniform(&rng) - 0.5);
    codebook_refresh(&sample->books[b]);
  }
}

/* exchange_blocks: 0: all. */
static void open_blocks(Sample *sample, int groups, int64_t exchange_blocks) {
  ModelConfig config;
  config_defaults(&config, MODEL_VIT);
  config.width = WIDTH, config.blocks = BLOCKS, config.heads = config.kv_heads = 4, config.mlp = 4 * WIDTH;
  config.image = 32, config.patch = 4, config.channels = 3;
  config.astra = (AstraConfig){.groups = groups, .codebook_size = ENTRIES, .devices = NODES, .devices_min = 1, .site = SITE_X};
  config.astra.class_token = CLASS_DISTRIBUTED, config.astra.exchange_blocks = exchange_blocks;
  assert_int_equal(config_set_labels(&config, NULL, 2), STATUS_OK);
  open_model(sample, &config);
}

static void open_sample(Sample *sample, int groups) { open_blocks(sample, groups, 0); }

/* A text whose first block's tokens every device computes itself. */
static void open_exact(Sample *sample) {
  ModelConfig config;
  assert_int_equal(config_preset(&config, "gpt2-mini", 0), STATUS_OK);
  config.width = WIDTH, config.blocks = BLOCKS, config.heads = config.kv_heads = 4, config.mlp = 4 * WIDTH;
  config.vocabulary = 50, config.context = TOKENS;
  config.astra.groups = 4, config.astra.codebook_size = ENTRIES, config.astra.devices = NODES, config.astra.devices_min = 1;
  config.astra.rotation = config.astra.prediction = config.astra.exact_first = true;
  open_model(sample, &config);
}

static void close_sample(Sample *sample) {
  for (int b = 0; b < BLOCKS; b++) codebook_release(&sample->books[b]);
  model_free(sample->weights.model);
}

static const int64_t even[NODES] = {16, 16, 16, 16};

static DeviceCase case_of(Sample *sample, Strategy strategy, int parts) {
  return (DeviceCase){.strategy = strategy,
                      .devices = NODES,
                      .self = 1,
                      .tokens = TOKENS,
                      .counts = even,
                      .books = sample->books,
                      .parts = parts,
                      .min_packets = 2};
}

static Timeline measured(Sample *sample, const DeviceCase *device) {
  Timeline timeline;
  MeasureQuality quality;
  if (measure_timeline(&timeline, &sample->weights, device, 2, &quality) != STATUS_OK) fail_msg("%s", status_message());
  assert_true(quality.min_share > 0 && quality.min_share < 1.5 && quality.spread >= 0);
  assert_int_equal(timeline.tokens, device->strategy == STRATEGY_SINGLE ? TOKENS : 16);
  return timeline;
}

/* Sends and waits in order, stretches of computation between them. */
static void the_exchange_of_a_node_is_noted(void **state) {
  (void)state;
  Sample sample;
  open_sample(&sample, 4); /* 16 bits a token */
  for (int parts = 1; parts <= 4; parts *= 2) {
    const DeviceCase device = case_of(&sample, STRATEGY_ASTRA, parts);
    Timeline timeline = measured(&sample, &device);
    int sends = 0, waits = 0;
    for (int i = 0; i < timeline.count; i++) {
      const Event *event = &timeline.list[i];
      if (event->kind == EVENT_COMPUTE) {
        assert_true(event->seconds > 0);
        continue;
      }
      assert_int_equal(event->peers, 13);
      int *count = event->kind == EVENT_SEND ? &sends : &waits;
      assert_true(event->block == *count / parts && event->part == *count % parts && event->site == 0);
      ++*count;
      if (event->kind != EVENT_SEND) continue;
      assert_int_equal(event->packets, 2);
      assert_int_equal(event->bytes, 16 / parts * 2 + 12 * 2);
    }
    assert_int_equal(sends, BLOCKS * parts);
    assert_int_equal(waits, BLOCKS * parts);
    assert_int_equal(timeline.list[0].kind, EVENT_COMPUTE);
    assert_int_equal(timeline.list[timeline.count - 1].kind, EVENT_COMPUTE);
    timeline_release(&timeline);
  }
  close_sample(&sample);
}

/* The others' tokens of that block are computed, as those of a block with codes are. */
static void nothing_is_sent_of_an_exact_block(void **state) {
  (void)state;
  Sample sample;
  open_exact(&sample);
  for (int parts = 1; parts <= 2; parts++) {
    const DeviceCase device = case_of(&sample, STRATEGY_ASTRA, parts);
    Timeline timeline = measured(&sample, &device);
    int sends = 0, waits = 0;
    for (int i = 0; i < timeline.count; i++) {
      const Event *event = &timeline.list[i];
      if (event->kind == EVENT_COMPUTE) continue;
      int *count = event->kind == EVENT_SEND ? &sends : &waits;
      assert_int_equal(event->block, 1 + *count / parts);
      assert_int_equal(event->peers, event->kind == EVENT_SEND ? 12 : 1);
      ++*count;
    }
    assert_int_equal(sends, (BLOCKS - 1) * parts);
    assert_int_equal(waits, (BLOCKS - 1) * parts);
    timeline_release(&timeline);
  }
  close_sample(&sample);
}

static void devices_measured_apart_meet_in_the_simulation(void **state) {
  (void)state;
  Sample sample;
  Timeline devices[NODES];
  SimResult result;
  open_sample(&sample, 4);
  const int64_t counts[NODES] = {10, 20, 17, 17};
  double slowest = 0;
  for (int d = 0; d < NODES; d++) {
    DeviceCase device = case_of(&sample, STRATEGY_ASTRA, 2);
    device.counts = counts;
    device.self = d;
    assert_int_equal(measure_timeline(&devices[d], &sample.weights, &device, 1, NULL), STATUS_OK);
    slowest = fmax(slowest, timeline_seconds(&devices[d]));
  }
  const LinkOptions links = {.bits_per_second = 1e6};
  if (simulate_run(devices, NODES, &links, &(SimOptions){.scale = 1}, &result) != STATUS_OK) fail_msg("%s", status_message());
  assert_true(result.latency >= slowest);
  for (int d = 0; d < NODES; d++) {
    assert_int_equal(result.device[d].bytes_sent, 3 * BLOCKS * (counts[d] * 2 + 12 * 4));
    timeline_release(&devices[d]);
  }
  close_sample(&sample);
}

static void whole_rows_and_one_device(void **state) {
  (void)state;
  Sample sample;
  open_sample(&sample, 4);
  DeviceCase device = case_of(&sample, STRATEGY_SP, 1);
  Timeline timeline;
  for (int site = SITE_X; site <= SITE_KV; site++) { /* rows of the stream, whichever the model's site is */
    ((ModelConfig *)(uintptr_t)sample.weights.config)->astra.site = (Site)site;
    int sends = 0;
    timeline = measured(&sample, &device);
    for (int i = 0; i < timeline.count; i++) {
      if (timeline.list[i].kind != EVENT_SEND) continue;
      sends++;
      assert_int_equal(timeline.list[i].bytes, schedule_stream(16 * WIDTH * 4).bytes);
    }
    assert_int_equal(sends, BLOCKS);
    timeline_release(&timeline);
  }
  device.strategy = STRATEGY_SINGLE;
  timeline = measured(&sample, &device);
  assert_int_equal(timeline.count, 1);
  assert_int_equal(timeline.list[0].kind, EVENT_COMPUTE);
  timeline_release(&timeline);
  close_sample(&sample);
}

/* Two sums a block, each of them a group to each other device and one to all; joins of the last block alone. */
static void heads_and_columns_divided(void **state) {
  (void)state;
  static const struct {
    Strategy strategy;
    int sends, waits;
  } cases[] = {{STRATEGY_TP, BLOCKS * 2 * 4, BLOCKS * 2 * 4}, {STRATEGY_BP_AG, 1, 3}, {STRATEGY_BP_SP, 2, 6}};
  Sample sample;
  open_sample(&sample, 4);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Timeline devices[NODES];
    int sends = 0, waits = 0;
    for (int d = 0; d < NODES; d++) {
      DeviceCase device = case_of(&sample, cases[i].strategy, 1);
      device.self = d;
      device.retained = 1;
      if (measure_timeline(&devices[d], &sample.weights, &device, 1, NULL) != STATUS_OK) fail_msg("%s", status_message());
    }
    for (int e = 0; e < devices[2].count; e++) {
      sends += devices[2].list[e].kind == EVENT_SEND;
      waits += devices[2].list[e].kind == EVENT_WAIT;
    }
    assert_int_equal(sends, cases[i].sends);
    assert_int_equal(waits, cases[i].waits);
    SimResult result; /* they fit together */
    if (simulate_run(devices, NODES, &(LinkOptions){.bits_per_second = 1e7}, &(SimOptions){.scale = 1}, &result) != STATUS_OK)
      fail_msg("%s", status_message());
    double all = cases[i].strategy == STRATEGY_TP ? BLOCKS * 4 : cases[i].strategy == STRATEGY_BP_SP ? 2 : 1, sent = 0;
    for (int d = 0; d < NODES; d++) sent += (double)result.device[d].bytes_sent;
    double payload = all * (NODES - 1) * (TOKENS + 1) * WIDTH * 4;
    assert_true(sent > payload && sent < 1.03 * payload);
    for (int d = 0; d < NODES; d++) timeline_release(&devices[d]);
  }
  close_sample(&sample);
}

/* ---- tables */

static const KvTables *build_tables(Sample *sample, int groups, KvTables **tables) {
  const real *codewords[BLOCKS];
  for (int b = 0; b < BLOCKS; b++) codewords[b] = sample->books[b].codewords;
  const KvTablesSetup setup = {.codewords = codewords, .groups = groups, .entries = ENTRIES, .memory = 1 << 24};
  if (kv_tables_build(tables, sample->weights.model, &setup) != STATUS_OK) fail_msg("%s", status_message());
  assert_true(kv_tables_has(*tables, BLOCKS - 1));
  return *tables;
}

/* What the device computes from the codes that "came". */
static void compute_rows(Sample *sample, const KvTables *tables, int parts, real out[17 * WIDTH]) {
  TokenLayout layout = {0};
  ExchangeRecorder exchange;
  Timeline timeline = {0};
  real rows[17 * WIDTH];
  Arena *arena = arena_new((size_t)1 << 26);
  Tape *tape = tape_new(arena);
  for (int i = 0; i < 17 * WIDTH; i++) rows[i] = (real)sin(i);
  tape_record(tape, false);
  assert_int_equal(layout_build(&layout, TOKENS, NODES, even, NULL, CLASS_DISTRIBUTED, 1), STATUS_OK);
  const CodeExchangeSetup setup = {.self = 1,
                                   .nodes = NODES,
                                   .layout = &layout,
                                   .books = sample->books,
                                   .blocks = BLOCKS,
                                   .sites = 1,
                                   .parts = parts,
                                   .batch_max = 1,
                                   .max_packet = 1436,
                                   .keys = tables};
  if (exchange_recorder_init(&exchange, &setup) != STATUS_OK) fail_msg("%s", status_message());
  exchange.timeline = &timeline;
  assert_int_equal(code_exchange_begin_request(&exchange.network, &(CodeExchangeRequest){.number = 1, .batch = 1}), STATUS_OK);
  const ModelInput input = {.rows = tape_constant(tape, 3, (int64_t[]){1, 17, WIDTH}, rows), .batch = 1};
  Tensor *x = model_encode(sample->weights.model, tape, &input, &layout, &exchange.exchange, MODEL_ROWS_ALL);
  if (!x) fail_msg("%s", status_message());
  memcpy(out, x->value, 17 * WIDTH * sizeof *out);
  timeline_release(&timeline);
  exchange_recorder_release(&exchange);
  layout_release(&layout);
  tape_free(tape);
  arena_free(arena);
}

static void tables_give_what_products_give(void **state) {
  (void)state;
  for (int groups = 1; groups <= 4; groups *= 4)
    for (int parts = 1; parts <= 4; parts *= 4) {
      Sample sample;
      KvTables *tables = NULL;
      real products[17 * WIDTH], looked_up[17 * WIDTH];
      double max = 0;
      open_sample(&sample, groups);
      compute_rows(&sample, NULL, parts, products);
      compute_rows(&sample, build_tables(&sample, groups, &tables), parts, looked_up);
      for (int i = 0; i < 17 * WIDTH; i++) {
        const double off = fabs((double)(products[i] - looked_up[i]));
        max = fmax(max, isnan(off) ? INFINITY : off);
      }
      if (max > 1e-4) fail_msg("%d groups, %d parts: a difference of %g", groups, parts, max);
      kv_tables_free(tables);
      close_sample(&sample);
    }
}

/* Over links so slow that computing counts for nothing, what was planned and what was measured send the same and take as long. Seconds of
 * ASTRA. exchange_blocks: 0: all. */
static double compare_what_travels(int64_t exchange_blocks) {
  double seconds = 0;
  const Strategy strategies[] = {STRATEGY_ASTRA, STRATEGY_SP, STRATEGY_TP, STRATEGY_BP_AG, STRATEGY_BP_SP};
  const LinkOptions links = {.bits_per_second = 1e4};
  const Reliability reliability = {.mode = RELIABILITY_DEADLINE, .timeout = 1e6};
  DeviceProfile profiles[NODES];
  Sample sample;
  open_blocks(&sample, 4, exchange_blocks);
  for (int d = 0; d < NODES; d++) {
    profiles[d] = (DeviceProfile){.byte = 0};
    for (int i = 0; i < PROFILE_SIZES; i++) profiles[d].linear[i] = profiles[d].attention[i] = profiles[d].assign[i] = 1e-15;
  }
  for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
    for (int all_rows = 0; all_rows < 2; all_rows++) {
      const PlanCase plan = {.config = sample.weights.config,
                             .strategy = strategies[i],
                             .tokens = TOKENS,
                             .devices = NODES,
                             .counts = even,
                             .profiles = profiles,
                             .links = &links,
                             .reliability = &reliability,
                             .parts = 1,
                             .min_packets = 2,
                             .retained = 1,
                             .all_rows = all_rows};
      MeasuredCase wanted = {.weights = &sample.weights,
                             .device = case_of(&sample, strategies[i], 1),
                             .repeats = 1,
                             .links = &links,
                             .reliability = &reliability,
                             .scale = 1e-6};
      SimResult predicted, measured;
      wanted.device.retained = 1;
      wanted.device.rows = all_rows ? MODEL_ROWS_ALL : MODEL_ROWS_CLASS;
      assert_int_equal(planner_latency(&plan, &predicted), STATUS_OK);
      if (measure_latency(&wanted, &measured) != STATUS_OK) fail_msg("%s", status_message());
      if (!(fabs(predicted.latency - measured.latency) <= 0.03 * measured.latency))
        fail_msg("%s: %g s predicted, %g s measured", strategy_facts(strategies[i])->name, predicted.latency, measured.latency);
      if (strategies[i] == STRATEGY_ASTRA) seconds = measured.latency;
    }
  close_sample(&sample);
  return seconds;
}

static void plans_and_measurements_agree_on_what_travels(void **state) {
  (void)state;
  const double all = compare_what_travels(0);
  for (int blocks = 1; blocks < BLOCKS; blocks++) {
    const double some = compare_what_travels(blocks);
    if (some <= 0 || some > all * (blocks + 0.1) / BLOCKS)
      fail_msg("%d of %d blocks take %g of the time of all", blocks, BLOCKS, some / all);
  }
}

/* Work that takes a second for each packet adds up to many of them, on the way out and on the way in. */
static void work_of_packets_counts(void **state) {
  (void)state;
  const LinkOptions links = {.bits_per_second = 1e9};
  const PacketWork work = {.out = {1, 0}, .in = {10, 0}};
  Sample sample;
  SimResult result;
  open_sample(&sample, 4);
  const MeasuredCase wanted = {.weights = &sample.weights,
                               .device = case_of(&sample, STRATEGY_ASTRA, 1),
                               .repeats = 1,
                               .links = &links,
                               .reliability = &(Reliability){.mode = RELIABILITY_DEADLINE, .timeout = 1e6},
                               .work = &work};
  if (measure_latency(&wanted, &result) != STATUS_OK) fail_msg("%s", status_message());
  /* each block: two packets to each of the others, as many from each of them */
  double expected = BLOCKS * 2.0 * (NODES - 1) * 11;
  if (!(fabs(result.latency - expected) <= 1)) fail_msg("%g s, expected %g", result.latency, expected);
  close_sample(&sample);
}

/* Over links that lose packets and waver: the median of the draws, though computing takes a little longer one time than another. */
static void luck_is_not_measured(void **state) {
  (void)state;
  const Reliability reliability = {.mode = RELIABILITY_RETRANSMIT, .timeout = 1e6};
  const SimOptions options = {.reliability = &reliability, .scale = 1e-6};
  LinkOptions links = {.bits_per_second = 1e6, .latency = 0.01, .jitter = 0.005, .loss = 0.1, .overhead = SCHEDULE_DATAGRAM_OVERHEAD};
  double drawn[SIMULATE_DRAWS];
  Timeline devices[NODES];
  Sample sample;
  SimResult result;
  open_sample(&sample, 4);
  const MeasuredCase wanted = {.weights = &sample.weights,
                               .device = case_of(&sample, STRATEGY_ASTRA, 1),
                               .repeats = 1,
                               .links = &links,
                               .reliability = &reliability,
                               .scale = 1e-6};
  if (measure_latency(&wanted, &result) != STATUS_OK) fail_msg("%s", status_message());
  for (int d = 0; d < NODES; d++) {
    DeviceCase device = wanted.device;
    device.self = d;
    assert_int_equal(measure_timeline(&devices[d], &sample.weights, &device, 1, NULL), STATUS_OK);
  }
  for (int i = 0; i < SIMULATE_DRAWS; i++, links.seed++) {
    SimResult one;
    if (simulate_run(devices, NODES, &links, &options, &one) != STATUS_OK) fail_msg("%s", status_message());
    drawn[i] = one.latency;
  }
  const double first = drawn[0], median = order_median(drawn, SIMULATE_DRAWS);
  assert_true(fabs(first - median) > 0.05 * median);
  if (!(fabs(result.latency - median) <= 0.01 * median))
    fail_msg("%g s, the first draw %g s, the median %g s", result.latency, first, median);
  for (int d = 0; d < NODES; d++) timeline_release(&devices[d]);
  close_sample(&sample);
}

static void what_cannot_be_measured_is_refused(void **state) {
  (void)state;
  Sample sample;
  Timeline timeline;
  open_sample(&sample, 4);
  DeviceCase device = case_of(&sample, STRATEGY_ASTRA, 1);
  assert_int_equal(measure_timeline(&timeline, &sample.weights, &device, 0, NULL), STATUS_BAD_VALUE);
  device.strategy = STRATEGY_SP;
  device.parts = 2;
  assert_int_equal(measure_timeline(&timeline, &sample.weights, &device, 1, NULL), STATUS_BAD_VALUE);
  device = case_of(&sample, STRATEGY_BP_AG, 1);
  assert_int_equal(measure_timeline(&timeline, &sample.weights, &device, 1, NULL), STATUS_BAD_VALUE); /* 0 retained blocks */
  close_sample(&sample);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_sent_of_an_exact_block),
                                     cmocka_unit_test(the_exchange_of_a_node_is_noted),
                                     cmocka_unit_test(devices_measured_apart_meet_in_the_simulation),
                                     cmocka_unit_test(whole_rows_and_one_device),
                                     cmocka_unit_test(heads_and_columns_divided),
                                     cmocka_unit_test(plans_and_measurements_agree_on_what_travels),
                                     cmocka_unit_test(tables_give_what_products_give),
                                     cmocka_unit_test(work_of_packets_counts),
                                     cmocka_unit_test(luck_is_not_measured),
                                     cmocka_unit_test(what_cannot_be_measured_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
