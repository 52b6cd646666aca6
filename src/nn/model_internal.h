/* The inside of a Model, private to src/nn, and what its description is put together from. */
#ifndef NN_MODEL_INTERNAL_H
#define NN_MODEL_INTERNAL_H
#include "nn/block.h"
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
  bool incomplete; /* while it is described: there was no memory for a parameter */
};

/* One entry of the parameter table, called prefix + name + suffix. Returns its index. */
typedef struct ModelPart {
  ParamInit init;
  bool decay, narrow;
  int dims;
  int64_t shape[TENSOR_DIMS];
} ModelPart;
int model_parts_add(Model *model, const ModelPart *part, const char *prefix, const char *name, const char *suffix);

/* Weight and bias: indices of the weight; the bias follows it. */
int model_parts_norm(Model *model, bool bias, const char *prefix, const char *name);
int model_parts_matrix(Model *model, int64_t out, int64_t in, bool transposed, bool bias, const char *prefix, const char *name);

/* That matrix, all outputs. */
Projection model_parts_linear(Model *model, int64_t out, int64_t in, bool transposed, bool bias, const char *prefix, const char *name);
Projection model_parts_no_projection(void); /* absent */

Tensor *model_parts_param(Model *model, int index); /* NULL for -1 */

/* A table of tokens or a head that predicts them: looked up, or applied to a row or two. */
bool model_parts_is_vocabulary(const Model *model, size_t index);

/* The first rows [B, S, D], as the input says. */
Tensor *model_embed(Model *model, Tape *tape, const ModelInput *input, const TokenLayout *layout);

/* What each kind has of its own: the table, in the order of the checkpoint, and the first rows [B, S, D]. */
void vit_describe(Model *model);
void gpt2_describe(Model *model);
void llama_describe(Model *model);
Tensor *vit_embed(Model *model, Tape *tape, Tensor *pixels, const TokenLayout *layout);
Tensor *decoder_embed(Model *model, Tape *tape, const ModelInput *input, const TokenLayout *layout);

#endif
