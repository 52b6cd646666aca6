/* GPT-2 (Radford et al., 2019) with Hugging Face's parameter names. Its matrices are stored [in, out] (Conv1D), and one matrix holds the
 * query, key and value projections side by side; both stay as they are, and operations take parts of them. */
#include "nn/model_parts.h"
#include <stdio.h>

static void describe_block(Model *model, int64_t index) {
  int64_t width = model->config.width, hidden = model->config.mlp;
  char prefix[64];
  snprintf(prefix, sizeof prefix, "transformer.h.%lld.", (long long)index);
  BlockParams *block = &model->block[index];
  block->norm1_bias = (block->norm1_weight = model_parts_norm(model, true, prefix, "ln_1")) + 1;
  block->query = block->key = block->value = model_parts_linear(model, 3 * width, width, true, true, prefix, "attn.c_attn");
  block->query.part = (LinearPart){0, width, true};
  block->key.part = (LinearPart){width, width, true};
  block->value.part = (LinearPart){2 * width, width, true};
  block->output = model_parts_linear(model, width, width, true, true, prefix, "attn.c_proj");
  block->norm2_bias = (block->norm2_weight = model_parts_norm(model, true, prefix, "ln_2")) + 1;
  block->gate = model_parts_no_projection();
  block->up = model_parts_linear(model, hidden, width, true, true, prefix, "mlp.c_fc");
  block->down = model_parts_linear(model, width, hidden, true, true, prefix, "mlp.c_proj");
}

void gpt2_describe(Model *model) {
  const ModelConfig *c = &model->config;
  ModelPart table = {PARAM_NORMAL, false, true, 2, {c->vocabulary, c->width}};
  ModelPart position = {PARAM_NORMAL, false, false, 2, {c->context, c->width}};
  model->token_table = model_parts_add(model, &table, "transformer.", "wte", ".weight");
  model->position = model_parts_add(model, &position, "transformer.", "wpe", ".weight");
  for (int64_t index = 0; index < c->blocks; index++) describe_block(model, index);
  model->norm_bias = (model->norm_weight = model_parts_norm(model, true, "transformer.", "ln_f")) + 1;
  decoder_describe_head(model);
}
