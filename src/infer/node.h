/* One node of a cluster in one epoch: answers the leader's requests. Holds the whole model and a share of the tokens; gets the patches of
 * its own share of an image, or all ids of a text, computes its own rows and exchanges codes with the other nodes. Of an image it returns
 * its class-token replicas, of a text what was asked for: losses of its rows, or, where it has the last token, logits or the tokens to
 * come, one by one; and what it cost.
 *
 * Who runs it (cluster/device_session.c) owns the connection to the leader, moves it, and hands over what concerns the node. All memory is
 * asked for by node_new. */
#ifndef INFER_NODE_H
#define INFER_NODE_H
#include "infer/cluster/connection.h"
#include "infer/node_share.h"

typedef struct Node Node;

/* setup and control outlive the node. peers [nodes]: connections to the others, taken over also when it fails; [self] NULL.
 * *fault, after a failure: the node that it is about; -1: nobody. */
Status node_new(Node **node, const NodeSetup *setup, int self, Connection *control, Connection **peers, int *fault);
void node_free(Node *node); /* accepts NULL */

/* Messages of the leader: requests and STOP. As ConnectionSink's place and deliver. */
Status node_place(Node *node, const WireHeader *header, uint8_t **payload);
Status node_deliver(Node *node, const WireHeader *header);
size_t node_max_payload(const Node *node);

bool node_has_request(const Node *node); /* one has arrived that is not answered yet */

/* Computes the oldest one and sends the answer. INTERRUPTED after node_cancel, or when the leader is gone; else a failure, of which
 * node_fault says whom it is about: -1 nobody. The node is then of no more use. */
Status node_answer(Node *node);
int node_fault(const Node *node);
uint32_t node_answered(const Node *node); /* number of the last request that it has answered; 0: none */

/* Nobody waits for this one any more: its tokens are masked. */
void node_gone(Node *node, int other);

/* What is under way is not wanted any more; from within node_answer, too. */
void node_cancel(Node *node);

#endif
