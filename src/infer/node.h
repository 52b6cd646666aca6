/* One node of a cluster: answers the leader's requests until it says bye, or goes away with it. Holds the whole model and a share of the
 * tokens; gets all pixels or ids of a request, computes its own rows and exchanges codes with the other nodes. Of a picture it returns its
 * class-token replicas, of a text what was asked for: losses of its rows, or, where it has the last token, logits or the tokens to come,
 * one by one; and what it cost. */
#ifndef INFER_NODE_H
#define INFER_NODE_H
#include "infer/node_setup.h"

/* Runs until the control stream ends; takes over all sockets [nodes]. Returns the exit code of the process. */
int node_run(const NodeSetup *setup, int self, int control, const int *sockets);

#endif
