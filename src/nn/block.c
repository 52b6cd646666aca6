/* The transformer block: see block.h. */
#include "nn/block.h"
#include "nn/decode.h"

static Tensor *param(const BlockContext *context, int index) { return index < 0 ? NULL : &context->params->list[index].tensor; }

/* ---- linear maps */

/* base + scale B A x; no base: 0. */
static Tensor *adapter(const BlockContext *context, Tape *tape, Tensor *x, const Projection *projection, Tensor *base) {
  Tensor *inner = op_linear(tape, x, param(context, projection->lora_a), NULL, ACTIVATION_NONE, NULL);
  Tensor *outer = op_linear(tape, inner, param(context, projection->lora_b), NULL, ACTIVATION_NONE, NULL);
  return base ? op_add_scaled(tape, base, outer, context->adapter_scale) : op_scale(tape, outer, context->adapter_scale);
}

/* act(W x + b) + residual; not both an activation and a residual. */
static Tensor *project(const BlockContext *context, Tape *tape, Tensor *x, const Projection *projection, Activation activation,
                       Tensor *residual) {
  Tensor *weight = param(context, projection->weight), *bias = param(context, projection->bias);
  if (projection->lora_a < 0) return op_linear_part(tape, x, weight, bias, &projection->part, activation, residual);
  residual = adapter(context, tape, x, projection, residual);
  if (residual == NULL) return NULL;
  return op_activate(tape, op_linear_part(tape, x, weight, bias, &projection->part, ACTIVATION_NONE, residual), activation);
}

static Tensor *map(const BlockContext *context, Tape *tape, Tensor *x, const Projection *projection) {
  return project(context, tape, x, projection, ACTIVATION_NONE, NULL);
}

Tensor *block_norm(const BlockContext *context, Tape *tape, Tensor *x, int weight, int bias) {
  double eps = context->config->norm_eps;
  if (bias < 0) return op_rms_norm(tape, x, param(context, weight), eps);
  return op_layer_norm(tape, x, param(context, weight), param(context, bias), eps);
}

static Tensor *rotate(const BlockContext *context, Tape *tape, Tensor *x, int64_t heads, const int32_t *positions) {
  const RopeTable *table = context->rope;
  if (table == NULL || x == NULL) return x;
  return op_rope(tape, x, &(Rope){table->cosine, table->sine, table->count, (int)heads}, positions);
}

/* ---- the rows that are wanted */

typedef struct Wanted {
  const int32_t *row;     /* [count]; NULL: all rows */
  const int64_t *of_span; /* [spans] how many of them are in each span; NULL: all rows */
  const int32_t *token;   /* [rows or count] their positions */
  int64_t count;
} Wanted;

static void find_wanted(const TokenLayout *layout, ModelRows rows, Wanted *wanted) {
  *wanted = (Wanted){.token = layout->row_token, .count = layout->rows};
  if (rows == MODEL_ROWS_CLASS) *wanted = (Wanted){layout->class_row, layout->class_of_span, NULL, layout->class_rows};
  if (rows == MODEL_ROWS_LAST) *wanted = (Wanted){layout->last_row, layout->last_of_span, layout->last_token, layout->last_rows};
}

/* x's wanted rows; NULL, without a failure, where there are none. */
static Tensor *wanted_of(const Wanted *wanted, Tape *tape, Tensor *x) {
  if (wanted->row == NULL) return x;
  return wanted->count > 0 ? op_gather_rows(tape, x, wanted->row, wanted->count) : NULL;
}

/* ---- the other devices' tokens */

enum { SITES = 2 };

/* An exchange's failure becomes the tape's. */
static bool went_well(Tape *tape, Status status) {
  if (status != STATUS_OK) tape_fail(tape, status, "%s", status_message());
  return status == STATUS_OK;
}

static bool begin_sites(const BlockContext *context, Exchange *exchange, Tape *tape, int index, Tensor *const *activations) {
  for (int site = 0; exchange != NULL && site < config_sites(context->config); site++) {
    if (activations[site] == NULL) return false;
    if (!went_well(tape, exchange->begin(exchange, tape, context->layout, index, site, activations[site]))) return false;
  }
  return true;
}

/* activations: h, or k and v before their rotation. A node without others has nobody to show them to. */
static bool show_sites(const BlockContext *context, Tape *tape, int index, Tensor *const *activations) {
  bool alone = context->layout->devices == 1 && context->layout->self >= 0;
  if (!begin_sites(context, context->watch, tape, index, activations)) return false;
  return alone || begin_sites(context, context->exchange, tape, index, activations);
}

/* What the others hold of each site: their quantised tokens and which of them were lost. */
typedef struct Remote {
  Tensor *x[SITES];
  const uint8_t *lost;
} Remote;

/* A token of which either site was lost cannot be used. */
static const uint8_t *lost_of_either(Tape *tape, const uint8_t *a, const uint8_t *b, int64_t count) {
  if (a == NULL || b == NULL) return a == NULL ? b : a;
  uint8_t *either = tape_alloc(tape, (size_t)count);
  for (int64_t i = 0; either != NULL && i < count; i++) either[i] = a[i] | b[i];
  return either;
}

static bool fetch_remote(const BlockContext *context, Tape *tape, int index, Remote *remote) {
  Exchange *exchange = context->exchange;
  *remote = (Remote){{NULL, NULL}, NULL};
  if (context->layout->remote == 0) return true;
  if (exchange == NULL) return tape_fail(tape, STATUS_BAD_VALUE, "the layout has remote tokens but there is no exchange") == STATUS_OK;
  for (int site = 0; site < config_sites(context->config); site++) {
    const uint8_t *lost = NULL;
    if (!went_well(tape, exchange->finish(exchange, tape, context->layout, index, site, &remote->x[site], &lost))) return false;
    if (remote->x[site] == NULL) return false;
    remote->lost = lost_of_either(tape, remote->lost, lost, remote->x[site]->shape[0] * context->layout->remote);
  }
  return tape_status(tape) == STATUS_OK;
}

/* ---- attention */

typedef struct Keys {
  Tensor *k, *v; /* [B, rows, kv width] */
} Keys;

static Keys keys_of(const BlockContext *context, const BlockParams *block, Tape *tape, Tensor *x) {
  Tensor *k = map(context, tape, x, &block->key);
  return (Keys){k, map(context, tape, x, &block->value)};
}

static Tensor *mix(const BlockContext *context, Tape *tape, Tensor *q, Keys own, Keys remote, const uint8_t *lost, const Wanted *wanted) {
  const ModelConfig *config = context->config;
  const TokenLayout *layout = context->layout;
  AttentionOptions options = {.heads = (int)config->heads,
                              .kv_heads = (int)config->kv_heads,
                              .causal = context->causal && wanted->of_span == NULL, /* nothing comes after the last token */
                              .spans = layout->spans,
                              .span = layout->span,
                              .lost = lost,
                              .queries = wanted->of_span};
  return op_attention(tape, q, own.k, own.v, remote.k, remote.v, &options);
}

/* Into the cache, for later tokens. */
static bool keep(const BlockContext *context, Tape *tape, int index, Keys own, const uint8_t *lost) {
  if (context->cache == NULL || tape_planning(tape)) return true;
  if (own.k == NULL || own.v == NULL) return false;
  if (own.k->shape[0] != 1) return tape_fail(tape, STATUS_BAD_VALUE, "a cache holds one sequence, not a batch") == STATUS_OK;
  return went_well(tape, kv_cache_store(context->cache, index, own.k->shape[1], own.k->value, own.v->value, lost));
}

static bool sees_cache(const BlockContext *context) { return context->cache != NULL && context->cache->rows > 0; }

/* h [B, S, D] is the norm's output, residual the wanted rows of what the sum starts from. Site x: K^ and V^ are the block's own
 * projections of X^; the exchange runs while the local q, k and v are computed. Site kv: K^ and V^ are what is exchanged; q alone is
 * computed meanwhile. Where no row is wanted (residual NULL) the codes are exchanged all the same, since the others wait for them. Rotary
 * positions come after quantisation, so that one codeword serves them all. */
static Tensor *attention(const BlockContext *context, const BlockParams *block, int index, Tape *tape, Tensor *h, const Wanted *wanted,
                         Tensor *residual) {
  bool kv = context->config->astra.site == SITE_KV;
  Keys own = {NULL, NULL}, remote = {NULL, NULL};
  Remote fetched;
  Tensor *q = NULL;
  if (h == NULL) return NULL;
  if (kv) own = keys_of(context, block, tape, h);
  if (!show_sites(context, tape, index, kv ? (Tensor *[]){own.k, own.v} : (Tensor *[]){h, NULL})) return NULL;
  if (residual != NULL) q = map(context, tape, wanted_of(wanted, tape, h), &block->query);
  if (residual != NULL && !kv) own = keys_of(context, block, tape, h);
  if (!fetch_remote(context, tape, index, &fetched) || residual == NULL) return NULL;
  if (fetched.x[0] != NULL) remote = kv ? (Keys){fetched.x[0], fetched.x[1]} : keys_of(context, block, tape, fetched.x[0]);
  const ModelConfig *config = context->config;
  q = rotate(context, tape, q, config->heads, wanted->token);
  own.k = rotate(context, tape, own.k, config->kv_heads, context->layout->row_token);
  remote.k = rotate(context, tape, remote.k, config->kv_heads, context->layout->remote_token);
  if (!keep(context, tape, index, own, fetched.lost)) return NULL;
  Tensor *mixed =
      sees_cache(context) ? decode_attend(context, block, index, tape, q) : mix(context, tape, q, own, remote, fetched.lost, wanted);
  return mixed == NULL ? NULL : project(context, tape, mixed, &block->output, ACTIVATION_NONE, residual);
}

/* ---- the whole */

static Tensor *mlp(const BlockContext *context, const BlockParams *block, Tape *tape, Tensor *h, Tensor *residual) {
  Tensor *hidden;
  if (block->gate.weight >= 0)
    hidden = op_swiglu(tape, map(context, tape, h, &block->gate), map(context, tape, h, &block->up));
  else
    hidden = project(context, tape, h, &block->up, context->config->activation, NULL);
  return hidden == NULL ? NULL : project(context, tape, hidden, &block->down, ACTIVATION_NONE, residual);
}

Tensor *block_forward(const BlockContext *context, const BlockParams *block, int index, ModelRows rows, Tape *tape, Tensor *x) {
  Wanted wanted;
  find_wanted(context->layout, rows, &wanted);
  Tensor *h = block_norm(context, tape, x, block->norm1_weight, block->norm1_bias);
  if (h == NULL) return NULL;
  x = attention(context, block, index, tape, h, &wanted, wanted_of(&wanted, tape, x));
  if (x == NULL) return NULL;
  h = block_norm(context, tape, x, block->norm2_weight, block->norm2_bias);
  return mlp(context, block, tape, h, x);
}
