/* The inside of a leader, private to the files called leader*.c. A member is a device by its place in the cluster, as users number nodes; a
 * node here is a member's number among those that take part in the present epoch. */
#ifndef INFER_LEADER_INTERNAL_H
#define INFER_LEADER_INTERNAL_H
#include "autograd/tape.h"
#include "infer/cluster/connection.h"
#include "infer/cluster/heartbeat.h"
#include "infer/cluster/hello.h"
#include "infer/cluster/leader.h"
#include "infer/cluster/leader_members.h"
#include "infer/cluster/processes.h"
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

/* All devices of the cluster, whether they take part or not. */
typedef struct LeaderMembership {
  LeaderMember *members; /* [count] */
  int count;
  Processes processes;
  uint8_t session[HELLO_SESSION];
  double began;     /* clock_now: to call its members */
  double next_ping; /* clock_now */
  uint8_t ping[WIRE_HEADER];
} LeaderMembership;

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
  char (*complaints)[WIRE_TEXT + 1]; /* [members] */
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

/* What the answers were like. */
typedef struct LeaderSums {
  NodeStatistics *totals, *last;   /* [members] of all answers, of the last one */
  int64_t *tokens;                 /* [members] of the last answer */
  int reruns, masked;              /* of all answers */
  double fastest, fastest_request; /* seconds a sample; 0: none was answered */
} LeaderSums;

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
  LeaderMembership membership;
  LeaderEpoch epoch;
  LeaderQueue queue;
  LeaderSums sums;
  Heartbeat *heartbeat;      /* held while the leader is at work for its caller; NULL: there is no worker */
  struct LeaderProbe *probe; /* while devices are measured (leader_probe.c) */
  real *replicas, *logits;
  int32_t *codes, *node_codes;
  RequestDecoding *decoding; /* [members] */
  Arena *arena;
  Tape *tape;
  uint8_t word[WIRE_HEADER];    /* CANCEL or BYE */
  uint8_t (*gone)[WIRE_HEADER]; /* [members] */
};

static inline LeaderMember *leader_member(const Leader *leader, int node) {
  return &leader->membership.members[leader->epoch.member_of[node]];
}

/* "node 2 (pid 123)", "node 2 (worker 10.0.0.2:7433)": of a member. Returns text. */
enum { LEADER_NAME = ADDRESS_TEXT + 40 };
const char *leader_name(const Leader *leader, int member, char text[LEADER_NAME]);

#define LEADER_PING_SECONDS 2.0 /* between two signs of life, several of which fit into a session's idle_timeout */

/* ---- leader_messages.c: what nodes say; the context of connections is the leader, their peer the member */
extern const ConnectionSink leader_messages_sink;
LeaderRequest *leader_messages_request(Leader *leader, uint32_t number); /* under way, or NULL */

/* ---- leader_probe.c: what devices and the ways to them can do */

/* Of all that are there, before the first epoch: measured [members]. One that fails is left behind or fails it all, as ever. */
Status leader_probe_run(Leader *leader, LeaderMeasure *measured);
Status leader_probe_place(Leader *leader, int member, const WireHeader *header, uint8_t **payload);
void leader_probe_deliver(Leader *leader, int member);

/* ---- leader_failure.c: waiting, who is at fault, and what happens when a member fails */

/* Until done(leader) says so. `arrived` [nodes]: whom nobody waits for. */
typedef bool LeaderDone(const Leader *leader, const bool *arrived);
LeaderDone leader_wait_all; /* every node has set its flag */
Status leader_wait(Leader *leader, LeaderDone *done, const bool *arrived);
double leader_wait_left(const Leader *leader);             /* seconds that the requests under way still have; INFINITY: any */
Status leader_wait_explain(Leader *leader, Status status); /* names the cause of a failure of the connections */

/* leader_wait that goes on after a failure where the cluster's options allow it: request->arrived may have begun anew meanwhile. */
Status leader_failure_wait(Leader *leader, LeaderDone *done, LeaderRequest *request);

/* After a failure `cause`, explained: leaves behind who has failed, begins a new epoch and sends what is under way once more. Else the
 * failure, with its message. */
Status leader_failure_recover(Leader *leader, Status cause);

/* Before a request: members that have come back take part again, and those that are gone no more, unless another request is under way. */
Status leader_failure_rejoin(Leader *leader);
bool leader_failure_rests(const Leader *leader); /* that is what the end of all requests is waited for */

/* ---- leader_epoch.c: who takes part, and with which tokens */

/* All members that are there (MEMBER_HERE or more) become nodes: shares the tokens out, makes memory, sends SETUP, waits for READY. */
Status leader_epoch_open(Leader *leader);
void leader_epoch_close(Leader *leader); /* frees what belongs to it */

/* ---- leader_requests.c: what each kind asks and answers, beginning and end of any */

Status leader_requests_resend(Leader *leader); /* all that are under way, in a new epoch */
LeaderRequest *leader_requests_oldest(Leader *leader);
Status leader_requests_take(Leader *leader, const LeaderRequest *request, LeaderAnswer *answer); /* what all its nodes have answered */

#endif
