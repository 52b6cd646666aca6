/* Language models on real processes: logits, codes, losses and new tokens as an emulation in one process has them; a plain model to the
 * bit; codes to the nodes behind alone, counted to the byte; weights in memory once; every way for a node to fail. It mostly waits. */
#include "base/clock.h"
#include "infer/cluster/leader.h"
#include "sample_fixture.h"
#include "sample_text.h"
#include "unit/count_allocations.h"
#include <unistd.h>

enum { GROUPS = 4, ENTRIES = 50, BLOCKS = 3, VOCABULARY = 512, CONTEXT = 48, BATCH = 3, CODE_BYTES = 3 /* 4 groups of 6 bits */ };
static const double CLOSE = 1e-5;

/* ---- a checkpoint in a temporary directory ---- */

typedef struct Fixture {
  SampleFixture base;
  TokenSplit split;
  int32_t ids[BATCH * CONTEXT], labels[BATCH * CONTEXT];
} Fixture;

/* predictions: 1, and with those of texts as training makes them, the first block being exact, 2. */
static void open_predicting(Fixture *f, const char *preset, int groups, Site site, int predictions) {
  ModelConfig config = {0};
  assert_int_equal(sample_config(&config, preset, groups, ENTRIES, 4, CLASS_NONE), STATUS_OK);
  config.astra.site = site;
  config.astra.rotation = config.astra.prediction = predictions > 0;
  config.astra.exact_first = predictions > 1;
  sample_fixture_open(&f->base, &config);
  sample_ids(&f->base.sample.config, 5, BATCH * CONTEXT, f->ids);
  sample_ids(&f->base.sample.config, 6, BATCH * CONTEXT, f->labels);
  for (int i = 0; i < BATCH * CONTEXT; i += 5) f->labels[i] = -1;
}

static void open_fixture(Fixture *f, const char *preset, int groups, Site site) { open_predicting(f, preset, groups, site, 0); }

static void close_fixture(Fixture *f) { sample_fixture_close(&f->base); }

static Leader *start(Fixture *f, int nodes, const char *list, bool codes, double timeout) {
  LeaderOptions options = {.batch_max = BATCH, .timeout = timeout, .threads = 1, .codes = codes};
  Leader *leader;
  assert_int_equal(token_split_init(&f->split, nodes, list), STATUS_OK);
  if (leader_start_text(&leader, &f->base.weights, &f->split, &options) != STATUS_OK) fail_msg("%s", status_message());
  return leader;
}

static void stop(Leader *leader) {
  leader_stop(leader);
  sample_fixture_no_children();
}

/* Each kind of model at each site, without and with predictions. */
typedef void Body(Fixture *f);
static void for_each_model(Body *body) {
  const char *const presets[] = {"tiny-gpt2", "tiny-llama"};
  for (int i = 0; i < 12; i++) {
    Fixture f;
    open_predicting(&f, presets[i / 6], GROUPS, i % 2 ? SITE_KV : SITE_X, i / 2 % 3);
    body(&f);
    close_fixture(&f);
  }
}

/* ---- the emulation ---- */

/* The last node sends no codes: nobody comes behind it. */
static void assert_same_codes(const Fixture *f, const LeaderAnswer *answer, const SampleText *expected, int64_t sent) {
  const int64_t sets = config_codebooks(f->base.weights.config);
  for (int64_t i = 0; i < sets * answer->batch * answer->tokens * GROUPS; i++) {
    int64_t token = i / GROUPS % answer->tokens;
    assert_int_equal(answer->codes[i], token < sent ? expected->answer.codes[i] : -1);
  }
}

static void compare_last(Fixture *f, Leader *leader, int64_t batch, int64_t tokens) {
  LeaderAnswer answer;
  SampleText expected;
  int64_t counts[SAMPLE_NODES];
  int nodes = token_split_counts(&f->split, tokens, counts);
  assert_int_equal(leader_text_last(leader, f->ids, batch, tokens), STATUS_OK);
  if (leader_collect(leader, &answer) != STATUS_OK) fail_msg("%s", status_message());
  assert_int_equal(sample_text(&f->base.sample, nodes, counts, f->ids, NULL, batch, tokens, &expected), STATUS_OK);
  sample_fixture_close_to(answer.logits, expected.answer.logits, batch * VOCABULARY, CLOSE, 0.1);
  if (answer.codes) assert_same_codes(f, &answer, &expected, tokens - counts[nodes - 1]);
  sample_text_release(&expected);
}

static void compare_lengths(Fixture *f) {
  const int64_t lengths[] = {17, 4, 1, CONTEXT, 3, 2, 24}; /* fewer tokens than nodes among them */
  const char *const splits[] = {NULL, "3,1,2,1"};
  for (int s = 0; s < 2; s++) {
    Leader *leader = start(f, 4, splits[s], true, 20);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) compare_last(f, leader, 1 + (int64_t)i % BATCH, lengths[i]);
    stop(leader);
  }
}

static void processes_equal_the_emulation(void **state) {
  (void)state;
  for_each_model(compare_lengths);
}

static void compare_scores(Fixture *f) {
  Leader *leader = start(f, 3, NULL, false, 20);
  for (int64_t tokens = CONTEXT; tokens >= 1; tokens = tokens > 2 ? tokens / 3 : tokens - 1) {
    LeaderAnswer answer;
    SampleText expected;
    int64_t counts[SAMPLE_NODES];
    int nodes = token_split_counts(&f->split, tokens, counts);
    assert_int_equal(leader_text_score(leader, f->ids, f->labels, BATCH, tokens), STATUS_OK);
    if (leader_collect(leader, &answer) != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(sample_text(&f->base.sample, nodes, counts, f->ids, f->labels, BATCH, tokens, &expected), STATUS_OK);
    assert_int_equal(answer.score.counted, expected.counted);
    assert_int_equal(answer.score.correct, expected.correct);
    assert_true(fabs(answer.score.loss - expected.loss) <= CLOSE * (double)expected.counted);
    assert_true(expected.counted == 0 || expected.loss > 1);
    sample_text_release(&expected);
  }
  stop(leader);
}

static void losses_equal_the_emulation(void **state) {
  (void)state;
  for_each_model(compare_scores);
}

/* ---- classes ---- */

enum { CLASSES = 5 };

static void compare_classes(Fixture *f, Leader *leader, int64_t batch, int64_t tokens) {
  LeaderAnswer answer;
  SampleText expected;
  int64_t counts[SAMPLE_NODES];
  int nodes = token_split_counts(&f->split, tokens, counts);
  if (leader_text_classify(leader, f->ids, batch, tokens) != STATUS_OK) fail_msg("%s", status_message());
  if (leader_collect(leader, &answer) != STATUS_OK) fail_msg("%s", status_message());
  assert_int_equal(answer.batch, batch);
  assert_int_equal(sample_text(&f->base.sample, nodes, counts, f->ids, NULL, batch, tokens, &expected), STATUS_OK);
  sample_fixture_close_to(answer.logits, expected.answer.logits, batch * CLASSES, CLOSE, 0.05);
  if (answer.codes) assert_same_codes(f, &answer, &expected, tokens - counts[nodes - 1]);
  sample_text_release(&expected);
}

/* Even and uneven; texts with fewer tokens than there are nodes among them. */
static void classes_equal_the_emulation(void **state) {
  (void)state;
  const int64_t lengths[] = {17, 4, 1, CONTEXT, 3, 2, 24};
  const char *const presets[] = {"tiny-gpt2:5", "tiny-llama:5"}, *const splits[] = {NULL, "3,1,2,1"};
  for (int i = 0; i < 4; i++) {
    Fixture f;
    open_fixture(&f, presets[i / 2], GROUPS, i % 2 ? SITE_KV : SITE_X);
    for (int s = 0; s < 2; s++) {
      Leader *leader = start(&f, 4, splits[s], true, 20);
      for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) compare_classes(&f, leader, 1 + (int64_t)l % BATCH, lengths[l]);
      stop(leader);
    }
    close_fixture(&f);
  }
}

static void a_plain_model_classifies_on_one_node(void **state) {
  (void)state;
  Fixture f;
  open_fixture(&f, "tiny-llama:5", 0, SITE_X);
  Leader *leader = start(&f, 1, NULL, false, 20);
  compare_classes(&f, leader, BATCH, 24);
  stop(leader);
  close_fixture(&f);
}

/* Each kind of model is asked what it can answer. */
static void heads_do_not_mix(void **state) {
  (void)state;
  Fixture f;
  Sampling sampling = {.max = 1, .vocabulary = VOCABULARY, .top_p = 1};
  open_fixture(&f, "tiny-gpt2:5", GROUPS, SITE_X);
  Leader *leader = start(&f, 2, NULL, false, 20);
  assert_int_equal(leader_text_last(leader, f.ids, 1, 8), STATUS_BAD_VALUE);
  assert_int_equal(leader_text_prompt(leader, f.ids, 8, &sampling), STATUS_BAD_VALUE);
  assert_int_equal(leader_text_score(leader, f.ids, f.labels, 1, 8), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "predicts no tokens"));
  compare_classes(&f, leader, 1, 8);
  stop(leader);
  close_fixture(&f);
  open_fixture(&f, "tiny-gpt2", GROUPS, SITE_X);
  leader = start(&f, 2, NULL, false, 20);
  assert_int_equal(leader_text_classify(leader, f.ids, 1, 8), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "no classes"));
  stop(leader);
  close_fixture(&f);
}

/* ---- new tokens ---- */

static Sampling greedy(int64_t max) { return (Sampling){.max = max, .vocabulary = VOCABULARY, .top_p = 1}; }

/* Takes all new tokens; their number. */
static int64_t take_all(Leader *leader, int32_t *ids) {
  int64_t count = 0;
  for (bool more = true; more;) {
    int32_t id;
    if (leader_text_next(leader, &id, &more) != STATUS_OK) fail_msg("%s", status_message());
    if (more) ids[count++] = id;
  }
  return count;
}

static void compare_prompt(Fixture *f, Leader *leader, int64_t prompt, int64_t max) {
  int32_t expected[2 * CONTEXT], ids[2 * CONTEXT];
  LeaderAnswer answer;
  Sampling sampling = greedy(max);
  int64_t counts[SAMPLE_NODES], made = prompt + max <= CONTEXT + 1 ? max : CONTEXT + 1 - prompt;
  int nodes = token_split_counts(&f->split, prompt, counts);
  memcpy(expected, f->ids, (size_t)prompt * sizeof *expected);
  assert_int_equal(sample_go_on(&f->base.sample, nodes, counts, expected, prompt, made), STATUS_OK);
  assert_int_equal(leader_text_prompt(leader, f->ids, prompt, &sampling), STATUS_OK);
  assert_int_equal(take_all(leader, ids), made);
  assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
  assert_memory_equal(ids, expected + prompt, (size_t)made * sizeof *ids);
  assert_int_equal(answer.decoding[nodes - 1].tokens, made);
  for (int d = 0; d < nodes - 1; d++) assert_int_equal(answer.decoding[d].tokens, 0);
}

static void compare_prompts(Fixture *f) {
  const int nodes[] = {1, 4};
  for (int i = 0; i < 2; i++) {
    Leader *leader = start(f, nodes[i], NULL, false, 20);
    compare_prompt(f, leader, 13, 12);
    compare_prompt(f, leader, 1, 5);
    compare_prompt(f, leader, 3, 5);
    compare_prompt(f, leader, CONTEXT - 4, 20); /* the context ends it; the token behind it is made, but none can follow */
    compare_prompt(f, leader, CONTEXT, 1);
    stop(leader);
  }
}

static void texts_go_on_as_in_the_emulation(void **state) {
  (void)state;
  for_each_model(compare_prompts);
}

static void they_end_where_they_should(void **state) {
  (void)state;
  Fixture f;
  LeaderAnswer answer;
  int32_t ids[2 * CONTEXT], again[2 * CONTEXT];
  open_fixture(&f, "tiny-llama", GROUPS, SITE_KV);
  Leader *leader = start(&f, 2, NULL, false, 20);
  Sampling sampling = greedy(20);
  assert_int_equal(leader_text_prompt(leader, f.ids, 9, &sampling), STATUS_OK);
  assert_int_equal(take_all(leader, ids), 20);
  assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
  int first = 0; /* the first new token that did not come before */
  for (int i = 1, seen = 0; i < 20 && !first; i++, seen = 0) {
    for (int j = 0; j < i; j++) seen |= ids[j] == ids[i];
    if (!seen) first = i;
  }
  assert_true(first > 0);
  sampling.ends = 2, sampling.end[0] = -7, sampling.end[1] = ids[first]; /* an id of no token ends nothing */
  assert_int_equal(leader_text_prompt(leader, f.ids, 9, &sampling), STATUS_OK);
  assert_int_equal(take_all(leader, again), first + 1);
  assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
  sampling = greedy(0); /* a prompt that is only read */
  assert_int_equal(leader_text_prompt(leader, f.ids, 9, &sampling), STATUS_OK);
  assert_int_equal(take_all(leader, again), 0);
  assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
  stop(leader);
  close_fixture(&f);
}

static void no_more_can_be_asked_for(void **state) {
  (void)state;
  Fixture f;
  LeaderAnswer answer;
  int32_t id, ids[2 * CONTEXT];
  bool more;
  open_fixture(&f, "tiny-gpt2", GROUPS, SITE_X);
  Leader *leader = start(&f, 3, NULL, false, 20);
  for (int i = 0; i < 5; i++) {
    Sampling sampling = greedy(40);
    assert_int_equal(leader_text_prompt(leader, f.ids, 5, &sampling), STATUS_OK);
    assert_int_equal(leader_text_next(leader, &id, &more), STATUS_OK);
    assert_true(more);
    assert_int_equal(leader_text_stop(leader), STATUS_OK);
    assert_true(take_all(leader, ids) < 40);
    assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
    compare_last(&f, leader, 2, 11); /* it serves on */
  }
  stop(leader);
  close_fixture(&f);
}

/* ---- a plain model ---- */

/* The forward pass of training, on as many threads: the same products in the same order, so the same bits. */
static void a_plain_model_equals_its_forward_pass_to_the_bit(void **state) {
  (void)state;
  const char *const presets[] = {"tiny-gpt2", "tiny-llama"};
  for (int i = 0; i < 2; i++) {
    Fixture f;
    open_fixture(&f, presets[i], 0, SITE_X);
    Leader *leader = start(&f, 1, NULL, false, 20);
    for (int64_t tokens = 1; tokens <= CONTEXT; tokens += 11) {
      LeaderAnswer answer;
      SampleText expected;
      assert_int_equal(sample_text(&f.base.sample, 1, NULL, f.ids, f.labels, BATCH, tokens, &expected), STATUS_OK);
      assert_int_equal(leader_text_last(leader, f.ids, BATCH, tokens), STATUS_OK);
      assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
      assert_memory_equal(answer.logits, expected.answer.logits, BATCH * VOCABULARY * sizeof(real));
      assert_int_equal(leader_text_score(leader, f.ids, f.labels, BATCH, tokens), STATUS_OK);
      assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
      assert_true(answer.score.loss == expected.loss);
      sample_text_release(&expected);
    }
    compare_prompt(&f, leader, 7, 20);
    stop(leader);
    assert_int_equal(token_split_init(&f.split, 2, NULL), STATUS_OK);
    assert_int_equal(leader_start_text(&leader, &f.base.weights, &f.split, &(LeaderOptions){.batch_max = 1, .timeout = 1, .threads = 1}),
                     STATUS_BAD_VALUE);
    assert_non_null(strstr(status_message(), "--nodes 1"));
    close_fixture(&f);
  }
}

/* ---- bytes ---- */

/* ceil(n_t G log2 K / 8) for each block with codes, site and receiver, which are the nodes behind, and 16 bytes around each packet. */
static void assert_bytes(const Fixture *f, const LeaderAnswer *answer, const int64_t *counts, int nodes) {
  const uint64_t sets = (uint64_t)config_codebooks(f->base.weights.config);
  uint64_t received = 0;
  for (int d = 0; d < nodes; d++) {
    uint64_t one = sets * (16 + (uint64_t)(answer->batch * counts[d]) * CODE_BYTES), behind = (uint64_t)(nodes - 1 - d);
    assert_int_equal(answer->nodes[d].bytes_sent, one * behind);
    assert_int_equal(answer->nodes[d].messages_sent, sets * behind);
    assert_int_equal(answer->nodes[d].bytes_received, received);
    assert_int_equal(answer->nodes[d].messages_received, sets * (uint64_t)d);
    received += one;
  }
}

static void count_bytes(Fixture *f) {
  LeaderAnswer answer;
  Sampling sampling = greedy(10);
  int32_t ids[2 * CONTEXT];
  int64_t counts[SAMPLE_NODES];
  Leader *leader = start(f, 4, "3,1,1,1", false, 20);
  int nodes = token_split_counts(&f->split, 24, counts);
  assert_int_equal(leader_text_last(leader, f->ids, BATCH, 24), STATUS_OK);
  assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
  assert_bytes(f, &answer, counts, nodes);
  /* Decoding sends nothing: a prompt with ten new tokens costs what it costs to read it. */
  assert_int_equal(leader_text_prompt(leader, f->ids, 24, &sampling), STATUS_OK);
  assert_int_equal(take_all(leader, ids), 10);
  assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
  assert_bytes(f, &answer, counts, nodes);
  nodes = token_split_counts(&f->split, 2, counts); /* nodes 2 and 3 take no part */
  assert_int_equal(leader_text_last(leader, f->ids, 1, 2), STATUS_OK);
  assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
  assert_bytes(f, &answer, counts, nodes);
  assert_int_equal(answer.nodes[2].bytes_sent + answer.nodes[2].bytes_received + answer.nodes[3].bytes_received, 0);
  stop(leader);
}

static void codes_go_to_the_nodes_behind_alone(void **state) {
  (void)state;
  for_each_model(count_bytes);
}

/* ---- memory ---- */

/* What the cache takes at the end, against the paper's formula with this model's numbers. */
static void compare_cache(Fixture *f) {
  LeaderAnswer answer;
  Sampling sampling = greedy(11);
  int32_t ids[2 * CONTEXT];
  const ModelConfig *config = f->base.weights.config;
  int64_t head = config->width / config->heads;
  Leader *leader = start(f, 4, NULL, false, 20);
  assert_int_equal(leader_text_prompt(leader, f->ids, 20, &sampling), STATUS_OK);
  assert_int_equal(take_all(leader, ids), 11);
  assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
  /* 5 of the prompt and the 10 new ones that were fed back; 15 of the others: codes, or with predictions rows in full. */
  const int64_t others = config->astra.prediction ? 0 : 15;
  KvShape shape = {.tokens = 30,
                   .local = 30 - others,
                   .blocks = BLOCKS,
                   .width = config->kv_heads * head,
                   .number_bytes = sizeof(real),
                   .sites = config_sites(config),
                   .token_bytes = CODE_BYTES};
  const RequestDecoding *last = &answer.decoding[3];
  assert_int_equal(last->row_bytes + last->code_bytes, kv_cache_predict(&shape));
  assert_int_equal(last->code_bytes, config_sites(config) * others * BLOCKS * CODE_BYTES);
  assert_true(last->buffer_bytes > 0 && last->seconds > 0);
  stop(leader);
}

static int64_t buffers_of_a_prompt(Fixture *f, Leader *leader, int64_t tokens, int node) {
  LeaderAnswer answer;
  Sampling sampling = greedy(3);
  int32_t ids[2 * CONTEXT];
  assert_int_equal(leader_text_prompt(leader, f->ids, tokens, &sampling), STATUS_OK);
  assert_int_equal(take_all(leader, ids), 3);
  assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
  return (int64_t)answer.decoding[node].buffer_bytes;
}

/* They are those of the request, whatever came before it, and hold at least what is known to be asked for: a number and an id for each
 * entry of the vocabulary, two messages of codes of each site to send and from each of two peers, unpacked codes, logits. */
static void compare_buffers(Fixture *f) {
  Leader *leader = start(f, 3, NULL, false, 20);
  int64_t sites = config_sites(f->base.weights.config), small = buffers_of_a_prompt(f, leader, 6, 2);
  int64_t large = buffers_of_a_prompt(f, leader, 36, 2);
  assert_true(large > small);
  assert_int_equal(buffers_of_a_prompt(f, leader, 6, 2), small);
  assert_true(small > VOCABULARY * (8 + 4 + 4) + 3 * 2 * sites * CONTEXT * CODE_BYTES + sites * CONTEXT * GROUPS * 4);
  assert_true(small < 1 << 20);
  /* Values of one block at a time: 10 more own rows and 20 more of others, of all blocks, would take more than this. */
  const ModelConfig *config = f->base.weights.config;
  int64_t of_block = 10 * (8 * config->width + config->mlp) + 20 * 2 * config->width;
  assert_true(large - small < config->blocks * of_block * (int64_t)sizeof(float));
  stop(leader);
}

static void buffers_are_those_of_the_request(void **state) {
  (void)state;
  for_each_model(compare_buffers);
}

static void the_cache_takes_what_the_paper_says(void **state) {
  (void)state;
  for_each_model(compare_cache);
}

/* Kilobytes of a process's pages of a file: those it has read, and those it has a copy of. */
static void pages_of(pid_t pid, const char *name, long *resident, long *own) {
  char path[64], line[512];
  bool inside = false;
  snprintf(path, sizeof path, "/proc/%d/smaps", (int)pid);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  *resident = *own = 0;
  while (fgets(line, sizeof line, file)) {
    unsigned long from, to;
    long kilobytes;
    if (sscanf(line, "%lx-%lx", &from, &to) == 2) inside = strstr(line, name) != NULL;
    if (inside && sscanf(line, "Rss: %ld", &kilobytes) == 1) *resident += kilobytes;
    if (inside && (sscanf(line, "Private_Dirty: %ld", &kilobytes) == 1 || sscanf(line, "Anonymous: %ld", &kilobytes) == 1))
      *own += kilobytes;
  }
  fclose(file);
}

static void nodes_share_the_mapped_weights(void **state) {
  (void)state;
  if (access("/proc/self/smaps", R_OK) != 0) {
    print_message("skipped: there is no /proc/self/smaps\n");
    skip();
  }
  Fixture f;
  open_fixture(&f, "tiny-llama", GROUPS, SITE_KV);
  Leader *leader = start(&f, 4, NULL, false, 20);
  compare_last(&f, leader, 1, CONTEXT);
  for (int d = 0; d < 4; d++) {
    long resident, own;
    pages_of(leader_pid(leader, d), "model.safetensors", &resident, &own);
    assert_true(resident > 0); /* it computes with the file's own pages */
    assert_int_equal(own, 0);  /* and has made no copy of any */
  }
  stop(leader);
  close_fixture(&f);
}

/* A checkpoint of halves: its matrices are never widened as a whole, and go through all nodes and steps as they are in the file. The
 * emulation computes with the same numbers as floats. */
static void weights_of_16_bits_stay_so(void **state) {
  (void)state;
  const SafeDtype kinds[] = {SAFE_F16, SAFE_BF16};
  for (int i = 0; i < 4; i++) {
    Fixture f;
    open_fixture(&f, i < 2 ? "tiny-gpt2" : "tiny-llama", GROUPS, i < 2 ? SITE_X : SITE_KV);
    weights_release(&f.base.weights);
    assert_int_equal(checkpoint_save(f.base.sample.model, f.base.directory, f.base.sample.codewords, NULL, kinds[i % 2]), STATUS_OK);
    assert_int_equal(checkpoint_load_params(f.base.sample.model, f.base.directory, NULL, &(CheckpointReport){0}), STATUS_OK);
    assert_int_equal(checkpoint_load_codebooks(&f.base.sample.config, f.base.directory, f.base.sample.codewords), STATUS_OK);
    for (int set = 0; set < BLOCKS * config_sites(&f.base.sample.config); set++) codebook_refresh(&f.base.sample.books[set]);
    assert_int_equal(weights_load(&f.base.weights, f.base.directory), STATUS_OK);
    const ParamSet *set = model_params(f.base.weights.model);
    for (size_t p = 0; p < set->count; p++) {
      const Tensor *tensor = &set->list[p].tensor;
      bool matrix = tensor->dims == 2 && !strstr(set->list[p].name, "wpe");
      assert_true(!matrix || (tensor->narrow && !tensor->value));
    }
    Leader *leader = start(&f, 4, NULL, false, 20);
    compare_last(&f, leader, 2, 29);
    compare_prompt(&f, leader, 14, 10);
    for (int d = 0; d < 4; d++) {
      long resident, own;
      pages_of(leader_pid(leader, d), "model.safetensors", &resident, &own);
      assert_true(resident > 0 && own == 0);
    }
    stop(leader);
    close_fixture(&f);
  }
}

/* The first one is the largest; shorter ones fit into what it took. */
static void nothing_is_allocated_after_the_first_request(void **state) {
  (void)state;
  allocations_need_count();
  Fixture f;
  LeaderAnswer answer;
  int32_t ids[2 * CONTEXT];
  open_fixture(&f, "tiny-gpt2", GROUPS, SITE_X);
  allocations_share();
  Leader *leader = start(&f, 4, NULL, false, 20);
  Sampling sampling = greedy(3);
  sampling.temperature = 1, sampling.top_k = 5, sampling.top_p = 0.9;
  long before = 0;
  for (int i = 0; i < 6; i++) {
    assert_int_equal(leader_text_prompt(leader, f.ids, 40 - 7 * i, &sampling), STATUS_OK);
    assert_int_equal(take_all(leader, ids), 3);
    assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
    assert_int_equal(leader_text_score(leader, f.ids, f.labels, BATCH - i % BATCH, CONTEXT - 8 * i), STATUS_OK);
    assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
    if (i == 0) before = allocations_so_far();
  }
  assert_true(before > 20);
  assert_int_equal(allocations_so_far() - before, 0);
  stop(leader);
  close_fixture(&f);
}

/* ---- requests ---- */

static void two_scores_under_way(void **state) {
  (void)state;
  Fixture f;
  LeaderAnswer alone[4], answer;
  const int64_t tokens[4] = {CONTEXT, 3, 17, 2};
  Sampling sampling = greedy(1);
  open_fixture(&f, "tiny-gpt2", GROUPS, SITE_X);
  Leader *leader = start(&f, 4, NULL, false, 20);
  for (int i = 0; i < 4; i++) {
    assert_int_equal(leader_text_score(leader, f.ids, f.labels, BATCH, tokens[i]), STATUS_OK);
    assert_int_equal(leader_collect(leader, &alone[i]), STATUS_OK);
  }
  assert_int_equal(leader_text_score(leader, f.ids, f.labels, BATCH, tokens[0]), STATUS_OK);
  for (int i = 0; i < 40; i++) { /* short ones, of which some nodes have no part, between long ones */
    assert_int_equal(leader_text_score(leader, f.ids, f.labels, BATCH, tokens[(i + 1) % 4]), STATUS_OK);
    assert_int_equal(leader_text_prompt(leader, f.ids, 3, &sampling), STATUS_BAD_VALUE);
    if (leader_collect(leader, &answer) != STATUS_OK) fail_msg("%s", status_message());
    assert_true(answer.score.loss == alone[i % 4].score.loss && answer.score.counted == alone[i % 4].score.counted);
  }
  stop(leader);
  close_fixture(&f);
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  Fixture f;
  int32_t id, bad[3] = {1, VOCABULARY, 2}, negative[3] = {1, -1, 2};
  bool more;
  float pixel = 0;
  Sampling sampling = greedy(1);
  open_fixture(&f, "tiny-gpt2", GROUPS, SITE_X);
  Leader *leader = start(&f, 2, NULL, false, 20);
  assert_int_equal(leader_text_prompt(leader, bad, 3, &sampling), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "id 512 at place 1"));
  assert_int_equal(leader_text_last(leader, negative, 1, 3), STATUS_BAD_VALUE);
  assert_int_equal(leader_text_score(leader, bad, negative, 1, 3), STATUS_BAD_VALUE);
  assert_int_equal(leader_text_score(leader, negative + 2, (int32_t[]){-2}, 1, 1), STATUS_BAD_VALUE);
  assert_int_equal(leader_text_last(leader, f.ids, 1, 0), STATUS_BAD_VALUE);
  assert_int_equal(leader_text_last(leader, f.ids, 1, CONTEXT + 1), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "1 to 48"));
  assert_int_equal(leader_text_last(leader, f.ids, BATCH + 1, 2), STATUS_BAD_VALUE);
  assert_int_equal(leader_text_last(leader, f.ids, 0, 2), STATUS_BAD_VALUE);
  assert_int_equal(leader_text_next(leader, &id, &more), STATUS_BAD_VALUE);
  assert_int_equal(leader_text_stop(leader), STATUS_BAD_VALUE);
  assert_int_equal(leader_submit(leader, &pixel, 1), STATUS_BAD_VALUE);
  compare_last(&f, leader, 1, 9); /* none of this has gone out */
  stop(leader);
  LeaderOptions options = {.batch_max = 1, .tokens_max = CONTEXT + 1, .timeout = 1, .threads = 1};
  assert_int_equal(leader_start_text(&leader, &f.base.weights, &f.split, &options), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "1 to 48"));
  close_fixture(&f);
}

/* ---- failures ---- */

static void assert_names(Leader *leader, Status status, Status expected, int node, const char *how) {
  char who[64];
  assert_int_equal(status, expected);
  snprintf(who, sizeof who, "node %d (", node);
  char other[64];
  snprintf(other, sizeof other, "node %d is pid %d", node, (int)leader_pid(leader, node));
  bool named = strstr(status_message(), who) || strstr(status_message(), other);
  if (!named || !strstr(status_message(), how)) fail_msg("'%s' does not name node %d and '%s'", status_message(), node, how);
}

static Status next_until_failure(Leader *leader) {
  bool more = true;
  int32_t id;
  Status status = STATUS_OK;
  while (status == STATUS_OK && more) status = leader_text_next(leader, &id, &more);
  return status;
}

/* Before the prompt is read: whoever waits for the dead node's codes, or for the node itself, notices. */
static void fail_while_reading(int node, int signal_number, double timeout, Status expected, const char *how) {
  Fixture f;
  Sampling sampling = greedy(30);
  open_fixture(&f, "tiny-gpt2", GROUPS, SITE_X);
  Leader *leader = start(&f, 4, NULL, false, timeout);
  double begin = clock_now();
  kill(leader_pid(leader, node), signal_number);
  Status status = leader_text_prompt(leader, f.ids, 12, &sampling);
  if (status == STATUS_OK) status = next_until_failure(leader);
  assert_names(leader, status, expected, node, how);
  assert_true(clock_now() - begin < timeout + 10);
  stop(leader);
  close_fixture(&f);
}

static void a_node_that_dies_while_the_prompt_is_read_is_named(void **state) {
  (void)state;
  for (int node = 0; node < 4; node++) fail_while_reading(node, SIGKILL, 20, STATUS_PEER, "died: signal 9");
}

static void a_node_that_hangs_while_the_prompt_is_read_is_named(void **state) {
  (void)state;
  for (int node = 0; node < 4; node += 3) {
    Fixture f;
    Sampling sampling = greedy(30);
    open_fixture(&f, "tiny-gpt2", GROUPS, SITE_X);
    Leader *leader = start(&f, 4, NULL, false, 1);
    kill(leader_pid(leader, node), SIGSTOP);
    Status status = leader_text_prompt(leader, f.ids, 12, &sampling);
    if (status == STATUS_OK) status = next_until_failure(leader);
    assert_true(status == STATUS_TIMEOUT || status == STATUS_PEER); /* the leader notices, or a node that waits for it */
    assert_names(leader, status, status, node, "did not answer within 1 s");
    stop(leader);
    close_fixture(&f);
  }
}

/* The one that decodes is stopped first, so that it cannot be done when it dies. */
static void a_node_that_dies_while_it_decodes_is_named(void **state) {
  (void)state;
  Fixture f;
  Sampling sampling = greedy(40);
  int32_t id;
  bool more;
  open_fixture(&f, "tiny-gpt2", GROUPS, SITE_X);
  for (int way = 0; way < 2; way++) {
    Leader *leader = start(&f, 4, NULL, false, way ? 1 : 20);
    assert_int_equal(leader_text_prompt(leader, f.ids, 8, &sampling), STATUS_OK);
    assert_int_equal(leader_text_next(leader, &id, &more), STATUS_OK);
    assert_true(more);
    kill(leader_pid(leader, 3), way ? SIGSTOP : SIGKILL);
    Status status = next_until_failure(leader);
    LeaderAnswer answer;
    if (status == STATUS_OK) status = leader_collect(leader, &answer);
    if (status == STATUS_OK) { /* all forty tokens were out before the signal came */
      print_message("the node was faster than the signal\n");
    } else if (way) {
      assert_names(leader, status, STATUS_TIMEOUT, 3, "did not answer within 1 s");
    } else {
      assert_names(leader, status, STATUS_PEER, 3, "died: signal 9");
    }
    stop(leader);
  }
  close_fixture(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(processes_equal_the_emulation),
                                     cmocka_unit_test(losses_equal_the_emulation),
                                     cmocka_unit_test(classes_equal_the_emulation),
                                     cmocka_unit_test(a_plain_model_classifies_on_one_node),
                                     cmocka_unit_test(heads_do_not_mix),
                                     cmocka_unit_test(texts_go_on_as_in_the_emulation),
                                     cmocka_unit_test(they_end_where_they_should),
                                     cmocka_unit_test(no_more_can_be_asked_for),
                                     cmocka_unit_test(a_plain_model_equals_its_forward_pass_to_the_bit),
                                     cmocka_unit_test(codes_go_to_the_nodes_behind_alone),
                                     cmocka_unit_test(buffers_are_those_of_the_request),
                                     cmocka_unit_test(the_cache_takes_what_the_paper_says),
                                     cmocka_unit_test(nodes_share_the_mapped_weights),
                                     cmocka_unit_test(weights_of_16_bits_stay_so),
                                     cmocka_unit_test(nothing_is_allocated_after_the_first_request),
                                     cmocka_unit_test(two_scores_under_way),
                                     cmocka_unit_test(what_does_not_fit_is_refused),
                                     cmocka_unit_test(a_node_that_dies_while_the_prompt_is_read_is_named),
                                     cmocka_unit_test(a_node_that_hangs_while_the_prompt_is_read_is_named),
                                     cmocka_unit_test(a_node_that_dies_while_it_decodes_is_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
