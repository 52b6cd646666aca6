/* What a leader and its nodes have agreed on before the first request: every length on the wire follows from it and the request. */
#ifndef INFER_NODE_SETUP_H
#define INFER_NODE_SETUP_H
#include "infer/cluster/setup_message.h"
#include "infer/partition.h"
#include "infer/token_split.h"
#include "infer/weights.h"
#include "nn/strategy.h"

typedef struct NodeSetup {
  const Weights *weights;      /* shared; outlives the nodes */
  const Partition *partition;  /* of an image's tokens; NULL for a language model */
  int64_t batch_max;           /* images, or sequences, of the largest request */
  double timeout;              /* seconds without a sign of life from another node */
  Strategy strategy;           /* how several nodes divide the model */
  int retained;                /* bp-*: blocks that are computed whole */
  bool keep_codes;             /* requests may ask for the codes */
  bool mask;                   /* goes on without a node that is gone, its tokens masked */
  const TokenSplit *split;     /* of a text's tokens; NULL for a model of images */
  int64_t tokens_max;          /* of the longest sequence, new tokens included; likewise 0 */
  ClassToken class_token;      /* of images: who has one */
  const ClusterSetup *network; /* transport, reliability, parts, MTU and links of codes; the rest of it is not looked at. NULL: streams */
  /* What keys of datagrams are bound to (setup_message_agreed). */
  uint8_t agreed[SETUP_AGREED];
} NodeSetup;

static inline int node_setup_count(const NodeSetup *setup) { return setup->split ? setup->split->nodes : setup->partition->nodes; }

#endif
