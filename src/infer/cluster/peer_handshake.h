/* Connects the devices of a cluster to each other at the beginning of an epoch, one connection for each pair. Devices forked together are
 * passed plain streams by their parent. Others dial each other in TLS with the shared key: of two, the one that cannot be reached dials,
 * else the one with the higher number. On each connection both sides then send MEET, which names the run, the epoch, the node and the
 * partition, so that connections of an earlier epoch are recognised. */
#ifndef INFER_PEER_HANDSHAKE_H
#define INFER_PEER_HANDSHAKE_H
#include "infer/cluster/connection.h"
#include "infer/cluster/hello.h"
#include "infer/cluster/setup_message.h"

typedef struct PeerHandshake {
  const ClusterSetup *setup;
  uint8_t session[HELLO_SESSION]; /* of the leader's run */
  int passed;                     /* source of descriptors (cluster/fd_passing.h) */
  bool together;                  /* all devices are forked by one process, which passes streams */
  const KeyFile *key;             /* NULL: the open key */
  Connection *control;            /* to the leader, which is served meanwhile */
  const bool *stop;               /* set when the leader ends the epoch: INTERRUPTED */
  double seconds;                 /* until all must be connected */
  /* Results: */
  Connection *connection[WIRE_NODES]; /* [nodes], freed by the caller, also after a failure; [self] is NULL */
  int fault;                          /* the node at fault; -1: none */
} PeerHandshake;

/* TIMEOUT, PEER: the message names the node and its address; BAD_VALUE: another partition, with both values. */
Status peer_handshake_run(PeerHandshake *handshake);

#endif
