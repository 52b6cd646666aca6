/* The links of this device as they are asked to be (link_model.h), in real time: when a packet that is ready now reaches its receiver, or
 * that it does not. The courier holds packets back accordingly. Pure arithmetic; one thread. */
#ifndef INFER_SHAPER_H
#define INFER_SHAPER_H
#include "infer/wire/link_model.h"

typedef struct Shaper {
  LinkOptions options;
  bool active;
  double start;      /* where a trace begins; times are the caller's */
  LinkModel *links;  /* [nodes]: to each */
  LinkModel out, in; /* of a switch: this device's ports */
} Shaper;

/* options NULL: links as they are, every packet arrives when it is ready. The trace stays the caller's. NO_MEMORY; UNSUPPORTED: a medium
 * that all share, of which no device can know alone when it is free. */
Status shaper_init(Shaper *shaper, const LinkOptions *options, int self, int nodes, double start);
void shaper_release(Shaper *shaper); /* accepts a zeroed one */

/* When a packet that is ready then reaches the peer's port; *lost: it never does. In the order of `ready`. */
double shaper_send(Shaper *shaper, int peer, double ready, size_t bytes, bool *lost);

/* When one that reaches this device's port then is in: a switch's port takes one after the other. */
double shaper_receive(Shaper *shaper, double reached, size_t bytes);

#endif
