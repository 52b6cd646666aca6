/* The inside of a node, private to node.c and what answers each kind of request. */
#ifndef INFER_NODE_PARTS_H
#define INFER_NODE_PARTS_H
#include "autograd/tape.h"
#include "infer/code_exchange.h"
#include "infer/node.h"
#include "infer/request.h"
#include "infer/strategy/collective.h"
#include "nn/model.h"

typedef struct NodeRequest {
  uint8_t *payload;
  Request request;
  uint32_t number;
  bool arrived;
} NodeRequest;

/* What a language model has besides. */
typedef struct NodeText {
  KvCache cache;
  Sampler sampler;
  uint32_t stopped;                                                 /* number of the last request that the leader wants no more tokens of */
  int32_t token;                                                    /* the last one */
  uint8_t tokens[CONNECTION_QUEUE][WIRE_HEADER + WIRE_TOKEN_BYTES]; /* a ring: they stay here until they are sent */
} NodeText;

/* What a node that shares heads and columns has instead of a network. */
typedef struct NodeDivision {
  Collective collective;
  ReduceStep *steps; /* of the request at work */
} NodeDivision;

struct Node {
  const NodeSetup *setup;
  int self, nodes;
  RequestShare max;   /* of the largest request */
  TokenLayout layout; /* of a text: of the request at work, empty when it has fewer tokens than there are nodes before this one */
  CodeExchange network;
  NodeDivision division;
  TransportThread *transport; /* of either */
  TransportCounts counts;     /* of it at the end of the last request */
  bool networked;             /* exchanges rows or codes of tokens: network */
  bool divided;               /* division */
  Exchange pulse;             /* tells the leader that a node gets on where no exchange does so */
  Connection *control;
  bool cancelled;
  Arena *arena, *block_arena; /* the second: values of the block at work, let go when it ends */
  Tape *tape;
  NodeRequest requests[2];
  uint32_t announced, answered; /* numbers of the last request that began to arrive, and that was answered */
  uint8_t *results[2];          /* header | statistics | answer | codes */
  size_t message_bytes;         /* of all four: two requests, two results */
  uint8_t progress[WIRE_HEADER];
  double began; /* the request at work */
  bool counted; /* its statistics are complete */
  NodeText text;
};

/* An answer to a request: writes what stands behind the statistics at `out`, of the length request.c says, codes not counted. */
typedef Status NodeAnswer(Node *node, const NodeRequest *request, uint8_t *out);
NodeAnswer node_images_answer, node_text_prompt, node_text_score, node_text_last, node_text_classify;

/* Memory and layout for texts: of the longest, so that no request asks for more. */
Status node_text_start(Node *node);
void node_text_release(Node *node);
Status node_text_layout(Node *node, const Request *request);

/* The rows of this request, by whatever the nodes divide among themselves; NULL where the node has none of them. */
Status node_encode(Node *node, const ModelInput *input, int64_t batch, ModelRows rows, Tensor **encoded);

/* ---- node_divided.c */
Status node_divided_start(Node *node, Connection **peers); /* the layout is that of the largest request */
void node_divided_release(Node *node);                     /* after the transport */
Status node_divided_encode(Node *node, const ModelInput *input, int64_t batch, ModelRows rows, Tensor **encoded);

/* Starts node->transport between these connections, which are taken over. transport: what the network or the division says. */
Status node_start_transport(Node *node, Connection **peers, TransportSetup *transport);
TransportCheck node_look_at_leader; /* context: the node */

/* Ends the statistics of a request here: what comes after is not counted. */
void node_finish_statistics(Node *node);

/* Tells the leader that the node is at this block, or, with their number, at the head. */
void node_report_progress(void *node, int block);

/* Sends a message of the node's; `message` stays as it is until it has left. */
Status node_send(Node *node, uint8_t *message, WireHeader header);

#endif
