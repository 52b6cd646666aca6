/* Llama (Touvron et al., 2023; Llama 3: Grattafiori et al., 2024) with Hugging Face's parameter names: RMSNorm, rotary positions, keys and
 * values for fewer heads than queries, SwiGLU, no biases. */
#include "nn/model_parts.h"
#include <stdio.h>

static void describe_block(Model *model, int64_t index) {
  const ModelConfig *c = &model->config;
  int64_t width = c->width, keys = c->width / c->heads * c->kv_heads;
  char prefix[64];
  snprintf(prefix, sizeof prefix, "model.layers.%lld.", (long long)index);
  BlockParams *block = &model->block[index];
  block->norm1_weight = model_parts_norm(model, false, prefix, "input_layernorm");
  block->query = model_parts_linear(model, width, width, false, false, prefix, "self_attn.q_proj");
  block->key = model_parts_linear(model, keys, width, false, false, prefix, "self_attn.k_proj");
  block->value = model_parts_linear(model, keys, width, false, false, prefix, "self_attn.v_proj");
  block->output = model_parts_linear(model, width, width, false, false, prefix, "self_attn.o_proj");
  block->norm2_weight = model_parts_norm(model, false, prefix, "post_attention_layernorm");
  block->gate = model_parts_linear(model, c->mlp, width, false, false, prefix, "mlp.gate_proj");
  block->up = model_parts_linear(model, c->mlp, width, false, false, prefix, "mlp.up_proj");
  block->down = model_parts_linear(model, width, c->mlp, false, false, prefix, "mlp.down_proj");
  block->norm1_bias = block->norm2_bias = -1;
}

void llama_describe(Model *model) {
  const ModelConfig *c = &model->config;
  ModelPart table = {PARAM_NORMAL, false, true, 2, {c->vocabulary, c->width}};
  model->token_table = model_parts_add(model, &table, "model.", "embed_tokens", ".weight");
  for (int64_t index = 0; index < c->blocks; index++) describe_block(model, index);
  model->norm_weight = model_parts_norm(model, false, "model.", "norm");
  decoder_describe_head(model);
}
