/* The cache and one-token steps: a prompt and steps behind it equal one pass over all of it, on one device and on the last of three, at
 * both sites; what a cache takes equals the paper's figures; what does not fit is refused. */
#include "nn/model.h"
#include "nn/safetensors.h"
#include "unit/nn/small_decoder.h"
#include <math.h>
#include <stdlib.h>

enum { TOKENS = 17, GROUPS = 4, ENTRIES = 5, SITES = 2, DEVICES = 3, REMOTE = 6 };
static const double CLOSE = REAL_IS_DOUBLE ? 1e-11 : 1e-5;

/* ---- codes of the tokens of devices 0 and 1: any, the same whatever comes behind */

typedef struct Sent {
  Exchange exchange; /* first */
  real codebook[SMALL_BLOCKS * SITES][ENTRIES * SMALL_WIDTH];
  uint8_t codes[SMALL_BLOCKS][SITES][REMOTE][GROUPS];
  int sites;
  int64_t width;
  uint8_t lost[REMOTE];
  bool loses;
} Sent;

static Status sent_begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  (void)self, (void)tape, (void)layout, (void)block, (void)part, (void)h;
  return STATUS_OK;
}

static Status sent_finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, ExchangeRows rows[EXCHANGE_SITES]) {
  Sent *sent = (Sent *)self;
  int64_t width = sent->width / GROUPS; /* of a group */
  (void)part;
  for (int site = 0; site < sent->sites; site++) {
    rows[site] =
        (ExchangeRows){.x = tape_tensor(tape, 3, (int64_t[]){1, layout->remote, sent->width}), .lost = sent->loses ? sent->lost : NULL};
    for (int64_t i = 0; i < layout->remote * GROUPS; i++)
      memcpy(rows[site].x->value + i * width,
             sent->codebook[block * sent->sites + site] + (i % GROUPS * ENTRIES + sent->codes[block][site][i / GROUPS][i % GROUPS]) * width,
             (size_t)width * sizeof(real));
  }
  return STATUS_OK;
}

static void sent_init(Sent *sent, const ModelConfig *config) {
  Rng rng;
  rng_init(&rng, 4, 0);
  *sent =
      (Sent){.exchange = {.begin = sent_begin, .finish = sent_finish}, .sites = config_sites(config), .width = config_site_width(config)};
  for (int set = 0; set < SMALL_BLOCKS * SITES; set++)
    for (int i = 0; i < ENTRIES * SMALL_WIDTH; i++) sent->codebook[set][i] = (real)rng_normal(&rng);
  for (int set = 0; set < SMALL_BLOCKS * SITES; set++)
    for (int i = 0; i < REMOTE * GROUPS; i++)
      sent->codes[set / SITES][set % SITES][i / GROUPS][i % GROUPS] = (uint8_t)rng_below(&rng, ENTRIES);
  sent->lost[1] = sent->lost[4] = 1;
}

/* A byte a code. */
static Status unpack(const uint8_t *bytes, int64_t tokens, int64_t groups, int64_t entries, int32_t *codes) {
  for (int64_t i = 0; i < tokens * groups; i++) {
    if (bytes[i] >= entries) return status_set(STATUS_BAD_VALUE, "code %d", bytes[i]);
    codes[i] = bytes[i];
  }
  return STATUS_OK;
}

/* In 16 bits `kind`, or NARROW_NONE, codewords as well. */
static void open_cache_of(KvCache *cache, NarrowKind kind, const ModelConfig *config, const Sent *sent, int64_t max) {
  static uint16_t narrow[SMALL_BLOCKS * SITES][ENTRIES * SMALL_WIDTH];
  KvCodewords codewords[SMALL_BLOCKS * SITES];
  for (int i = 0; sent && i < SMALL_BLOCKS * SITES; i++) {
    codewords[i] = (KvCodewords){sent->codebook[i], kind == NARROW_NONE ? NULL : narrow[i], kind};
    for (int j = 0; j < ENTRIES * SMALL_WIDTH; j++) {
      float number = (float)sent->codebook[i][j];
      narrow[i][j] = kind == NARROW_F16 ? narrow_half(number) : safetensors_float_to_bfloat(number);
    }
  }
  KvCacheSetup setup = {.blocks = SMALL_BLOCKS,
                        .width = config->kv_heads * (config->width / config->heads),
                        .max = max,
                        .kind = kind,
                        .codewords = codewords,
                        .unpack = unpack};
  if (sent) setup.sites = sent->sites, setup.groups = setup.token_bytes = GROUPS, setup.entries = ENTRIES;
  assert_int_equal(kv_cache_init(cache, &setup), STATUS_OK);
}

static void open_cache(KvCache *cache, const ModelConfig *config, const Sent *sent, int64_t max) {
  open_cache_of(cache, NARROW_NONE, config, sent, max);
}

static void hand_over_codes(KvCache *cache, const Sent *sent) {
  for (int block = 0; block < SMALL_BLOCKS; block++)
    for (int site = 0; site < sent->sites; site++) {
      memcpy(kv_cache_codes(cache, block, site, 0), sent->codes[block][site], 2 * GROUPS); /* in two parts, as two devices send them */
      memcpy(kv_cache_codes(cache, block, site, 2), sent->codes[block][site][2], (REMOTE - 2) * GROUPS);
    }
}

/* Logits of the last of `tokens` tokens: the last device has those behind REMOTE, or all where nothing is sent. */
static Tensor *pass(Model *model, SmallRun *run, const int32_t *ids, int64_t tokens, Sent *sent, KvCache *cache) {
  TokenLayout layout = {0};
  const int64_t counts[DEVICES] = {2, REMOTE - 2, tokens - REMOTE};
  ModelInput input = {.ids = ids, .batch = 1, .cache = cache};
  if (sent)
    assert_int_equal(layout_build(&layout, tokens, DEVICES, counts, NULL, CLASS_NONE, DEVICES - 1), STATUS_OK);
  else
    assert_int_equal(layout_build_plain(&layout, tokens, CLASS_NONE), STATUS_OK);
  Tensor *last = model_encode(model, run->tape, &input, &layout, sent ? &sent->exchange : NULL, MODEL_ROWS_LAST);
  layout_release(&layout);
  return model_logits(model, run->tape, last);
}

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
    for (int site = SITE_X; site <= SITE_KV; site++) {
      ModelConfig config;
      Sent sent;
      small_config(&config, (ModelKind)kind, 0);
      config.astra.groups = GROUPS;
      config.astra.site = (Site)site;
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
  for (int block = 0; block < SMALL_BLOCKS; block++) assert_int_equal(kv_cache_store(&cache, block, 3, rows, rows, NULL), STATUS_OK);
  kv_cache_advance(&cache, 3);
  assert_int_equal(kv_cache_row_bytes(&cache), 2 * 3 * SMALL_BLOCKS * SMALL_WIDTH * (int64_t)sizeof(real));
  assert_int_equal(kv_cache_code_bytes(&cache), (TOKENS - 3) * SMALL_BLOCKS * GROUPS);
  assert_int_equal(kv_cache_store(&cache, 0, 1, rows, rows, NULL), STATUS_BAD_VALUE);
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
    assert_int_equal(kv_cache_store(&cache, 0, 1, rows, rows, NULL), kind == NARROW_F16 ? STATUS_NUMERIC : STATUS_OK);
    if (kind == NARROW_F16) assert_non_null(strstr(status_message(), "--cache-type float32"));
    kv_cache_advance(&cache, 1);
    assert_int_equal(kv_cache_row_bytes(&cache), 2 * SMALL_BLOCKS * SMALL_WIDTH * 2);
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
