/* Entries of the parameter table: see model_internal.h. */
#include "nn/model_internal.h"

int model_parts_add(Model *model, const ModelPart *part, const char *prefix, const char *name, const char *suffix) {
  int index = param_add(&model->params, part->init, part->decay, part->dims, part->shape, "%s%s%s", prefix, name, suffix);
  if (index < 0)
    model->incomplete = true;
  else
    model->params.list[index].narrow = part->narrow;
  return index;
}

static void add_bias(Model *model, int64_t width, const char *prefix, const char *name) {
  model_parts_add(model, &(ModelPart){.init = PARAM_ZEROS, .dims = 1, .shape = {width}}, prefix, name, ".bias");
}

int model_parts_norm(Model *model, bool bias, const char *prefix, const char *name) {
  int64_t width = model->config.width;
  int index = model_parts_add(model, &(ModelPart){.init = PARAM_ONES, .dims = 1, .shape = {width}}, prefix, name, ".weight");
  if (bias) add_bias(model, width, prefix, name);
  return index;
}

int model_parts_matrix(Model *model, int64_t out, int64_t in, bool transposed, bool bias, const char *prefix, const char *name) {
  ModelPart part = {PARAM_NORMAL, true, true, 2, {transposed ? in : out, transposed ? out : in}};
  int index = model_parts_add(model, &part, prefix, name, ".weight");
  if (index >= 0) model->params.list[index].transposed = transposed;
  if (bias) add_bias(model, out, prefix, name);
  return index;
}

Projection model_parts_linear(Model *model, int64_t out, int64_t in, bool transposed, bool bias, const char *prefix, const char *name) {
  int weight = model_parts_matrix(model, out, in, transposed, bias, prefix, name);
  return (Projection){weight, bias ? weight + 1 : -1, {0, out, transposed}, -1, -1};
}

Projection model_parts_no_projection(void) { return (Projection){-1, -1, {0, 0, false}, -1, -1}; }

Tensor *model_parts_param(Model *model, int index) { return index < 0 ? NULL : &model->params.list[index].tensor; }

bool model_parts_is_vocabulary(const Model *model, size_t index) {
  const bool head = config_is_decoder(&model->config) && model->config.classes == 0 && (int)index == model->head_weight;
  return head || (int)index == model->token_table;
}

Status model_pack_weights(Model *model, bool bf16) {
  for (size_t i = 0; i < model->params.count; i++)
    if (!model_parts_is_vocabulary(model, i)) TRY(param_pack(&model->params, i, bf16));
  return bf16 ? param_make_shadows(&model->params) : STATUS_OK;
}
