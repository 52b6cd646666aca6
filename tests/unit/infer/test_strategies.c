/* The ways to divide a model, over real processes: tp, sp and single give the plain model's logits and losses, each sends the bytes that
 * the formulas of docs/MATH.md say, plain models can do without codebooks, and what a strategy cannot do is refused. */
#include "infer/cluster/leader.h"
#include "infer/report.h"
#include "sample_fixture.h"
#include "sample_text.h"
#include "unit/count_allocations.h"
#include "unit/float_equal.h"

enum { BATCH = 3, CONTEXT = 48, ENTRIES = 50, BLOCKS = 3, WIDTH = 32, TOKENS = 16 /* of an image */, NODES = 4 };
static const double CLOSE = 1e-4;

typedef struct Fixture {
  SampleFixture base;
  bool text;
  Partition partition;
  TokenSplit split;
  int32_t ids[BATCH * CONTEXT], labels[BATCH * CONTEXT];
  float pixels[BATCH * 3 * 16 * 16];
} Fixture;

/* Four heads at least, so that four devices have one each; Llama: eight heads of queries on four of keys. */
static void open_heads(Fixture *f, const char *preset, int groups, Site site, int64_t kv_heads) {
  ModelConfig config = {0};
  *f = (Fixture){.text = strcmp(preset, "tiny") != 0};
  assert_int_equal(sample_config(&config, preset, groups, ENTRIES, 4, CLASS_DISTRIBUTED), STATUS_OK);
  config.astra.site = site;
  config.heads = 4;
  config.kv_heads = kv_heads;
  if (strcmp(preset, "tiny-llama") == 0) config.heads = 8;
  sample_fixture_open(&f->base, &config);
  if (!f->text) {
    sample_pixels(&f->base.sample.config, 5, BATCH, f->pixels);
    return;
  }
  sample_ids(&f->base.sample.config, 5, BATCH * CONTEXT, f->ids);
  sample_ids(&f->base.sample.config, 6, BATCH * CONTEXT, f->labels);
  for (int i = 0; i < BATCH * CONTEXT; i += 5) f->labels[i] = -1;
}

static void open_fixture(Fixture *f, const char *preset, int groups, Site site) { open_heads(f, preset, groups, site, 4); }

static void close_fixture(Fixture *f) { sample_fixture_close(&f->base); }

static Status try_start(Fixture *f, Leader **leader, int nodes, const char *list, ClusterSetup *network) {
  LeaderOptions options = {.batch_max = BATCH, .timeout = 20, .threads = 1, .network = network};
  network->parts = 1;
  network->reliability = (Reliability){.mode = RELIABILITY_STREAM, .timeout = 20};
  if (f->text) {
    TRY(token_split_init(&f->split, nodes, list));
    return leader_start_text(leader, &f->base.weights, &f->split, &options);
  }
  TRY(partition_init(&f->partition, TOKENS, nodes, list));
  return leader_start(leader, &f->base.weights, &f->partition, &options);
}

typedef struct Cluster {
  Leader *leader;
  ClusterSetup network;
} Cluster;

static void start(Fixture *f, Cluster *cluster, int nodes, const char *list, Strategy strategy, int retained) {
  *cluster = (Cluster){.network = {.strategy = strategy, .retained = retained}};
  if (try_start(f, &cluster->leader, nodes, list, &cluster->network) != STATUS_OK) fail_msg("%s", status_message());
}

static void stop(Fixture *f, Cluster *cluster) {
  leader_stop(cluster->leader);
  partition_release(&f->partition);
  sample_fixture_no_children();
}

/* ---- answers ---- */

static void collect(Leader *leader, LeaderAnswer *answer) {
  if (leader_collect(leader, answer) != STATUS_OK) fail_msg("%s", status_message());
}

static void check_images(Fixture *f, Leader *leader, const real *expected) {
  LeaderAnswer answer;
  for (int64_t batch = 1; batch <= BATCH; batch += 2) {
    assert_int_equal(leader_submit(leader, f->pixels, batch), STATUS_OK);
    collect(leader, &answer);
    sample_fixture_close_to(answer.logits, expected, batch * f->base.weights.config->classes, CLOSE, 0.1);
  }
}

/* Texts with fewer tokens than devices among them. */
static void check_texts(Fixture *f, Leader *leader) {
  static const int64_t lengths[] = {17, 1, CONTEXT, 3, 2, 24};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    const int64_t tokens = lengths[i], batch = 1 + (int64_t)i % BATCH;
    LeaderAnswer answer;
    SampleText expected;
    assert_int_equal(sample_text(&f->base.sample, 1, &tokens, f->ids, f->labels, batch, tokens, &expected), STATUS_OK);
    assert_int_equal(leader_text_last(leader, f->ids, batch, tokens), STATUS_OK);
    collect(leader, &answer);
    sample_fixture_close_to(answer.logits, expected.answer.logits, batch * f->base.weights.config->vocabulary, CLOSE, 0.1);
    assert_int_equal(leader_text_score(leader, f->ids, f->labels, batch, tokens), STATUS_OK);
    collect(leader, &answer);
    assert_int_equal(answer.score.counted, expected.counted);
    assert_int_equal(answer.score.correct, expected.correct);
    assert_true(fabs(answer.score.loss - expected.loss) <= CLOSE * (double)expected.counted);
    sample_text_release(&expected);
  }
}

static void check_answers(Fixture *f, Leader *leader) {
  SampleAnswer expected;
  if (f->text) {
    check_texts(f, leader);
    return;
  }
  assert_int_equal(sample_answer(&f->base.sample, 1, NULL, NULL, f->pixels, BATCH, &expected), STATUS_OK);
  check_images(f, leader, expected.logits);
  sample_answer_release(&expected);
}

/* Each kind of model, with codebooks at either site and plain. */
typedef void Body(Fixture *f);
static void for_each_model(Body *body) {
  static const struct {
    const char *preset;
    int groups;
    Site site;
  } rows[] = {{"tiny", 4, SITE_X}, {"tiny", 0, SITE_X}, {"tiny-gpt2", 0, SITE_X}, {"tiny-llama", 4, SITE_KV}, {"tiny-llama", 0, SITE_X}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Fixture f;
    open_fixture(&f, rows[i].preset, rows[i].groups, rows[i].site);
    body(&f);
    close_fixture(&f);
  }
}

static void check_right_ones(Fixture *f) {
  static const struct {
    Strategy strategy;
    int nodes;
    const char *split;
  } rows[] = {{STRATEGY_TP, 2, NULL}, {STRATEGY_TP, 3, NULL}, {STRATEGY_TP, 4, NULL},    {STRATEGY_SP, 2, NULL},
              {STRATEGY_SP, 3, NULL}, {STRATEGY_SP, 4, NULL}, {STRATEGY_SP, 3, "1,5,2"}, {STRATEGY_SINGLE, 3, NULL}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Cluster cluster;
    start(f, &cluster, rows[i].nodes, rows[i].split, rows[i].strategy, 0);
    check_answers(f, cluster.leader);
    stop(f, &cluster);
  }
}

static void tp_sp_and_single_are_the_plain_model(void **state) {
  (void)state;
  for_each_model(check_right_ones);
}

/* With all blocks retained nothing is decoupled. */
static void check_retained(Fixture *f) {
  for (int s = STRATEGY_BP_AG; s <= STRATEGY_BP_SP; s++) {
    for (int nodes = 2; nodes <= NODES; nodes++) {
      Cluster cluster;
      start(f, &cluster, nodes, NULL, (Strategy)s, BLOCKS);
      check_answers(f, cluster.leader);
      stop(f, &cluster);
    }
  }
}

static void bp_with_all_blocks_retained_is_the_plain_model(void **state) {
  (void)state;
  for_each_model(check_retained);
}

/* ---- bytes: of a request, over all devices and receivers */

static double bytes_of(Fixture *f, Strategy strategy, int retained, int nodes, const char *split) {
  Cluster cluster;
  LeaderAnswer answer;
  start(f, &cluster, nodes, split, strategy, retained);
  for (int i = 0; i < 2; i++) { /* twice: nothing is left over from request to request */
    Status status =
        f->text ? leader_text_score(cluster.leader, f->ids, f->labels, BATCH, CONTEXT) : leader_submit(cluster.leader, f->pixels, BATCH);
    assert_int_equal(status, STATUS_OK);
    collect(cluster.leader, &answer);
  }
  json_t *traffic = json_object();
  report_traffic_json(traffic, cluster.leader, 2 * BATCH, f->text);
  double measured = json_real_value(json_object_get(traffic, "bytes_per_token"));
  assert_float_equal(measured, json_real_value(json_object_get(traffic, "bytes_per_token_formula")), 1e-9);
  json_decref(traffic);
  stop(f, &cluster);
  return measured;
}

/* Rows of D float32 numbers; T' = T + 1 of an image. */
static void check_bytes(Fixture *f) {
  const double row = 4 * WIDTH, tokens = f->text ? CONTEXT : TOKENS, rows = f->text ? tokens : tokens + 1;
  for (int nodes = 2; nodes <= NODES; nodes++) {
    const double others = nodes - 1, last = f->text ? rows : 1;    /* rows of the last block's sums */
    double copies = f->text ? tokens * others / 2 : rows * others; /* of texts device d sends to those behind: even spans */
    assert_float_equal(bytes_of(f, STRATEGY_TP, 0, nodes, NULL), 4 * others * row * ((BLOCKS - 1) * rows + last) / tokens, 1e-9);
    assert_float_equal(bytes_of(f, STRATEGY_SP, 0, nodes, NULL), BLOCKS * row * copies / tokens, 1e-9);
    assert_float_equal(bytes_of(f, STRATEGY_BP_AG, 1, nodes, NULL), others * row * rows / tokens, 1e-9);
    assert_float_equal(bytes_of(f, STRATEGY_BP_SP, 2, nodes, NULL), 4 * others * row * rows / tokens, 1e-9);
  }
  assert_float_equal(bytes_of(f, STRATEGY_SINGLE, 0, 3, NULL), 0, 0);
  if (f->text) assert_float_equal(bytes_of(f, STRATEGY_SP, 0, 3, "1,2,3"), BLOCKS * row * (8 * 2 + 16) / tokens, 1e-9);
}

static void each_sends_the_bytes_of_its_formula(void **state) {
  (void)state;
  for_each_model(check_bytes);
}

/* Two heads of keys for eight of queries: 2 x 8 numbers of a token instead of 32, and the same answers, at either site and plain. */
static void grouped_queries_send_keys_and_values(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    Fixture f;
    open_heads(&f, "tiny-llama", i == 2 ? 0 : 4, i == 0 ? SITE_X : SITE_KV, 2); /* of 8 heads, 4 numbers each */
    for (int nodes = 2; nodes <= NODES; nodes++) {
      Cluster cluster;
      start(&f, &cluster, nodes, nodes == 3 ? "1,5,2" : NULL, STRATEGY_SP, 0);
      check_answers(&f, cluster.leader);
      stop(&f, &cluster);
      assert_float_equal(bytes_of(&f, STRATEGY_SP, 0, nodes, NULL), BLOCKS * 2 * 8 * 4 * (nodes - 1) / 2.0, 1e-9);
    }
    close_fixture(&f);
  }
}

static void astra_sends_the_bytes_of_its_formula(void **state) {
  (void)state;
  Fixture f;
  open_fixture(&f, "tiny", 4, SITE_X); /* 4 codes of 6 bits: 3 bytes a token */
  assert_float_equal(bytes_of(&f, STRATEGY_ASTRA, 0, 4, NULL), 3 * BLOCKS * 3, 1e-9);
  close_fixture(&f);
}

/* ---- memory ---- */

static void nothing_is_allocated_after_the_first_request(void **state) {
  (void)state;
  allocations_need_count();
  for (int s = STRATEGY_SINGLE; s <= STRATEGY_BP_SP; s++) {
    Fixture f;
    Cluster cluster;
    LeaderAnswer answer;
    open_fixture(&f, "tiny", 0, SITE_X);
    allocations_share();
    start(&f, &cluster, 3, NULL, (Strategy)s, 1);
    assert_int_equal(leader_submit(cluster.leader, f.pixels, BATCH), STATUS_OK);
    collect(cluster.leader, &answer);
    long before = allocations_so_far();
    for (int64_t batch = 1; batch <= BATCH; batch++) {
      assert_int_equal(leader_submit(cluster.leader, f.pixels, batch), STATUS_OK);
      collect(cluster.leader, &answer);
    }
    assert_int_equal(allocations_so_far() - before, 0);
    stop(&f, &cluster);
    close_fixture(&f);
  }
}

/* ---- what is refused ---- */

static void expect_refusal(Fixture *f, int nodes, Strategy strategy, int retained, bool codes, Status status, const char *what) {
  ClusterSetup network = {
      .strategy = strategy, .retained = retained, .parts = 1, .reliability = {.mode = RELIABILITY_STREAM, .timeout = 20}};
  LeaderOptions options = {.batch_max = BATCH, .timeout = 20, .threads = 1, .codes = codes, .network = &network};
  Leader *leader;
  assert_int_equal(token_split_init(&f->split, nodes, NULL), STATUS_OK);
  assert_int_equal(leader_start_text(&leader, &f->base.weights, &f->split, &options), status);
  if (!strstr(status_message(), what)) fail_msg("\"%s\" lacks \"%s\"", status_message(), what);
}

static void what_is_impossible_is_refused(void **state) {
  (void)state;
  Fixture f;
  open_fixture(&f, "tiny-gpt2", 0, SITE_X);
  expect_refusal(&f, 5, STRATEGY_TP, 0, false, STATUS_BAD_VALUE, "strategy tp: 5 devices for 4 key and value heads");
  expect_refusal(&f, 2, STRATEGY_BP_AG, 0, false, STATUS_BAD_VALUE, "strategy bp-ag: 0 retained blocks: between 1 and 3");
  expect_refusal(&f, 2, STRATEGY_BP_SP, 4, false, STATUS_BAD_VALUE, "strategy bp-sp: 4 retained blocks");
  expect_refusal(&f, 2, STRATEGY_SP, 0, true, STATUS_BAD_VALUE, "with strategy sp no codes are exchanged");
  expect_refusal(&f, 2, STRATEGY_ASTRA, 0, false, STATUS_BAD_VALUE, "--strategy single, tp, sp, bp-ag, bp-sp can do without codebooks");
  close_fixture(&f);
}

/* New tokens need keys and values of all tokens in one place. */
static void only_one_device_goes_on_from_a_prompt(void **state) {
  (void)state;
  Fixture f;
  open_fixture(&f, "tiny-gpt2", 0, SITE_X);
  const Sampling sampling = {.max = 5, .vocabulary = 512, .top_p = 1};
  for (int s = STRATEGY_TP; s <= STRATEGY_BP_SP; s++) {
    Cluster cluster;
    start(&f, &cluster, 2, NULL, (Strategy)s, BLOCKS);
    assert_int_equal(leader_text_prompt(cluster.leader, f.ids, 8, &sampling), STATUS_UNSUPPORTED);
    assert_non_null(strstr(status_message(), "astra and single"));
    check_texts(&f, cluster.leader); /* it goes on all the same */
    stop(&f, &cluster);
  }
  Cluster cluster;
  int32_t expected[13], id;
  bool more;
  LeaderAnswer answer;
  memcpy(expected, f.ids, 8 * sizeof *expected);
  assert_int_equal(sample_go_on(&f.base.sample, 1, &(int64_t){8}, expected, 8, 5), STATUS_OK);
  start(&f, &cluster, 3, NULL, STRATEGY_SINGLE, 0);
  assert_int_equal(leader_text_prompt(cluster.leader, f.ids, 8, &sampling), STATUS_OK);
  for (int i = 0; i < 5; i++) {
    assert_int_equal(leader_text_next(cluster.leader, &id, &more), STATUS_OK);
    assert_true(more);
    assert_int_equal(id, expected[8 + i]);
  }
  collect(cluster.leader, &answer);
  stop(&f, &cluster);
  close_fixture(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tp_sp_and_single_are_the_plain_model), cmocka_unit_test(bp_with_all_blocks_retained_is_the_plain_model),
      cmocka_unit_test(each_sends_the_bytes_of_its_formula),  cmocka_unit_test(grouped_queries_send_keys_and_values),
      cmocka_unit_test(astra_sends_the_bytes_of_its_formula), cmocka_unit_test(nothing_is_allocated_after_the_first_request),
      cmocka_unit_test(what_is_impossible_is_refused),        cmocka_unit_test(only_one_device_goes_on_from_a_prompt),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
