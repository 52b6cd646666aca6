/* The leader of a cluster: forks the devices of this machine, connects to workers, sends them requests and collects their answers. Of
 * images these are class-token replicas, to which it applies the head; for texts see leader_text_*.
 *
 * Two requests can be in flight (LEADER_DEPTH): submit the next one before collecting the last, and the devices never wait for input.
 *
 * A device that dies or hangs fails the request with an error that names it (STATUS_PEER, STATUS_TIMEOUT), or is dropped, depending on
 * ClusterOptions.on_failure: then its tokens are redistributed over the others, and a worker that is reachable again rejoins with the next
 * request that is submitted while none is in flight (leader_takes_more). After an error only leader_stop may be called, which leaves no
 * process behind, unless leader_is_deserted. Devices keep their numbers throughout. */
#ifndef INFER_LEADER_H
#define INFER_LEADER_H
#include "infer/cluster/address.h"
#include "infer/cluster/hello.h"
#include "infer/cluster/key_file.h"
#include "infer/cluster/setup_message.h"
#include "infer/partition.h"
#include "infer/plan/probe.h"
#include "infer/request.h"
#include "infer/weights.h"
#include <signal.h>
#include <sys/types.h>

typedef struct Leader Leader;

enum { LEADER_DEPTH = 2 };

/* The devices of a cluster, and what happens when one of them fails. */
typedef enum OnFailure {
  ON_FAILURE_ABORT, /* the request fails, and the cluster with it */
  ON_FAILURE_RERUN, /* the remaining devices compute the request again */
  ON_FAILURE_MASK   /* the others continue, with the tokens of the failed one masked; where that is impossible, as RERUN */
} OnFailure;

typedef struct ClusterOptions {
  int local;            /* processes forked here: devices 0 to local - 1 */
  const Address *peers; /* [peer_count] workers: the devices after these */
  int peer_count;
  const KeyFile *key;     /* of the workers; NULL: none */
  double wait;            /* seconds to wait for a busy worker */
  const char *checkpoint; /* directory or GGUF file, offered to workers that fetch it (checkpoint_offer.h); NULL: none is offered */
  bool discovered;        /* peers were found (discovery.h), not named: one that refuses, or has another model, is left out */
  bool grows;             /* workers may be added after the start (leader_add_workers) */
  bool await_fetch;       /* the start waits for them, even if other devices could begin without */
  OnFailure on_failure;
  double request_timeout; /* time limit per request in seconds, reruns included; 0: none */
} ClusterOptions;

/* May change the tokens of the partition or split that the leader was given, and *groups, the bit rate to begin with; measured [nodes];
 * stop: that of LeaderOptions. */
typedef Status LeaderDivide(void *context, const DeviceMeasure *measured, int nodes, const volatile sig_atomic_t *stop, int *groups);

typedef struct LeaderOptions {
  int64_t batch_max;                 /* images or sequences of the largest request */
  int64_t tokens_max;                /* of a text, new tokens included; 0: the model's context */
  double timeout;                    /* seconds of silence before a device counts as hung */
  int threads;                       /* of each device; 0: one per core */
  bool codes;                        /* answers include the devices' codes */
  const ClusterSetup *network;       /* how codes travel (setup_message.h); outlives the leader; NULL: over streams */
  int sequences;                     /* that a device decodes at the same time (leader_sequence_start); 0: none */
  const volatile sig_atomic_t *stop; /* set by a signal handler: stop with STATUS_INTERRUPTED; NULL: never */
  const ClusterOptions *cluster;     /* of as many devices as the partition or the split has; what it points to outlives the leader. NULL:
                                      * processes of this machine, and a failure ends it */
  int groups;                        /* of the bit rate to begin with; 0: that in use. Of several rates others may follow: */
  bool adapt_rate;                   /* the rate follows what devices wait for codes (rate_choice.h), from request to request */
  LeaderDivide *divide;              /* if there is one, devices are measured at the start, and it is called; NULL */
  void *divide_context;
} LeaderOptions;

typedef struct LeaderAnswer {      /* arrays are the leader's, valid until the next leader_collect */
  int64_t batch, tokens;           /* T of an image or of these texts */
  const real *logits;              /* [batch, classes], or [batch, V] of leader_text_last; else NULL */
  const int32_t *codes;            /* with options.codes: [blocks * sites][batch, T, G], content tokens in the image's order; the last node
                                    * of a text sends none: -1. Else NULL */
  const int64_t *counts;           /* [nodes] tokens of each; 0: it took no part */
  const NodeStatistics *nodes;     /* [nodes] */
  RequestScore score;              /* of leader_text_score: sums over all nodes */
  const RequestDecoding *decoding; /* [nodes] of leader_text_prompt; else NULL */
  uint64_t missing;                /* nodes, as bits, whose tokens others went on without: at least these; 0: the answer is complete */
  int reruns;                      /* how often it was computed anew */
} LeaderAnswer;

/* Of all answers. */
typedef struct LeaderSums {
  NodeStatistics *nodes;              /* [nodes] */
  int64_t *tokens;                    /* [nodes] that each held in the last of the longest answers */
  int64_t *last_tokens;               /* [nodes] the same in the last answer */
  int64_t *rows;                      /* [nodes] that each held in all answers: of each its tokens, times its samples */
  int64_t rate_samples[CONFIG_RATES]; /* answered with each bit rate; of a plain model the first */
  int reruns, masked;                 /* masked: answers without the tokens of some node */
  double fastest;                     /* seconds that an answer took a sample, from when the last node began; 0: none was answered */
  double fastest_request;             /* the same from its submission */
} LeaderSums;

/* Forks the nodes, calls the workers, and waits until all are ready. Call before any thread is started. weights and partition or split
 * outlive the leader. A plain model on more than one node, or a worker with another one, is BAD_VALUE. */
Status leader_start(Leader **leader, const Weights *weights, const Partition *partition, const LeaderOptions *options); /* images */
Status leader_start_text(Leader **leader, const Weights *weights, const TokenSplit *split, const LeaderOptions *options);
void leader_stop(Leader *leader); /* accepts NULL */

/* Connects to the devices as leader_start does, measures them, and disconnects: measured [nodes]. One of partition and split is NULL. */
Status leader_measure(const Weights *weights, const Partition *partition, const TokenSplit *split, const LeaderOptions *options,
                      DeviceMeasure *measured);

/* Sends each node its part of pixels [batch, C, H, W] (copied); at most LEADER_DEPTH requests may be in flight. */
Status leader_submit(Leader *leader, const float *pixels, int64_t batch);
int leader_under_way(const Leader *leader);

/* Whether to submit another request before collecting: there is room for it, and neither a device that would rejoin nor another bit rate
 * is waiting for the end of all requests. */
bool leader_takes_more(const Leader *leader);

/* ---- requests of texts, to a leader that leader_start_text has made. ids [batch, tokens] are copied; one outside of the vocabulary, and
 * more tokens than the cluster was made for, are BAD_VALUE. leader_collect ends each request */

/* Generates from one sequence. Tokens come from leader_text_next; only one prompt may be in flight. */
Status leader_text_prompt(Leader *leader, const int32_t *ids, int64_t count, const Sampling *sampling);

/* Waits for the next new token of the prompt; *more: whether there was one. */
Status leader_text_next(Leader *leader, int32_t *id, bool *more);

/* Ends generation early; some tokens may still arrive. */
Status leader_text_stop(Leader *leader);

/* ---- sequences that live on devices, with options.sequences: any number of prompts follow each other, are computed by all devices
 * together, and then decoded by one each, in batches. Tokens come as they are made. No other requests are made of such a leader meanwhile.
 */

/* Begins one, whose last span, and decoding, is on `device`; *number names it until the epoch ends. Numbers of new tokens begin behind
 * options->sampling.made; tokens of the prompt (echo) come in any order, some after new ones. BUSY: as many live there as can,
 * leader_takes_more says no, or the next leader_sequences_poll says that all are lost. */
Status leader_sequence_start(Leader *leader, const int32_t *ids, int64_t count, const SequenceOptions *options, int device,
                             uint32_t *number);
void leader_sequence_stop(Leader *leader, uint32_t number); /* no more of its tokens are reported; ignored where it is over */
int leader_sequences_on(const Leader *leader, int device);
/* Over all devices; those that have been stopped count until their devices could be told: polls go on until there are none. */
int leader_sequences_held(const Leader *leader);
bool leader_is_here(const Leader *leader, int device); /* takes part */
/* It fetches the checkpoint, is being welcomed, or waits for the next epoch. */
bool leader_is_joining(const Leader *leader, int device);

/* Whether all sequences are gone, and why: a new epoch has begun. They are to be started again with the tokens that they had. */
typedef enum SequenceLoss {
  SEQUENCES_KEPT,
  SEQUENCES_MOVED, /* no device has failed: others have come back or were added, or one sequence has ended with SEQUENCE_NUMERIC */
  SEQUENCES_FAILED /* a device has failed */
} SequenceLoss;

/* Waits for tokens, for `seconds` at most and until `also` can be read (-1: none), and reports them. An error: the leader is of no more
 * use. */
typedef void LeaderTakeToken(void *context, const DecodedToken *token);
Status leader_sequences_poll(Leader *leader, int also, double seconds, LeaderTakeToken *take, void *context, SequenceLoss *lost);

/* The loss of each label [batch, tokens] (-1: does not count) as the token after the one at its place. */
Status leader_text_score(Leader *leader, const int32_t *ids, const int32_t *labels, int64_t batch, int64_t tokens);

/* The logits after the last token [batch, V]. */
Status leader_text_last(Leader *leader, const int32_t *ids, int64_t batch, int64_t tokens);

/* Of a model that classifies texts: logits [batch, classes]. Texts of a request have one length, so that each is divided among the nodes as
 * if it came alone, and its answer does not depend on its neighbours. */
Status leader_text_classify(Leader *leader, const int32_t *ids, int64_t batch, int64_t tokens);

/* Another bit rate, of a model that has it, from the next request on that begins while no other is in flight and no sequence lives. groups
 * 0: the rate in use, and it follows the links from here on (options.adapt_rate). */
void leader_use_groups(Leader *leader, int groups);
int leader_groups(const Leader *leader); /* of the rate that is wanted: another one than that of leader_weights will follow */

/* To be called a few times a second while no request is in flight and no sequence lives, unless a loss may wait for the next request:
 * notices devices that have failed and takes back those that are reachable again, which it may wait for. Otherwise it does nothing. An
 * error: as of a request. While leader_is_deserted BUSY: no worker is back yet. */
Status leader_watch(Leader *leader);

/* Workers that were found since the start [count], of a leader with ClusterOptions.grows: those that are no devices yet become some, are
 * called like lost ones, and take part from the epoch on that begins once they have answered; as many as the wire format and the strategy
 * allow. One takes the number of a lost worker that was added before and is not found any more. */
void leader_add_workers(Leader *leader, const Address *found, int count);

/* After an error: no device is left, but a worker may come back. Then leader_watch may be called, and once it says OK everything else. */
bool leader_is_deserted(const Leader *leader);

/* ---- answers */

enum { LEADER_WORKER = WELCOME_NAME + ADDRESS_TEXT + 4 };

/* Waits for the oldest request in flight. */
Status leader_collect(Leader *leader, LeaderAnswer *answer);

/* After leader_collect said NUMERIC: what no device can compute (WIRE_FUTILE). What is in flight is dropped, and the devices go on
 * with what is asked next. Another error: as of a request. */
Status leader_forget(Leader *leader);

int leader_nodes(const Leader *leader);                                       /* of the whole cluster */
pid_t leader_pid(const Leader *leader, int node);                             /* 0: no process of this machine, or not any more */
const Address *leader_address(const Leader *leader, int node);                /* of a worker; else NULL */
bool leader_worker(const Leader *leader, int node, char text[LEADER_WORKER]); /* its name and address; false: a process of this machine */
const LeaderSums *leader_sums(const Leader *leader);
const Weights *leader_weights(const Leader *leader);
const NodeSetup *leader_setup(const Leader *leader);        /* of those that currently take part, with their number and their tokens */
int64_t leader_tokens_max(const Leader *leader);            /* of a text */
const StrategyFacts *leader_strategy(const Leader *leader); /* by which they divide requests now: of one alone STRATEGY_SINGLE */

/* What a request is checked for, here for who gets it before the leader does, on any thread. BAD_VALUE: texts for a model of images, or the
 * converse; an id outside of [min, vocabulary). */
Status leader_check_takes(const Leader *leader, bool texts);
Status leader_check_ids(const int32_t *ids, int64_t count, int64_t min, int64_t vocabulary);

#endif
