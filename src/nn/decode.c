/* One-token steps: see decode.h. The block is block.c's; here is what its attention sees. */
#include "nn/decode.h"
#include "autograd/ops/decode_attention.h"

static bool read_codes(const BlockContext *context, int index, int site, Tape *tape, DecodeCodes *codes) {
  KvCache *cache = context->cache;
  const KvCodewords *words = &cache->codewords[index * cache->setup.sites + site];
  *codes = (DecodeCodes){.codebook = words->reals,
                         .narrow = words->narrow,
                         .kind = words->kind,
                         .groups = cache->setup.groups,
                         .entries = cache->setup.entries};
  Status status = kv_cache_unpack(cache, index, site, &codes->codes);
  if (status != STATUS_OK) tape_fail(tape, status, "%s", status_message());
  return status == STATUS_OK;
}

static DecodeProjection projection(const BlockContext *context, const Projection *from) {
  const Param *list = context->params->list;
  return (DecodeProjection){&list[from->weight].tensor, from->bias < 0 ? NULL : &list[from->bias].tensor, from->part};
}

/* Fills in what concerns the other devices' tokens. */
static bool see_remote(const BlockContext *context, const BlockParams *block, int index, Tape *tape, DecodeAttention *options) {
  options->lost = kv_cache_lost(context->cache, index);
  options->positions = context->cache->positions;
  if (context->config->astra.site == SITE_KV)
    return read_codes(context, index, 0, tape, &options->k) && read_codes(context, index, 1, tape, &options->v);
  if (block->key.lora_a >= 0 || block->value.lora_a >= 0)
    return tape_fail(tape, STATUS_UNSUPPORTED, "decoding with adapters: fold them into the weights first") == STATUS_OK;
  options->key = projection(context, &block->key);
  options->value = projection(context, &block->value);
  return read_codes(context, index, 0, tape, &options->x);
}

Tensor *decode_attend(const BlockContext *context, const BlockParams *block, int index, Tape *tape, Tensor *q) {
  const ModelConfig *config = context->config;
  const RopeTable *table = context->rope;
  const KvCache *cache = context->cache;
  Rope rope = table ? (Rope){table->cosine, table->sine, table->count, (int)config->heads} : (Rope){.count = 0};
  DecodeAttention options = {.heads = (int)config->heads,
                             .kv_heads = (int)config->kv_heads,
                             .keys = kv_cache_keys(cache, index),
                             .values = kv_cache_values(cache, index),
                             .kind = cache->setup.kind,
                             .rows = cache->rows + 1,
                             .remote = cache->remote,
                             .rope = table ? &rope : NULL};
  if (cache->remote > 0 && !see_remote(context, block, index, tape, &options)) return NULL;
  return op_decode_attention(tape, q, &options);
}

Tensor *model_decode_step(Model *model, Tape *tape, KvCache *cache, const int32_t *token) {
  int32_t position = (int32_t)(cache->remote + cache->rows), first_row = 0;
  int64_t none = 0;
  AttentionSpan span = {.begin = 0, .count = 1};
  TokenLayout layout = {.devices = 1,
                        .tokens = 1,
                        .class_token = CLASS_NONE,
                        .rows = 1,
                        .row_token = &position,
                        .spans = 1,
                        .span = &span,
                        .class_of_span = &none,
                        .shared = 1,
                        .shared_rows = 1,
                        .shared_row = &first_row};
  if (cache->rows == 0) return tape_fail(tape, STATUS_BAD_VALUE, "decoding needs a prompt before it"), NULL;
  ModelInput input = {.ids = token, .batch = 1, .cache = cache};
  return model_logits(model, tape, model_encode(model, tape, &input, &layout, NULL, MODEL_ROWS_ALL));
}
