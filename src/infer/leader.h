/* The leader of a cluster on this machine: starts the nodes, hands them requests, gathers their class-token replicas and applies the head.
 *
 * Two requests can be under way (LEADER_DEPTH): submit the next one before collecting the last, and the nodes never wait for pixels.
 * A node that dies or falls silent fails the request with an error that names it (STATUS_PEER, STATUS_TIMEOUT); the leader is then of no
 * more use but for leader_stop, which leaves no process behind. */
#ifndef INFER_LEADER_H
#define INFER_LEADER_H
#include "infer/partition.h"
#include "infer/weights.h"
#include "infer/wire.h"
#include <signal.h>
#include <sys/types.h>

typedef struct Leader Leader;

enum { LEADER_DEPTH = 2 };

typedef struct LeaderOptions {
  int64_t batch_most;                /* pictures of the largest request */
  double timeout;                    /* seconds without a sign of life from a node */
  int threads;                       /* of each node; 0: one for each core */
  bool codes;                        /* every answer carries the nodes' codes */
  const volatile sig_atomic_t *stop; /* set by a signal handler: give up with STATUS_INTERRUPTED; NULL: never */
} LeaderOptions;

typedef struct LeaderAnswer { /* arrays are the leader's, valid until the next leader_collect */
  int64_t batch;
  const real *logits;          /* [batch, classes] */
  const int32_t *codes;        /* with options.codes: [blocks * sites][batch, T, G], content tokens in the picture's order; else NULL */
  const NodeStatistics *nodes; /* [nodes] */
} LeaderAnswer;

/* Forks the nodes and waits until all are ready. Call before any thread is started. weights and partition outlive the leader. A plain
 * model on more than one node is BAD_VALUE. */
Status leader_start(Leader **leader, const Weights *weights, const Partition *partition, const LeaderOptions *options);
void leader_stop(Leader *leader); /* accepts NULL */

/* Sends pixels [batch, C, H, W] (copied) to all nodes; at most LEADER_DEPTH requests may be under way. */
Status leader_submit(Leader *leader, const float *pixels, int64_t batch);
int leader_under_way(const Leader *leader);

/* Waits for the oldest request under way. */
Status leader_collect(Leader *leader, LeaderAnswer *answer);

int leader_nodes(const Leader *leader);
pid_t leader_pid(const Leader *leader, int node);
const NodeStatistics *leader_totals(const Leader *leader); /* [nodes] sums over all answers */
const Weights *leader_weights(const Leader *leader);
const Partition *leader_partition(const Leader *leader);

#endif
