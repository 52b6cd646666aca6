/* The vision transformer (Dosovitskiy et al., 2021) with Hugging Face's parameter names. Device-sorted rows go in at the embedding and stay
 * so to the end; only class-token rows come out. */
#include "autograd/ops/ops.h"
#include "nn/model_parts.h"
#include <stdio.h>

static void describe_block(Model *model, int64_t index) {
  int64_t width = model->config.width, hidden = model->config.mlp;
  char prefix[64];
  snprintf(prefix, sizeof prefix, "vit.encoder.layer.%lld.", (long long)index);
  BlockParams *block = &model->block[index];
  block->norm1_bias = (block->norm1_weight = model_parts_norm(model, true, prefix, "layernorm_before")) + 1;
  block->query = model_parts_linear(model, width, width, false, true, prefix, "attention.attention.query");
  block->key = model_parts_linear(model, width, width, false, true, prefix, "attention.attention.key");
  block->value = model_parts_linear(model, width, width, false, true, prefix, "attention.attention.value");
  block->output = model_parts_linear(model, width, width, false, true, prefix, "attention.output.dense");
  block->norm2_bias = (block->norm2_weight = model_parts_norm(model, true, prefix, "layernorm_after")) + 1;
  block->gate = model_parts_no_projection();
  block->up = model_parts_linear(model, hidden, width, false, true, prefix, "intermediate.dense");
  block->down = model_parts_linear(model, width, hidden, false, true, prefix, "output.dense");
}

void vit_describe(Model *model) {
  const ModelConfig *c = &model->config;
  const char *prefix = "vit.embeddings.";
  ModelPart class_token = {PARAM_NORMAL, false, false, 3, {1, 1, c->width}};
  ModelPart position = {PARAM_NORMAL, false, false, 3, {1, config_tokens(c) + 1, c->width}};
  ModelPart patch = {PARAM_NORMAL, true, false, 4, {c->width, c->channels, c->patch, c->patch}};
  ModelPart patch_bias = {PARAM_ZEROS, false, false, 1, {c->width}};
  model->class_token = model_parts_add(model, &class_token, prefix, "cls_token", "");
  model->position = model_parts_add(model, &position, prefix, "position_embeddings", "");
  model->patch_weight = model_parts_add(model, &patch, prefix, "patch_embeddings.projection", ".weight");
  model->patch_bias = model_parts_add(model, &patch_bias, prefix, "patch_embeddings.projection", ".bias");
  for (int64_t index = 0; index < c->blocks; index++) describe_block(model, index);
  model->norm_bias = (model->norm_weight = model_parts_norm(model, true, "vit.", "layernorm")) + 1;
  model->head_bias = (model->head_weight = model_parts_matrix(model, c->classes, c->width, false, true, "", "classifier")) + 1;
  if (model->incomplete) return;
  model->params.list[model->head_weight].optional = model->params.list[model->head_bias].optional = true;
}

Tensor *vit_embed(Model *model, Tape *tape, Tensor *pixels, const TokenLayout *layout) {
  return op_patch_embed(tape, pixels, model_parts_param(model, model->patch_weight), model_parts_param(model, model->patch_bias),
                        model_parts_param(model, model->position), model_parts_param(model, model->class_token), model->config.patch,
                        layout->row_token, layout->rows);
}
