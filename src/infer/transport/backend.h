/* Moves whole packets (packet.h: header and payload) to and from peers, over streams or datagrams. It may lose, repeat and reorder
 * them where `reliable` and `ordered` say so; what it delivers was sent by that peer and no one else.
 *
 * Made and used by the transport's thread alone. */
#ifndef INFER_BACKEND_H
#define INFER_BACKEND_H
#include "base/status.h"
#include "infer/cluster/connection.h"
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>

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

/* ---- from peer channels to a backend */

enum { STREAM_MAX_PACKET = 1 << 18 };
enum { UDP_KEY_BYTES = 44 /* a key of 32, an iv of 12 */, UDP_MIN_MTU = 576, UDP_MAX_MTU = 9000 /* MTU that is used */ };

/* For TransportThreadSetup.open. Over streams the channels carry packets themselves. For datagrams each end tells the other its port, and
 * both take their keys from the TLS exporter; on a plain channel, which belongs to two processes of one machine alone, they tell each other
 * keys. */
enum { BACKEND_MAX_AGREED = 64 };
typedef struct BackendPeers {
  int self, nodes;
  Connection **channels; /* [nodes], their handshakes over; taken over, also on failure; NULL at this node's own place */
  bool datagrams;
  uint16_t port;     /* for datagrams to come to, where it is free; 0: any */
  uint32_t mtu;      /* 0: ask the system for each route, and use at most UDP_MAX_MTU */
  size_t max_packet; /* of streams */
  double seconds;    /* for the peers to answer */
  int fault;         /* afterwards: the node that a failure is about; -1: none */
  /* What both ends have agreed on: of other bytes come other keys. At most BACKEND_MAX_AGREED; NULL: nothing. */
  const uint8_t *agreed;
  size_t agreed_bytes;
  atomic_bool give_up; /* set by another thread: stop waiting for them */
} BackendPeers;
Status backend_open(void *peers, Backend **backend);

#endif
