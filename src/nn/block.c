/* The transformer block: see block.h. */
#include "nn/block.h"
#include "autograd/ops/decode_attention.h"
#include "autograd/ops/ops.h"
#include "autograd/param.h"
#include "autograd/tape_segment.h"
#include "base/rng.h"
#include "nn/block_internal.h"
#include "nn/config.h"
#include "nn/exchange.h"
#include "nn/kv_cache.h"
#include "nn/positions.h"
#include <stdio.h>

/* ---- Steps ---- */

Tensor *block_steps_param(const BlockContext *context, int index) { return index < 0 ? NULL : &context->params->list[index].tensor; }

/* ---- linear maps */

/* base + scale B A x; no base: 0. */
static Tensor *adapter(const BlockContext *context, Tape *tape, Tensor *x, const Projection *projection, Tensor *base) {
  Tensor *inner = op_linear(tape, x, block_steps_param(context, projection->lora_a), NULL, ACTIVATION_NONE, NULL);
  Tensor *outer = op_linear(tape, inner, block_steps_param(context, projection->lora_b), NULL, ACTIVATION_NONE, NULL);
  return base ? op_add_scaled(tape, base, outer, context->adapter_scale) : op_scale(tape, outer, context->adapter_scale);
}

static Tensor *block_steps_project(const BlockContext *context, Tape *tape, Tensor *x, const Projection *projection, Activation activation,
                                   Tensor *residual) {
  Tensor *weight = block_steps_param(context, projection->weight), *bias = block_steps_param(context, projection->bias);
  if (projection->lora_a < 0) return op_linear_part(tape, x, weight, bias, &projection->part, activation, residual);
  residual = adapter(context, tape, x, projection, residual);
  if (residual == NULL) return NULL;
  return op_activate(tape, op_linear_part(tape, x, weight, bias, &projection->part, ACTIVATION_NONE, residual), activation);
}

Tensor *block_steps_map(const BlockContext *context, Tape *tape, Tensor *x, const Projection *projection) {
  return block_steps_project(context, tape, x, projection, ACTIVATION_NONE, NULL);
}

BlockKeys block_steps_keys(const BlockContext *context, const BlockParams *block, Tape *tape, Tensor *x) {
  Tensor *k = block_steps_map(context, tape, x, &block->key);
  return (BlockKeys){k, block_steps_map(context, tape, x, &block->value)};
}

Tensor *block_steps_rotate(const BlockContext *context, Tape *tape, Tensor *x, int64_t heads, const int32_t *positions) {
  const RopeTable *table = context->rope;
  if (table == NULL || x == NULL) return x;
  return op_rope(tape, x, &(Rope){table->cosine, table->sine, table->count, (int)heads}, positions);
}

/* ---- the rows that are wanted */

void block_steps_wanted(const TokenLayout *layout, ModelRows rows, BlockWanted *wanted) {
  *wanted = (BlockWanted){.token = layout->row_token, .count = layout->rows};
  if (rows == MODEL_ROWS_CLASS) *wanted = (BlockWanted){layout->class_row, layout->class_of_span, NULL, layout->class_rows, false, 0};
  if (rows == MODEL_ROWS_LAST)
    *wanted = (BlockWanted){layout->last_row, layout->last_of_span, layout->last_token, layout->last_rows, false, 0};
}

Tensor *block_steps_wanted_of(const BlockWanted *wanted, Tape *tape, Tensor *x) {
  if (wanted->row == NULL) return x;
  return wanted->count > 0 ? op_gather_rows(tape, x, wanted->row, wanted->count) : NULL;
}

/* ---- values that are not finite */

Tensor *block_steps_checked(const BlockContext *context, Tape *tape, int index, Tensor *x) {
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

/* ---- the other devices' tokens */

bool block_steps_went_well(Tape *tape, Status status) {
  if (status != STATUS_OK) tape_fail(tape, status, "%s", status_message());
  return status == STATUS_OK;
}

const uint8_t *block_steps_lost_of_either(Tape *tape, const uint8_t *a, const uint8_t *b, int64_t count) {
  if (a == NULL || b == NULL) return a == NULL ? b : a;
  uint8_t *either = tape_alloc(tape, (size_t)count);
  for (int64_t i = 0; either != NULL && i < count; i++) either[i] = a[i] | b[i];
  return either;
}

bool block_steps_shares_keys(const BlockContext *context) {
  bool whole = context->exchange != NULL && context->exchange->whole_rows;
  return (whole ? config_whole_sites(context->config) : config_sites(context->config)) == BLOCK_SITES;
}

bool block_steps_alone(const BlockContext *context) { return context->layout->devices == 1 && context->layout->self >= 0; }

/* ---- attention and what follows */

Tensor *block_steps_attend(const BlockContext *context, Tape *tape, Tensor *q, BlockKeys own, BlockKeys remote, const uint8_t *lost,
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

bool block_steps_keep(const BlockContext *context, Tape *tape, int index, BlockKeys own, const uint8_t *lost) {
  if (context->cache == NULL || tape_planning(tape)) return true;
  if (own.k == NULL || own.v == NULL) return false;
  if (context->layout->remote > 0 && context->exchange != NULL && context->exchange->whole_rows)
    return tape_fail(tape, STATUS_UNSUPPORTED, "rows of other devices in full have no place in the cache that decoding needs") == STATUS_OK;
  if (own.k->shape[0] != 1) return tape_fail(tape, STATUS_BAD_VALUE, "a cache holds one sequence, not a batch") == STATUS_OK;
  const Tensor *k = op_widen(tape, own.k), *v = op_widen(tape, own.v);
  if (k == NULL || v == NULL) return false;
  return block_steps_went_well(tape, kv_cache_store(context->cache, index, own.k->shape[1], k->value, v->value, lost));
}

static LinearMap map_of(const BlockContext *context, const Projection *projection) {
  return (LinearMap){block_steps_param(context, projection->weight), block_steps_param(context, projection->bias), &projection->part};
}

static Tensor *mlp(const BlockContext *context, const BlockParams *block, Tape *tape, Tensor *h, Tensor *residual) {
  Tensor *hidden;
  if (block->gate.weight < 0 && block->up.lora_a < 0 && block->down.lora_a < 0) {
    const LinearMap up = map_of(context, &block->up), down = map_of(context, &block->down);
    return op_mlp(tape, h, &up, context->config->activation, &down, residual);
  }
  if (block->gate.weight >= 0)
    hidden = op_swiglu(tape, block_steps_map(context, tape, h, &block->gate), block_steps_map(context, tape, h, &block->up));
  else
    hidden = block_steps_project(context, tape, h, &block->up, context->config->activation, NULL);
  return hidden == NULL ? NULL : block_steps_project(context, tape, hidden, &block->down, ACTIVATION_NONE, residual);
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

Tensor *block_steps_tail(const BlockContext *context, const BlockParams *block, int index, Tape *tape, Tensor *mixed, Tensor *residual) {
  if (mixed == NULL) return NULL;
  Tensor *x = block_steps_project(context, tape, mixed, &block->output, ACTIVATION_NONE, residual);
  x = drop_branch(context, index, 0, tape, residual, x);
  if (x == NULL) return NULL;
  Tensor *y = mlp(context, block, tape, block_norm(context, tape, x, block->norm2_weight, block->norm2_bias), x);
  return drop_branch(context, index, 1, tape, x, y);
}

/* ---- Attention over a cache ---- */

/* Attention of one token over a cache. */
/* What the attention of one token sees of a cache. */

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

/* For block.c: attention of q [1, 1, D] over what context->cache holds, the row just stored included. Adapters of the key and value
 * projections must have been folded in where there are remote tokens. */
static Tensor *decode_attend(const BlockContext *context, const BlockParams *block, int index, Tape *tape, Tensor *q) {
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

/* ---- The block ---- */

Tensor *block_norm(const BlockContext *context, Tape *tape, Tensor *x, int weight, int bias) {
  double eps = context->config->norm_eps;
  Tensor *scale = block_steps_param(context, weight);
  if (bias < 0) return op_rms_norm(tape, x, scale, eps);
  return op_layer_norm(tape, x, scale, block_steps_param(context, bias), eps);
}

const char *block_place(const ModelConfig *config, int index, char text[BLOCK_PLACE]) {
  if (index < 0 || index >= config->blocks)
    snprintf(text, BLOCK_PLACE, "%s", index < 0 ? "the embedding" : "the head");
  else
    snprintf(text, BLOCK_PLACE, "block %d of %lld, counted from 0,", index, (long long)config->blocks);
  return text;
}

/* ---- the other devices' tokens */

static int sites(const BlockContext *context) { return block_steps_shares_keys(context) ? BLOCK_SITES : 1; }

static bool begin_sites(const BlockContext *context, Exchange *exchange, Tape *tape, int index, Tensor *const *activations) {
  for (int site = 0; exchange != NULL && site < sites(context); site++) {
    if (activations[site] == NULL) return false;
    if (!block_steps_went_well(tape, exchange->begin(exchange, tape, context->layout, index, site, activations[site]))) return false;
  }
  return true;
}

/* activations: h, or k and v before their rotation. */
static bool show_sites(const BlockContext *context, Tape *tape, int index, Tensor *const *activations) {
  if (!begin_sites(context, context->watch, tape, index, activations)) return false;
  return block_steps_alone(context) || begin_sites(context, context->exchange, tape, index, activations);
}

/* What the others hold of each site: their quantised tokens, or keys and values that are ready, and which of them were lost. */
typedef struct Remote {
  Tensor *x[BLOCK_SITES];
  BlockKeys keys;
  const uint8_t *lost;
} Remote;

static bool fetch_rows(const BlockContext *context, Tape *tape, int index, Remote *remote) {
  ExchangeRows rows = {.runs = 0};
  Status status = context->exchange->finish_rows(context->exchange, tape, context->layout, index, &rows);
  if (!block_steps_went_well(tape, status)) return false;
  remote->x[0] = rows.x;
  remote->keys = (BlockKeys){rows.k, rows.v};
  remote->lost = rows.lost;
  if (rows.x != NULL || (rows.k != NULL && rows.v != NULL)) return tape_status(tape) == STATUS_OK;
  return tape_fail(tape, STATUS_BAD_VALUE, "the exchange hands over no rows") == STATUS_OK;
}

static bool fetch_remote(const BlockContext *context, Tape *tape, int index, Remote *remote) {
  Exchange *exchange = context->exchange;
  *remote = (Remote){{NULL, NULL}, {NULL, NULL}, NULL};
  if (context->layout->remote == 0) return true;
  if (exchange == NULL) return tape_fail(tape, STATUS_BAD_VALUE, "the layout has remote tokens but there is no exchange") == STATUS_OK;
  if (exchange->finish_rows != NULL && sites(context) == 1) return fetch_rows(context, tape, index, remote);
  for (int site = 0; site < sites(context); site++) {
    const uint8_t *lost = NULL;
    Status status = exchange->finish(exchange, tape, context->layout, index, site, &remote->x[site], &lost);
    if (!block_steps_went_well(tape, status) || remote->x[site] == NULL) return false;
    int64_t masks = remote->x[site]->shape[0] * (exchange->lost_of_spans ? context->layout->spans : 1);
    remote->lost = block_steps_lost_of_either(tape, remote->lost, lost, masks * context->layout->remote);
  }
  return tape_status(tape) == STATUS_OK;
}

/* ---- attention */

static bool sees_cache(const BlockContext *context) { return context->cache != NULL && context->cache->rows > 0; }

/* h [B, S, D] is the norm's output. Site x: K^ and V^ are the block's own projections of X^; the exchange runs while the local q, k and v
 * are computed. Site kv: K^ and V^ are what is exchanged; q alone is computed meanwhile. Where no row is wanted (`any` false) the codes are
 * exchanged all the same, since the others wait for them. Rotary positions come after quantisation, so that one codeword serves them all.
 */
static Tensor *attention(const BlockContext *context, const BlockParams *block, int index, Tape *tape, Tensor *h, const BlockWanted *wanted,
                         bool any) {
  bool kv = block_steps_shares_keys(context);
  BlockKeys own = {NULL, NULL}, remote;
  Remote fetched;
  Tensor *q = NULL;
  if (kv) own = block_steps_keys(context, block, tape, h);
  if (!show_sites(context, tape, index, kv ? (Tensor *[]){own.k, own.v} : (Tensor *[]){h, NULL})) return NULL;
  if (any) q = block_steps_map(context, tape, block_steps_wanted_of(wanted, tape, h), &block->query);
  if (any && !kv) own = block_steps_keys(context, block, tape, h);
  if (!fetch_remote(context, tape, index, &fetched) || !any) return NULL;
  remote = fetched.keys;
  if (fetched.x[0] != NULL) remote = kv ? (BlockKeys){fetched.x[0], fetched.x[1]} : block_steps_keys(context, block, tape, fetched.x[0]);
  const ModelConfig *config = context->config;
  q = block_steps_rotate(context, tape, q, config->heads, wanted->token);
  own.k = block_steps_rotate(context, tape, own.k, config->kv_heads, context->layout->row_token);
  remote.k = block_steps_rotate(context, tape, remote.k, config->kv_heads, context->layout->remote_token);
  if (!block_steps_keep(context, tape, index, own, fetched.lost)) return NULL;
  if (sees_cache(context)) return decode_attend(context, block, index, tape, q);
  return block_steps_attend(context, tape, q, own, remote, fetched.lost, wanted);
}

static Tensor *forward(const BlockContext *context, const BlockParams *block, int index, ModelRows rows, Tape *tape, Tensor *x) {
  BlockWanted wanted;
  block_steps_wanted(context->layout, rows, &wanted);
  Tensor *h = block_norm(context, tape, x, block->norm1_weight, block->norm1_bias);
  if (h == NULL) return NULL;
  Tensor *residual = block_steps_wanted_of(&wanted, tape, x);
  return block_steps_tail(context, block, index, tape, attention(context, block, index, tape, h, &wanted, residual != NULL), residual);
}

/* Between the residual stream that comes in and the one that goes out activations are narrow, where the tape uses bf16. */
Tensor *block_forward(const BlockContext *context, const BlockParams *block, int index, ModelRows rows, Tape *tape, Tensor *x) {
  const bool before = tape_narrow(tape, true);
  Tensor *y = forward(context, block, index, rows, tape, x);
  tape_narrow(tape, before);
  return y;
}

/* ---- The block as a segment of the tape ---- */

/* Inside src/nn only: a block as a segment of the tape, so that its values need not be kept (autograd/tape_segment.h). */
/* A segment's inputs and outputs are the rows and what the exchange carries from block to block. */

typedef struct BlockRun {
  BlockContext context;
  const BlockParams *block;
  int index;
  ModelRows rows;
} BlockRun;

static Tensor **carried_by(const BlockContext *context) { return context->exchange ? context->exchange->carried : NULL; }

/* What is carried is exchanged for the segment's own while it runs. */
static void run(Tape *tape, void *data, Tensor *const *input, Tensor **output) {
  BlockRun *job = data;
  Tensor **carried = carried_by(&job->context), *before = carried ? *carried : NULL;
  if (carried) *carried = input[1];
  output[0] = block_forward(&job->context, job->block, job->index, job->rows, tape, input[0]);
  if (!carried) return;
  output[1] = *carried;
  *carried = before;
}

Tensor *recompute_block(const BlockContext *context, const BlockParams *block, int index, ModelRows rows, Tape *tape, Tensor *x) {
  BlockRun *job = tape_alloc(tape, sizeof *job);
  Tensor **carried = carried_by(context), *output[TAPE_SEGMENT_ENDS];
  if (job == NULL) return NULL;
  *job = (BlockRun){*context, block, index, rows};
  tape_segment(tape, &(TapeSegment){.run = run, .context = job, .input = {x, carried ? *carried : NULL}}, output);
  if (carried) *carried = output[1];
  return output[0];
}
