/* One datagram to all peers of a link at once (IPv4, one hop). Each device has a key for what it sends so, which all others know; datagrams
 * are those of datagram.h. Whether the network carries them is found out by sending some: multicast_hear says from whom they came. */
#ifndef INFER_MULTICAST_H
#define INFER_MULTICAST_H
#include "infer/wire/carrier.h"
#include "infer/wire/datagram.h"
#include <netinet/in.h>

typedef struct Multicast {
  int self, nodes;
  int in, out; /* sockets; -1: not possible here */
  struct sockaddr_in group;
  uint8_t key[CARRIER_KEY_BYTES]; /* of what is sent; zeroes: nothing will be */
  DatagramSender sender;
  DatagramReceiver *receivers; /* [nodes]; without a seal: nothing comes from there */
} Multicast;

/* Joins the group that follows from `number`, the same for all devices of a cluster, on the interface that has this address, and draws a
 * key. Where that is not possible the key is zero, which is no failure. NO_MEMORY, IO: no random numbers. */
Status multicast_new(Multicast **multicast, int self, int nodes, uint32_t number, struct in_addr interface);
void multicast_free(Multicast *multicast); /* accepts NULL */

/* The key of a peer's; zeroes: it sends nothing. */
Status multicast_peer(Multicast *multicast, int peer, const uint8_t key[CARRIER_KEY_BYTES]);

/* false: the socket is full, and the packet has not left. out: room for the packet and DATAGRAM_AROUND bytes. */
Status multicast_send(Multicast *multicast, const uint8_t *packet, size_t bytes, uint8_t *out, bool *taken);

/* The next datagram, in place: *packet NULL when it is nobody's. false: there is none. */
bool multicast_take(Multicast *multicast, uint8_t *in, size_t room, int *from, uint8_t **packet, size_t *bytes);

/* Says a few words to all and listens until everybody was heard, at most so many seconds; bits of peers. Call when all have joined. */
Status multicast_hear(Multicast *multicast, double seconds, uint64_t *heard);

#endif
