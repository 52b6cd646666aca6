/* Counts of tokens from weights: see token_split.h. */
#include "infer/token_split.h"
#include "infer/partition.h"
#include "nn/layout.h"
#include <math.h>

static const double min_weight = 1e-9;

static Status check_nodes(int nodes) {
  if (nodes >= 1 && nodes <= WIRE_NODES) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "%d nodes: a cluster has 1 to %d devices; choose with --nodes", nodes, WIRE_NODES);
}

/* Relative to the largest, so that counts are finite for any length. */
static Status read_list(TokenSplit *split, const char *list) {
  double max = 0;
  TRY(partition_split_weights(list, split->nodes, split->weights));
  for (int d = 0; d < split->nodes; d++) max = fmax(max, split->weights[d]);
  for (int d = 0; d < split->nodes; d++) {
    split->weights[d] /= max;
    if (split->weights[d] < min_weight)
      return status_set(STATUS_BAD_USAGE, "--split %s: the weight of node %d is less than %g of the largest", list, d, min_weight);
  }
  return STATUS_OK;
}

Status token_split_init(TokenSplit *split, int nodes, const char *list) {
  *split = (TokenSplit){.nodes = nodes};
  TRY(check_nodes(nodes));
  for (int d = 0; d < nodes; d++) split->weights[d] = 1;
  return list ? read_list(split, list) : STATUS_OK;
}

Status token_split_map(TokenSplit *split, const int32_t *device_of, int64_t tokens) {
  *split = (TokenSplit){0};
  for (int64_t i = 0; i < tokens; i++) {
    bool goes_on = i > 0 && device_of[i] == device_of[i - 1];
    if (!goes_on && device_of[i] != split->nodes)
      return status_set(STATUS_BAD_VALUE, "token %lld of a text is on device %d: devices hold contiguous spans in order", (long long)i,
                        (int)device_of[i]);
    if (!goes_on) TRY(check_nodes(++split->nodes));
    split->weights[split->nodes - 1]++;
  }
  return split->nodes ? STATUS_OK : status_set(STATUS_BAD_VALUE, "a map of no tokens");
}

int token_split_counts(const TokenSplit *split, int64_t tokens, int64_t *counts) {
  int nodes = tokens < split->nodes ? (int)tokens : split->nodes;
  for (int d = nodes; d < split->nodes; d++) counts[d] = 0;
  (void)layout_weighted_counts(tokens, nodes, split->weights, counts); /* which holds for weights in [1e-9, 1] or counts of tokens */
  return nodes;
}
