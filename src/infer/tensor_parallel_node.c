/* See tensor_parallel_node.h. Which sums and joins there are follows from the model and the strategy (tensor_parallel_steps). */
#include "infer/tensor_parallel_node.h"
#include <stdlib.h>

Status tensor_parallel_node_plan(TensorParallelNode *node, int self, int nodes, int64_t batch, const TokenLayout *layout,
                                 TransportSetup *transport) {
  const ModelConfig *config = model_config(node->model);
  int count = tensor_parallel_steps(config, &node->how, batch, layout, MODEL_ROWS_ALL, NULL);
  if (!(node->steps = calloc((size_t)count + 1, sizeof *node->steps))) return status_set(STATUS_NO_MEMORY, "no memory for %d sums", count);
  tensor_parallel_steps(config, &node->how, batch, layout, MODEL_ROWS_ALL, node->steps);
  node->setup = (CollectiveSetup){.self = self, .nodes = nodes, .steps = count, .max = node->steps};
  TRY(collective_check(&node->setup));
  collective_transport(&node->setup, transport);
  return STATUS_OK;
}

Status tensor_parallel_node_start(TensorParallelNode *node, TransportThread *transport, TransportCheck *check, void *context) {
  node->setup.transport = transport;
  TRY(collective_init(&node->collective, &node->setup));
  node->collective.check = check;
  node->collective.check_context = context;
  node->how.reduce = &node->collective.reduce;
  return STATUS_OK;
}

void tensor_parallel_node_release(TensorParallelNode *node) {
  collective_release(&node->collective);
  free(node->steps);
  node->steps = NULL;
}

Status tensor_parallel_node_encode(TensorParallelNode *node, uint32_t number, Tape *tape, const ModelInput *input, int64_t batch,
                                   const TokenLayout *layout, ModelRows rows, Tensor **encoded) {
  tensor_parallel_steps(model_config(node->model), &node->how, batch, layout, rows, node->steps);
  TRY(collective_begin_request(&node->collective, number, node->steps));
  *encoded = tensor_parallel_encode(node->model, tape, input, layout, &node->how, rows);
  return tape_status(tape);
}
