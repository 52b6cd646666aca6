/* The vision transformer (Dosovitskiy et al., 2021) with Hugging Face's parameter names. Device-sorted rows go in at the embedding and stay
 * so to the end; only class-token rows come out. */
#include "autograd/ops/ops.h"
#include "nn/model_internal.h"
#include <math.h>
#include <stdio.h>

/* ---- Initial values ---- */

/* Mimetic initialisation of a vision transformer: see model.h. With G a matrix of independent normal numbers, G^T G is the identity plus
 * noise, which is the structure that trained attention layers are found to have; no decomposition is needed to get it. */

static const double LOOK_ALIKE = 0.25;            /* of the identity in query^T key */
static const double TAKE_AWAY = 0.4;              /* of the identity in output value, with a minus sign */
static const double POSITION = 0.35, PATCH = 0.5; /* deviations of the two parts of an input token */

static real *values(Model *model, int index) { return model->params.list[index].tensor.value; }
static int64_t count(Model *model, int index) { return tensor_count(&model->params.list[index].tensor); }

static void fill_normal(Model *model, int index, double deviation, Rng *rng) {
  for (int64_t i = 0; i < count(model, index); i++) values(model, index)[i] = (real)(deviation * rng_normal(rng));
}

static void initialise_attention(Model *model, const BlockParams *block, Rng *rng) {
  int64_t width = model->config.width;
  double head_width = (double)(width / model->config.heads);
  fill_normal(model, block->key.weight, sqrt(LOOK_ALIKE / head_width), rng);
  for (int64_t i = 0; i < width * width; i++) values(model, block->query.weight)[i] = values(model, block->key.weight)[i];
  fill_normal(model, block->value.weight, sqrt(TAKE_AWAY / (double)width), rng);
  for (int64_t row = 0; row < width; row++)
    for (int64_t column = 0; column < width; column++)
      values(model, block->output.weight)[row * width + column] = -values(model, block->value.weight)[column * width + row];
}

/* Two-dimensional: the first half of the numbers follows the patch's column, the second its row; each half is sines, then cosines. */
static void initialise_positions(Model *model) {
  int64_t width = model->config.width, across = model->config.image / model->config.patch, quarter = width / 4;
  for (int64_t token = 0; token < across * across; token++) {
    real *position = values(model, model->position) + (token + 1) * width;
    for (int64_t i = 0; i < 4 * quarter; i++) {
      double place = (double)(i < 2 * quarter ? token % across : token / across);
      double angle = place / pow(100, (double)(i % quarter) / (double)quarter);
      position[i] = (real)(POSITION * sqrt(2) * (i % (2 * quarter) < quarter ? sin(angle) : cos(angle)));
    }
  }
}

Status model_initialise_mimetic(Model *model, Rng *rng) {
  if (config_is_decoder(&model->config))
    return status_set(STATUS_BAD_VALUE, "mimetic weights are for vision transformers; use random ones (--init random)");
  for (int64_t block = 0; block < model->config.blocks; block++) initialise_attention(model, &model->block[block], rng);
  int64_t depth = model->config.channels * model->config.patch * model->config.patch;
  fill_normal(model, model->patch_weight, PATCH / sqrt((double)depth), rng);
  initialise_positions(model);
  return STATUS_OK;
}

/* ---- Parameters and rows ---- */

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
