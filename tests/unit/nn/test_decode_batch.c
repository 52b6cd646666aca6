/* Steps of many sequences at once against steps of one (model_decode_step): several rows of each, drafts that are right and wrong,
 * sequences that share a beginning, codes of other devices at both sites, keys of 16 bits, weights of 8 and 4 bits and in bf16; and a
 * trained model's known story, told three times at once. */
#include "autograd/kernels/matmul.h"
#include "base/files.h"
#include "base/threads.h"
#include "nn/checkpoint.h"
#include "nn/decode_batch.h"
#include "nn/lowbit_weights.h"
#include "unit/nn/sent_codes.h"
#include <math.h>
#include <stdlib.h>

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
      for (int site = SITE_X; site <= SITE_KV; site++) {
        ModelConfig config;
        Sent sent;
        small_config(&config, (ModelKind)kind, 0);
        config.astra.groups = GROUPS;
        config.astra.site = (Site)site;
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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(as_one_by_one)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
