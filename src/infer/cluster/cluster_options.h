/* Which devices make up a cluster, and what is to happen when one of them fails. */
#ifndef INFER_CLUSTER_OPTIONS_H
#define INFER_CLUSTER_OPTIONS_H
#include "infer/cluster/address.h"
#include "infer/cluster/key_file.h"

typedef enum OnFailure {
  ON_FAILURE_ABORT, /* the request fails, and the cluster with it */
  ON_FAILURE_RERUN, /* the request is computed anew by those that remain */
  ON_FAILURE_MASK   /* the others go on without the tokens of the one that is gone; where that is impossible, as RERUN */
} OnFailure;

typedef struct ClusterOptions {
  int local;            /* processes that are forked here, nodes 0 to local - 1 */
  const Address *peers; /* [peer_count] workers, the nodes behind these */
  int peer_count;
  const KeyFile *key; /* that the workers have; NULL: none */
  double wait;        /* seconds in the queue of a worker that serves somebody else */
  OnFailure on_failure;
  double request_timeout; /* seconds for a request with all its reruns; 0: any */
} ClusterOptions;

#endif
