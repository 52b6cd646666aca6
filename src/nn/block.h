/* One transformer block, pre-norm: x + attention(norm(x)), then x + mlp(norm(x)). The same for training and for a node; where it needs the
 * other devices' tokens it calls the exchange (paper section 3.1). The parts that architectures differ in are fields, not copies of the
 * block. */
#ifndef NN_BLOCK_H
#define NN_BLOCK_H
#include "autograd/param.h"
#include "nn/config.h"
#include "nn/exchange.h"

/* Indices into the ParamSet. */
typedef struct BlockParams {
  int norm1_weight, norm1_bias, norm2_weight, norm2_bias;
  int query_weight, query_bias, key_weight, key_bias, value_weight, value_bias; /* [D, D], [D] */
  int output_weight, output_bias;                                               /* [D, D], [D] */
  int up_weight, up_bias, down_weight, down_bias;                               /* [mlp, D], [mlp]; [D, mlp], [D] */
} BlockParams;

typedef struct BlockContext {
  const ModelConfig *config;
  ParamSet *params;
  const TokenLayout *layout;
  Exchange *exchange; /* NULL: no remote tokens */
  Exchange *watch;    /* begin is called with each site's activations; NULL: nobody looks */
} BlockContext;

/* x [B, S, D] -> [B, S, D]; with class_only (a last block, where nothing else is still wanted) only the class-token rows are carried on:
 * [B, class_rows, D], and NULL, without a failure, where the layout has none. */
Tensor *block_forward(const BlockContext *context, const BlockParams *block, int index, bool class_only, Tape *tape, Tensor *x);

#endif
