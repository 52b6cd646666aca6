/* The transformer block: see block.h. */
#include "nn/block_steps.h"
#include "nn/decode.h"
#include <stdio.h>

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
