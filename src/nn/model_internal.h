/* The inside of a Model, private to src/nn, and how its table of parameters is built. */
#ifndef NN_MODEL_INTERNAL_H
#define NN_MODEL_INTERNAL_H
#include "nn/block.h"
#include "nn/block_internal.h"
#include "nn/model.h"

struct Model {
  ModelConfig config;
  ParamSet params;
  BlockParams *block;                                  /* [blocks] */
  int class_token, position, patch_weight, patch_bias; /* indices into params; -1: this kind has none */
  int token_table;                                     /* [V, D] */
  int norm_weight, norm_bias;
  int head_weight, head_bias; /* [classes, D], [classes]; or [V, D] of an untied decoder, and -1 */
  RopeTable rope;
  double adapter_scale; /* alpha / rank */
  double drop_path;     /* model_drop_path */
  uint64_t drop_seed;
  int64_t drop_first;
  size_t adapters_first; /* index of the first adapter; 0: none */
  Exchange *watch;
  int recomputed;  /* model_recompute */
  int not_finite;  /* of the last forward pass: model_not_finite */
  bool incomplete; /* while the table is built: there was no memory for a parameter */
};

/* One entry of the parameter table, called prefix + name + suffix. Returns its index. */
typedef struct ModelPart {
  ParamInit init;
  bool decay, narrow;
  int dims;
  int64_t shape[TENSOR_DIMS];
} ModelPart;
int model_add_param(Model *model, const ModelPart *part, const char *prefix, const char *name, const char *suffix);

Tensor *model_param(Model *model, int index); /* NULL for -1 */

/* A table of tokens or a head that predicts them: used for look-ups, or on one or two rows. */
static inline bool model_is_vocabulary(const Model *model, size_t index) {
  const bool head = config_is_decoder(&model->config) && model->config.classes == 0 && (int)index == model->head_weight;
  return head || (int)index == model->token_table;
}

/* What every forward pass tells its blocks; the rest of the context is zero: no layout, exchange, cache or stochastic depth. */
BlockContext model_block_context(Model *model);

/* The first rows [B, S, D], as the input says. */
Tensor *model_embed(Model *model, Tape *tape, const ModelInput *input, const TokenLayout *layout);

/* Whether parameter `index` is a weight with an adapter for it or for a part of it (adapters.c). */
bool adapters_has(const Model *model, size_t index);

/* The adapted projections that are parts of weight `index`, one after the other: the first after `after` (NULL: the first of all), or
 * NULL. */
const Projection *adapters_next(const Model *model, size_t index, const Projection *after);

/* The numbers of a parameter: in `values`, a block laid out like ParamSet.values, or, where that is NULL, its own. */
const real *adapters_values(const Model *model, const real *values, int index);

/* out [count] += alpha / rank B A at the numbers [first, first + count) of weight `index`, as it is stored. `values`: a block laid out like
 * ParamSet.values with the adapters to take, or NULL: the parameters' own. */
void adapters_fold(Model *model, const real *values, size_t index, int64_t first, int64_t count, real *out);

#endif
