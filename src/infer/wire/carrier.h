/* Moves whole packets (packet.h: header and payload) to and from peers, over streams or datagrams. It may lose, repeat and reorder
 * them where `reliable` and `ordered` say so; what it hands over was sent by that peer and by nobody else.
 *
 * Made and used by the courier's thread alone. */
#ifndef INFER_CARRIER_H
#define INFER_CARRIER_H
#include "base/status.h"
#include "infer/control/channel.h"
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>

enum { CARRIER_POLLS = 80 /* descriptors at most */ };

/* A packet has come. bytes are the carrier's, valid in the call. now: clock_now. *taken false: there is no room for it yet; an ordered
 * carrier keeps it, holds its peer back and asks again at the next receive, another one drops it. */
typedef Status CarrierTake(void *context, int peer, const uint8_t *packet, size_t bytes, double now, bool *taken);

typedef struct Carrier Carrier;
struct Carrier {
  size_t packet_most; /* header and payload; a datagram carrier may lower it when the route does */
  size_t overhead;    /* bytes that the carrier puts around each packet */
  bool reliable, ordered;
  bool more; /* `receive` stopped before it had handed over all that was there */
  /* *taken false: full, to be tried again after poll. Bytes may be changed afterwards. To a peer that is not open: taken, and dropped. */
  Status (*send)(Carrier *self, int peer, const uint8_t *packet, size_t bytes, bool *taken);
  /* Hands over what is there, without waiting. A failure of `take` ends it and comes back; others are about the carrier as a whole. */
  Status (*receive)(Carrier *self, CarrierTake *take, void *context);
  /* What to wait for, at most `room` of them; returns how many. */
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

/* ---- sealed datagrams (datagram.h) */

enum { CARRIER_KEY_BYTES = 44 /* a key of 32, an iv of 12 */, CARRIER_UDP_LEAST = 576, CARRIER_UDP_MOST = 9000 /* MTU that is used */ };

typedef struct CarrierPeer {
  struct sockaddr_storage address;
  socklen_t address_bytes;                                  /* 0: this node itself */
  uint8_t seal[CARRIER_KEY_BYTES], open[CARRIER_KEY_BYTES]; /* of what goes there, and of what comes from there */
  Channel *channel;                                         /* by whose end one knows that the peer is gone; taken over; NULL: none */
} CarrierPeer;

typedef struct CarrierUdpSetup {
  int self, nodes;
  int socket;               /* bound; taken over, also on failure */
  const CarrierPeer *peers; /* [nodes] */
  uint32_t mtu;             /* 0: ask the system for each route, and use at most CARRIER_UDP_MOST */
} CarrierUdpSetup;
/* A packet that is longer than a route lets through is sent in fragments, and packet_most is lowered. */
Status carrier_udp(Carrier **carrier, const CarrierUdpSetup *setup);

/* ---- from peer channels to a carrier */

/* For CourierSetup.open. Over streams the channels carry packets themselves. For datagrams each end tells the other its port, and both take
 * their keys from the TLS exporter; on a plain channel, which belongs to two processes of one machine alone, they tell each other keys. */
enum { CARRIER_AGREED_MOST = 64 };
typedef struct CarrierPeers {
  int self, nodes;
  Channel **channels; /* [nodes], their handshakes over; taken over, also on failure; NULL at this node's own place */
  bool datagrams;
  uint16_t port;      /* for datagrams to come to, where it is free; 0: any */
  uint32_t mtu;       /* as above */
  size_t packet_most; /* of streams */
  double seconds;     /* for the peers to answer */
  int accused;        /* afterwards: whom a failure is about; -1: nobody */
  /* What both ends have agreed on: of other bytes come other keys. At most CARRIER_AGREED_MOST; NULL: nothing. */
  const uint8_t *agreed;
  size_t agreed_bytes;
  atomic_bool give_up; /* set by another thread: it is not waited for them any more */
} CarrierPeers;
Status carrier_peers_open(void *peers, Carrier **carrier);

#endif
