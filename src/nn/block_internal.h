/* The pieces of a transformer block, private to src/nn: block.c puts them together whole and part by part, tensor_parallel.c by heads and
 * columns. */
#ifndef NN_BLOCK_INTERNAL_H
#define NN_BLOCK_INTERNAL_H
#include "autograd/ops/decode_attention.h"
#include "autograd/ops/ops.h"
#include "nn/block.h"

typedef struct BlockContext {
  const ModelConfig *config;
  ParamSet *params;
  const RopeTable *rope; /* NULL: no rotary positions */
  bool causal;
  double adapter_scale; /* alpha / r */
  double drop_path;     /* of the last block; 0: none is left out (model_drop_path) */
  uint64_t drop_seed;
  int64_t drop_first;
  const TokenLayout *layout;
  Exchange *exchange;    /* NULL: no remote tokens */
  Exchange *watch;       /* begin is called with each site's activations; NULL: not called */
  BlockOutputs *outputs; /* NULL: nobody is told */
  int *not_finite;       /* takes the first place whose output is not finite (block_place); or NULL */
  Tensor *known;         /* of a node: the embeddings of the remote tokens [B, remote, D] (AstraConfig.exact_first); NULL: not needed */
  KvCache *cache;        /* takes keys and values of the rows; those that it has already are what a new row sees (decoding); NULL: none */
} BlockContext;

/* x [B, S, D] -> [B, S, D], or with other rows than all [B, class_rows, D] or [B, last_rows, D]; NULL, without a failure, where the
 * layout has none of them: such a process has sent its codes all the same. */
Tensor *block_forward(const BlockContext *context, const BlockParams *block, int index, ModelRows rows, Tape *tape, Tensor *x);

/* LayerNorm, or RMSNorm where bias is -1. */
Tensor *block_norm(const BlockContext *context, Tape *tape, Tensor *x, int weight, int bias);

typedef struct BlockKeys {
  Tensor *k, *v; /* [B, rows, kv width] */
} BlockKeys;

/* The rows that ask. */
typedef struct BlockWanted {
  const int32_t *row;     /* [count]; NULL: all rows, or a part of them */
  const int64_t *of_span; /* [spans] how many of them are in each span; NULL: all rows */
  const int32_t *token;   /* [rows or count] their positions */
  int64_t count;
  bool part; /* rows [first, first + count) of the one span: what comes after them is not theirs to see in a causal model */
  int64_t first;
} BlockWanted;

static inline BlockWanted block_wanted(const TokenLayout *layout, ModelRows rows) {
  if (rows == MODEL_ROWS_CLASS) return (BlockWanted){layout->class_row, layout->class_of_span, NULL, layout->class_rows, false, 0};
  if (rows == MODEL_ROWS_LAST)
    return (BlockWanted){layout->last_row, layout->last_of_span, layout->last_token, layout->last_rows, false, 0};
  return (BlockWanted){.token = layout->row_token, .count = layout->rows};
}

/* x's wanted rows; NULL, without a failure, where there are none. */
static inline Tensor *block_wanted_of(const BlockWanted *wanted, Tape *tape, Tensor *x) {
  if (wanted->row == NULL) return x;
  return wanted->count > 0 ? op_gather_rows(tape, x, wanted->row, wanted->count) : NULL;
}

static inline Tensor *block_param(const BlockContext *context, int index) { /* NULL for -1 */
  return index < 0 ? NULL : &context->params->list[index].tensor;
}

Tensor *block_map(const BlockContext *context, Tape *tape, Tensor *x, const Projection *projection); /* W x + b + its adapter */
BlockKeys block_keys(const BlockContext *context, const BlockParams *block, Tape *tape, Tensor *x);

/* Rotary positions, where the model has them; NULL for NULL. */
Tensor *block_rotate(const BlockContext *context, Tape *tape, Tensor *x, int64_t heads, const int32_t *positions);

/* Attention of the wanted rows' q over own and remote keys; remote may be {NULL, NULL}. lost as the exchange says it, or NULL. */
Tensor *block_attend(const BlockContext *context, Tape *tape, Tensor *q, BlockKeys own, BlockKeys remote, const uint8_t *lost,
                     const BlockWanted *wanted);

/* Of decoding: what makes keys and values of what other devices sent. UNSUPPORTED, told to the tape, with adapters: false. */
bool block_decode_projections(const BlockContext *context, const BlockParams *block, Tape *tape, DecodeProjection *key,
                              DecodeProjection *value);

/* What follows attention in block `index`: output projection + residual, then + mlp(norm), each branch with stochastic depth where the
 * context asks for it. NULL for mixed NULL. */
Tensor *block_tail(const BlockContext *context, const BlockParams *block, int index, Tape *tape, Tensor *mixed, Tensor *residual);

/* x, the output of a block or of what else block_place knows. Values that are not finite fail a tape that does not
 * record, NUMERIC with a message that names the block; of training they are noted alone (model_not_finite), since the loss tells more. */
Tensor *block_checked(const BlockContext *context, Tape *tape, int index, Tensor *x);

/* An exchange's failure becomes the tape's. */
bool block_status(Tape *tape, Status status);

/* x [B, S, D], the input of block 0, through all blocks -> what block_forward of the last one gives for these rows. While a tape that uses
 * segments records, the first `recomputed` blocks are segments; while it does not record, all are. Where context->exchange has several
 * parts, nothing is recorded, nobody watches and nothing is decoded, parts go through the blocks one after another: one sample (B = 1) on
 * one node, else BAD_VALUE; a part without rows is neither begun nor computed. */
Tensor *block_encode_all(const BlockContext *context, const BlockParams *blocks, int recomputed, ModelRows rows, Tape *tape, Tensor *x);

#endif
