/* What each node of a cluster holds of a request's tokens, and which of them answers, by strategy: leader and nodes compute it alike.
 *
 *   astra, sp   each node its own tokens; replicas of the class token from those that have one, what a text's end says from the last node
 *   tp, bp-*    each node all tokens; node 0 answers, of losses each for its share of the rows
 *   single      node 0 all tokens, and the answer; the others nothing */
#ifndef INFER_NODE_SHARE_H
#define INFER_NODE_SHARE_H
#include "infer/cluster/setup_message.h"
#include "infer/partition.h"
#include "infer/weights.h"
#include "nn/strategy.h"

/* What a leader and its nodes have agreed on before the first request: every length on the wire follows from it and the request. */
typedef struct NodeSetup {
  const Weights *weights;      /* shared; outlives the nodes */
  const Partition *partition;  /* of an image's tokens; NULL for a language model */
  int64_t batch_max;           /* images, or sequences, of the largest request */
  double timeout;              /* seconds without a sign of life from another node */
  Strategy strategy;           /* how several nodes divide the model */
  int retained;                /* bp-*: blocks that are computed whole */
  bool keep_codes;             /* requests may ask for the codes */
  bool mask;                   /* continues without a node that is gone, whose tokens count as lost */
  const TokenSplit *split;     /* of a text's tokens; NULL for a model of images */
  int64_t tokens_max;          /* of the longest sequence, new tokens included; 0 for images */
  int sequences;               /* that a node decodes at the same time; 0: requests of sequences are not served */
  ClassToken class_token;      /* of images: who has one */
  const ClusterSetup *network; /* transport, reliability, parts, MTU and links of codes; the rest of it is not looked at. NULL: streams */
  /* What keys of datagrams are bound to (setup_message_agreed). */
  uint8_t agreed[SETUP_AGREED];
} NodeSetup;

static inline int node_setup_count(const NodeSetup *setup) { return setup->split ? setup->split->nodes : setup->partition->nodes; }

/* What concerns one node: the sizes of its part of the answer. */
typedef struct RequestShare {
  int64_t class_rows; /* class-token replicas */
  int64_t sent_rows;  /* tokens whose codes it sends, of one sample */
  bool last;          /* it has the last token of a text */
  int64_t tokens;     /* content tokens of an image whose patches it is sent */
} RequestShare;

/* Of one node among others; of a node by itself always STRATEGY_SINGLE. */
Strategy node_share_strategy(const NodeSetup *setup);
bool node_share_everything(const NodeSetup *setup); /* each node has all tokens: tp, bp-* */

/* Whether the strategy is possible with this model and number of nodes; BAD_VALUE or UNSUPPORTED says what is possible. */
Status node_share_check(const NodeSetup *setup);

/* Whether the largest request and its answer are of a size from which no other size, of memory or messages, can wrap: 2 GB of patches, or
 * of ids and outputs. A leader and its devices look alike, before they allocate for it. BAD_VALUE. */
Status node_share_check_batch(const NodeSetup *setup);

/* counts [nodes] of an image or text of `tokens` tokens, whose last span is that of node home - 1; home 0: spans are in the order of the
 * nodes (Request.home). Returns the node that answers for the end of a text. */
int node_share_counts(const NodeSetup *setup, int64_t tokens, int home, int64_t *counts);

/* A node's rows; none where it takes no part. The layout numbers spans, of which the first is node node_share_first. */
Status node_share_layout(const NodeSetup *setup, int64_t tokens, int home, int node, TokenLayout *layout);
int node_share_first(const NodeSetup *setup, int64_t tokens, int home);

/* Its part of request and answer. */
RequestShare node_share_of(const NodeSetup *setup, int node, const TokenLayout *layout);

#endif
