/* The engine behind a service: takes requests of many clients and serves them on one cluster. One thread of its own drives the leader;
 * every other function may be called from any thread. Tokens and answers are reported through callbacks from that thread, which must not
 * block: they copy what they need and wake whoever waits.
 *
 * Generation is batched continuously: sequences join and leave between two decoding steps, and each lives on the device that holds the last
 * span of its prompt. The engine chooses that device (the fewest expected tokens left over its measured decode rate). A device that fails
 * loses no request: its sequences are prefilled again elsewhere from prompt and tokens so far, and the client sees a pause. A text whose
 * devices have failed five times fails. */
#ifndef SERVE_ENGINE_H
#define SERVE_ENGINE_H
#include "infer/cluster/leader.h"
#include "infer/vocabulary.h"

typedef struct Engine Engine;

enum { ENGINE_TOP = 20 }; /* most candidates that are reported with a token */

typedef struct EngineOptions {
  const Weights *weights;      /* outlives the engine, as does everything below that is a pointer */
  const Partition *partition;  /* of a model of images; else NULL */
  const TokenSplit *split;     /* of a language model; else NULL */
  const LeaderOptions *leader; /* tokens_max: prompt and new tokens of the longest sequence; batch_max: images of a request */
  int queue_max;               /* requests waiting for a place; more new ones are refused (STATUS_BUSY) */
  int sequences_max;           /* sequences that decode at the same time, over all devices */
  SpeculationMode speculation; /* of texts */
  int64_t cache_bytes; /* of keys and values on each device, those of a prompt under way included, but of two longest sequences at least; 0:
                        * a quarter of the memory_available() at the start, over the devices of this machine */
} EngineOptions;

typedef struct EngineCandidate {
  int32_t id;
  float logprob; /* natural logarithm of the model's probability: before temperature, penalties and filters */
} EngineCandidate;

typedef struct EngineToken {
  int32_t id;
  bool prompt;                     /* a token of the prompt (EngineJob.echo) */
  bool end;                        /* the end token: no text, and none of EngineResult.new_tokens */
  float logprob;                   /* of id; NAN for the first token of a prompt, which nothing predicts */
  int top_count;                   /* as many as the job wanted, fewer where the vocabulary ends */
  EngineCandidate top[ENGINE_TOP]; /* likeliest first */
} EngineToken;

typedef enum EngineEnd {
  ENGINE_LENGTH,    /* as many tokens as were wanted */
  ENGINE_STOP,      /* the model has ended the text; the end token is reported if log-probabilities are wanted. Or engine_finish */
  ENGINE_CONTEXT,   /* the context is full */
  ENGINE_CANCELLED, /* engine_cancel */
  ENGINE_FAILED,    /* message says why */
  ENGINE_DESERTED   /* no device was left, message says why: later there may be one again */
} EngineEnd;

typedef struct EngineResult {
  EngineEnd end;
  const char *message; /* of ENGINE_FAILED and ENGINE_DESERTED, valid during the callback; else NULL */
  int64_t prompt_tokens, new_tokens;
  int64_t shared_tokens;       /* of the prompt, whose keys and values were there already */
  int decoder;                 /* device that decoded */
  double queued, first, total; /* seconds: waiting for a place, until the first token, in all */
} EngineResult;

/* A text to continue. */
typedef struct EngineJob {
  const int32_t *ids; /* [count], copied by engine_submit */
  int64_t count;
  Sampling sampling; /* max 0: no new token, which is of use with echo */
  int top;           /* candidates to report with each token, 0 to ENGINE_TOP; -1: no log-probabilities at all */
  bool echo;         /* report the tokens of the prompt first, with their log-probabilities if top >= 0 */
  bool let_in;       /* of a request that has been let in: where the queue is full it asks again, and nobody has been refused */
  bool more;         /* a full queue takes it too */
  void (*on_token)(void *context, const EngineToken *token);
  void (*on_end)(void *context, const EngineResult *result); /* last and exactly once, also after a cancel */
  void *context;
} EngineJob;

/* Images to classify. */
typedef struct EngineImages {
  const float *pixels; /* [count, C, H, W], normalised, copied */
  int64_t count;
  bool more;                                                                     /* of a request that has been let in, as of EngineJob */
  void (*on_end)(void *context, const real *logits, const EngineResult *result); /* logits [count, classes]; NULL after a failure */
  void *context;
} EngineImages;

/* Starts the cluster (forks: call it before any thread is started), not yet the engine's thread. Whatever fails is reported as leader_start
 * does. */
Status engine_new(Engine **engine, const EngineOptions *options);
Status engine_start(Engine *engine); /* starts the thread */
void engine_free(Engine *engine);    /* ends what is under way as ENGINE_CANCELLED, then the cluster; accepts NULL */

/* BUSY: the queue is full, or no device is there (EngineState.deserted); BAD_VALUE: ids outside of the vocabulary, or a prompt that leaves
 * no room for a token. *ticket names the request to engine_finish and engine_cancel, from 1; a ticket that is over is ignored there. */
Status engine_submit(Engine *engine, const EngineJob *job, uint64_t *ticket);
Status engine_classify(Engine *engine, const EngineImages *images, uint64_t *ticket);
void engine_finish(Engine *engine, uint64_t ticket); /* what has come is the whole text, which counts as finished */
void engine_cancel(Engine *engine, uint64_t ticket);

/* Another bit rate as soon as nothing is under way; 0: by the speed of the links. BAD_VALUE lists those that the model has. */
Status engine_use_groups(Engine *engine, int groups);

/* Workers that were found since the start [count]: leader_add_workers, when the engine's thread comes to it. */
void engine_add_workers(Engine *engine, const Address *found, int count);

/* ---- what operators see */

/* GONE also before it has been there. JOINING: it fetches the checkpoint, is being welcomed, or waits for its part in what comes next. */
typedef enum EngineDeviceState { ENGINE_DEVICE_GONE, ENGINE_DEVICE_HERE, ENGINE_DEVICE_JOINING } EngineDeviceState;

typedef struct EngineDevice {
  EngineDeviceState state;
  char name[64];              /* "here" or an address */
  char worker[LEADER_WORKER]; /* its name and address; "": a process of this machine */
  int pid;                    /* of a process of this machine; 0: none, or not any more */
  double share;               /* of a request's tokens, 0 to 1 */
  int sequences;              /* that decode on it */
  double decode_rate;         /* tokens a second, measured; 0: not yet */
  NodeStatistics sum;         /* of all requests */
  uint64_t tokens_decoded;
  uint64_t failures;
} EngineDevice;

typedef struct EngineState {
  bool ready;    /* the cluster answers */
  bool deserted; /* it does not, and will again when a lost worker is back; requests are refused meanwhile */
  int queued, prefilling, decoding;
  uint64_t submitted, finished, failed, cancelled, refused;
  uint64_t prompt_tokens, shared_tokens, new_tokens, images;
  uint64_t drafts, drafted;        /* tokens that were guessed; of these, that were right and are new tokens */
  int groups;                      /* of the bit rate in use; 0: a plain model */
  int groups_wanted;               /* of the one that takes its place when nothing is under way; the same: none does */
  bool follows;                    /* the bit rate follows the links */
  int64_t cache_bytes, cache_used; /* for keys and values: of each device; of it in use on the fullest one, as if none were codes */
  int nodes;
  EngineDevice devices[WIRE_NODES];
} EngineState;

void engine_state(Engine *engine, EngineState *state); /* a consistent copy */

bool engine_is_deserted(Engine *engine);

/* The cluster has failed and no worker can bring it back: all requests fail from then on. why [size]: the reason. */
bool engine_has_failed(Engine *engine, char *why, size_t size);

/* Seconds after which a refused client may try again: the queue's length over the measured rate, 1 to 60. */
int engine_retry_seconds(Engine *engine);

#endif
