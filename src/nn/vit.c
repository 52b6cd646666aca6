/* The vision transformer (Dosovitskiy et al., 2021) with Hugging Face's parameter names; see model.h.
 * Device-sorted rows go in at the embedding and stay so to the end; only class-token rows come out. */
#include "autograd/ops/ops.h"
#include "nn/block.h"
#include "nn/model.h"
#include "nn/vit_model.h"
#include <stdlib.h>

#define SHAPE(...)                                                                                                                         \
  (int64_t[]) { __VA_ARGS__ }

/* A matrix [out, in] and its bias; returns the matrix's index, the bias follows it. */
static int add_linear(ParamSet *set, int64_t out, int64_t in, const char *prefix, const char *name) {
  int index = param_add(set, PARAM_NORMAL, true, 2, SHAPE(out, in), "%s%s.weight", prefix, name);
  param_add(set, PARAM_ZEROS, false, 1, SHAPE(out), "%s%s.bias", prefix, name);
  return index;
}

static int add_norm(ParamSet *set, int64_t width, const char *prefix, const char *name) {
  int index = param_add(set, PARAM_ONES, false, 1, SHAPE(width), "%s%s.weight", prefix, name);
  param_add(set, PARAM_ZEROS, false, 1, SHAPE(width), "%s%s.bias", prefix, name);
  return index;
}

static void describe_block(Model *model, int64_t index) {
  ParamSet *set = &model->params;
  int64_t width = model->config.width, hidden = model->config.mlp;
  char prefix[64];
  snprintf(prefix, sizeof prefix, "vit.encoder.layer.%lld.", (long long)index);
  BlockParams *block = &model->block[index];
  block->norm1_bias = (block->norm1_weight = add_norm(set, width, prefix, "layernorm_before")) + 1;
  block->query_bias = (block->query_weight = add_linear(set, width, width, prefix, "attention.attention.query")) + 1;
  block->key_bias = (block->key_weight = add_linear(set, width, width, prefix, "attention.attention.key")) + 1;
  block->value_bias = (block->value_weight = add_linear(set, width, width, prefix, "attention.attention.value")) + 1;
  block->output_bias = (block->output_weight = add_linear(set, width, width, prefix, "attention.output.dense")) + 1;
  block->norm2_bias = (block->norm2_weight = add_norm(set, width, prefix, "layernorm_after")) + 1;
  block->up_bias = (block->up_weight = add_linear(set, hidden, width, prefix, "intermediate.dense")) + 1;
  block->down_bias = (block->down_weight = add_linear(set, width, hidden, prefix, "output.dense")) + 1;
}

static void describe(Model *model) {
  ParamSet *set = &model->params;
  const ModelConfig *c = &model->config;
  const char *prefix = "vit.embeddings.";
  model->class_token = param_add(set, PARAM_NORMAL, false, 3, SHAPE(1, 1, c->width), "%scls_token", prefix);
  model->position = param_add(set, PARAM_NORMAL, false, 3, SHAPE(1, config_tokens(c) + 1, c->width), "%sposition_embeddings", prefix);
  model->patch_weight = param_add(set, PARAM_NORMAL, true, 4, SHAPE(c->width, c->channels, c->patch, c->patch),
                                  "%spatch_embeddings.projection.weight", prefix);
  model->patch_bias = param_add(set, PARAM_ZEROS, false, 1, SHAPE(c->width), "%spatch_embeddings.projection.bias", prefix);
  for (int64_t index = 0; index < c->blocks; index++) describe_block(model, index);
  model->norm_bias = (model->norm_weight = add_norm(set, c->width, "vit.", "layernorm")) + 1;
  model->head_bias = (model->head_weight = add_linear(set, c->classes, c->width, "", "classifier")) + 1;
  set->list[model->head_weight].optional = set->list[model->head_bias].optional = true;
}

Status model_new(Model **out, const ModelConfig *config) {
  *out = NULL;
  TRY(config_check(config));
  if (config->kind != MODEL_VIT) return status_set(STATUS_UNSUPPORTED, "this version runs vision transformers (model_type \"vit\") only");
  Model *model = calloc(1, sizeof *model);
  if (model == NULL) return status_set(STATUS_NO_MEMORY, "no memory for a model");
  Status status = config_copy(&model->config, config);
  if (status == STATUS_OK && (model->block = calloc((size_t)config->blocks, sizeof *model->block)) == NULL)
    status = status_set(STATUS_NO_MEMORY, "no memory for a model of %lld blocks", (long long)config->blocks);
  if (status == STATUS_OK) {
    describe(model);
    if (model->params.count != (size_t)(8 + 16 * config->blocks))
      status = status_set(STATUS_NO_MEMORY, "no memory for the parameter table");
  }
  if (status != STATUS_OK) {
    model_free(model);
    return status;
  }
  *out = model;
  return STATUS_OK;
}

void model_free(Model *model) {
  if (model == NULL) return;
  param_release(&model->params);
  config_release(&model->config);
  free(model->block);
  free(model);
}

const ModelConfig *model_config(const Model *model) { return &model->config; }
ParamSet *model_params(Model *model) { return &model->params; }
void model_watch(Model *model, Exchange *watch) { model->watch = watch; }

static Tensor *param(Model *model, int index) { return &model->params.list[index].tensor; }

Tensor *model_encode(Model *model, Tape *tape, Tensor *pixels, const TokenLayout *layout, Exchange *exchange) {
  Tensor *x =
      op_patch_embed(tape, pixels, param(model, model->patch_weight), param(model, model->patch_bias), param(model, model->position),
                     param(model, model->class_token), model->config.patch, layout->row_token, layout->rows);
  BlockContext context = {&model->config, &model->params, layout, exchange, model->watch};
  int blocks = (int)model->config.blocks;
  for (int index = 0; index < blocks; index++) x = block_forward(&context, &model->block[index], index, index == blocks - 1, tape, x);
  if (x == NULL) return NULL;
  return op_layer_norm(tape, x, param(model, model->norm_weight), param(model, model->norm_bias), model->config.norm_eps);
}

Tensor *model_classify(Model *model, Tape *tape, Tensor *replicas) {
  return op_linear(tape, op_mean_replicas(tape, replicas), param(model, model->head_weight), param(model, model->head_bias),
                   ACTIVATION_NONE, NULL);
}
