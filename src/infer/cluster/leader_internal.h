/* The inside of a leader, private to the files called leader*.c. Devices are numbered by their index in the cluster, as users
 * number them; a node is a device's index among those that take part in the current epoch.
 *
 *   leader.c            start and stop, and what callers request; of sequences leader_sequence_start and _stop, leader_sequences_held, _on
 *                       and _poll
 *   leader_epoch.c      who takes part and with which tokens; waiting for them, and recovery when that fails
 *   leader_requests.c   what each kind of request sends and receives; the messages of devices, also those of sequences
 *   leader_sequences.c  sequences that live on devices, and their tokens
 *   leader_probe.c      measurements of devices and connections
 *   membership.c        the devices
 *
 * Each uses only those below it. */
#ifndef INFER_LEADER_INTERNAL_H
#define INFER_LEADER_INTERNAL_H
#include "autograd/tape.h"
#include "infer/cluster/leader.h"
#include "infer/cluster/membership.h"
#include "infer/patches.h"
#include "infer/rate_choice.h"

/* A request in flight. */
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
  bool wants_codes;  /* as it was given; request.codes: of a single device that is left there are none */
  uint64_t missing;  /* bit set of devices whose part is not waited for */
  uint64_t given_up; /* bit set of devices whose codes others went on without, though they answered */
  int reruns;
  double began, sent; /* clock_now of its submission; of when its input was sent, 0: not yet */
  double turn;        /* the later of its submission and the collection of the one before it: its time limit counts from there */
} LeaderRequest;

/* The devices that currently take part, and their progress. */
typedef struct LeaderEpoch {
  uint16_t number;
  int nodes;
  int *device_of;           /* [nodes] */
  Connection **connections; /* [nodes] */
  Connection left;          /* closed: of nodes that take no part any more, whose own may be called again meanwhile */
  TokenLayout *layout;      /* [nodes] of an image */
  uint8_t **setups;         /* [nodes] SETUP messages */
  double links_began;       /* clock_now when simulated links did, with the first epoch; 0: not yet */
  uint32_t base;            /* requests collected before it began */
  bool setting_up;
  bool parted;           /* devices have stopped waiting for each other */
  uint64_t *progress;    /* [nodes] request * (blocks + 3) + step: 1 the first block... blocks + 1 the head, blocks + 2 the answer */
  int complainer, fault; /* devices: who reported a failure, and which device it names; -1: none */
  bool futile;           /* another try would end as what the complainer says has (WIRE_FUTILE) */
  uint32_t complained;   /* the request, of this epoch, that it complains about; 0: none by itself */
  char (*complaints)[WIRE_TEXT + 1];                 /* [devices] */
  uint8_t cancel[WIRE_HEADER], (*gone)[WIRE_HEADER]; /* messages; [devices] */
} LeaderEpoch;

/* The requests in flight. */
typedef struct LeaderQueue {
  LeaderRequest requests[LEADER_DEPTH]; /* the n-th one submitted is in slot n & 1 */
  uint32_t submitted, collected;
  /* New tokens of the current prompt [made_count], of which `taken` were given to the caller. */
  int32_t *made;
  int64_t made_count, taken;
  uint8_t token[WIRE_TOKEN_BYTES], stop[WIRE_HEADER];
} LeaderQueue;

/* A sequence that lives on a device, or will when its prompt is computed. */
typedef struct LeaderSequence {
  uint32_t number; /* of its request, in the epoch */
  int node;
  uint32_t prompt; /* its tokens */
  uint32_t made;   /* new tokens that have come, those of before it came here included */
  uint32_t max;    /* as many as it can make, as `made` counts them */
  uint32_t echoed; /* tokens of the prompt that have come */
  bool here;       /* its prompt is computed */
  bool over;       /* its last token has come; it stays until its prompt is computed: tokens of the prompt may still come */
  bool unwanted;   /* the node is to be told */
  /* Where another node may draft for it: */
  int32_t *text; /* [tokens_max] prompt and new tokens; NULL: none may */
  int64_t count; /* of text */
  int64_t told;  /* of these, what the drafter knows */
  int wanted;    /* drafts, for the next step; until its first token comes as many as its node wanted last */
  int drafter;   /* node; -1: none */
  int64_t base;  /* of the text, where the chain begins */
  int chained;   /* drafts of it that its node is to be told; 0: none */
  int32_t chain[SPECULATION_CHAIN];
} LeaderSequence;

/* STOPs of a device's connection, which keeps pointers to what it has not sent yet: no more than it queues. */
typedef struct StopRing {
  uint8_t message[CONNECTION_QUEUE][WIRE_HEADER];
  unsigned next;
} StopRing;

typedef struct LeaderSequences {
  LeaderSequence *list; /* [devices * sequences + LEADER_DEPTH] those that are over, but not here, are besides */
  int count;
  DecodedToken *tokens; /* that the caller has not taken yet */
  int token_count;
  size_t token_capacity;
  int wishes[WIRE_NODES]; /* drafts that each node wanted last */
  SequenceLoss lost;      /* since the last poll */
  bool waits;             /* something is waited for: */
  IdleTimeout idle;
  int devices;        /* for which there is memory; the membership's room may shrink */
  uint8_t **messages; /* [devices] WIRE_DECODED */
  uint8_t **drafts;   /* [devices] a DRAFT or DRAFTED; sent while nothing else is queued */
  StopRing *stops;    /* [devices] */
} LeaderSequences;

struct Leader {
  LeaderOptions options;
  ClusterOptions cluster;
  const Partition *given; /* over all devices; NULL for texts */
  const TokenSplit *given_split;
  NodeSetup setup;     /* of the epoch: what the nodes run on */
  Weights weights;     /* those that it was given, at the epoch's bit rate; borrowed */
  int groups;          /* of the rate that is wanted */
  RateChoice rate;     /* with options.adapt_rate */
  Partition partition; /* of the epoch */
  TokenSplit split;
  Fingerprints fingerprints;
  PatchLevels levels;
  Membership membership;
  LeaderEpoch epoch;
  LeaderQueue queue;
  LeaderSequences sequences;
  LeaderSums sums;
  NodeStatistics *last;        /* [devices] of the last answer */
  int64_t longest;             /* tokens of the answer that sums.tokens is of */
  struct Heartbeat *heartbeat; /* locked while the caller is inside the leader (leader.c); NULL: there are no workers */
  real *replicas, *logits;
  int64_t *class_tokens; /* [devices] content tokens of the device of each replica */
  int32_t *codes, *node_codes;
  RequestDecoding *decoding; /* [devices] */
  Arena *arena;
  Tape *tape;
};

static inline LeaderDevice *leader_device(const Leader *leader, int node) {
  return &leader->membership.devices[leader->epoch.device_of[node]];
}

/* ---- leader_probe.c */

/* Measures all connected devices, before the first epoch, with `tokens` tokens, at most the model's: measured [devices]. A failing device
 * is dropped or is an error, as the options say. */
Status leader_probe_run(Membership *membership, int64_t tokens, DeviceMeasure *measured);

/* ---- leader_sequences.c */

Status leader_sequences_allocate(Leader *leader);
void leader_sequences_release(Leader *leader);
LeaderSequence *leader_sequences_find(const Leader *leader, uint32_t number); /* NULL: there is none */
void leader_sequences_end(Leader *leader, LeaderSequence *sequence);          /* removes it from the list */

/* The epoch is given up: all sequences are lost, and so are prompts that are being computed. */
void leader_sequences_drop(Leader *leader, SequenceLoss why);

/* The same where this one cannot be computed: it has ended with SEQUENCE_NUMERIC. Where there is none of this number, a device has failed.
 * NO_MEMORY. */
Status leader_sequences_drop_one(Leader *leader, uint32_t number);

/* As ConnectionSink's place and deliver, of WIRE_DECODED and WIRE_DRAFTS. */
Status leader_sequences_place(Leader *leader, int node, const WireHeader *header, uint8_t **payload);
Status leader_sequences_deliver(Leader *leader, int node, const WireHeader *header, const uint8_t *payload);

Status leader_sequences_drafts(Leader *leader, int node, const WireHeader *header, const uint8_t *payload);

/* Tells devices which of their sequences are not wanted any more, and those that draft and those that decode of each other. */
Status leader_sequences_tell(Leader *leader);

/* ---- leader_requests.c */

/* Receives the messages of devices; the context is the leader, a connection's peer the device. */
extern const ConnectionSink leader_requests_sink;

LeaderRequest *leader_requests_oldest(Leader *leader);

/* Sends each node its part of the request, as number `number` of the epoch. */
Status leader_requests_send(Leader *leader, LeaderRequest *slot, uint32_t number);

/* Combines the answers of all nodes. */
Status leader_requests_take(Leader *leader, const LeaderRequest *slot, LeaderAnswer *answer);

/* ---- leader_epoch.c */

/* Starts the first epoch, once all devices are connected. */
Status leader_epoch_start(Leader *leader);
void leader_epoch_close(Leader *leader); /* frees what belongs to the epoch */

/* Waits until all nodes have answered or, with `token`, until there is a new token. Recovers from failures where the options allow it;
 * slot->arrived may be reset by that. */
Status leader_epoch_wait(Leader *leader, const LeaderRequest *slot, bool token);

/* Waits once for devices that compute prompts or decode, for `seconds` at most and until `also` can be read (-1: none). Recovers from
 * failures where the options allow it; all sequences are lost then. */
Status leader_epoch_poll(Leader *leader, int also, double seconds);

/* Another bit rate is wanted than that of the epoch, and may begin: sequences, which have one for life, are waited for. */
bool leader_epoch_rate_due(const Leader *leader);

/* Recovers from the failure of a connection while sending. */
Status leader_epoch_recover(Leader *leader, Status cause);

/* A new epoch, in which what is in flight is asked again; no device is to blame for its end. */
Status leader_epoch_renew(Leader *leader);

/* Before a request, unless another one is in flight: starts a new epoch if devices have come back or gone. */
Status leader_epoch_rejoin(Leader *leader);
bool leader_epoch_rests(const Leader *leader); /* a new epoch is due once no request is in flight */

/* Gives up all sequences for the epoch that is due. */
void leader_epoch_drop_sequences(Leader *leader);

/* Where no device is left: calls workers, and begins anew with the first that is back. What was in flight is lost. BUSY: none is yet. */
Status leader_epoch_return(Leader *leader);

#endif
