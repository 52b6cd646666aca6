/* What a node of a cluster takes to run a language model on its longest sequence: for --dry-run. Counted is the last node, with an even
 * share: it hears all others, and it makes the new tokens. Leaves out the sockets' buffers, which hold codes alone. */
#ifndef TRAIN_PLAN_NODE_H
#define TRAIN_PLAN_NODE_H
#include "nn/model.h"

typedef struct PlanNode {
  int64_t tokens;           /* N of the longest sequence */
  double weights;           /* bytes in 16 bits (norms and biases in 32), once for all processes of a machine */
  double codebooks;         /* L C K d 2, the paper's M_codebook: in 16 bits, as are the weights */
  double cache;             /* keys and values: own tokens in full, 16 bits, those of the others as codes (kv_cache_predict) */
  double work;              /* the tape of a prompt of N tokens: from ids to the logits of the last */
  double together;          /* weights, codebooks, cache and work */
  double cache_full;        /* all tokens in full, 16 bits */
  double paper, paper_full; /* the paper's M_KV^ASTRA, codes in whole bytes, and M_KV^orig: numbers of 16 bits */
} PlanNode;

/* The model as nodes load it, adapters folded in. It gets no memory. A plain one, or one for one device, has no codes: both caches are
 * full. */
Status plan_node_make(const ModelConfig *config, int64_t tokens, PlanNode *node);

#endif
