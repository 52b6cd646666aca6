/* What a node has in place of a code exchange where the nodes share heads and columns instead of tokens (nn/tensor_parallel.h): its sums
 * and joins over all devices, one after another, over the node's transport. */
#ifndef INFER_TENSOR_PARALLEL_NODE_H
#define INFER_TENSOR_PARALLEL_NODE_H
#include "infer/strategy/collective.h"
#include "nn/tensor_parallel.h"

typedef struct TensorParallelNode {
  Model *model;
  TensorParallel how;
  Collective collective;
  CollectiveSetup setup;
  ReduceStep *steps; /* of the request at work */
} TensorParallelNode;

/* node->model and node->how's strategy and retained blocks are set. layout: of the largest request, of `batch` samples. transport: what
 * follows for it. UNSUPPORTED: more devices or steps than a request can have. */
Status tensor_parallel_node_plan(TensorParallelNode *node, int self, int nodes, int64_t batch, const TokenLayout *layout,
                                 TransportSetup *transport);

/* check is called while others are waited for. */
Status tensor_parallel_node_start(TensorParallelNode *node, TransportThread *transport, TransportCheck *check, void *context);
void tensor_parallel_node_release(TensorParallelNode *node); /* after the transport; accepts a zeroed one */

/* As model_encode, of request `number`. */
Status tensor_parallel_node_encode(TensorParallelNode *node, uint32_t number, Tape *tape, const ModelInput *input, int64_t batch,
                                   const TokenLayout *layout, ModelRows rows, Tensor **encoded);

#endif
