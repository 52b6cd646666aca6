/* What other devices send to the one that decodes, for tests of decoding: any codes, the same whatever comes behind; caches that hold them;
 * and the pass of a prompt, of one device or of the last of three. */
#ifndef TESTS_NN_SENT_CODES_H
#define TESTS_NN_SENT_CODES_H
#include "nn/model.h"
#include "nn/safetensors.h"
#include "unit/nn/small_decoder.h"

enum { TOKENS = 17, GROUPS = 4, ENTRIES = 5, SITES = 2, DEVICES = 3, REMOTE = 6 };

typedef struct Sent {
  Exchange exchange; /* first */
  real codebook[SMALL_BLOCKS * SITES][ENTRIES * SMALL_WIDTH];
  uint8_t codes[SMALL_BLOCKS][SITES][REMOTE][GROUPS];
  int sites;
  int64_t width;
  uint8_t lost[REMOTE];
  bool loses;
} Sent;

static inline Status sent_begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part,
                                Tensor *const h[EXCHANGE_SITES]) {
  (void)self, (void)tape, (void)layout, (void)block, (void)part, (void)h;
  return STATUS_OK;
}

static inline Status sent_finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part,
                                 ExchangeRows rows[EXCHANGE_SITES]) {
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

static inline void sent_init(Sent *sent, const ModelConfig *config) {
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
static inline Status unpack(const uint8_t *bytes, int64_t tokens, int64_t groups, int64_t entries, int32_t *codes) {
  for (int64_t i = 0; i < tokens * groups; i++) {
    if (bytes[i] >= entries) return status_set(STATUS_BAD_VALUE, "code %d", bytes[i]);
    codes[i] = bytes[i];
  }
  return STATUS_OK;
}

/* In 16 bits `kind`, or NARROW_NONE, codewords as well. */
static inline void open_cache_of(KvCache *cache, NarrowKind kind, const ModelConfig *config, const Sent *sent, int64_t max) {
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

static inline void open_cache(KvCache *cache, const ModelConfig *config, const Sent *sent, int64_t max) {
  open_cache_of(cache, NARROW_NONE, config, sent, max);
}

static inline void hand_over_codes(KvCache *cache, const Sent *sent) {
  for (int block = 0; block < SMALL_BLOCKS; block++)
    for (int site = 0; site < sent->sites; site++) {
      memcpy(kv_cache_codes(cache, block, site, 0), sent->codes[block][site], 2 * GROUPS); /* in two parts, as two devices send them */
      memcpy(kv_cache_codes(cache, block, site, 2), sent->codes[block][site][2], (REMOTE - 2) * GROUPS);
    }
}

/* Logits of the last of `tokens` tokens: the last device has those behind REMOTE, or all where nothing is sent. */
static inline Tensor *pass(Model *model, SmallRun *run, const int32_t *ids, int64_t tokens, Sent *sent, KvCache *cache) {
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

#endif
