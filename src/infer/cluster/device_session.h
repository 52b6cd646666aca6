/* A session: the process that is one device of one leader's cluster, from WELCOME to BYE. It runs epochs, one after another. Each begins
 * with a SETUP, which says which devices take part and who holds which tokens; the session then creates a node (infer/node.h) with
 * connections to the others. An epoch ends with CANCEL, with the next SETUP, or with the session.
 *
 *   leader              SETUP                          CLASSIFY...         [CANCEL            SETUP]  BYE
 *   session   WELCOME         (peer handshake) READY       RESULT...             CANCELLED
 *
 * Sessions forked by a leader (--nodes, its own device) and sessions forked by a worker's listener differ only in their SessionPlace. A
 * failure of an epoch is reported to the leader (ERROR, REFUSE), which decides what to do next; the session stays. It ends when the leader
 * says BYE, violates the protocol, or disconnects. */
#ifndef INFER_DEVICE_SESSION_H
#define INFER_DEVICE_SESSION_H
#include "infer/cluster/connection.h"
#include "infer/cluster/hello.h"
#include "infer/weights.h"
#include <sys/types.h>

typedef struct SessionPlace {
  pid_t parent;                     /* process that forked this one, which ends with it */
  const Weights *weights;           /* shared, read-only */
  const Fingerprints *fingerprints; /* of the weights */
  Connection *control;              /* to the leader, handshake done; ownership is taken */
  int passed;                       /* source of peers' descriptors (cluster/fd_passing.h); closed at the end; -1: none */
  uint8_t session[HELLO_SESSION];   /* of the leader's run */
  bool together;                    /* all devices are forked by one leader, which passes them the streams to each other */
  const KeyFile *key;               /* for connections to peers; NULL: the open key */
  const char *name;                 /* of the device, for messages */
  double idle_timeout;              /* seconds without a sign of life from the leader before the session ends; 0: unlimited */
  const char *leader;               /* its address, for messages; NULL: it is on this machine */
  int threads;                      /* compute threads; 0: one for each core */
  int number, siblings;             /* process `number` of `siblings` of this cluster on this machine */
} SessionPlace;

/* The main function of a forked session process. Returns its exit code: 0 after an orderly end. */
int device_session_run(const SessionPlace *place);

#endif
