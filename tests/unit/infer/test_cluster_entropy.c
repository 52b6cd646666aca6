/* Entropy coding on real processes: the same codes, logits and tokens to the bit with it and without, over streams and over datagrams of
 * all kinds, in fewer bits, which are counted; codes that a decoder keeps; and what a checkpoint without frequencies says. */
#include "infer/cluster/leader.h"
#include "sample_fixture.h"
#include "sample_text.h"
#include "unit/count_allocations.h"
#include "vq/rans.h"

enum { ENTRIES = 50, TOKENS = 16, CLASSES = 7, BATCH = 6, NODES = 4, CONTEXT = 48, VOCABULARY = 512, BLOCKS = 3, GROUPS = 4, NEW = 12 };
enum { CODES = BLOCKS * BATCH * TOKENS * GROUPS };

static void open_fixture(SampleFixture *f, const char *preset, Site site) {
  ModelConfig config = {0};
  assert_int_equal(sample_config(&config, preset, GROUPS, ENTRIES, NODES, CLASS_DISTRIBUTED), STATUS_OK);
  config.astra.site = site;
  sample_fixture_open(f, &config);
}

/* Frequencies of these codes [sets][tokens, G] go to the checkpoint, which is loaded again. */
static void add_frequencies(SampleFixture *f, const int32_t *codes, int sets, int64_t tokens) {
  uint16_t frequencies[2 * BLOCKS * GROUPS * ENTRIES];
  for (int i = 0; i < sets * GROUPS; i++) {
    double counts[ENTRIES] = {0};
    for (int64_t t = 0; t < tokens; t++) counts[codes[(i / GROUPS * tokens + t) * GROUPS + i % GROUPS]]++;
    assert_int_equal(code_frequencies_fit(counts, ENTRIES, frequencies + i * ENTRIES), STATUS_OK);
  }
  assert_int_equal(checkpoint_save_frequencies(&f->sample.config, f->directory, frequencies, 0), STATUS_OK);
  weights_release(&f->weights);
  assert_int_equal(weights_load(&f->weights, f->directory), STATUS_OK);
  assert_non_null(f->weights.coding);
}

/* ---- images ---- */

typedef struct Seen {
  int32_t codes[CODES];
  real logits[BATCH * CLASSES];
  NodeStatistics nodes[NODES];
} Seen;

static void run_images(const SampleFixture *f, const float *pixels, int64_t batch, const ClusterSetup *network, Seen *seen) {
  const LeaderOptions options = {.batch_max = BATCH, .timeout = 20, .threads = 1, .codes = true, .network = network};
  Partition partition;
  Leader *leader;
  LeaderAnswer answer;
  assert_int_equal(partition_init(&partition, TOKENS, NODES, "3,1,1,1"), STATUS_OK);
  if (leader_start(&leader, &f->weights, &partition, &options) != STATUS_OK) fail_msg("%s", status_message());
  assert_int_equal(leader_submit(leader, pixels, batch), STATUS_OK);
  if (leader_collect(leader, &answer) != STATUS_OK) fail_msg("%s", status_message());
  memcpy(seen->codes, answer.codes, (size_t)(BLOCKS * batch * TOKENS * GROUPS) * sizeof *seen->codes);
  memcpy(seen->logits, answer.logits, (size_t)(batch * CLASSES) * sizeof(real));
  memcpy(seen->nodes, answer.nodes, sizeof seen->nodes);
  leader_stop(leader);
  sample_fixture_no_children();
  partition_release(&partition);
}

static void open_images(SampleFixture *f, float *pixels) {
  SampleAnswer answer;
  Partition partition;
  open_fixture(f, "tiny", SITE_X);
  sample_pixels(&f->sample.config, 5, BATCH, pixels);
  assert_int_equal(partition_init(&partition, TOKENS, NODES, NULL), STATUS_OK);
  assert_int_equal(sample_answer(&f->sample, NODES, partition.counts, NULL, pixels, BATCH, &answer), STATUS_OK);
  add_frequencies(f, answer.codes, BLOCKS, BATCH * TOKENS);
  sample_answer_release(&answer);
  partition_release(&partition);
}

static void compare(const SampleFixture *f, const float *pixels, int64_t batch, ClusterSetup network) {
  static Seen packed, coded;
  network.entropy = ENTROPY_OFF;
  run_images(f, pixels, batch, &network, &packed);
  for (EntropyChoice choice = ENTROPY_AUTO; choice <= ENTROPY_ON; choice++) {
    network.entropy = choice;
    run_images(f, pixels, batch, &network, &coded);
    assert_memory_equal(coded.codes, packed.codes, (size_t)(BLOCKS * batch * TOKENS * GROUPS) * sizeof(int32_t));
    assert_memory_equal(coded.logits, packed.logits, (size_t)(batch * CLASSES) * sizeof(real));
    for (int d = 0; d < NODES; d++) {
      const NodeStatistics *with = &coded.nodes[d], *without = &packed.nodes[d];
      assert_int_equal(without->coded_bits, without->packed_bits);
      assert_int_equal(with->packed_bits, without->packed_bits);
      assert_int_equal(with->coded_bits, 8 * with->payload_sent);
      assert_true(with->coded_bits <= with->packed_bits); /* nobody sends the longer one */
    }
    assert_true(batch < BATCH || coded.nodes[0].coded_bits < coded.nodes[0].packed_bits * 9 / 10);
  }
}

static void streams_carry_fewer_bits(void **state) {
  (void)state;
  SampleFixture f;
  float pixels[BATCH * 3 * 16 * 16];
  open_images(&f, pixels);
  for (int parts = 1; parts <= 2; parts++) {
    const ClusterSetup network = {.reliability = {.mode = RELIABILITY_STREAM}, .parts = parts};
    compare(&f, pixels, BATCH, network);
    compare(&f, pixels, 1, network);
  }
  sample_fixture_close(&f);
}

/* Nor with tables of keys and values. */
static void nothing_is_allocated_after_the_first_request(void **state) {
  (void)state;
  allocations_need_count();
  SampleFixture f;
  Partition partition;
  Leader *leader;
  LeaderAnswer answer;
  float pixels[BATCH * 3 * 16 * 16];
  const ClusterSetup network = {.reliability = {.mode = RELIABILITY_STREAM}, .parts = 2, .entropy = ENTROPY_ON};
  const LeaderOptions options = {.batch_max = BATCH, .timeout = 20, .threads = 1, .network = &network};
  open_images(&f, pixels);
  sample_fixture_tables(&f, SIZE_MAX);
  assert_int_equal(partition_init(&partition, TOKENS, NODES, NULL), STATUS_OK);
  allocations_share();
  if (leader_start(&leader, &f.weights, &partition, &options) != STATUS_OK) fail_msg("%s", status_message());
  long before = 0;
  for (int i = 0; i < 6; i++) {
    assert_int_equal(leader_submit(leader, pixels, i % 2 ? 1 : BATCH), STATUS_OK);
    assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
    assert_true(answer.nodes[1].tables > 0);
    if (i == 1) before = allocations_so_far(); /* whole blocks, and blocks in parts */
  }
  assert_int_equal(allocations_so_far() - before, 0);
  leader_stop(leader);
  partition_release(&partition);
  sample_fixture_close(&f);
}

static void datagrams_carry_fewer_bits(void **state) {
  (void)state;
  SampleFixture f;
  float pixels[BATCH * 3 * 16 * 16];
  open_images(&f, pixels);
  const ClusterSetup network = {.transport = TRANSPORT_UDP, .reliability = {.mode = RELIABILITY_RETRANSMIT, .min_packets = 2}, .parts = 1};
  compare(&f, pixels, BATCH, network);
  sample_fixture_close(&f);
}

/* ---- texts ---- */

static void go_on(const SampleFixture *f, const int32_t *ids, EntropyChoice entropy, int32_t *made, uint64_t bits[2]) {
  const ClusterSetup network = {.reliability = {.mode = RELIABILITY_STREAM}, .parts = 1, .entropy = entropy};
  const LeaderOptions options = {.batch_max = 1, .timeout = 20, .threads = 1, .network = &network};
  TokenSplit split;
  Leader *leader;
  LeaderAnswer answer;
  bool more;
  assert_int_equal(token_split_init(&split, NODES, NULL), STATUS_OK);
  if (leader_start_text(&leader, &f->weights, &split, &options) != STATUS_OK) fail_msg("%s", status_message());
  assert_int_equal(leader_text_prompt(leader, ids, CONTEXT - NEW, &(Sampling){.max = NEW, .vocabulary = VOCABULARY, .top_p = 1}),
                   STATUS_OK);
  for (int i = 0; i <= NEW; i++) {
    if (leader_text_next(leader, &made[i], &more) != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(more, i < NEW);
  }
  assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
  bits[0] = answer.nodes[0].coded_bits, bits[1] = answer.nodes[0].packed_bits;
  leader_stop(leader);
}

/* At both sites: the first node's codes are kept by the one that decodes. */
static void decoders_keep_the_same_codes(void **state) {
  (void)state;
  static const Site sites[] = {SITE_X, SITE_KV};
  for (int s = 0; s < 2; s++) {
    SampleFixture f;
    SampleText text;
    int32_t ids[CONTEXT], packed[NEW + 1], coded[NEW + 1];
    int64_t counts[NODES] = {CONTEXT / NODES, CONTEXT / NODES, CONTEXT / NODES, CONTEXT / NODES};
    uint64_t bits[2];
    open_fixture(&f, "tiny-llama", sites[s]);
    sample_ids(&f.sample.config, 5, CONTEXT, ids);
    assert_int_equal(sample_text(&f.sample, NODES, counts, ids, NULL, 1, CONTEXT, &text), STATUS_OK);
    add_frequencies(&f, text.answer.codes, BLOCKS * config_sites(&f.sample.config), CONTEXT);
    sample_text_release(&text);
    go_on(&f, ids, ENTROPY_OFF, packed, bits);
    assert_int_equal(bits[0], bits[1]);
    go_on(&f, ids, ENTROPY_ON, coded, bits);
    assert_true(bits[0] < bits[1]);
    assert_memory_equal(coded, packed, NEW * sizeof *coded);
    sample_fixture_close(&f);
  }
}

/* ---- where it does not pay ---- */

/* Codes that all come equally often. */
static void even_frequencies(void **state) {
  (void)state;
  static Seen seen;
  static int32_t codes[BLOCKS * ENTRIES * GROUPS];
  SampleFixture f;
  float pixels[BATCH * 3 * 16 * 16];
  ClusterSetup network = {.reliability = {.mode = RELIABILITY_STREAM}, .parts = 1};
  open_fixture(&f, "tiny", SITE_X);
  assert_true(f.weights.coded_share == 1);
  sample_pixels(&f.sample.config, 5, BATCH, pixels);
  for (int i = 0; i < BLOCKS * ENTRIES * GROUPS; i++) codes[i] = i / GROUPS % ENTRIES;
  add_frequencies(&f, codes, BLOCKS, ENTRIES);
  assert_true(f.weights.coded_share < 0.945 && f.weights.coded_share > 0.94); /* log2 50 of 6 bits */
  network.entropy = ENTROPY_AUTO;
  run_images(&f, pixels, BATCH, &network, &seen);
  assert_true(seen.nodes[0].coded_bits < seen.nodes[0].packed_bits);
  f.weights.coded_share = 0.96; /* as if they were a little flatter */
  run_images(&f, pixels, BATCH, &network, &seen);
  assert_int_equal(seen.nodes[0].coded_bits, seen.nodes[0].packed_bits);
  network.entropy = ENTROPY_ON;
  run_images(&f, pixels, BATCH, &network, &seen);
  assert_true(seen.nodes[0].coded_bits < seen.nodes[0].packed_bits);
  sample_fixture_close(&f);
}

/* ---- without frequencies ---- */

static void without_frequencies(void **state) {
  (void)state;
  static Seen off, automatic;
  SampleFixture f;
  Partition partition;
  Leader *leader;
  float pixels[BATCH * 3 * 16 * 16];
  ClusterSetup network = {.reliability = {.mode = RELIABILITY_STREAM}, .parts = 1};
  open_fixture(&f, "tiny", SITE_X);
  assert_null(f.weights.coding);
  sample_pixels(&f.sample.config, 5, BATCH, pixels);
  run_images(&f, pixels, BATCH, &network, &off);
  network.entropy = ENTROPY_AUTO;
  run_images(&f, pixels, BATCH, &network, &automatic);
  assert_memory_equal(automatic.logits, off.logits, sizeof off.logits);
  assert_int_equal(automatic.nodes[0].coded_bits, off.nodes[0].packed_bits);
  network.entropy = ENTROPY_ON;
  const LeaderOptions options = {.batch_max = BATCH, .timeout = 20, .threads = 1, .network = &network};
  assert_int_equal(partition_init(&partition, TOKENS, NODES, NULL), STATUS_OK);
  assert_int_not_equal(leader_start(&leader, &f.weights, &partition, &options), STATUS_OK);
  if (!strstr(status_message(), "no frequencies")) fail_msg("%s", status_message());
  sample_fixture_no_children();
  partition_release(&partition);
  sample_fixture_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(streams_carry_fewer_bits),   cmocka_unit_test(nothing_is_allocated_after_the_first_request),
      cmocka_unit_test(datagrams_carry_fewer_bits), cmocka_unit_test(decoders_keep_the_same_codes),
      cmocka_unit_test(even_frequencies),           cmocka_unit_test(without_frequencies)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
