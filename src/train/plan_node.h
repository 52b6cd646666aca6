/* What a node of a cluster takes to run a language model: for --dry-run. Leaves out activations, which a request's length decides. */
#ifndef TRAIN_PLAN_NODE_H
#define TRAIN_PLAN_NODE_H
#include "nn/model.h"

typedef struct PlanNode {
  int64_t tokens;           /* N of the longest sequence */
  double weights;           /* bytes in 16 bits (norms and biases in 32), once for all processes of a machine */
  double codebooks;         /* L C K d 4, the paper's M_codebook in 32 bits */
  double cache;             /* keys and values: own tokens in full, 32 bits, those of the others as codes */
  double cache_full;        /* all tokens in full, 32 bits */
  double paper, paper_full; /* the paper's M_KV^ASTRA and M_KV^orig: 2 (N/n L d b + (n-1) N/n L G log2 K / 8) and 2 N L d b, b = 2 */
} PlanNode;

/* The model's parameters need no memory. A plain model, or one for one device, has no codes: both caches are full. */
void plan_node_make(Model *model, int64_t tokens, PlanNode *node);

#endif
