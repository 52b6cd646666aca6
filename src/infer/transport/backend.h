/* Moves whole packets (packet.h: header and payload) to and from peers, over streams or datagrams. It may lose, repeat and reorder
 * them where `reliable` and `ordered` say so; what it delivers was sent by that peer and no one else.
 *
 * Made and used by the transport's thread alone. */
#ifndef INFER_BACKEND_H
#define INFER_BACKEND_H
#include "base/status.h"
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BACKEND_MAX_POLLS = 80 /* descriptors at most */ };

/* A packet has arrived. bytes are the backend's, valid during the call. now: clock_now. *taken false: there is no room for it yet; an
 * ordered backend keeps it, holds its peer back and asks again at the next receive, another one drops it. */
typedef Status BackendTake(void *context, int peer, const uint8_t *packet, size_t bytes, double now, bool *taken);

typedef struct Backend Backend;
struct Backend {
  size_t max_packet; /* header and payload; a datagram backend may lower it when the route does */
  size_t overhead;   /* bytes that the backend puts around each packet */
  bool reliable, ordered;
  bool more; /* `receive` stopped before it had delivered everything */
  /* *taken false: full, to be tried again after poll. Bytes may be changed afterwards. To a peer that is not open: taken, and dropped. */
  Status (*send)(Backend *self, int peer, const uint8_t *packet, size_t bytes, bool *taken);
  /* Delivers what is there, without waiting. A failure of `take` ends it and comes back; others are about the backend as a whole. */
  Status (*receive)(Backend *self, BackendTake *take, void *context);
  /* What to wait for, at most `room` of them; returns how many. */
  int (*polls)(Backend *self, struct pollfd *polls, int room);
  bool (*pending)(const Backend *self); /* packets were taken that the system has not taken yet */
  /* OK: open. Otherwise it will send nothing more, and *why says why (valid while the backend is): PEER, IO, BAD_VALUE. */
  Status (*peer_status)(const Backend *self, int peer, const char **why);
  uint64_t dropped; /* what arrived and was no packet of a peer */
  void (*free)(Backend *self);
};

#endif
