/* The sequences that live on a node: their prompts were computed by all nodes together, their new tokens are computed here alone, those of
 * all sequences in one batched step (nn/decode_batch.h), and sent to the leader (WIRE_DECODED). A sequence ends by itself, or when the
 * leader wants no more of it. Their number is agreed on before (NodeSetup.sequences), and there is memory for that many of the longest. */
#ifndef INFER_NODE_SEQUENCES_H
#define INFER_NODE_SEQUENCES_H
#include "infer/cluster/connection.h"
#include "infer/node_share.h"
#include "infer/request.h"
#include "nn/kv_pages.h"

typedef struct NodeSequences NodeSequences;

/* setup and control outlive it. cache: as that of a prompt. */
Status node_sequences_new(NodeSequences **sequences, const NodeSetup *setup, int self, const KvCacheSetup *cache, Connection *control);
void node_sequences_free(NodeSequences *sequences); /* accepts NULL */

/* A sequence for the prompt ids [count] of request `number`, divided as `spans` says. Its first *shared tokens are there already
 * (kv_pages_join). BUSY: there are as many as were agreed on. */
Status node_sequences_join(NodeSequences *sequences, uint32_t number, const SequenceOptions *options, const int32_t *ids, int64_t count,
                           const KvSpans *spans, int64_t *shared);

/* Of the sequence that has joined last. Either its prompt was computed into `cache`; or the tokens behind those that are shared are
 * computed here, which needs no other node -> *logits [1, 1, V] after the last one. */
Status node_sequences_take(NodeSequences *sequences, const KvCache *cache, const int32_t *ids);
Status node_sequences_compute(NodeSequences *sequences, Tape *tape, const int32_t *ids, int64_t count, int64_t shared, Tensor **logits);

/* Of any sequence's prompt ids [count]: log-probabilities of the tokens behind positions first, first + 1..., of which these are the logits
 * [rows, V], sent at once. rows <= DECODED_PROMPT */
Status node_sequences_echo(NodeSequences *sequences, uint32_t number, int top, const int32_t *ids, int64_t count, int64_t first,
                           const Tensor *logits);

/* Samples its first token and sends it. */
Status node_sequences_begin(NodeSequences *sequences, const Tensor *logits);

/* The leader wants no more tokens of this one; it may be over already. */
void node_sequences_stop(NodeSequences *sequences, uint32_t number);

bool node_sequences_any(const NodeSequences *sequences);

/* Another device's drafts of this one: ids from position `base` on (speculation_follow). Those that come too late are dropped. */
void node_sequences_drafts(NodeSequences *sequences, uint32_t number, int64_t base, const int32_t *ids, int64_t count);

/* Seconds that the next step may wait for such drafts: a few times as long as they usually take. 0: it is due. */
double node_sequences_wait(NodeSequences *sequences);

/* A step of all: a new token of each, and those of its drafts that are right, are computed and sent. Clears the tape. */
Status node_sequences_step(NodeSequences *sequences, Tape *tape);

#endif
