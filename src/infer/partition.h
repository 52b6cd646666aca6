/* Which node holds which tokens. Images: counts from weights, placed by a named map (nn/layout.h), or any map. Texts: a rule. */
#ifndef INFER_PARTITION_H
#define INFER_PARTITION_H
#include "infer/wire.h"
#include "nn/layout.h"

typedef struct Partition {
  int nodes;
  int64_t tokens;
  int64_t *counts;       /* [nodes] */
  int32_t *order;        /* [tokens] content tokens sorted by node */
  TokenMap map;          /* that `order` follows from, on a grid of */
  int64_t height, width; /* tokens; 0: no named map, `order` is what it is */
} Partition;

/* Spans of the raster order: split "3,1,1,1" in proportion to these weights, one for each node; NULL: as even as possible. More nodes than
 * tokens (or than the wire format can number) is BAD_VALUE; BAD_USAGE when the text is no list of `nodes` positive numbers. */
Status partition_init(Partition *partition, int64_t tokens, int nodes, const char *split);

/* device_of [tokens]: any map; nodes are numbered 0..N-1, each with at least one token. */
Status partition_map(Partition *partition, int64_t tokens, const int32_t *device_of);

/* Places the tokens of an image by a map, with the present counts and whenever partition_recount changes them. BAD_VALUE: the grid has
 * another number of tokens. */
Status partition_place(Partition *partition, const TokenMap *map, int64_t height, int64_t width);

/* Other counts [nodes], which sum to the tokens. Without a named map the nodes' spans of `order` move, and order stays as it is. */
Status partition_recount(Partition *partition, const int64_t *counts);

/* The tokens of `from` on `nodes` nodes with these counts, by the same map (or in the same order). */
Status partition_spread(Partition *partition, const Partition *from, int nodes, const int64_t *counts);

/* The layout of one node (self) or of all together (self = -1); a partition of one node is the plain model. */
Status partition_layout(const Partition *partition, ClassToken class_token, int self, TokenLayout *layout);

void partition_release(Partition *partition);

/* How many weights a split names, or 0 when it is malformed: `--split 3,1,1,1` alone means four nodes. */
int partition_split_length(const char *split);

/* ---- texts: which node holds which tokens, for any length: contiguous spans in order, even or in proportion to weights. Leader and nodes
 * know the rule; a request carries only the length. ---- */

typedef struct TokenSplit {
  int nodes;
  double weights[WIRE_NODES]; /* [nodes], all 1 when even */
} TokenSplit;

/* list: "3,1,1,1", or NULL for even. BAD_USAGE when it is no list of `nodes` positive numbers; BAD_VALUE on more nodes than the wire format
 * can number. */
Status token_split_init(TokenSplit *split, int nodes, const char *list);

/* The spans of device_of [tokens] as a rule that gives just these for that length. BAD_VALUE when they are not contiguous and in order. */
Status token_split_map(TokenSplit *split, const int32_t *device_of, int64_t tokens);

/* counts [split->nodes] of a text of that many tokens (at least 1). Each node that takes part has a token at least, so with fewer tokens
 * than nodes only the first `tokens` nodes do; the others' counts are 0. Returns how many take part. */
int token_split_counts(const TokenSplit *split, int64_t tokens, int64_t *counts);

#endif
