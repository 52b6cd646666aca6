/* Backends of a transport (transport/backend.h) over the connections of peers: streams, and sealed datagrams. */
#ifndef INFER_PEER_BACKEND_H
#define INFER_PEER_BACKEND_H
#include "infer/cluster/connection.h"
#include "infer/transport/backend.h"
#include <stdatomic.h>

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
