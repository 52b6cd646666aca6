/* A model of any kind: see model.h. What the kinds do not share is in vit.c and decoder.c. */
#include "autograd/ops/ops.h"
#include "nn/block.h"
#include "nn/block_internal.h"
#include "nn/model_internal.h"
#include "nn/pipeline.h"
#include <math.h>
#include <stdlib.h>

/* ---- making */

static Status describe(Model *model) {
  static void (*const describers[])(Model *) = {[MODEL_VIT] = vit_describe, [MODEL_GPT2] = gpt2_describe, [MODEL_LLAMA] = llama_describe};
  model->class_token = model->position = model->patch_weight = model->patch_bias = model->token_table = -1;
  model->norm_bias = model->head_weight = model->head_bias = -1;
  model->recomputed = (int)model->config.blocks;
  describers[model->config.kind](model);
  return model->incomplete ? status_set(STATUS_NO_MEMORY, "no memory for the parameter table") : STATUS_OK;
}

static Status build(Model *model, const ModelConfig *config) {
  TRY(config_copy(&model->config, config));
  model->block = calloc((size_t)config->blocks, sizeof *model->block);
  if (model->block == NULL) return status_set(STATUS_NO_MEMORY, "no memory for a model of %lld blocks", (long long)config->blocks);
  TRY(describe(model));
  return config->kind == MODEL_LLAMA ? rope_table_init(&model->rope, config) : STATUS_OK;
}

Status model_new(Model **out, const ModelConfig *config) {
  *out = NULL;
  TRY(config_check(config));
  Model *model = calloc(1, sizeof *model);
  if (model == NULL) return status_set(STATUS_NO_MEMORY, "no memory for a model");
  Status status = build(model, config);
  if (status != STATUS_OK)
    model_free(model);
  else
    *out = model;
  return status;
}

void model_free(Model *model) {
  if (model == NULL) return;
  param_release(&model->params);
  config_release(&model->config);
  rope_table_release(&model->rope);
  free(model->block);
  free(model);
}

const ModelConfig *model_config(const Model *model) { return &model->config; }
ParamSet *model_params(Model *model) { return &model->params; }
void model_recompute(Model *model, int blocks) { model->recomputed = blocks; }
void model_watch(Model *model, Exchange *watch) { model->watch = watch; }

/* ---- initial weights */

static void scale(Tensor *tensor, double factor) {
  for (int64_t i = 0; tensor->value && i < tensor_count(tensor); i++) tensor->value[i] = (real)(factor * (double)tensor->value[i]);
}

void model_initialise(Model *model, Rng *rng) {
  param_initialise(&model->params, rng);
  double residual = 1 / sqrt(2 * (double)model->config.blocks);
  for (int64_t i = 0; model->config.kind == MODEL_GPT2 && i < model->config.blocks; i++) {
    scale(model_parts_param(model, model->block[i].output.weight), residual);
    scale(model_parts_param(model, model->block[i].down.weight), residual);
  }
  model_initialise_adapters(model, rng);
}

/* ---- the forward pass */

static Tensor *given_rows(const Model *model, Tape *tape, Tensor *rows, const TokenLayout *layout) {
  if (rows->dims == 3 && rows->shape[1] == layout->rows && rows->shape[2] == model->config.width) return rows;
  return tape_fail(tape, STATUS_BAD_VALUE, "rows of %lld numbers are given; the model takes %lld rows of %lld",
                   (long long)tensor_width(rows), (long long)layout->rows, (long long)model->config.width),
         NULL;
}

Tensor *model_embed(Model *model, Tape *tape, const ModelInput *input, const TokenLayout *layout) {
  if (input->rows != NULL) return given_rows(model, tape, input->rows, layout);
  if (config_is_decoder(&model->config)) return decoder_embed(model, tape, input, layout);
  if (input->pixels == NULL) return tape_fail(tape, STATUS_BAD_VALUE, "a vision transformer takes pixels"), NULL;
  return vit_embed(model, tape, input->pixels, layout);
}

/* Parts are a matter of waiting for others: not of training, nor of a step of decoding. */
static bool in_parts(const BlockContext *context, const Tape *tape) {
  bool decoding = context->cache != NULL && context->cache->rows > 0;
  return context->exchange != NULL && context->exchange->parts > 1 && !tape_recording(tape) && context->watch == NULL && !decoding;
}

static Tensor *one_block(const Model *model, const BlockContext *context, int index, ModelRows rows, Tape *tape, Tensor *x) {
  const BlockParams *block = &model->block[index];
  bool segment = index < model->recomputed || !tape_recording(tape);
  return segment ? recompute_block(context, block, index, rows, tape, x) : block_forward(context, block, index, rows, tape, x);
}

static Tensor *whole_blocks(const Model *model, const BlockContext *context, ModelRows rows, Tape *tape, Tensor *x) {
  int blocks = (int)model->config.blocks;
  for (int index = 0; index < blocks && x != NULL; index++)
    x = block_steps_checked(context, tape, index, one_block(model, context, index, index == blocks - 1 ? rows : MODEL_ROWS_ALL, tape, x));
  return x;
}

Tensor *model_encode(Model *model, Tape *tape, const ModelInput *input, const TokenLayout *layout, Exchange *exchange, ModelRows rows) {
  bool decoder = config_is_decoder(&model->config);
  if (rows == (decoder ? MODEL_ROWS_CLASS : MODEL_ROWS_LAST))
    return tape_fail(tape, STATUS_BAD_VALUE, "this kind of model has no %s", decoder ? "class token" : "last token"), NULL;
  BlockContext context = {.config = &model->config,
                          .params = &model->params,
                          .rope = model->rope.cosine ? &model->rope : NULL,
                          .causal = decoder,
                          .adapter_scale = model->adapter_scale,
                          .drop_path = tape_recording(tape) ? model->drop_path : 0,
                          .drop_seed = model->drop_seed,
                          .drop_first = model->drop_first,
                          .layout = layout,
                          .exchange = exchange,
                          .watch = model->watch,
                          .not_finite = &model->not_finite,
                          .cache = input->cache};
  model->not_finite = BLOCK_NONE;
  Tensor *x = block_steps_checked(&context, tape, BLOCK_EMBEDDING, model_embed(model, tape, input, layout));
  x = in_parts(&context, tape) ? pipeline_encode(&context, model->block, (int)model->config.blocks, rows, tape, x)
                               : whole_blocks(model, &context, rows, tape, x);
  if (x != NULL && input->cache != NULL) kv_cache_advance(input->cache, layout->rows);
  return x == NULL ? NULL : block_norm(&context, tape, x, model->norm_weight, model->norm_bias);
}

/* ---- heads */

void model_drop_path(Model *model, double rate, uint64_t seed, int64_t first) {
  model->drop_path = rate;
  model->drop_first = first;
  model->drop_seed = seed;
}

int model_not_finite(const Model *model) { return model->not_finite; }

static Tensor *checked_head(Model *model, Tape *tape, Tensor *logits) {
  const BlockContext context = {.config = &model->config, .not_finite = &model->not_finite};
  return block_steps_checked(&context, tape, (int)model->config.blocks, logits);
}

Tensor *model_classify(Model *model, Tape *tape, Tensor *encoded) {
  if (model->config.classes == 0) return tape_fail(tape, STATUS_BAD_VALUE, "this model predicts tokens; it has no head of classes"), NULL;
  if (encoded != NULL && config_is_decoder(&model->config) && encoded->shape[1] != 1)
    return tape_fail(tape, STATUS_BAD_VALUE, "a text is classified by one row, that of its last token"), NULL;
  return checked_head(model, tape,
                      op_linear(tape, op_mean_replicas(tape, encoded), model_parts_param(model, model->head_weight),
                                model_parts_param(model, model->head_bias), ACTIVATION_NONE, NULL));
}

/* [V, D]; NULL, with a failed tape, where the model does not predict tokens. */
static Tensor *token_head(Model *model, Tape *tape) {
  if (!config_is_decoder(&model->config) || model->config.classes > 0)
    return tape_fail(tape, STATUS_BAD_VALUE, "this model classifies; it does not predict tokens"), NULL;
  return model_parts_param(model, model->config.tied ? model->token_table : model->head_weight);
}

Tensor *model_logits(Model *model, Tape *tape, Tensor *encoded) {
  return checked_head(model, tape, op_linear(tape, encoded, token_head(model, tape), NULL, ACTIVATION_NONE, NULL));
}

Tensor *model_token_loss(Model *model, Tape *tape, Tensor *encoded, const VocabLoss *options) {
  return op_vocab_loss(tape, encoded, token_head(model, tape), options);
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
