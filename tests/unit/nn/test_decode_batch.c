/* Steps of many sequences at once against steps of one (model_decode_step): several rows of each, drafts that are right and wrong,
 * sequences that share a beginning, codes of other devices at both sites, keys of 16 bits, weights of 8 and 4 bits and in bf16; and a
 * trained model's known story, told three times at once. */
#include "autograd/kernels/matmul.h"
#include "base/threads.h"
#include "nn/checkpoint.h"
#include "nn/decode_batch.h"
#include "nn/lowbit_weights.h"
#include "unit/count_allocations.h"
#include "unit/nn/sent_codes.h"
#include <math.h>

enum { TEXTS = 3, MAX_DRAFTS = 4, PAGE = 4 };
static const double CLOSE = REAL_IS_DOUBLE ? 1e-11 : 2e-5;

/* A text, and what one-token steps say after each of its tokens from its prompt's last one on. */
typedef struct Text {
  int32_t ids[TOKENS];
  int64_t prompt, kept;
  int sequence;
  real logits[TOKENS][SMALL_VOCABULARY];
} Text;

static KvPages *open_pages(const KvCache *cache, const ModelConfig *config) {
  KvPages *pages;
  const KvPagesSetup setup = {
      .cache = cache->setup, .page = PAGE, .heads = config->kv_heads, .bytes = (int64_t)1 << 20, .sequences = TEXTS + 1};
  KvPagesSetup whole = setup;
  whole.cache.codewords = cache->codewords;
  assert_int_equal(kv_pages_new(&pages, &whole), STATUS_OK);
  return pages;
}

/* The prompt into the cache, then step by step; of the prompt alone where `pages` takes it over. */
static void tell(Model *model, SmallRun *run, Sent *sent, KvCache *cache, Text *text, KvPages *pages) {
  assert_int_equal(kv_cache_start(cache, sent ? REMOTE : 0), STATUS_OK);
  if (sent) hand_over_codes(cache, sent);
  Tensor *logits = pass(model, run, text->ids, text->prompt, sent, cache);
  assert_non_null(logits);
  if (pages) assert_int_equal(kv_pages_take(pages, text->sequence, cache, text->ids), STATUS_OK);
  for (int64_t count = text->prompt; !pages; count++) {
    memcpy(text->logits[count - 1], logits->value, sizeof text->logits[0]);
    if (count == TOKENS) break;
    tape_clear(run->tape);
    logits = model_decode_step(model, run->tape, cache, &text->ids[count]);
    assert_non_null(logits);
  }
  tape_clear(run->tape);
}

static void assert_row(const Text *text, int64_t token, const real *logits, double close) {
  double largest = 1;
  for (int i = 0; i < SMALL_VOCABULARY; i++) largest = fmax(largest, fabs((double)text->logits[token][i]));
  small_assert_close(logits, text->logits[token], SMALL_VOCABULARY, close * largest);
}

/* One step: a token of each text that is not at its end, and drafts behind it, some of them wrong. False: all are at their ends. */
static bool step(Model *model, SmallRun *run, KvPages *pages, Text text[TEXTS], Rng *rng, double close) {
  DecodeRows rows[TEXTS];
  int32_t ids[TEXTS][MAX_DRAFTS];
  int64_t right[TEXTS];
  Text *of[TEXTS];
  int count = 0;
  for (int t = 0; t < TEXTS; t++) {
    int64_t left = TOKENS - text[t].kept, wanted = 1 + (int64_t)rng_below(rng, MAX_DRAFTS);
    if (left == 0) continue;
    if (wanted > left) wanted = left;
    right[count] = 1 + (int64_t)rng_below(rng, (uint64_t)wanted);
    memcpy(ids[count], text[t].ids + text[t].kept, (size_t)wanted * sizeof(int32_t));
    for (int64_t i = right[count]; i < wanted; i++) ids[count][i] = (ids[count][i] + 1) % SMALL_VOCABULARY;
    rows[count] = (DecodeRows){.sequence = text[t].sequence, .ids = ids[count], .count = wanted, .logits = wanted};
    of[count++] = &text[t];
  }
  if (count == 0) return false;
  const Tensor *logits = decode_batch(model, run->tape, pages, rows, count);
  if (!logits) fail_msg("%s", status_message());
  const real *at = logits->value;
  for (int i = 0; i < count; at += rows[i++].count * SMALL_VOCABULARY) {
    for (int64_t r = 0; r < right[i]; r++) assert_row(of[i], of[i]->kept + r, at + r * SMALL_VOCABULARY, close);
    kv_pages_keep(pages, rows[i].sequence, ids[i], right[i]);
    of[i]->kept += right[i];
    assert_int_equal(kv_pages_tokens(pages, rows[i].sequence), of[i]->kept);
  }
  tape_clear(run->tape);
  return true;
}

static void compare(Model *model, Sent *sent, NarrowKind kind, double close, bool bf16) {
  const KvSpans spans = {.count = sent ? 2 : 0, .begin = {2, REMOTE}};
  static const int64_t prompts[TEXTS] = {8, 14, 7};
  SmallRun run;
  KvCache cache;
  Text text[TEXTS];
  Rng rng;
  int64_t shared;
  rng_init(&rng, 3, 0);
  small_open(&run);
  tape_use_bf16(run.tape, bf16);
  open_cache_of(&cache, kind, model_config(model), sent, TOKENS);
  KvPages *pages = open_pages(&cache, model_config(model));
  for (int t = 0; t < TEXTS; t++) {
    text[t] = (Text){.prompt = prompts[t], .kept = prompts[t]};
    for (int i = 0; i < TOKENS; i++) text[t].ids[i] = (i * i * 7 + i * (3 + t) + 5) % SMALL_VOCABULARY;
    tell(model, &run, sent, &cache, &text[t], NULL);
    assert_int_equal(kv_pages_join(pages, text[t].ids, prompts[t], &spans, TOKENS, &text[t].sequence, &shared), STATUS_OK);
    tell(model, &run, sent, &cache, &text[t], pages);
  }
  while (step(model, &run, pages, text, &rng, close)) {}
  for (int t = 0; t < TEXTS; t++) kv_pages_leave(pages, text[t].sequence);
  kv_pages_free(pages);
  kv_cache_release(&cache);
  small_close(&run);
}

/* 16 bits: keys and values are the same numbers, rounded once, in both; what differs is float's rounding. A value at the middle of two
 * halves may go either way. */
static double close_of(NarrowKind kind) { return kind == NARROW_NONE ? CLOSE : kind == NARROW_F16 ? 1e-3 : 1e-2; }

static void as_one_by_one(void **state) {
  (void)state;
  for (int threads = 1; threads <= 2; threads++) {
    assert_int_equal(threads_start(threads), STATUS_OK);
    for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
      Model *model = small_decoder((ModelKind)kind, false);
      for (NarrowKind narrow = NARROW_NONE; narrow <= NARROW_BF16; narrow++) compare(model, NULL, narrow, close_of(narrow), false);
      model_free(model);
      for (int variant = 0; variant < 4; variant++) { /* site x, site kv, both in another basis */
        ModelConfig config;
        Sent sent;
        small_config(&config, (ModelKind)kind, 0);
        config.astra.groups = GROUPS;
        config.astra.site = variant % 2 ? SITE_KV : SITE_X;
        config.astra.rotation = variant >= 2;
        model = small_model(&config, false);
        sent_init(&sent, &config);
        for (NarrowKind narrow = NARROW_NONE; narrow <= NARROW_BF16; narrow++) compare(model, &sent, narrow, close_of(narrow), false);
        sent.loses = true;
        compare(model, &sent, NARROW_NONE, CLOSE, false);
        model_free(model);
        config_release(&config);
      }
    }
    threads_stop();
  }
}

/* ---- prompts through the same steps, which share beginnings */

static void prompts_in_steps(void **state) {
  (void)state;
  for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    Model *model = small_decoder((ModelKind)kind, false);
    const KvSpans whole = {.count = 0};
    SmallRun run;
    KvCache cache;
    Text text[TEXTS];
    int64_t shared[TEXTS];
    DecodeRows rows[TEXTS];
    small_open(&run);
    open_cache(&cache, model_config(model), NULL, TOKENS);
    KvPages *pages = open_pages(&cache, model_config(model));
    for (int t = 0; t < TEXTS; t++) { /* 11, 13 and 15 tokens, of which 0, 4 and 8 are there: the second differs from its sixth on */
      text[t] = (Text){.prompt = 11 + 2 * t};
      for (int i = 0; i < TOKENS; i++) text[t].ids[i] = (i * i * 7 + i * 3 + 5 + (t == 1 && i > 4)) % SMALL_VOCABULARY;
      tell(model, &run, NULL, &cache, &text[t], NULL);
    }
    memcpy(text[2].ids, text[0].ids, sizeof text[2].ids);
    tell(model, &run, NULL, &cache, &text[2], NULL);
    for (int t = 0; t < TEXTS; t++) { /* the first one alone, then both others in one step */
      assert_int_equal(kv_pages_join(pages, text[t].ids, text[t].prompt, &whole, TOKENS, &text[t].sequence, &shared[t]), STATUS_OK);
      assert_int_equal(shared[t], t == 0 ? 0 : t == 1 ? 4 : 8);
      rows[t] = (DecodeRows){text[t].sequence, text[t].ids + shared[t], text[t].prompt - shared[t], 1};
      if (t == 1) continue;
      const int first = t == 0 ? 0 : 1, count = t == 0 ? 1 : 2;
      const Tensor *logits = decode_batch(model, run.tape, pages, rows + first, count);
      if (!logits) fail_msg("%s", status_message());
      assert_int_equal(tensor_rows(logits), count);
      for (int i = 0; i < count; i++) {
        const Text *of = &text[first + i];
        assert_row(of, of->prompt - 1, logits->value + i * SMALL_VOCABULARY, CLOSE);
        kv_pages_keep(pages, of->sequence, rows[first + i].ids, rows[first + i].count);
      }
      tape_clear(run.tape);
    }
    kv_pages_free(pages);
    kv_cache_release(&cache);
    small_close(&run);
    model_free(model);
  }
}

/* ---- other numbers: the same kernels give a row the same result whatever rows are beside it, but those of one row alone */

static void with_weights_of(LowbitKind kind, bool bf16, double close) {
  for (int model_kind = MODEL_GPT2; model_kind <= MODEL_LLAMA; model_kind++) {
    Model *model = small_decoder((ModelKind)model_kind, false);
    LowbitWeights *lowbit = NULL;
    if (kind != LOWBIT_NONE) assert_int_equal(lowbit_weights_make(model, kind, &lowbit), STATUS_OK);
    assert_int_equal(model_pack_weights(model, bf16), STATUS_OK);
    compare(model, NULL, NARROW_NONE, close, bf16);
    model_free(model);
    lowbit_weights_free(lowbit);
  }
}

/* A rounding to 8 bits, of activations, may go the other way: 1/254 of a row's largest. */
static void weights_of_fewer_bits(void **state) {
  (void)state;
  with_weights_of(LOWBIT_INT8, false, 0.05);
  with_weights_of(LOWBIT_Q4_0, false, 0.05);
  with_weights_of(LOWBIT_NONE, true, 0.1);
}

/* ---- a trained model: its known story, told by three sequences at once, one of which checks drafts that look back into it */

enum { LOOK_BACK = 3 };

static int32_t likeliest(const real *logits, int64_t count) {
  int32_t best = 0;
  for (int32_t i = 1; i < count; i++)
    if (logits[i] > logits[best]) best = i;
  return best;
}

/* What followed the last token where it stood before; else itself. */
static int64_t look_back(const int32_t *ids, int64_t count, int32_t drafts[LOOK_BACK]) {
  for (int64_t i = count - 2; i >= 0; i--)
    if (ids[i] == ids[count - 1]) {
      const int64_t found = count - 1 - i < LOOK_BACK ? count - 1 - i : LOOK_BACK;
      memcpy(drafts, ids + i + 1, (size_t)found * sizeof *drafts);
      return found;
    }
  return 0;
}

static void a_known_story(void **state) {
  (void)state;
  static const char directory[] = "tests/golden/stories260K";
  int32_t expected[SMALL_STORY], told[TEXTS][SMALL_STORY] = {{1}, {1}, {1}}, ids[TEXTS][1 + LOOK_BACK];
  int64_t count[TEXTS] = {1, 1, 1}, steps[TEXTS] = {0};
  int number[TEXTS];
  ModelConfig config;
  Model *model;
  CheckpointMapping *mapping;
  KvPages *pages;
  SmallRun run;
  small_story_ids(expected);
  assert_int_equal(config_load(&config, directory), STATUS_OK);
  assert_int_equal(model_new(&model, &config), STATUS_OK);
  assert_int_equal(checkpoint_map_params(model, directory, &mapping), STATUS_OK);
  const int64_t width = config.kv_heads * (config.width / config.heads);
  const KvPagesSetup setup = {.cache = {.blocks = config.blocks, .width = width, .max = SMALL_STORY + LOOK_BACK},
                              .page = 16,
                              .heads = config.kv_heads,
                              .bytes = (int64_t)64 << 20,
                              .sequences = TEXTS};
  assert_int_equal(kv_pages_new(&pages, &setup), STATUS_OK);
  small_open(&run);
  for (int t = 0; t < TEXTS; t++) {
    int64_t shared;
    assert_int_equal(kv_pages_join(pages, told[t], 1, &(KvSpans){.count = 0}, SMALL_STORY + LOOK_BACK, &number[t], &shared), STATUS_OK);
  }
  while (count[0] < SMALL_STORY || count[1] < SMALL_STORY || count[2] < SMALL_STORY) {
    DecodeRows rows[TEXTS];
    int of[TEXTS], n = 0;
    for (int t = 0; t < TEXTS; t++) {
      if (count[t] >= SMALL_STORY || (t == 2 && count[0] < 40)) continue; /* the third joins later */
      ids[t][0] = told[t][count[t] - 1];
      const int64_t drafts = t == 1 ? look_back(told[t], count[t], ids[t] + 1) : 0;
      rows[n] = (DecodeRows){number[t], ids[t], 1 + drafts, 1 + drafts};
      of[n++] = t;
      steps[t]++;
    }
    const Tensor *logits = decode_batch(model, run.tape, pages, rows, n);
    if (!logits) fail_msg("%s", status_message());
    const real *row = logits->value;
    for (int i = 0; i < n; row += rows[i++].count * config.vocabulary) {
      const int t = of[i];
      int64_t kept = 0;
      do {
        const int32_t next = likeliest(row + kept * config.vocabulary, config.vocabulary);
        assert_int_equal(next, expected[count[t]]);
        told[t][count[t]++] = next;
        kept++;
      } while (kept < rows[i].count && ids[t][kept] == told[t][count[t] - 1] && count[t] < SMALL_STORY);
      kv_pages_keep(pages, number[t], ids[t], kept);
    }
    tape_clear(run.tape);
  }
  assert_true(steps[1] < steps[0]); /* drafts were accepted */
  kv_pages_free(pages);
  small_close(&run);
  model_free(model);
  checkpoint_unmap(mapping);
  config_release(&config);
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  Model *model = small_decoder(MODEL_GPT2, false);
  SmallRun run;
  KvCache cache;
  int number;
  int64_t shared;
  const int32_t ids[4] = {1, 2, SMALL_VOCABULARY, 3};
  small_open(&run);
  open_cache(&cache, model_config(model), NULL, TOKENS);
  KvPages *pages = open_pages(&cache, model_config(model));
  assert_int_equal(kv_pages_join(pages, ids, 2, &(KvSpans){.count = 0}, 3, &number, &shared), STATUS_OK);
  const DecodeRows faults[] = {{number, ids, 4, 1}, {number, ids + 2, 1, 1}, {number, ids, 1, 2}, {number, ids, 0, 0}};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    assert_null(decode_batch(model, run.tape, pages, &faults[i], 1));
    assert_int_equal(tape_status(run.tape), STATUS_BAD_VALUE);
    tape_clear(run.tape);
  }
  assert_non_null(decode_batch(model, run.tape, pages, &(DecodeRows){number, ids, 2, 0}, 1)); /* rows after the norm */
  kv_pages_free(pages);
  kv_cache_release(&cache);
  small_close(&run);
  model_free(model);
}

/* Joining, steps with drafts, leaving: the second time all memory is there. */
static void later_steps_allocate_nothing(void **state) {
  (void)state;
  allocations_need_count();
  Model *model = small_decoder(MODEL_LLAMA, false);
  SmallRun run;
  KvCache cache;
  int32_t ids[TOKENS];
  long before = 0;
  small_ids(ids, TOKENS);
  small_open(&run);
  open_cache(&cache, model_config(model), NULL, TOKENS);
  KvPages *pages = open_pages(&cache, model_config(model));
  for (int turn = 0; turn < 3; turn++) {
    int number[TEXTS];
    int64_t shared;
    if (turn == 1) before = allocations_so_far();
    for (int t = 0; t < TEXTS; t++) {
      ids[0] = turn * TEXTS + t; /* nothing is shared */
      assert_int_equal(kv_pages_join(pages, ids, 5, &(KvSpans){.count = 0}, TOKENS, &number[t], &shared), STATUS_OK);
      assert_int_equal(shared, 0);
      assert_non_null(decode_batch(model, run.tape, pages, &(DecodeRows){number[t], ids, 5, 1}, 1));
      kv_pages_keep(pages, number[t], ids, 5);
      tape_clear(run.tape);
    }
    for (int step = 0; step < 4; step++) {
      DecodeRows rows[TEXTS];
      for (int t = 0; t < TEXTS; t++) rows[t] = (DecodeRows){number[t], ids + 5 + 3 * step, 3, 3};
      assert_non_null(decode_batch(model, run.tape, pages, rows, TEXTS));
      for (int t = 0; t < TEXTS; t++) kv_pages_keep(pages, number[t], ids + 5 + 3 * step, 3);
      tape_clear(run.tape);
    }
    for (int t = 0; t < TEXTS; t++) kv_pages_leave(pages, number[t]);
  }
  assert_int_equal(allocations_so_far() - before, 0);
  kv_pages_free(pages);
  kv_cache_release(&cache);
  small_close(&run);
  model_free(model);
}

typedef struct Watcher {
  Exchange exchange;
  int blocks, ends_at;
} Watcher;

static Status note_block(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  Watcher *watcher = (Watcher *)self;
  (void)tape, (void)layout, (void)part;
  assert_int_equal(block, watcher->blocks++);
  assert_true(h[0] != NULL && h[1] == NULL);
  return block == watcher->ends_at ? status_set(STATUS_INTERRUPTED, "enough") : STATUS_OK;
}

/* The rest of a prompt takes long: whoever watches is told of each block, and can end it. */
static void each_block_is_told(void **state) {
  (void)state;
  static const int32_t ids[] = {1, 2, 3, 4, 5, 6};
  SmallRun run;
  KvCache cache;
  int64_t shared;
  Model *model = small_decoder(MODEL_GPT2, false);
  Watcher watcher = {.exchange = {.begin = note_block}};
  const int blocks = (int)model_config(model)->blocks;
  DecodeRows rows = {.ids = ids, .count = 6, .logits = 1};
  small_open(&run);
  open_cache_of(&cache, NARROW_NONE, model_config(model), NULL, TOKENS);
  KvPages *pages = open_pages(&cache, model_config(model));
  assert_int_equal(kv_pages_join(pages, ids, 6, &(KvSpans){.count = 0}, TOKENS, &rows.sequence, &shared), STATUS_OK);
  model_watch(model, &watcher.exchange);
  for (int ends = 1; ends >= 0; ends--) {
    watcher.blocks = 0;
    watcher.ends_at = ends ? blocks - 1 : -1;
    const Tensor *logits = decode_batch(model, run.tape, pages, &rows, 1);
    assert_true((logits == NULL) == ends);
    assert_int_equal(tape_status(run.tape), ends ? STATUS_INTERRUPTED : STATUS_OK);
    assert_int_equal(watcher.blocks, blocks);
    tape_clear(run.tape);
  }
  kv_pages_free(pages);
  kv_cache_release(&cache);
  small_close(&run);
  model_free(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(as_one_by_one),
                                     cmocka_unit_test(each_block_is_told),
                                     cmocka_unit_test(prompts_in_steps),
                                     cmocka_unit_test(weights_of_fewer_bits),
                                     cmocka_unit_test(a_known_story),
                                     cmocka_unit_test(what_does_not_fit_is_refused),
                                     cmocka_unit_test(later_steps_allocate_nothing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
