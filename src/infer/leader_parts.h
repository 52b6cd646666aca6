/* The inside of a leader, private to the files called leader*.c. */
#ifndef INFER_LEADER_PARTS_H
#define INFER_LEADER_PARTS_H
#include "autograd/tape.h"
#include "infer/leader.h"
#include "infer/link.h"
#include "infer/processes.h"

/* A request under way. Slot request & 1. */
typedef struct LeaderRequest {
  uint8_t *message;      /* header | payload: one copy, read by all links */
  uint8_t **results;     /* [nodes] payloads */
  bool *arrived;         /* [nodes] */
  NodeStatistics *nodes; /* [nodes] */
  int64_t *counts;       /* [nodes] tokens of each */
  RequestShare *shares;  /* [nodes] */
  uint32_t number;       /* 0: free */
  Request request;
} LeaderRequest;

struct Leader {
  LeaderOptions options;
  NodeSetup setup; /* what the children run on */
  Processes processes;
  int nodes;
  Link *control;       /* [nodes] */
  Link **links;        /* [nodes] */
  TokenLayout *layout; /* [nodes] of a picture */
  LeaderRequest requests[LEADER_DEPTH];
  uint32_t submitted, collected;
  bool *ready; /* [nodes] has said hello */
  uint64_t
      *progress; /* [nodes] how far each has come: request (blocks + 3) + step: 1 the first block... blocks + 1 the head, then the answer */
  int complainer, accused;
  char (*complaints)[WIRE_TEXT + 1]; /* [nodes] */
  NodeStatistics *totals;            /* [nodes] */
  int64_t *tokens;                   /* [nodes] of the last answer */
  int64_t class_rows;                /* of all nodes */
  real *replicas, *logits;
  int32_t *codes, *node_codes;
  RequestDecoding *decoding; /* [nodes] */
  /* New tokens of the prompt under way: made by the nodes [made], of which `taken` were handed on. */
  int32_t *made;
  int64_t made_count, taken;
  uint8_t token[WIRE_TOKEN_BYTES];
  Arena *arena;
  Tape *tape;
  uint8_t bye[WIRE_HEADER], stop[WIRE_HEADER];
};

/* ---- leader_messages.c: what nodes say */
extern const LinkSink leader_messages_sink;
LeaderRequest *leader_messages_request(Leader *leader, uint32_t number); /* under way, or NULL */

/* ---- leader_wait.c: waiting, and who is to blame */

/* Until done(leader) says so. `arrived` [nodes]: whom nobody waits for. */
typedef bool LeaderDone(const Leader *leader, const bool *arrived);
LeaderDone leader_wait_all; /* every node has set its flag */
Status leader_wait(Leader *leader, LeaderDone *done, const bool *arrived);
Status leader_wait_explain(Leader *leader, Status status); /* names the cause of a failure of the links */

/* ---- leader_request.c: beginning and end of any request */

/* Takes a free slot for a request of this shape. What belongs to its kind is then to be filled in: the payload (leader_request_payload),
 * and each node's tokens and share (counts, shares). */
Status leader_request_open(Leader *leader, const Request *request, LeaderRequest **slot);
static inline uint8_t *leader_request_payload(LeaderRequest *slot) { return slot->message + WIRE_HEADER; }
Status leader_request_send(Leader *leader, LeaderRequest *slot); /* to all nodes */
LeaderRequest *leader_request_oldest(Leader *leader);

/* ---- what the answers to each kind mean: fill in their part of the answer */
Status leader_picture_take(Leader *leader, const LeaderRequest *request, LeaderAnswer *answer);
Status leader_text_take_prompt(Leader *leader, const LeaderRequest *request, LeaderAnswer *answer);
Status leader_text_take_score(Leader *leader, const LeaderRequest *request, LeaderAnswer *answer);
Status leader_text_take_last(Leader *leader, const LeaderRequest *request, LeaderAnswer *answer);

#endif
