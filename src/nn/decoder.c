/* What GPT-2 and Llama share at both ends: rows of the token table, and the head. */
#include "autograd/ops/ops.h"
#include "nn/model_internal.h"
#include <stdio.h>

/* lm_head or score, where there is one */
static void decoder_describe_head(Model *model) {
  const ModelConfig *c = &model->config;
  if (c->classes > 0)
    model->head_weight = model_parts_matrix(model, c->classes, c->width, false, false, "", "score");
  else if (!c->tied)
    model->head_weight = model_parts_matrix(model, c->vocabulary, c->width, false, false, "", "lm_head");
  if (c->classes > 0 && !model->incomplete) model->params.list[model->head_weight].optional = true;
}

/* The ids of this process's rows [B, rows]: all of them, or those of its span. */
static const int32_t *own_ids(Tape *tape, const ModelInput *input, const TokenLayout *layout) {
  if (layout->rows == layout->tokens) return input->ids;
  int32_t *own = tape_alloc(tape, (size_t)(input->batch * layout->rows) * sizeof *own);
  if (own == NULL || tape_planning(tape)) return own;
  for (int64_t b = 0; b < input->batch; b++)
    for (int64_t row = 0; row < layout->rows; row++) own[b * layout->rows + row] = input->ids[b * layout->tokens + layout->row_token[row]];
  return own;
}

Tensor *decoder_embed(Model *model, Tape *tape, const ModelInput *input, const TokenLayout *layout) {
  long long tokens = (long long)layout->tokens, context = (long long)model->config.context;
  if (input->ids == NULL || input->batch < 1 || layout->class_token != CLASS_NONE)
    return tape_fail(tape, STATUS_BAD_VALUE, "a language model takes the ids of tokens, in a layout without a class token"), NULL;
  if (tokens > context)
    return tape_fail(tape, STATUS_BAD_VALUE, "a sequence of %lld tokens is longer than the model's context of %lld", tokens, context), NULL;
  const int32_t *ids = own_ids(tape, input, layout);
  Tensor *position = model_parts_param(model, model->position);
  if (ids == NULL) return NULL;
  return op_token_embed(tape, model_parts_param(model, model->token_table), position, ids, position ? layout->row_token : NULL,
                        input->batch, layout->rows);
}

/* ---- GPT-2 ---- */

/* GPT-2 (Radford et al., 2019) with Hugging Face's parameter names. Its matrices are stored [in, out] (Conv1D), and one matrix holds the
 * query, key and value projections side by side; both stay as they are, and operations take parts of them. */

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

/* ---- Llama ---- */

/* Llama (Touvron et al., 2023; Llama 3: Grattafiori et al., 2024) with Hugging Face's parameter names: RMSNorm, rotary positions, keys and
 * values for fewer heads than queries, SwiGLU, no biases. */

static void llama_describe_block(Model *model, int64_t index) {
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
  for (int64_t index = 0; index < c->blocks; index++) llama_describe_block(model, index);
  model->norm_weight = model_parts_norm(model, false, "model.", "norm");
  decoder_describe_head(model);
}
