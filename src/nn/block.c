/* What a block is put together from: linear maps, attention, MLP. In which order, and with whom, is pipeline.c's. */
#include "nn/block.h"
#include "autograd/ops/decode_attention.h"
#include "autograd/ops/ops.h"
#include "autograd/param.h"
#include "base/rng.h"
#include "nn/block_internal.h"
#include "nn/config.h"
#include "nn/exchange.h"
#include "nn/kv_cache.h"
#include <stdio.h>

Tensor *block_param(const BlockContext *context, int index) { return index < 0 ? NULL : &context->params->list[index].tensor; }

/* ---- linear maps */

/* base + scale B A x; no base: 0. */
static Tensor *adapter(const BlockContext *context, Tape *tape, Tensor *x, const Projection *projection, Tensor *base) {
  Tensor *inner = op_linear(tape, x, block_param(context, projection->lora_a), NULL, ACTIVATION_NONE, NULL);
  Tensor *outer = op_linear(tape, inner, block_param(context, projection->lora_b), NULL, ACTIVATION_NONE, NULL);
  return base ? op_add_scaled(tape, base, outer, context->adapter_scale) : op_scale(tape, outer, context->adapter_scale);
}

static Tensor *block_project(const BlockContext *context, Tape *tape, Tensor *x, const Projection *projection, Activation activation,
                             Tensor *residual) {
  Tensor *weight = block_param(context, projection->weight), *bias = block_param(context, projection->bias);
  if (projection->lora_a < 0) return op_linear_part(tape, x, weight, bias, &projection->part, activation, residual);
  residual = adapter(context, tape, x, projection, residual);
  if (residual == NULL) return NULL;
  return op_activate(tape, op_linear_part(tape, x, weight, bias, &projection->part, ACTIVATION_NONE, residual), activation);
}

Tensor *block_map(const BlockContext *context, Tape *tape, Tensor *x, const Projection *projection) {
  return block_project(context, tape, x, projection, ACTIVATION_NONE, NULL);
}

BlockKeys block_keys(const BlockContext *context, const BlockParams *block, Tape *tape, Tensor *x) {
  Tensor *k = block_map(context, tape, x, &block->key);
  return (BlockKeys){k, block_map(context, tape, x, &block->value)};
}

Tensor *block_rotate(const BlockContext *context, Tape *tape, Tensor *x, int64_t heads, const int32_t *positions) {
  const RopeTable *table = context->rope;
  if (table == NULL || x == NULL) return x;
  return op_rope(tape, x, &(Rope){table->cosine, table->sine, table->count, (int)heads}, positions);
}

/* ---- the rows that are wanted */

void block_wanted(const TokenLayout *layout, ModelRows rows, BlockWanted *wanted) {
  *wanted = (BlockWanted){.token = layout->row_token, .count = layout->rows};
  if (rows == MODEL_ROWS_CLASS) *wanted = (BlockWanted){layout->class_row, layout->class_of_span, NULL, layout->class_rows, false, 0};
  if (rows == MODEL_ROWS_LAST)
    *wanted = (BlockWanted){layout->last_row, layout->last_of_span, layout->last_token, layout->last_rows, false, 0};
}

Tensor *block_wanted_of(const BlockWanted *wanted, Tape *tape, Tensor *x) {
  if (wanted->row == NULL) return x;
  return wanted->count > 0 ? op_gather_rows(tape, x, wanted->row, wanted->count) : NULL;
}

/* ---- values that are not finite */

Tensor *block_checked(const BlockContext *context, Tape *tape, int index, Tensor *x) {
  char place[BLOCK_PLACE];
  if (x == NULL || (x->value == NULL && x->narrow == NULL) || tape_planning(tape) || tensor_is_finite(x)) return x;
  if (context->not_finite != NULL && *context->not_finite == BLOCK_NONE) *context->not_finite = index;
  if (tape_recording(tape)) return x;
  tape_fail(tape, STATUS_NUMERIC,
            "%s gives numbers that are not finite: the checkpoint's weights are damaged or too large; get it again, or train it again "
            "with a lower --learning-rate",
            block_place(context->config, index, place));
  return NULL;
}

bool block_status(Tape *tape, Status status) {
  if (status != STATUS_OK) tape_fail(tape, status, "%s", status_message());
  return status == STATUS_OK;
}

/* ---- attention and what follows */

Tensor *block_attend(const BlockContext *context, Tape *tape, Tensor *q, BlockKeys own, BlockKeys remote, const uint8_t *lost,
                     const BlockWanted *wanted) {
  const ModelConfig *config = context->config;
  const TokenLayout *layout = context->layout;
  if (q == NULL) return NULL;
  bool each = lost != NULL && context->exchange != NULL && context->exchange->lost_of_spans;
  bool looks_ahead = wanted->of_span != NULL && !wanted->part; /* nothing comes after the last token */
  AttentionOptions options = {.heads = (int)config->heads,
                              .kv_heads = (int)config->kv_heads,
                              .causal = context->causal && !looks_ahead,
                              .spans = layout->spans,
                              .span = layout->span,
                              .lost = lost,
                              .lost_stride = each ? q->shape[0] * layout->remote : 0,
                              .queries = wanted->of_span,
                              .first_query = wanted->first};
  return op_attention(tape, q, own.k, own.v, remote.k, remote.v, &options);
}

static LinearMap map_of(const BlockContext *context, const Projection *projection) {
  return (LinearMap){block_param(context, projection->weight), block_param(context, projection->bias), &projection->part};
}

static Tensor *mlp(const BlockContext *context, const BlockParams *block, Tape *tape, Tensor *h, Tensor *residual) {
  Tensor *hidden;
  if (block->gate.weight < 0 && block->up.lora_a < 0 && block->down.lora_a < 0) {
    const LinearMap up = map_of(context, &block->up), down = map_of(context, &block->down);
    return op_mlp(tape, h, &up, context->config->activation, &down, residual);
  }
  if (block->gate.weight >= 0)
    hidden = op_swiglu(tape, block_map(context, tape, h, &block->gate), block_map(context, tape, h, &block->up));
  else
    hidden = block_project(context, tape, h, &block->up, context->config->activation, NULL);
  return hidden == NULL ? NULL : block_project(context, tape, hidden, &block->down, ACTIVATION_NONE, residual);
}

/* residual + branch as `sum` has it, or stochastic depth: the branch is left out of a sample with a probability that rises linearly from 0
 * in the first block to context->drop_path in the last, and else counts 1 / (1 - probability) times. The draws are a function of the seed,
 * the block, the branch (0: attention, 1: MLP) and the sample alone: recomputed blocks draw the same again. */
static Tensor *drop_branch(const BlockContext *context, int index, int branch, Tape *tape, Tensor *residual, Tensor *sum) {
  int64_t blocks = context->config->blocks;
  double probability = blocks > 1 ? context->drop_path * index / (double)(blocks - 1) : context->drop_path;
  if (probability == 0 || sum == NULL) return sum;
  int64_t samples = sum->shape[0];
  real *scale = tape_alloc(tape, (size_t)samples * sizeof *scale);
  if (scale == NULL) return NULL;
  Rng rng;
  rng_init(&rng, context->drop_seed, 2 * (uint64_t)index + (uint64_t)branch);
  for (int64_t b = 0; b < context->drop_first; b++) (void)rng_uniform(&rng); /* of samples that another process has */
  for (int64_t b = 0; b < samples; b++) scale[b] = rng_uniform(&rng) < probability ? 0 : (real)(1 / (1 - probability));
  return op_drop_path(tape, residual, sum, scale);
}

Tensor *block_tail(const BlockContext *context, const BlockParams *block, int index, Tape *tape, Tensor *mixed, Tensor *residual) {
  if (mixed == NULL) return NULL;
  Tensor *x = block_project(context, tape, mixed, &block->output, ACTIVATION_NONE, residual);
  x = drop_branch(context, index, 0, tape, residual, x);
  if (x == NULL) return NULL;
  Tensor *y = mlp(context, block, tape, block_norm(context, tape, x, block->norm2_weight, block->norm2_bias), x);
  return drop_branch(context, index, 1, tape, x, y);
}

/* ---- attention over a cache */

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
  options->positions = context->cache->positions;
  if (context->config->astra.site == SITE_KV)
    return read_codes(context, index, 0, tape, &options->k) && read_codes(context, index, 1, tape, &options->v);
  if (block->key.lora_a >= 0 || block->value.lora_a >= 0)
    return tape_fail(tape, STATUS_UNSUPPORTED, "decoding with adapters: fold them into the weights first") == STATUS_OK;
  options->key = projection(context, &block->key);
  options->value = projection(context, &block->value);
  return read_codes(context, index, 0, tape, &options->x);
}

Tensor *block_decode(const BlockContext *context, const BlockParams *block, int index, Tape *tape, Tensor *q) {
  const ModelConfig *config = context->config;
  const RopeTable *table = context->rope;
  const KvCache *cache = context->cache;
  Rope rope = table ? (Rope){table->cosine, table->sine, table->count, (int)config->heads} : (Rope){.count = 0};
  const KvCacheBlock held = kv_cache_block(cache, index);
  DecodeAttention options = {.heads = (int)config->heads,
                             .kv_heads = (int)config->kv_heads,
                             .keys = held.keys,
                             .values = held.values,
                             .kind = cache->setup.kind,
                             .rows = cache->rows + 1,
                             .remote = cache->remote,
                             .lost = held.lost,
                             .rope = table ? &rope : NULL};
  if (cache->remote > 0 && !see_remote(context, block, index, tape, &options)) return NULL;
  return op_decode_attention(tape, q, &options);
}

/* ---- norms and names */

Tensor *block_norm(const BlockContext *context, Tape *tape, Tensor *x, int weight, int bias) {
  double eps = context->config->norm_eps;
  Tensor *scale = block_param(context, weight);
  if (bias < 0) return op_rms_norm(tape, x, scale, eps);
  return op_layer_norm(tape, x, scale, block_param(context, bias), eps);
}

const char *block_place(const ModelConfig *config, int index, char text[BLOCK_PLACE]) {
  if (index < 0 || index >= config->blocks)
    snprintf(text, BLOCK_PLACE, "%s", index < 0 ? "the embedding" : "the head");
  else
    snprintf(text, BLOCK_PLACE, "block %d of %lld, counted from 0,", index, (long long)config->blocks);
  return text;
}
