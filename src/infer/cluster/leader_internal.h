/* The inside of a leader, private to the files called leader*.c: its devices (membership.h), those that take part at present (the epoch),
 * and what they are asked (the queue). A member is a device by its place in the cluster, as users number nodes; a node here is a member's
 * number among those that take part in the present epoch.
 *
 *   leader.c            beginning, end, and what callers ask
 *   leader_epoch.c      who takes part, with which tokens; waiting for them, and what happens when that fails
 *   leader_requests.c   what each kind of request asks and answers; what devices say
 *   leader_probe.c      what devices and the connections to them can do
 *
 * Each uses those below it only. */
#ifndef INFER_LEADER_INTERNAL_H
#define INFER_LEADER_INTERNAL_H
#include "autograd/tape.h"
#include "infer/cluster/leader.h"
#include "infer/cluster/membership.h"
#include "infer/patches.h"

/* A request under way. */
typedef struct LeaderRequest {
  uint8_t *message;      /* header | payload, of images one after another for each node; of texts once, read by all connections */
  size_t *offset, *size; /* [nodes] of each node's message */
  float *pixels;         /* [batch, C, H, W] of images that are no levels */
  uint8_t *levels;       /* the same of those that are */
  uint8_t **results;     /* [nodes] payloads */
  bool *arrived;         /* [nodes] */
  NodeStatistics *nodes; /* [nodes] */
  int64_t *counts;       /* [nodes] tokens of each */
  RequestShare *shares;  /* [nodes] */
  uint32_t number;       /* in the epoch; 0: free */
  Request request;
  uint64_t missing;  /* members whose part is not waited for, as bits */
  uint64_t given_up; /* members that others have gone on without, though they have answered */
  int reruns;
  double began, sent; /* clock_now of its submission; when its input had left, 0: not yet */
} LeaderRequest;

/* Those that take part at present, and how far they have come. */
typedef struct LeaderEpoch {
  uint16_t number;
  int nodes;
  int *member_of;           /* [nodes] */
  Connection **connections; /* [nodes] */
  TokenLayout *layout;      /* [nodes] of an image */
  uint8_t **setups;         /* [nodes] SETUP messages */
  uint32_t base;            /* requests that were collected when it began */
  bool setting_up;
  bool parted;           /* devices have given each other up for the rest of it */
  uint64_t *progress;    /* [nodes] how far each has come: request (blocks + 3) + step: 1 the first block... blocks + 1 the head, then the
                          * answer */
  int complainer, fault; /* members: who has told of a failure, and whom it is about; -1: none */
  bool not_finite;       /* what the complainer came to: of no use to try again with others */
  char (*complaints)[WIRE_TEXT + 1];                 /* [members] */
  uint8_t cancel[WIRE_HEADER], (*gone)[WIRE_HEADER]; /* messages; [members] */
} LeaderEpoch;

/* The requests under way. */
typedef struct LeaderQueue {
  LeaderRequest requests[LEADER_DEPTH]; /* the n-th one submitted is in slot n & 1 */
  uint32_t submitted, collected;
  /* New tokens of the prompt under way: made by the nodes [made], of which `taken` were passed on. */
  int32_t *made;
  int64_t made_count, taken;
  uint8_t token[WIRE_TOKEN_BYTES], stop[WIRE_HEADER];
} LeaderQueue;

struct Leader {
  LeaderOptions options;
  ClusterOptions cluster;
  const Partition *given; /* over all members; NULL for texts */
  const TokenSplit *given_split;
  NodeSetup setup;     /* of the epoch: what the nodes run on */
  Partition partition; /* of the epoch */
  TokenSplit split;
  Fingerprints fingerprints;
  PatchLevels levels;
  Membership membership;
  LeaderEpoch epoch;
  LeaderQueue queue;
  LeaderSums sums;
  NodeStatistics *totals, *last; /* [members] of all answers, of the last one */
  int64_t *tokens;               /* [members] of the last answer */
  struct Heartbeat *heartbeat;   /* held while the leader is at work for its caller (leader.c); NULL: there is no worker */
  real *replicas, *logits;
  int32_t *codes, *node_codes;
  RequestDecoding *decoding; /* [members] */
  Arena *arena;
  Tape *tape;
};

static inline LeaderMember *leader_member(const Leader *leader, int node) {
  return &leader->membership.members[leader->epoch.member_of[node]];
}

/* ---- leader_probe.c */

/* What all that are there can do, before the first epoch: measured [members]. One that fails is left behind or fails it all, as ever. */
Status leader_probe_run(Membership *membership, LeaderMeasure *measured);

/* ---- leader_requests.c */

/* What devices say; the context is the leader, a connection's peer the member. */
extern const ConnectionSink leader_requests_sink;

LeaderRequest *leader_requests_oldest(Leader *leader);

/* Gives each node its part of the request in the slot, which then is request `number` of the epoch. */
Status leader_requests_send(Leader *leader, LeaderRequest *slot, uint32_t number);

/* Into *answer what all nodes have answered. */
Status leader_requests_take(Leader *leader, const LeaderRequest *slot, LeaderAnswer *answer);

/* ---- leader_epoch.c */

/* The first one, once all devices are there. */
Status leader_epoch_start(Leader *leader);
void leader_epoch_close(Leader *leader); /* frees what belongs to it */

/* Waits until all nodes have answered, or with `token` until there is a new token if that is sooner. Goes on after a failure where the
 * cluster's options allow it: slot->arrived may have begun anew meanwhile. */
Status leader_epoch_wait(Leader *leader, const LeaderRequest *slot, bool token);

/* After the failure of a connection, where nobody waits: the same. */
Status leader_epoch_recover(Leader *leader, Status cause);

/* Before a request: members that have come back take part again, and those that are gone no more, unless another request is under way. */
Status leader_epoch_rejoin(Leader *leader);
bool leader_epoch_rests(const Leader *leader); /* that is what the end of all requests is waited for */

#endif
