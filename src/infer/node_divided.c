/* A node that shares heads and columns with the others instead of tokens (nn/tensor_parallel.h): its sums and joins, and its transport. */
#include "infer/node_parts.h"
#include "nn/tensor_parallel.h"
#include <stdlib.h>

static TensorParallel division_of(Node *node) {
  return (TensorParallel){
      .strategy = node->setup->strategy, .retained = node->setup->retained, .reduce = &node->division.collective.reduce};
}

/* Steps of a request, or of the largest one, whose layout node->layout then is. */
static int find_steps(Node *node, int64_t batch, ModelRows rows, ReduceStep *steps) {
  const TensorParallel how = division_of(node);
  return tensor_parallel_steps(node->setup->weights->config, &how, batch, &node->layout, rows, steps);
}

/* While others are waited for. */
static Status look_around(void *context) {
  Node *node = context;
  TRY(node_look_at_leader(node));
  return node->cancelled ? status_set(STATUS_INTERRUPTED, "the request was cancelled") : STATUS_OK;
}

Status node_divided_start(Node *node, Connection **peers) {
  NodeDivision *division = &node->division;
  int count = find_steps(node, node->setup->batch_max, MODEL_ROWS_ALL, NULL);
  if (!(division->steps = calloc((size_t)count + 1, sizeof *division->steps)))
    return status_set(STATUS_NO_MEMORY, "no memory for %d sums", count);
  find_steps(node, node->setup->batch_max, MODEL_ROWS_ALL, division->steps);
  CollectiveSetup setup = {.self = node->self, .nodes = node->nodes, .steps = count, .max = division->steps};
  TransportSetup transport = {.mask = false};
  TRY(collective_check(&setup));
  collective_transport(&setup, &transport);
  TRY(node_start_transport(node, peers, &transport));
  setup.transport = node->transport;
  TRY(collective_init(&division->collective, &setup));
  division->collective.check = look_around;
  division->collective.check_context = node;
  node->divided = true;
  return STATUS_OK;
}

void node_divided_release(Node *node) {
  collective_release(&node->division.collective);
  free(node->division.steps);
  node->division = (NodeDivision){.steps = NULL};
}

Status node_divided_encode(Node *node, const ModelInput *input, int64_t batch, ModelRows rows, Tensor **encoded) {
  NodeDivision *division = &node->division;
  const TensorParallel how = division_of(node);
  find_steps(node, batch, rows, division->steps);
  TRY(collective_begin_request(&division->collective, node->answered + 1, division->steps));
  *encoded = tensor_parallel_encode(node->setup->weights->model, node->tape, input, &node->layout, &how, rows);
  return tape_status(node->tape);
}
