/* The rule that says which node holds which tokens of a text, whatever its length: contiguous spans in order, even or in proportion to
 * weights. Leader and nodes know the rule; a request carries the length alone. */
#ifndef INFER_TOKEN_SPLIT_H
#define INFER_TOKEN_SPLIT_H
#include "base/status.h"
#include "infer/wire.h"

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
