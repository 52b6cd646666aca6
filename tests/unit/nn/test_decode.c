/* The cache and one-token steps: a prompt and steps behind it equal one pass over all of it, on one device and on the last of three, at
 * both sites; what a cache takes equals the paper's figures; what does not fit is refused. */
#include "unit/nn/sent_codes.h"
#include <math.h>
#include <stdlib.h>

static const double CLOSE = REAL_IS_DOUBLE ? 1e-11 : 1e-5;

/* What 16 bits may change: a key, a value or a codeword by half a unit in its last place, u of itself; a score of |q||k| of about 2 in two
 * blocks by 4 u of itself, a logit with all of them by 16 u. */
static double close_of(NarrowKind kind, const Tensor *logits) {
  double u = kind == NARROW_F16 ? 0x1p-11 : 0x1p-8, largest = 1;
  for (int i = 0; i < SMALL_VOCABULARY; i++) largest = fmax(largest, fabs((double)logits->value[i]));
  return kind == NARROW_NONE ? CLOSE : 16 * u * largest;
}

static void assert_steps_equal_passes_of(NarrowKind kind, Model *model, const ModelConfig *config, Sent *sent) {
  SmallRun run;
  KvCache cache;
  int32_t ids[TOKENS];
  small_ids(ids, TOKENS);
  small_open(&run);
  open_cache_of(&cache, kind, config, sent, TOKENS);
  double differ = 0;
  for (int64_t prompt = 8; prompt <= 10; prompt += 2) { /* the cache serves one sequence after another */
    assert_int_equal(kv_cache_start(&cache, sent ? REMOTE : 0), STATUS_OK);
    if (sent) hand_over_codes(&cache, sent);
    Tensor *logits = pass(model, &run, ids, prompt, sent, &cache);
    for (int64_t count = prompt;; count++) {
      Tensor *expected = pass(model, &run, ids, count, sent, NULL);
      assert_non_null(logits);
      small_assert_close(logits->value, expected->value, SMALL_VOCABULARY, close_of(kind, expected));
      for (int i = 0; i < SMALL_VOCABULARY; i++) differ = fmax(differ, fabs((double)(logits->value[i] - expected->value[i])));
      assert_int_equal(cache.remote + cache.rows, count);
      if (count == TOKENS) break;
      logits = model_decode_step(model, run.tape, &cache, &ids[count]);
    }
    assert_int_equal(kv_cache_room(&cache), 0);
    assert_null(model_decode_step(model, run.tape, &cache, ids));
    assert_int_equal(tape_status(run.tape), STATUS_BAD_VALUE);
    tape_clear(run.tape);
  }
  assert_true(kind == NARROW_NONE || differ > CLOSE); /* 16 bits were kept indeed */
  kv_cache_release(&cache);
  small_close(&run);
}

static void assert_steps_equal_passes(Model *model, const ModelConfig *config, Sent *sent) {
  for (NarrowKind kind = NARROW_NONE; kind <= NARROW_BF16; kind++) assert_steps_equal_passes_of(kind, model, config, sent);
}

static void steps_equal_passes(void **state) {
  (void)state;
  for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    Model *model = small_decoder((ModelKind)kind, false);
    assert_steps_equal_passes(model, model_config(model), NULL);
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
      assert_steps_equal_passes(model, &config, &sent);
      sent.loses = true;
      assert_steps_equal_passes(model, &config, &sent);
      model_free(model);
      config_release(&config);
    }
  }
}

/* The paper's example: Llama-3-8B, 1,024 tokens, 4 devices, 32 groups of 1,024 codewords, float16. */
static void the_papers_figures(void **state) {
  (void)state;
  const KvShape full = {1024, 1024, 32, 1024, 2, 2, 40}, astra = {1024, 256, 32, 1024, 2, 2, 40};
  assert_int_equal(kv_cache_predict(&full), 134217728);
  assert_int_equal(kv_cache_predict(&astra), 35520512);
}

static void what_it_holds_is_counted(void **state) {
  (void)state;
  ModelConfig config;
  Sent sent;
  KvCache cache;
  real rows[3 * SMALL_WIDTH] = {0};
  small_config(&config, MODEL_GPT2, 0);
  sent_init(&sent, &config);
  open_cache(&cache, &config, &sent, TOKENS);
  assert_int_equal(kv_cache_start(&cache, TOKENS - 3), STATUS_OK);
  for (int block = 0; block < SMALL_BLOCKS; block++) assert_int_equal(kv_cache_store(&cache, block, 3, rows, rows, NULL, 0), STATUS_OK);
  kv_cache_advance(&cache, 3);
  int64_t codes;
  assert_int_equal(kv_cache_bytes(&cache, &codes), 2 * 3 * SMALL_BLOCKS * SMALL_WIDTH * (int64_t)sizeof(real));
  assert_int_equal(codes, (TOKENS - 3) * SMALL_BLOCKS * GROUPS);
  assert_int_equal(kv_cache_store(&cache, 0, 1, rows, rows, NULL, 0), STATUS_BAD_VALUE);
  assert_int_equal(kv_cache_start(&cache, TOKENS + 1), STATUS_BAD_VALUE);
  assert_int_equal(kv_cache_start(&cache, -1), STATUS_BAD_VALUE);
  kv_cache_release(&cache);
  open_cache(&cache, &config, NULL, TOKENS);
  assert_int_equal(kv_cache_start(&cache, 1), STATUS_BAD_VALUE);
  kv_cache_release(&cache);
  config_release(&config);
}

static void sixteen_bits_take_half(void **state) {
  (void)state;
  ModelConfig config;
  KvCache cache;
  real rows[SMALL_WIDTH] = {1, 65536};
  small_config(&config, MODEL_GPT2, 0);
  for (NarrowKind kind = NARROW_F16; kind <= NARROW_BF16; kind++) {
    open_cache_of(&cache, kind, &config, NULL, TOKENS);
    assert_int_equal(kv_cache_start(&cache, 0), STATUS_OK);
    assert_int_equal(kv_cache_store(&cache, 0, 1, rows, rows, NULL, 0), kind == NARROW_F16 ? STATUS_NUMERIC : STATUS_OK);
    if (kind == NARROW_F16) assert_non_null(strstr(status_message(), "--cache-type float32"));
    kv_cache_advance(&cache, 1);
    int64_t codes;
    assert_int_equal(kv_cache_bytes(&cache, &codes), 2 * SMALL_BLOCKS * SMALL_WIDTH * 2);
    kv_cache_release(&cache);
  }
  config_release(&config);
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    Model *model = small_decoder((ModelKind)kind, false);
    SmallRun run;
    KvCache cache;
    int32_t ids[2 * TOKENS], strange = SMALL_VOCABULARY;
    TokenLayout layout = {0};
    small_ids(ids, 2 * TOKENS);
    small_open(&run);
    open_cache(&cache, model_config(model), NULL, TOKENS);
    assert_int_equal(kv_cache_start(&cache, 0), STATUS_OK);
    assert_null(model_decode_step(model, run.tape, &cache, ids)); /* no prompt */
    tape_clear(run.tape);
    assert_non_null(pass(model, &run, ids, 3, NULL, &cache));
    assert_null(model_decode_step(model, run.tape, &cache, &strange));
    assert_int_equal(tape_status(run.tape), STATUS_BAD_VALUE);
    assert_non_null(strstr(status_message(), "37"));
    tape_clear(run.tape);
    assert_int_equal(kv_cache_start(&cache, 0), STATUS_OK);
    assert_null(pass(model, &run, ids, TOKENS + 1, NULL, &cache)); /* longer than the cache */
    tape_clear(run.tape);
    assert_int_equal(layout_build_plain(&layout, TOKENS, CLASS_NONE), STATUS_OK);
    ModelInput two = {.ids = ids, .batch = 2, .cache = &cache};
    assert_null(model_encode(model, run.tape, &two, &layout, NULL, MODEL_ROWS_LAST));
    assert_non_null(strstr(status_message(), "one sequence"));
    layout_release(&layout);
    kv_cache_release(&cache);
    small_close(&run);
    model_free(model);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(steps_equal_passes), cmocka_unit_test(the_papers_figures),
                                     cmocka_unit_test(what_it_holds_is_counted), cmocka_unit_test(sixteen_bits_take_half),
                                     cmocka_unit_test(what_does_not_fit_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
