/* One node of a cluster in one epoch: answers the leader's requests. Holds the whole model and a share of the tokens; receives the patches
 * of its own share of an image, or all ids of a text, computes its own rows and exchanges codes with the other nodes. Of an image it
 * returns its class-token replicas, of a text what was requested: losses of its rows, or, where it has the last token, logits or new
 * tokens, one by one; and statistics of what that cost.
 *
 * The caller (cluster/device_session.c) owns the connection to the leader, moves it, and passes on the messages for the node. All memory is
 * allocated by node_new. */
#ifndef INFER_NODE_H
#define INFER_NODE_H
#include "infer/cluster/connection.h"
#include "infer/node_share.h"

typedef struct Node Node;

/* setup and control outlive the node; control's max_payload becomes that of the node's requests. peers [nodes]: connections to the others,
 * whose ownership is taken also when it fails; [self] NULL. *fault, after a failure: the node that caused it; -1: none. */
Status node_new(Node **node, const NodeSetup *setup, int self, Connection *control, Connection **peers, int *fault);
void node_free(Node *node); /* accepts NULL */

/* Messages of the leader: requests and STOP. As ConnectionSink's place and deliver. */
Status node_place(Node *node, const WireHeader *header, uint8_t **payload);
Status node_deliver(Node *node, const WireHeader *header);

bool node_has_request(const Node *node); /* one has arrived that is not answered yet */

/* Sequences live on this node: it computes a new token of each, and sends them. A failure is that of node_answer. */
bool node_decodes(const Node *node);
Status node_decode(Node *node);
double node_waits(const Node *node); /* seconds for which that may wait for drafts of another device; 0: it is due */

/* It has a copy of the model to draft with, for sequences of other nodes; there is something to draft; a step of that, and what comes of
 * it is sent. */
bool node_is_drafter(const Node *node);
bool node_drafts(const Node *node);
Status node_draft(Node *node);

/* Computes the oldest one, *number, and sends the answer. INTERRUPTED after node_cancel, or when the leader is gone; else a failure caused
 * by node *fault; -1: by none. The node is then of no more use. */
Status node_answer(Node *node, uint32_t *number, int *fault);

/* Stops waiting for this one: its tokens count as lost. */
void node_gone(Node *node, int other);

/* Ends the current request, also from within node_answer; the node is of no more use. */
void node_cancel(Node *node);

#endif
