/* One node of a cluster: answers the leader's requests until it says bye, or goes away with it. Holds the whole model and a share of the
 * tokens; gets all pixels of a request, computes its own rows, exchanges codes with the other nodes, and returns its class-token
 * replicas with what they cost. */
#ifndef INFER_NODE_H
#define INFER_NODE_H
#include "infer/partition.h"
#include "infer/weights.h"

typedef struct NodeSetup {
  const Weights *weights; /* shared; outlives the node */
  const Partition *partition;
  int64_t batch_most; /* pictures of the largest request */
  double timeout;     /* seconds without a sign of life from another node */
  int threads;        /* compute threads; 0: one for each core */
  bool keep_codes;    /* requests may ask for the codes */
} NodeSetup;

/* Runs until the control stream ends; takes over all sockets [nodes]. Returns the exit code of the process. */
int node_run(const NodeSetup *setup, int self, int control, const int *sockets);

/* Payload bytes of a request, and of the result of a node with that layout. */
size_t node_request_bytes(const Weights *weights, int64_t batch);
size_t node_result_bytes(const Weights *weights, const TokenLayout *layout, int64_t batch, bool codes);

#endif
