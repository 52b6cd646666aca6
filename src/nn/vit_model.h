/* The inside of a Model, private to src/nn. */
#ifndef NN_VIT_MODEL_H
#define NN_VIT_MODEL_H
#include "nn/block.h"
#include "nn/model.h"

struct Model {
  ModelConfig config;
  ParamSet params;
  BlockParams *block;                                                                                  /* [blocks] */
  int class_token, position, patch_weight, patch_bias, norm_weight, norm_bias, head_weight, head_bias; /* indices into params */
  Exchange *watch;
};

#endif
