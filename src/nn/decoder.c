/* What GPT-2 and Llama share at both ends: rows of the token table, and the head. */
#include "autograd/ops/ops.h"
#include "nn/model_parts.h"

void decoder_describe_head(Model *model) {
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
