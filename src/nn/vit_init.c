/* Mimetic initialisation of a vision transformer: see model.h. With G a matrix of independent normal numbers, G^T G is the identity plus
 * noise, which is the structure that trained attention layers are found to have; no decomposition is needed to get it. */
#include "nn/model_parts.h"
#include <math.h>

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
