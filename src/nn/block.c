/* The transformer block: see block.h. */
#include "nn/block.h"
#include "autograd/ops/ops.h"

static Tensor *param(const BlockContext *context, int index) { return &context->params->list[index].tensor; }

static Tensor *linear(const BlockContext *context, Tape *tape, Tensor *x, int weight, int bias) {
  return op_linear(tape, x, param(context, weight), param(context, bias), ACTIVATION_NONE, NULL);
}

/* An exchange's failure becomes the tape's. */
static bool went_well(Tape *tape, Status status) {
  if (status != STATUS_OK) tape_fail(tape, status, "%s", status_message());
  return status == STATUS_OK;
}

static Status call_begin(Exchange *exchange, const BlockContext *context, Tape *tape, int index, Tensor *h) {
  return exchange == NULL ? STATUS_OK : exchange->begin(exchange, tape, context->layout, index, 0, h);
}

/* What the others hold of this site: their quantised tokens and which of them were lost. */
typedef struct Remote {
  Tensor *x;
  const uint8_t *lost;
} Remote;

static bool fetch_remote(const BlockContext *context, Tape *tape, int index, Remote *remote) {
  *remote = (Remote){NULL, NULL};
  if (context->layout->remote == 0) return true;
  if (context->exchange == NULL)
    return tape_fail(tape, STATUS_BAD_VALUE, "the layout has remote tokens but there is no exchange") == STATUS_OK;
  return went_well(tape, context->exchange->finish(context->exchange, tape, context->layout, index, 0, &remote->x, &remote->lost));
}

/* Site x: K^ and V^ are the block's own projections of X^. The exchange runs while the local q, k and v are computed.
 * h [B, S, D] is the norm's output; all its rows, or the class tokens' alone, ask. Where no row asks (residual NULL), the codes are
 * exchanged all the same, since the others wait for them. */
static Tensor *attention(const BlockContext *context, const BlockParams *block, int index, Tape *tape, Tensor *h, bool class_only,
                         Tensor *residual) {
  const ModelConfig *config = context->config;
  const TokenLayout *layout = context->layout;
  Remote remote;
  if (h == NULL || !went_well(tape, call_begin(context->watch, context, tape, index, h))) return NULL;
  if (layout->remote > 0 && !went_well(tape, call_begin(context->exchange, context, tape, index, h))) return NULL;
  Tensor *asking = class_only && layout->class_rows > 0 ? op_gather_rows(tape, h, layout->class_row, layout->class_rows) : h;
  Tensor *q = linear(context, tape, asking, block->query_weight, block->query_bias);
  Tensor *k = linear(context, tape, h, block->key_weight, block->key_bias);
  Tensor *v = linear(context, tape, h, block->value_weight, block->value_bias);
  if (!fetch_remote(context, tape, index, &remote) || residual == NULL) return NULL;
  Tensor *remote_k = remote.x ? linear(context, tape, remote.x, block->key_weight, block->key_bias) : NULL;
  Tensor *remote_v = remote.x ? linear(context, tape, remote.x, block->value_weight, block->value_bias) : NULL;
  AttentionOptions options = {.heads = (int)config->heads,
                              .kv_heads = (int)config->kv_heads,
                              .spans = layout->spans,
                              .span = layout->span,
                              .lost = remote.lost,
                              .queries = class_only ? layout->class_of_span : NULL};
  Tensor *mixed = op_attention(tape, q, k, v, remote_k, remote_v, &options);
  return op_linear(tape, mixed, param(context, block->output_weight), param(context, block->output_bias), ACTIVATION_NONE, residual);
}

static Tensor *mlp(const BlockContext *context, const BlockParams *block, Tape *tape, Tensor *h, Tensor *residual) {
  Tensor *up = op_linear(tape, h, param(context, block->up_weight), param(context, block->up_bias), context->config->activation, NULL);
  return op_linear(tape, up, param(context, block->down_weight), param(context, block->down_bias), ACTIVATION_NONE, residual);
}

/* What the block's sums start from: x, its class-token rows, or nothing where there are none. */
static Tensor *residual_of(const BlockContext *context, bool class_only, Tape *tape, Tensor *x) {
  if (!class_only) return x;
  return context->layout->class_rows > 0 ? op_gather_rows(tape, x, context->layout->class_row, context->layout->class_rows) : NULL;
}

Tensor *block_forward(const BlockContext *context, const BlockParams *block, int index, bool class_only, Tape *tape, Tensor *x) {
  double eps = context->config->norm_eps;
  Tensor *h = op_layer_norm(tape, x, param(context, block->norm1_weight), param(context, block->norm1_bias), eps);
  x = attention(context, block, index, tape, h, class_only, residual_of(context, class_only, tape, x));
  if (x == NULL) return NULL;
  h = op_layer_norm(tape, x, param(context, block->norm2_weight), param(context, block->norm2_bias), eps);
  return mlp(context, block, tape, h, x);
}
