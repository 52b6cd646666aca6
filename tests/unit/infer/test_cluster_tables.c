/* Tables of keys and values on real processes: the answers that they give without, of images and of texts, also where memory is enough
 * for some blocks alone; what their memory is bound by, and who has none. */
#include "infer/cluster/leader.h"
#include "sample_fixture.h"
#include "sample_text.h"
#include <math.h>

enum { ENTRIES = 50, TOKENS = 16, CLASSES = 7, BATCH = 3, NODES = 4, CONTEXT = 48, VOCABULARY = 512, BLOCKS = 3, NEW = 12 };
static const double CLOSE = 1e-5;

/* exchange_blocks: 0: all. */
static void open_blocks(SampleFixture *f, const char *preset, int groups, Site site, int64_t exchange_blocks) {
  ModelConfig config = {0};
  assert_int_equal(sample_config(&config, preset, groups, ENTRIES, NODES, CLASS_DISTRIBUTED), STATUS_OK);
  config.astra.site = site;
  config.astra.exchange_blocks = exchange_blocks;
  sample_fixture_open(f, &config);
}

static void open_fixture(SampleFixture *f, const char *preset, int groups, Site site) { open_blocks(f, preset, groups, site, 0); }

/* Of a block: keys and values of all codewords. */
static size_t block_bytes(const SampleFixture *f, int groups) {
  int64_t width = f->weights.config->kv_heads * (f->weights.config->width / f->weights.config->heads);
  return (size_t)(groups * ENTRIES * 2 * width) * sizeof(real);
}

/* Whether sums from tables took part: with them the time is counted. */
static void assert_summed(const LeaderAnswer *answer, int node, bool summed) { assert_int_equal(answer->nodes[node].tables > 0, summed); }

/* ---- images ---- */

static void compare_images(SampleFixture *f, int parts) {
  float pixels[BATCH * 3 * 16 * 16];
  const ClusterSetup network = {.reliability = {.mode = RELIABILITY_STREAM}, .parts = parts};
  const LeaderOptions options = {.batch_max = BATCH, .timeout = 20, .threads = 1, .codes = true, .network = &network};
  Partition partition;
  Leader *leader;
  sample_pixels(&f->sample.config, 5, BATCH, pixels);
  assert_int_equal(partition_init(&partition, TOKENS, NODES, "3,1,1,1"), STATUS_OK);
  if (leader_start(&leader, &f->weights, &partition, &options) != STATUS_OK) fail_msg("%s", status_message());
  for (int64_t batch = BATCH; batch >= 1; batch -= 2) {
    LeaderAnswer answer;
    SampleAnswer expected;
    assert_int_equal(leader_submit(leader, pixels, batch), STATUS_OK);
    if (leader_collect(leader, &answer) != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(sample_answer(&f->sample, NODES, partition.counts, partition.order, pixels, batch, &expected), STATUS_OK);
    const int64_t sets = config_codebooks(&f->sample.config);
    assert_memory_equal(answer.codes, expected.codes, (size_t)(sets * batch * TOKENS * f->weights.books[0].groups) * sizeof(int32_t));
    sample_fixture_close_to(answer.logits, expected.logits, batch * CLASSES, CLOSE, 0.05);
    for (int d = 0; d < NODES; d++) assert_summed(&answer, d, f->weights.keys != NULL);
    sample_answer_release(&expected);
  }
  leader_stop(leader);
  sample_fixture_no_children();
  partition_release(&partition);
}

/* Tables of no block, of one and of all. */
static void images_are_the_same(void **state) {
  (void)state;
  static const int groups[] = {1, 4};
  for (int g = 0; g < 2; g++) {
    for (size_t blocks = 0; blocks <= BLOCKS; blocks += blocks ? BLOCKS - 1 : 1) {
      SampleFixture f;
      open_fixture(&f, "tiny", groups[g], SITE_X);
      if (blocks) sample_fixture_tables(&f, blocks * block_bytes(&f, groups[g]));
      assert_int_equal(kv_tables_blocks(f.weights.keys), blocks);
      compare_images(&f, 1);
      if (blocks) compare_images(&f, 2);
      sample_fixture_close(&f);
    }
  }
}

/* Where the last block exchanges nothing it has no codewords, and so no table. */
static void tables_of_blocks_with_codes(void **state) {
  (void)state;
  SampleFixture f;
  open_blocks(&f, "tiny", 1, SITE_X, 2);
  sample_fixture_tables(&f, BLOCKS * block_bytes(&f, 1));
  assert_int_equal(kv_tables_blocks(f.weights.keys), 2);
  compare_images(&f, 1);
  compare_images(&f, 2);
  sample_fixture_close(&f);
}

/* ---- texts ---- */

typedef struct Texts {
  SampleFixture base;
  TokenSplit split;
  int32_t ids[CONTEXT], labels[CONTEXT];
} Texts;

static void compare_text(Texts *f, Leader *leader, int64_t tokens) {
  LeaderAnswer answer;
  SampleText expected;
  int64_t counts[SAMPLE_NODES];
  int nodes = token_split_counts(&f->split, tokens, counts);
  assert_int_equal(leader_text_last(leader, f->ids, 1, tokens), STATUS_OK);
  if (leader_collect(leader, &answer) != STATUS_OK) fail_msg("%s", status_message());
  assert_int_equal(sample_text(&f->base.sample, nodes, counts, f->ids, f->labels, 1, tokens, &expected), STATUS_OK);
  sample_fixture_close_to(answer.logits, expected.answer.logits, VOCABULARY, CLOSE, 0.05);
  assert_summed(&answer, nodes - 1, nodes > 1);
  assert_int_equal(leader_text_score(leader, f->ids, f->labels, 1, tokens), STATUS_OK);
  assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
  assert_true(fabs(answer.score.loss - expected.loss) <= CLOSE * (double)expected.counted);
  sample_text_release(&expected);
}

/* What a decoder keeps of the others' tokens are their codes, however their keys were made. */
static void compare_prompt(Texts *f, Leader *leader, int64_t prompt) {
  int32_t expected[CONTEXT + NEW], id;
  int64_t counts[SAMPLE_NODES], made = 0;
  int nodes = token_split_counts(&f->split, prompt, counts);
  LeaderAnswer answer;
  bool more;
  memcpy(expected, f->ids, (size_t)prompt * sizeof *expected);
  assert_int_equal(sample_go_on(&f->base.sample, nodes, counts, expected, prompt, NEW), STATUS_OK);
  assert_int_equal(leader_text_prompt(leader, f->ids, prompt, &(Sampling){.max = NEW, .vocabulary = VOCABULARY, .top_p = 1}), STATUS_OK);
  for (;; made++) {
    if (leader_text_next(leader, &id, &more) != STATUS_OK) fail_msg("%s", status_message());
    if (!more) break;
    assert_int_equal(id, expected[prompt + made]);
  }
  assert_int_equal(made, NEW);
  assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
  assert_summed(&answer, nodes - 1, nodes > 1);
}

static void texts_are_the_same(void **state) {
  (void)state;
  static const char *const presets[] = {"tiny-gpt2", "tiny-llama"};
  for (int i = 0; i < 2; i++) {
    Texts f;
    Leader *leader;
    open_fixture(&f.base, presets[i], 4, SITE_X);
    sample_fixture_tables(&f.base, SIZE_MAX);
    sample_ids(&f.base.sample.config, 5, CONTEXT, f.ids);
    sample_ids(&f.base.sample.config, 6, CONTEXT, f.labels);
    assert_int_equal(token_split_init(&f.split, NODES, NULL), STATUS_OK);
    const LeaderOptions options = {.batch_max = 1, .timeout = 20, .threads = 1};
    if (leader_start_text(&leader, &f.base.weights, &f.split, &options) != STATUS_OK) fail_msg("%s", status_message());
    for (int64_t tokens = CONTEXT; tokens >= 1; tokens /= 3) compare_text(&f, leader, tokens);
    for (int64_t prompt = 2; prompt <= 29; prompt += 9) compare_prompt(&f, leader, prompt);
    leader_stop(leader);
    sample_fixture_no_children();
    sample_fixture_close(&f.base);
  }
}

/* ---- memory ---- */

static void memory_is_a_bound(void **state) {
  (void)state;
  SampleFixture f;
  open_fixture(&f, "tiny", 1, SITE_X);
  const size_t each = block_bytes(&f, 1), memory[] = {each - 1, each, 2 * each + 1, SIZE_MAX};
  const int64_t blocks[] = {0, 1, 2, BLOCKS};
  assert_int_equal(weights_make_tables(&f.weights, 0), STATUS_OK);
  assert_null(f.weights.keys);
  for (int i = 0; i < 4; i++) {
    assert_int_equal(weights_make_tables(&f.weights, memory[i]), STATUS_OK);
    assert_int_equal(kv_tables_blocks(f.weights.keys), blocks[i]);
    assert_int_equal(kv_tables_bytes(f.weights.keys), (size_t)blocks[i] * each);
    assert_int_equal(kv_tables_seconds(f.weights.keys, true) > 0, blocks[i] > 0); /* both ways were timed */
    kv_tables_free(f.weights.keys);
    f.weights.keys = f.weights.rate[0].keys = NULL;
  }
  sample_fixture_close(&f);
}

/* Keys and values that are quantised themselves, and a model without codebooks. */
static void who_has_none(void **state) {
  (void)state;
  SampleFixture f;
  open_fixture(&f, "tiny-llama", 4, SITE_KV);
  assert_int_equal(weights_make_tables(&f.weights, SIZE_MAX), STATUS_OK);
  assert_null(f.weights.keys);
  sample_fixture_close(&f);
  open_fixture(&f, "tiny", 0, SITE_X);
  assert_int_equal(weights_make_tables(&f.weights, SIZE_MAX), STATUS_OK);
  assert_null(f.weights.keys);
  sample_fixture_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(images_are_the_same), cmocka_unit_test(tables_of_blocks_with_codes),
                                     cmocka_unit_test(texts_are_the_same), cmocka_unit_test(memory_is_a_bound),
                                     cmocka_unit_test(who_has_none)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
