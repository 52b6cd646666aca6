/* Leader and nodes as real processes: the same codes and logits as an emulation in one process, exact bytes on the wire, no allocation
 * after the first request, and every way for a node to fail. It mostly waits. */
#include "base/clock.h"
#include "infer/cluster/leader.h"
#include "infer/code_exchange.h"
#include "sample_fixture.h"
#include "unit/count_allocations.h"
#include "unit/param_named.h"
#include <math.h>

enum { GROUPS = 4, ENTRIES = 50, BLOCKS = 3, TOKENS = 16, CLASSES = 7, BATCH = 5 };

/* ---- a checkpoint in a temporary directory ---- */

typedef struct Fixture {
  SampleFixture base;
  float pixels[BATCH * 3 * 16 * 16];
} Fixture;

/* exchange_blocks: 0: all. */
static void open_blocks(Fixture *f, int groups, ClassToken class_token, int64_t exchange_blocks) {
  ModelConfig config = {0};
  assert_int_equal(sample_config(&config, "tiny", groups, ENTRIES, 4, class_token), STATUS_OK);
  if (class_token == CLASS_DISTRIBUTED) config.astra.class_bias = -0.6, config.astra.class_mean_power = 0.5;
  config.astra.exchange_blocks = exchange_blocks;
  sample_fixture_open(&f->base, &config);
  sample_pixels(&f->base.sample.config, 5, BATCH, f->pixels);
}

static void open_fixture(Fixture *f, int groups, ClassToken class_token) { open_blocks(f, groups, class_token, 0); }

static void close_fixture(Fixture *f) { sample_fixture_close(&f->base); }

static void compare(const Fixture *f, const Partition *p, const LeaderAnswer *answer, int64_t first) {
  SampleAnswer expected;
  SampleCluster *sample = (SampleCluster *)&f->base.sample;
  int64_t batch = answer->batch;
  assert_int_equal(sample_answer(sample, p->nodes, p->counts, p->order, f->pixels + first * 3 * 16 * 16, batch, &expected), STATUS_OK);
  const int64_t sets = config_codebooks(&sample->config);
  if (answer->codes) assert_memory_equal(answer->codes, expected.codes, (size_t)(sets * batch * TOKENS * GROUPS) * sizeof(int32_t));
  double scale = 0;
  for (int64_t i = 0; i < batch * CLASSES; i++) {
    double difference = fabs((double)answer->logits[i] - (double)expected.logits[i]);
    if (!(difference <= 1e-5))
      fail_msg("logit %d: %.8f, the emulation has %.8f", (int)i, (double)answer->logits[i], (double)expected.logits[i]);
    scale = fmax(scale, fabs((double)expected.logits[i]));
  }
  assert_true(scale > 0.05); /* there is something to compare */
  sample_answer_release(&expected);
}

static Leader *start(const Fixture *f, const Partition *p, bool codes, double timeout) {
  LeaderOptions options = {.batch_max = BATCH, .timeout = timeout, .threads = 1, .codes = codes};
  Leader *leader;
  if (leader_start(&leader, &f->base.weights, p, &options) != STATUS_OK) fail_msg("%s", status_message());
  return leader;
}

static void run_and_compare(const Fixture *f, const Partition *p) {
  Leader *leader = start(f, p, p->nodes > 1, 20);
  for (int64_t batch = BATCH; batch >= 1; batch -= 2) {
    LeaderAnswer answer;
    assert_int_equal(leader_submit(leader, f->pixels, batch), STATUS_OK);
    if (leader_collect(leader, &answer) != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(answer.batch, batch);
    compare(f, p, &answer, 0);
  }
  leader_stop(leader);
  sample_fixture_no_children();
}

static void four_processes_equal_the_emulation(void **state) {
  (void)state;
  Fixture f;
  Partition p;
  open_fixture(&f, GROUPS, CLASS_DISTRIBUTED);
  assert_int_equal(partition_init(&p, TOKENS, 4, NULL), STATUS_OK);
  run_and_compare(&f, &p);
  partition_release(&p);
  close_fixture(&f);
}

static void uneven_and_scattered_maps(void **state) {
  (void)state;
  Fixture f;
  Partition p;
  const int32_t device_of[TOKENS] = {2, 0, 1, 2, 2, 0, 1, 0, 0, 2, 1, 2, 0, 2, 2, 0};
  open_fixture(&f, GROUPS, CLASS_DISTRIBUTED);
  assert_int_equal(partition_init(&p, TOKENS, 4, "3,1,1,1"), STATUS_OK);
  run_and_compare(&f, &p);
  partition_release(&p);
  assert_int_equal(partition_map(&p, TOKENS, device_of), STATUS_OK);
  run_and_compare(&f, &p);
  partition_release(&p);
  assert_int_equal(partition_init(&p, TOKENS, TOKENS, NULL), STATUS_OK); /* one token a node */
  run_and_compare(&f, &p);
  partition_release(&p);
  close_fixture(&f);
}

/* Wherever a layout puts the tokens, with even and with uneven shares and with either kind of class token. */
static void every_layout_equals_the_emulation(void **state) {
  (void)state;
  const TokenMap maps[] = {{TOKEN_MAP_RASTER, 0}, {TOKEN_MAP_STRIDED, 0}, {TOKEN_MAP_CHECKERBOARD, 0}, {TOKEN_MAP_RANDOM, 1}};
  for (int kind = CLASS_DISTRIBUTED; kind <= CLASS_SINGLE; kind++) {
    Fixture f;
    open_fixture(&f, GROUPS, (ClassToken)kind);
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
      Partition p;
      assert_int_equal(partition_init(&p, TOKENS, 4, kind == CLASS_SINGLE ? "1,1,1,1" : "6,4,5,1"), STATUS_OK);
      assert_int_equal(partition_place(&p, &maps[i], 4, 4), STATUS_OK);
      run_and_compare(&f, &p);
      partition_release(&p);
    }
    close_fixture(&f);
  }
}

/* The last blocks may exchange nothing: each device goes on with its own tokens. */
static void the_last_blocks_may_be_apart(void **state) {
  (void)state;
  for (int kind = CLASS_DISTRIBUTED; kind <= CLASS_SINGLE; kind++)
    for (int blocks = 1; blocks < BLOCKS; blocks++) {
      Fixture f;
      Partition p;
      open_blocks(&f, GROUPS, (ClassToken)kind, blocks);
      assert_int_equal(partition_init(&p, TOKENS, 4, "6,4,5,1"), STATUS_OK);
      run_and_compare(&f, &p);
      partition_release(&p);
      close_fixture(&f);
    }
}

static void a_single_class_token_lives_on_node_0(void **state) {
  (void)state;
  Fixture f;
  Partition p;
  open_fixture(&f, GROUPS, CLASS_SINGLE);
  assert_int_equal(partition_init(&p, TOKENS, 3, NULL), STATUS_OK);
  run_and_compare(&f, &p);
  partition_release(&p);
  close_fixture(&f);
}

static void one_node_is_the_plain_model(void **state) {
  (void)state;
  Fixture f;
  Partition p;
  for (int groups = 0; groups <= GROUPS; groups += GROUPS) {
    open_fixture(&f, groups, CLASS_DISTRIBUTED);
    assert_int_equal(partition_init(&p, TOKENS, 1, NULL), STATUS_OK);
    run_and_compare(&f, &p);
    partition_release(&p);
    close_fixture(&f);
  }
}

/* The head, which the leader applies, computes in the precision of the nodes and of training: in bf16 1 + 2^-10 is 1, so that two classes
 * are alike. */
static void the_head_is_as_precise_as_the_nodes(void **state) {
  (void)state;
  for (WeightsPrecision precision = WEIGHTS_FP32; precision <= WEIGHTS_BF16; precision++) {
    Fixture f;
    Partition p;
    LeaderAnswer answer;
    ModelConfig config = {0};
    assert_int_equal(sample_config(&config, "tiny", GROUPS, ENTRIES, 4, CLASS_DISTRIBUTED), STATUS_OK);
    sample_fixture_make(&f.base, &config);
    ParamSet *params = model_params(f.base.sample.model);
    const Tensor *weight = &param_named(params, "classifier.weight")->tensor, *bias = &param_named(params, "classifier.bias")->tensor;
    const int64_t width = tensor_width(weight);
    memset(weight->value, 0, (size_t)tensor_count(weight) * sizeof(real));
    memset(bias->value, 0, (size_t)tensor_count(bias) * sizeof(real));
    weight->value[0] = 1, weight->value[width] = (real)(1 + 1.0 / 1024);
    sample_fixture_save(&f.base);
    assert_int_equal(weights_use_precision(&f.base.weights, precision), STATUS_OK);
    sample_pixels(&f.base.sample.config, 5, BATCH, f.pixels);
    assert_int_equal(partition_init(&p, TOKENS, 4, NULL), STATUS_OK);
    Leader *leader = start(&f, &p, false, 20);
    assert_int_equal(leader_submit(leader, f.pixels, BATCH), STATUS_OK);
    if (leader_collect(leader, &answer) != STATUS_OK) fail_msg("%s", status_message());
    for (int i = 0; i < BATCH; i++) {
      const real *logits = answer.logits + i * CLASSES;
      assert_true(logits[0] != 0 && (logits[0] == logits[1]) == (precision == WEIGHTS_BF16));
    }
    leader_stop(leader);
    partition_release(&p);
    close_fixture(&f);
  }
}

static void a_plain_model_does_not_run_on_more(void **state) {
  (void)state;
  Fixture f;
  Partition p;
  Leader *leader;
  LeaderOptions options = {.batch_max = 1, .timeout = 1, .threads = 1};
  open_fixture(&f, 0, CLASS_DISTRIBUTED);
  assert_int_equal(partition_init(&p, TOKENS, 2, NULL), STATUS_OK);
  assert_int_equal(leader_start(&leader, &f.base.weights, &p, &options), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "--nodes 1"));
  assert_null(leader);
  sample_fixture_no_children();
  partition_release(&p);
  close_fixture(&f);
}

static void two_requests_under_way(void **state) {
  (void)state;
  Fixture f;
  Partition p;
  LeaderAnswer answer;
  open_fixture(&f, GROUPS, CLASS_DISTRIBUTED);
  assert_int_equal(partition_init(&p, TOKENS, 4, NULL), STATUS_OK);
  Leader *leader = start(&f, &p, true, 20);
  const int64_t first[6] = {0, 3, 1, 2, 0, 4}, batch[6] = {3, 2, 4, 1, 5, 1};
  assert_int_equal(leader_submit(leader, f.pixels, batch[0]), STATUS_OK);
  for (int i = 0; i < 6; i++) {
    if (i < 5) assert_int_equal(leader_submit(leader, f.pixels + first[i + 1] * 3 * 16 * 16, batch[i + 1]), STATUS_OK);
    assert_int_equal(leader_under_way(leader), i < 5 ? 2 : 1);
    if (i < 5) assert_int_equal(leader_submit(leader, f.pixels, 1), STATUS_BAD_VALUE);
    assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
    assert_int_equal(answer.batch, batch[i]);
    compare(&f, &p, &answer, first[i]);
  }
  assert_int_equal(leader_collect(leader, &answer), STATUS_BAD_VALUE);
  assert_int_equal(leader_submit(leader, f.pixels, BATCH + 1), STATUS_BAD_VALUE);
  leader_stop(leader);
  partition_release(&p);
  close_fixture(&f);
}

/* A packet of n tokens: its length, a header of 12 bytes, ceil(n G log2 K / 8) bytes of codes without gaps. One packet a block and receiver
 * here. 50 entries are 6 bits. */
static uint64_t packet_bytes(int64_t tokens, int groups) { return 4 + 12 + (uint64_t)(tokens * groups * 6 + 7) / 8; }

static void count_bytes(int groups, int exchange_blocks) {
  const uint64_t blocks = exchange_blocks > 0 ? (uint64_t)exchange_blocks : BLOCKS;
  Fixture f;
  Partition p;
  LeaderAnswer answer;
  open_blocks(&f, groups, CLASS_DISTRIBUTED, exchange_blocks);
  assert_int_equal(partition_init(&p, TOKENS, 4, "3,1,1,1"), STATUS_OK);
  Leader *leader = start(&f, &p, false, 20);
  assert_int_equal(leader_submit(leader, f.pixels, BATCH), STATUS_OK);
  assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
  for (int d = 0; d < 4; d++) {
    uint64_t received = 0;
    for (int other = 0; other < 4; other++) received += other == d ? 0 : blocks * packet_bytes(BATCH * p.counts[other], groups);
    assert_int_equal(answer.nodes[d].bytes_sent, blocks * 3 * packet_bytes(BATCH * p.counts[d], groups));
    assert_int_equal(answer.nodes[d].payload_sent, blocks * 3 * (packet_bytes(BATCH * p.counts[d], groups) - 16));
    assert_int_equal(answer.nodes[d].bytes_received, received);
    assert_int_equal(answer.nodes[d].messages_sent, blocks * 3);
    assert_int_equal(answer.nodes[d].messages_received, blocks * 3);
    assert_int_equal(answer.nodes[d].lost + answer.nodes[d].late + answer.nodes[d].masked, 0);
    assert_true(answer.nodes[d].compute > 0 && answer.nodes[d].quantise > 0);
  }
  leader_stop(leader);
  partition_release(&p);
  close_fixture(&f);
}

static void bytes_on_the_wire_are_exact(void **state) {
  (void)state;
  count_bytes(GROUPS, 0); /* three bytes a token */
  count_bytes(1, 0);      /* tokens share bytes */
  count_bytes(GROUPS, 2); /* of the third block none */
}

static void nothing_is_allocated_after_the_first_request(void **state) {
  (void)state;
  allocations_need_count();
  Fixture f;
  Partition p;
  LeaderAnswer answer;
  open_fixture(&f, GROUPS, CLASS_DISTRIBUTED);
  assert_int_equal(partition_init(&p, TOKENS, 4, NULL), STATUS_OK);
  allocations_share();
  Leader *leader = start(&f, &p, true, 20);
  assert_int_equal(leader_submit(leader, f.pixels, 2), STATUS_OK);
  assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
  long before = allocations_so_far();
  assert_true(before > 20); /* the counter works, in the children too */
  for (int i = 0; i < 4; i++) {
    assert_int_equal(leader_submit(leader, f.pixels, i % 2 ? 1 : BATCH), STATUS_OK);
    assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
  }
  assert_int_equal(allocations_so_far() - before, 0);
  leader_stop(leader);
  partition_release(&p);
  close_fixture(&f);
}

/* ---- failures ---- */

/* Runs requests until one fails, with a node killed or stopped by `signal_number` after the first. */
static Status run_with_signal(Leader *leader, const Fixture *f, int node, int signal_number) {
  LeaderAnswer answer;
  Status status = leader_submit(leader, f->pixels, BATCH);
  if (status == STATUS_OK) status = leader_collect(leader, &answer);
  assert_int_equal(status, STATUS_OK);
  assert_int_equal(leader_submit(leader, f->pixels, BATCH), STATUS_OK);
  kill(leader_pid(leader, node), signal_number);
  for (int i = 0; i < 1000 && status == STATUS_OK; i++) {
    status = leader_collect(leader, &answer);
    if (status == STATUS_OK) status = leader_submit(leader, f->pixels, BATCH);
  }
  return status;
}

static void fail_a_node(int node, int signal_number, double timeout, Status expected, const char *how) {
  Fixture f;
  Partition p;
  char who[64], message[256];
  open_fixture(&f, GROUPS, CLASS_DISTRIBUTED);
  assert_int_equal(partition_init(&p, TOKENS, 4, NULL), STATUS_OK);
  Leader *leader = start(&f, &p, false, timeout);
  double begin = clock_now();
  pid_t pid = leader_pid(leader, node);
  Status status = run_with_signal(leader, &f, node, signal_number);
  snprintf(message, sizeof message, "%s", status_message());
  assert_true(clock_now() - begin < timeout + 10);
  leader_stop(leader);
  sample_fixture_no_children();
  assert_true(status == expected || status == STATUS_PEER);
  snprintf(who, sizeof who, "node %d", node);
  if (!strstr(message, who) || !strstr(message, how)) fail_msg("'%s' does not name '%s' and '%s'", message, who, how);
  snprintf(who, sizeof who, "pid %d", (int)pid);
  if (!strstr(message, who)) fail_msg("'%s' does not name '%s'", message, who);
  partition_release(&p);
  close_fixture(&f);
}

static void a_killed_node_is_named(void **state) {
  (void)state;
  for (int node = 0; node < 4; node++) fail_a_node(node, SIGKILL, 20, STATUS_PEER, "died: signal 9");
}

static void a_hanging_node_is_named(void **state) {
  (void)state;
  fail_a_node(0, SIGSTOP, 1, STATUS_TIMEOUT, "did not answer within 1 s");
  fail_a_node(2, SIGSTOP, 1, STATUS_TIMEOUT, "did not answer within 1 s");
}

static void a_node_that_hangs_alone_is_named(void **state) {
  (void)state;
  Fixture f;
  Partition p;
  LeaderAnswer answer;
  open_fixture(&f, 0, CLASS_DISTRIBUTED);
  assert_int_equal(partition_init(&p, TOKENS, 1, NULL), STATUS_OK);
  Leader *leader = start(&f, &p, false, 0.3);
  kill(leader_pid(leader, 0), SIGSTOP);
  assert_int_equal(leader_submit(leader, f.pixels, 1), STATUS_OK);
  assert_int_equal(leader_collect(leader, &answer), STATUS_TIMEOUT);
  assert_non_null(strstr(status_message(), "node 0 (pid "));
  leader_stop(leader);
  sample_fixture_no_children();
  partition_release(&p);
  close_fixture(&f);
}

static void a_stop_flag_interrupts(void **state) {
  (void)state;
  Fixture f;
  Partition p;
  LeaderAnswer answer;
  static volatile sig_atomic_t stop;
  LeaderOptions options = {.batch_max = BATCH, .timeout = 60, .threads = 1, .stop = &stop};
  Leader *leader;
  open_fixture(&f, GROUPS, CLASS_DISTRIBUTED);
  assert_int_equal(partition_init(&p, TOKENS, 2, NULL), STATUS_OK);
  assert_int_equal(leader_start(&leader, &f.base.weights, &p, &options), STATUS_OK);
  kill(leader_pid(leader, 1), SIGSTOP);
  assert_int_equal(leader_submit(leader, f.pixels, 1), STATUS_OK);
  stop = SIGINT;
  double begin = clock_now();
  assert_int_equal(leader_collect(leader, &answer), STATUS_INTERRUPTED);
  leader_stop(leader);
  assert_true(clock_now() - begin < 10);
  sample_fixture_no_children();
  partition_release(&p);
  close_fixture(&f);
}

/* Saying bye to a node that is dead fails, which is nobody's business. */
static void the_message_outlives_the_end(void **state) {
  (void)state;
  Fixture f;
  Partition p;
  open_fixture(&f, GROUPS, CLASS_DISTRIBUTED);
  assert_int_equal(partition_init(&p, TOKENS, 2, NULL), STATUS_OK);
  Leader *leader = start(&f, &p, false, 20);
  status_set(STATUS_IO, "why it ends");
  kill(leader_pid(leader, 1), SIGKILL);
  for (siginfo_t ended = {0}; ended.si_pid == 0;)
    assert_int_equal(waitid(P_PID, (id_t)leader_pid(leader, 1), &ended, WEXITED | WNOWAIT), 0);
  leader_stop(leader);
  assert_string_equal(status_message(), "why it ends");
  partition_release(&p);
  close_fixture(&f);
}

static volatile pid_t suspended;

static void resume(int signal_number) {
  (void)signal_number;
  kill(suspended, SIGCONT);
}

/* Node 0 dies, which the leader tells the others; node 1 hangs until node 2 has given it up, and answers then: its tokens are missing from
 * the answer like those of node 0. */
static void two_masked_nodes_are_both_missing(void **state) {
  (void)state;
  Fixture f;
  Partition p;
  Leader *leader;
  LeaderAnswer answer;
  const ClusterOptions cluster = {.local = 3, .on_failure = ON_FAILURE_MASK};
  const LeaderOptions options = {.batch_max = BATCH, .timeout = 5, .threads = 1, .cluster = &cluster};
  open_fixture(&f, GROUPS, CLASS_DISTRIBUTED);
  assert_int_equal(partition_init(&p, TOKENS, 3, NULL), STATUS_OK);
  assert_int_equal(leader_start(&leader, &f.base.weights, &p, &options), STATUS_OK);
  suspended = leader_pid(leader, 1);
  assert_int_equal(kill(suspended, SIGSTOP), 0);
  assert_int_equal(leader_submit(leader, f.pixels, 1), STATUS_OK);
  assert_int_equal(kill(leader_pid(leader, 0), SIGKILL), 0);
  signal(SIGALRM, resume);
  alarm(8); /* three seconds after node 2 has given it up, three before the leader would */
  if (leader_collect(leader, &answer) != STATUS_OK) fail_msg("%s", status_message());
  signal(SIGALRM, SIG_DFL);
  assert_int_equal(answer.missing & 3, 3); /* and node 1 may have gone on without node 2, which sends it nothing any more */
  leader_stop(leader);
  sample_fixture_no_children();
  partition_release(&p);
  close_fixture(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(four_processes_equal_the_emulation),
                                     cmocka_unit_test(uneven_and_scattered_maps),
                                     cmocka_unit_test(every_layout_equals_the_emulation),
                                     cmocka_unit_test(the_last_blocks_may_be_apart),
                                     cmocka_unit_test(a_single_class_token_lives_on_node_0),
                                     cmocka_unit_test(one_node_is_the_plain_model),
                                     cmocka_unit_test(the_head_is_as_precise_as_the_nodes),
                                     cmocka_unit_test(a_plain_model_does_not_run_on_more),
                                     cmocka_unit_test(two_requests_under_way),
                                     cmocka_unit_test(bytes_on_the_wire_are_exact),
                                     cmocka_unit_test(nothing_is_allocated_after_the_first_request),
                                     cmocka_unit_test(a_killed_node_is_named),
                                     cmocka_unit_test(a_hanging_node_is_named),
                                     cmocka_unit_test(a_node_that_hangs_alone_is_named),
                                     cmocka_unit_test(a_stop_flag_interrupts),
                                     cmocka_unit_test(two_masked_nodes_are_both_missing),
                                     cmocka_unit_test(the_message_outlives_the_end)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
