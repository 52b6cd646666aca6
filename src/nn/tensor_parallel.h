/* Blocks divided by heads and MLP columns instead of tokens: the baselines that ASTRA is compared with. Every device has all rows.
 *
 *   tp      each device computes its heads' share of attention and its columns' share of the MLP; two sums a block (Megatron: Shoeybi et
 *           al., 2019). The same numbers as the plain model, except for rounding.
 *   bp-*    blocks decoupled as in DeTransformer (Wei et al., 2024): as tp, but without the sums, so that each device carries a stream of
 * its own; `retained` blocks are computed whole, after a join of the streams, of which each device contributes its columns. bp-ag: every
 * device computes all of a retained block; bp-sp: its share of the rows, which are then joined. The results are not those of the plain
 * model: this measures the latency of a model trained in this way (our definition: docs/MATH.md).
 *
 * The last of each `blocks / retained` blocks is a retained one. */
#ifndef NN_TENSOR_PARALLEL_H
#define NN_TENSOR_PARALLEL_H
#include "nn/exchange.h"
#include "nn/model.h"
#include "nn/strategy.h"

/* The part of a block that one device computes. */
typedef struct HeadShare {
  int64_t first_kv, kv_heads;  /* key and value heads, with the query heads that they serve */
  int64_t first_mlp, mlp;      /* columns of the MLP's hidden rows */
  int64_t first_column, width; /* columns of the stream, for joins */
} HeadShare;

/* As in layout_even_counts. BAD_VALUE when there are more devices than key and value heads, or there is no such device. */
Status tensor_parallel_share(const ModelConfig *config, int device, int devices, HeadShare *share);

typedef struct TensorParallel {
  Strategy strategy; /* STRATEGY_TP, _BP_AG or _BP_SP */
  int retained;      /* bp-*: blocks, at least 1 */
  Reduce *reduce;    /* knows which device this is, and of how many */
} TensorParallel;

/* The sums and joins of block `index`, in the order in which each device asks for them; returns how many. rows: of a sample; wanted:
 * those that the block passes on. A sum of tp is followed by computation, except the last; a retained block of bp-* begins with its first
 * join, and the others have none. */
enum { TENSOR_PARALLEL_STEPS = 2 /* maximum per block */ };
int tensor_parallel_block_steps(const ModelConfig *config, const TensorParallel *how, int64_t index, int64_t batch, int64_t rows,
                                int64_t wanted, ReduceStep steps[TENSOR_PARALLEL_STEPS]);

/* The sums and joins of a pass over `batch` samples, in the order in which each device asks for them; returns how many there are, which
 * depends only on model and strategy. steps may be NULL. */
int tensor_parallel_steps(const ModelConfig *config, const TensorParallel *how, int64_t batch, const TokenLayout *layout, ModelRows rows,
                          ReduceStep *steps);

/* As model_encode of the plain model: all blocks and the final norm. layout: layout_build_plain. Every device gets the rows, tp and bp-*
 * with equal bits. What model_watch has set is asked to begin each block, site 0 with its input. Not for a tape that records,
 * nor with a cache (UNSUPPORTED), nor adapters. */
Tensor *tensor_parallel_encode(Model *model, Tape *tape, const ModelInput *input, const TokenLayout *layout, const TensorParallel *how,
                               ModelRows rows);

#endif
