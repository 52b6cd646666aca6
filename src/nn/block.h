/* One transformer block, pre-norm: x + attention(norm(x)), then x + mlp(norm(x)). The same for ViT, GPT-2 and Llama, for training and for a
 * node; where it needs the other devices' tokens it calls the exchange (paper section 3.1). The parts that architectures differ in are
 * fields, not copies of the block. */
#ifndef NN_BLOCK_H
#define NN_BLOCK_H
#include "autograd/ops/ops.h"
#include "autograd/param.h"
#include "nn/config.h"
#include "nn/exchange.h"
#include "nn/kv_cache.h"

/* Is told the output rows [B, S, D] of each block but the last, which computes the wanted rows alone. */
typedef struct BlockOutputs BlockOutputs;
struct BlockOutputs {
  void (*take)(BlockOutputs *self, Tape *tape, int block, Tensor *x);
};

/* Cosines and sines of rotary positions (Su et al., 2021), computed once for a model, as Hugging Face lays them out for its half rotation.
 */
typedef struct RopeTable {
  real *cosine, *sine; /* [count, d / 2], in one block of memory */
  int64_t count;       /* positions: the model's context */
} RopeTable;

/* A linear map of the block: some outputs of a weight of the ParamSet, plus a low-rank adapter (Hu et al., 2022) where there is one:
 * W x + b + adapter_scale B A x. All are indices into the ParamSet; -1: none. */
typedef struct Projection {
  int weight, bias; /* [out, in] or, transposed, [in, out]; [out] */
  LinearPart part;
  int lora_a, lora_b; /* A [r, in], B [part.count, r] */
} Projection;

typedef struct BlockParams {
  int norm1_weight, norm1_bias, norm2_weight, norm2_bias; /* [D]; bias -1: RMSNorm */
  Projection query, key, value, output;                   /* D -> D, kv width, kv width; D -> D */
  Projection rotation;                 /* site width W -> W: what is quantised, of the rows after the first norm or (site kv) of keys;
                                        * weight -1: these */
  Projection rotation_value;           /* site kv: of values */
  Projection prediction;               /* P -> W: what is expected of them, from the block before (exchange.h), of the bit rate in use
                                        * (model_use_rate); weight -1: nothing */
  Projection prediction_value;         /* site kv: of values */
  int position_mean[EXCHANGE_SITES];   /* [T + 1, W] of each site, taken off what is quantised: row 0 of the class token, 1 + t of token t;
                                        * -1: nothing */
  Projection remote_key, remote_value; /* with a rotation, W -> kv width: keys and values of quantised rows */
  Projection gate, up, down;           /* D -> mlp, D -> mlp, mlp -> D; gate.weight -1: no SwiGLU but an activation */
} BlockParams;

/* Of quantised rows: the key and value projections themselves unless the model has a rotation. */
static inline const Projection *block_remote_key(const BlockParams *block) {
  return block->remote_key.weight >= 0 ? &block->remote_key : &block->key;
}
static inline const Projection *block_remote_value(const BlockParams *block) {
  return block->remote_value.weight >= 0 ? &block->remote_value : &block->value;
}

/* Which rows a block carries on: all, or those that alone are still wanted of the last block. */
typedef enum ModelRows {
  MODEL_ROWS_ALL,
  MODEL_ROWS_CLASS, /* class-token replicas (ViT) */
  MODEL_ROWS_LAST   /* the row of the last token (decoders), in the process that has it */
} ModelRows;

/* "block 3 of 12, counted from 0,", "the embedding" for BLOCK_EMBEDDING, "the head" for the number of blocks; returns text. */
enum { BLOCK_EMBEDDING = -1, BLOCK_NONE = -2, BLOCK_PLACE = 64 };
const char *block_place(const ModelConfig *config, int index, char text[BLOCK_PLACE]);

#endif
