/* Which node holds which content tokens: counts from weights, spans of the raster order, or any map. */
#ifndef INFER_PARTITION_H
#define INFER_PARTITION_H
#include "infer/wire.h"
#include "nn/layout.h"

typedef struct Partition {
  int nodes;
  int64_t tokens;
  int64_t *counts; /* [nodes] */
  int32_t *order;  /* [tokens] content tokens sorted by node */
} Partition;

/* As even as can be, in raster order. More nodes than tokens (or than the wire format can number) is BAD_VALUE. */
Status partition_even(Partition *partition, int64_t tokens, int nodes);

/* "3,1,1,1": contiguous spans in proportion to the weights, one for each node. BAD_USAGE when the text is no list of `nodes` positive
 * numbers. */
Status partition_split(Partition *partition, int64_t tokens, int nodes, const char *split);

/* device_of [tokens]: any map; nodes are numbered 0..N-1, each with at least one token. */
Status partition_map(Partition *partition, int64_t tokens, const int32_t *device_of);

/* The layout of one node (self) or of all together (self = -1); a partition of one node is the plain model. */
Status partition_layout(const Partition *partition, ClassToken class_token, int self, TokenLayout *layout);

void partition_release(Partition *partition);

/* Its weights alone; likewise. */
Status partition_split_weights(const char *split, int nodes, double weights[WIRE_NODES]);

/* How many weights a split names, or 0 when it is malformed: `--split 3,1,1,1` alone means four nodes. */
int partition_split_length(const char *split);

#endif
