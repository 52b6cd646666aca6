/* What each node of a cluster holds of a request's tokens, and which of them answers, by strategy: leader and nodes compute it alike.
 *
 *   astra, sp   each node its own tokens; replicas of the class token from those that have one, what a text's end says from the last node
 *   tp, bp-*    each node all tokens; node 0 answers, of losses each for its share of the rows
 *   single      node 0 all tokens, and the answer; the others nothing */
#ifndef INFER_NODE_SHARE_H
#define INFER_NODE_SHARE_H
#include "infer/node_setup.h"
#include "infer/request.h"

/* Of one node among others; of a node by itself always STRATEGY_SINGLE. */
Strategy node_share_strategy(const NodeSetup *setup);
bool node_share_everything(const NodeSetup *setup); /* each node has all tokens: tp, bp-* */

/* Whether the strategy can do what is wanted of this model with so many nodes; BAD_VALUE or UNSUPPORTED says what is possible. */
Status node_share_check(const NodeSetup *setup);

/* counts [nodes] of an image or text of `tokens` tokens. Returns the node that answers for the end of a text. */
int node_share_counts(const NodeSetup *setup, int64_t tokens, int64_t *counts);

/* A node's rows; none where it takes no part. */
Status node_share_layout(const NodeSetup *setup, int64_t tokens, int node, TokenLayout *layout);

/* Its part of request and answer. */
RequestShare node_share_of(const NodeSetup *setup, int node, const TokenLayout *layout);

#endif
