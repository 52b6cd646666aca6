/* How the devices of a cluster find each other at the beginning of an epoch: every two of them get a connection. Devices that were forked
 * together are passed plain streams by whoever forked them; others dial each other, in TLS with the key that they share: of two, the one
 * that nobody can reach dials, else the one with the higher number. On each connection both sides then say MEET, which names the run, the
 * epoch, the node and the partition, so that a caller of an earlier epoch is told apart. */
#ifndef INFER_PEER_HANDSHAKE_H
#define INFER_PEER_HANDSHAKE_H
#include "infer/cluster/connection.h"
#include "infer/cluster/hello.h"
#include "infer/cluster/setup_message.h"

typedef struct PeerHandshake {
  const ClusterSetup *setup;
  uint8_t session[HELLO_SESSION]; /* of the leader's run */
  int passed;                     /* where descriptors come from (cluster/fd_passing.h) */
  bool together;                  /* they are streams, and all devices are forked by one process */
  const KeyFile *key;             /* NULL: the open one */
  Connection *control;            /* the leader is listened to meanwhile */
  const bool *stop;               /* becomes true when it wants something else: INTERRUPTED */
  double seconds;                 /* for all to be there */
  /* What comes of it: */
  Connection *connection[WIRE_NODES]; /* [nodes], the caller's to free, also after a failure; [self] is NULL */
  int fault;                          /* the node that a failure is about; -1: none */
} PeerHandshake;

/* TIMEOUT, PEER: the message names the node and its address; BAD_VALUE: another partition, with both values. */
Status peer_handshake_run(PeerHandshake *handshake);

#endif
