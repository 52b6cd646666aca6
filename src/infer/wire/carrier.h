/* Moves whole packets (packet.h: header and payload) to and from peers, over streams, datagrams or MPI. It may lose, repeat and reorder
 * them where `reliable` and `ordered` say so; what it hands over was sent by that peer and by nobody else.
 *
 * Made and used by the courier's thread alone. */
#ifndef INFER_CARRIER_H
#define INFER_CARRIER_H
#include "base/status.h"
#include "infer/control/channel.h"
#include <poll.h>
#include <sys/socket.h>

enum { CARRIER_ALL = -1 /* as a peer: everybody at once, where `multicast` */, CARRIER_POLLS = 80 /* descriptors at most */ };

/* A packet has come. bytes are the carrier's, valid in the call. now: clock_now. *taken false: there is no room for it yet; an ordered
 * carrier keeps it, holds its peer back and asks again at the next receive, another one drops it. */
typedef Status CarrierTake(void *context, int peer, const uint8_t *packet, size_t bytes, double now, bool *taken);

typedef struct Carrier Carrier;
struct Carrier {
  size_t packet_most; /* header and payload; a datagram carrier may lower it when the route does */
  size_t overhead;    /* bytes that the carrier puts around each packet */
  bool reliable, ordered, multicast;
  /* *taken false: full, to be tried again after poll. Bytes may be changed afterwards. To a peer that is not open: taken, and dropped. */
  Status (*send)(Carrier *self, int peer, const uint8_t *packet, size_t bytes, bool *taken);
  /* Hands over all that is there, without waiting. A failure of `take` ends it and comes back; others are about the carrier as a whole. */
  Status (*receive)(Carrier *self, CarrierTake *take, void *context);
  /* What to wait for, at most `room` of them; returns how many. Negative: nothing can be polled (MPI), nap instead. */
  int (*polls)(Carrier *self, struct pollfd *polls, int room);
  bool (*pending)(const Carrier *self); /* packets were taken that the system has not */
  /* OK: open. Else nothing will come from it any more, and *why says why (valid while the carrier is): PEER, IO, BAD_VALUE. */
  Status (*peer_status)(const Carrier *self, int peer, const char **why);
  uint64_t dropped; /* what came and was no packet of a peer's */
  void (*free)(Carrier *self);
};

/* Packets behind their length (u32) over each peer's channel [nodes]: taken over, also when it fails; NULL at this node's own place. */
enum { CARRIER_STREAM_PACKET = 1 << 18 };
Status carrier_stream(Carrier **carrier, int nodes, Channel *const *channels, size_t packet_most);

/* For CourierSetup.open: the same over plain sockets [nodes], taken over; the one at this node's own place is left alone. packets of at
 * most packet_most, and CARRIER_STREAM_PACKET. */
typedef struct CarrierSockets {
  int nodes;
  const int *sockets;
  size_t packet_most;
} CarrierSockets;
Status carrier_stream_open(void *sockets, Carrier **carrier);

enum { CARRIER_KEY_BYTES = 44 /* a key of 32, an iv of 12 */ };
typedef struct CarrierPeer {
  struct sockaddr_storage address;
  socklen_t address_bytes; /* 0: this node itself */
  uint8_t seal[CARRIER_KEY_BYTES], open[CARRIER_KEY_BYTES];
  uint8_t multicast[CARRIER_KEY_BYTES]; /* of what it sends to all */
} CarrierPeer;

typedef struct CarrierUdpSetup {
  int self, nodes;
  int socket;               /* bound; taken over */
  const CarrierPeer *peers; /* [nodes], copied */
  uint32_t mtu;             /* 0: ask the system for each route */
  bool multicast;
  uint8_t multicast_key[CARRIER_KEY_BYTES];
} CarrierUdpSetup;
/* Sealed datagrams (seal.h, replay_window.h). */
Status carrier_udp(Carrier **carrier, const CarrierUdpSetup *setup);

/* UNSUPPORTED where the program was built without MPI. */
Status carrier_mpi(Carrier **carrier, int nodes, size_t packet_most);

#endif
