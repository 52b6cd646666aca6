/* Counts and maps of tokens; nn/layout.c has the named maps and the rows that follow. */
#include "infer/partition.h"
#include "base/options.h"
#include "base/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static Status check_nodes(int nodes) {
  if (nodes >= 1 && nodes <= WIRE_NODES) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "%d nodes: a cluster has 1 to %d devices; choose with --nodes", nodes, WIRE_NODES);
}

int partition_split_length(const char *split) {
  double weights[WIRE_NODES];
  return options_reals(split, weights, WIRE_NODES);
}

static Status split_weights(const char *split, int nodes, double weights[WIRE_NODES]) {
  int count = options_reals(split, weights, WIRE_NODES);
  if (count == 0)
    return status_set(STATUS_BAD_USAGE, "--split %s: a list of positive numbers is accepted, one for each node, such as 3,1,1,1", split);
  if (count != nodes)
    return status_set(STATUS_BAD_USAGE, "--split %s names %d node%s, but there %s %d", split, count, text_plural(count),
                      nodes == 1 ? "is" : "are", nodes);
  return STATUS_OK;
}

Status partition_init(Partition *partition, int64_t tokens, int nodes, const char *split) {
  double weights[WIRE_NODES];
  *partition = (Partition){0};
  if (split) TRY(split_weights(split, nodes, weights));
  TRY(check_nodes(nodes));
  if (nodes > tokens)
    return status_set(STATUS_BAD_VALUE, "%d nodes for %lld token%s: each node needs at least one token", nodes, (long long)tokens,
                      text_plural(tokens));
  *partition = (Partition){.nodes = nodes,
                           .tokens = tokens,
                           .counts = calloc((size_t)nodes, sizeof *partition->counts),
                           .order = calloc((size_t)tokens, sizeof *partition->order)};
  bool memory = partition->counts && partition->order;
  Status status = memory ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for a map of %lld tokens", (long long)tokens);
  if (memory && split) status = layout_weighted_counts(tokens, nodes, weights, partition->counts);
  if (memory && !split) layout_even_counts(tokens, nodes, partition->counts);
  for (int64_t i = 0; memory && i < tokens; i++) partition->order[i] = (int32_t)i;
  if (status != STATUS_OK) partition_release(partition);
  return status;
}

Status partition_map(Partition *partition, int64_t tokens, const int32_t *device_of) {
  *partition = (Partition){0};
  int nodes = 0;
  for (int64_t i = 0; i < tokens; i++) {
    if (device_of[i] < 0 || device_of[i] >= WIRE_NODES)
      return status_set(STATUS_BAD_VALUE, "token %lld is on device %d; devices 0 to %d are accepted", (long long)i, (int)device_of[i],
                        WIRE_NODES - 1);
    if (device_of[i] >= nodes) nodes = device_of[i] + 1;
  }
  TRY(partition_init(partition, tokens, nodes, NULL));
  memset(partition->counts, 0, (size_t)nodes * sizeof *partition->counts);
  int64_t place = 0;
  for (int d = 0; d < nodes; d++) {
    for (int64_t i = 0; i < tokens; i++) {
      if (device_of[i] != d) continue;
      partition->order[place++] = (int32_t)i;
      partition->counts[d]++;
    }
    if (partition->counts[d] > 0) continue;
    partition_release(partition);
    return status_set(STATUS_BAD_VALUE, "device %d of the map holds no token", d);
  }
  return STATUS_OK;
}

static Status place(Partition *partition) {
  if (partition->width == 0) return STATUS_OK;
  return token_map_order(&partition->map, partition->height, partition->width, partition->nodes, partition->counts, partition->order);
}

Status partition_place(Partition *partition, const TokenMap *map, int64_t height, int64_t width) {
  if (height < 1 || width < 1 || partition->tokens / width != height || partition->tokens % width != 0)
    return status_set(STATUS_BAD_VALUE, "a grid of %lld x %lld tokens for %lld tokens", (long long)height, (long long)width,
                      (long long)partition->tokens);
  partition->map = *map;
  partition->height = height;
  partition->width = width;
  return place(partition);
}

Status partition_recount(Partition *partition, const int64_t *counts) {
  memcpy(partition->counts, counts, (size_t)partition->nodes * sizeof *counts);
  return place(partition);
}

Status partition_spread(Partition *partition, const Partition *from, int nodes, const int64_t *counts) {
  TRY(partition_init(partition, from->tokens, nodes, NULL));
  memcpy(partition->order, from->order, (size_t)from->tokens * sizeof *from->order);
  partition->map = from->map;
  partition->height = from->height;
  partition->width = from->width;
  return partition_recount(partition, counts);
}

Status partition_layout(const Partition *partition, ClassToken class_token, int self, TokenLayout *layout) {
  if (partition->nodes == 1) return layout_build_plain(layout, partition->tokens, class_token);
  return layout_build(layout, partition->tokens, partition->nodes, partition->counts, partition->order, class_token, self);
}

void partition_release(Partition *partition) {
  free(partition->counts);
  free(partition->order);
  *partition = (Partition){0};
}

/* ---- texts ---- */

static const double min_weight = 1e-9;

Status token_split_init(TokenSplit *split, int nodes, const char *list) {
  double max = 0;
  *split = (TokenSplit){.nodes = nodes};
  TRY(check_nodes(nodes));
  for (int d = 0; d < nodes; d++) split->weights[d] = 1;
  if (!list) return STATUS_OK;
  /* Relative to the largest, so that counts are finite for any length. */
  TRY(split_weights(list, split->nodes, split->weights));
  for (int d = 0; d < split->nodes; d++) max = fmax(max, split->weights[d]);
  for (int d = 0; d < split->nodes; d++) {
    split->weights[d] /= max;
    if (split->weights[d] < min_weight)
      return status_set(STATUS_BAD_USAGE, "--split %s: the weight of node %d is less than %g of the largest", list, d, min_weight);
  }
  return STATUS_OK;
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
