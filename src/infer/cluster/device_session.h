/* A session: one process that is a device of one leader's cluster, from WELCOME to BYE. It holds epochs, one after another: each begins
 * with a SETUP, which says who the members are and who holds which tokens, for which it makes a node (infer/node.h) with connections to the
 * others, and ends with CANCEL, with the next SETUP, or with the session.
 *
 *   leader              SETUP                     CLASSIFY...         [CANCEL            SETUP]  BYE
 *   session   WELCOME         (meets peers) READY       RESULT...             CANCELLED
 *
 * The same for a process that a leader has forked (--nodes, the caller's own device) and for one that a worker's listener has: they differ
 * in the place they have. A failure of an epoch is told to the leader (ERROR, REFUSE), who decides what comes next; the session stays. It
 * leaves when the leader says BYE, breaks the protocol, or goes away. */
#ifndef INFER_DEVICE_SESSION_H
#define INFER_DEVICE_SESSION_H
#include "infer/cluster/connection.h"
#include "infer/cluster/hello.h"
#include "infer/weights.h"
#include <sys/types.h>

typedef struct SessionPlace {
  pid_t parent;                     /* who has forked this process, which ends with it */
  const Weights *weights;           /* shared, read-only */
  const Fingerprints *fingerprints; /* of these */
  Connection *control;              /* its handshake over; taken over */
  int passed;                       /* where descriptors of peers come from (cluster/fd_passing.h); closed in the end; -1: nowhere */
  uint8_t session[HELLO_SESSION];   /* of the leader's run */
  bool together;                    /* all members are forked by one leader, which passes each the streams to the others */
  const KeyFile *key;               /* for the connections to peers; NULL: the open one */
  const char *name;                 /* of the device, for people */
  double idle_timeout;              /* seconds without a sign of life from the leader after which it leaves; 0: it waits for ever */
  const char *leader;               /* where it calls from, for people; NULL: it is of this machine */
  int threads;                      /* compute threads; 0: one for each core */
  int number, siblings;             /* this is process `number` of so many of the cluster on this machine */
} SessionPlace;

/* All that a process does that was forked for it. Returns its exit code: 0 when it left in peace. */
int session_run(const SessionPlace *place);

#endif
