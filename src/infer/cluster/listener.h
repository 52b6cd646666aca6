/* What waits at a device's address (astra-infer worker): it has loaded the model, listens, and forks a session for each leader whose turn
 * it is, so that nothing is loaded again and nothing of one leader is left for the next. It computes nothing and starts no thread.
 *
 * One leader is served at a time. What happens before that, all in one event loop and in memory of fixed size:
 *
 *   unidentified connection   until its HELLO is whole and its proof is right (hello.h); up to 8,192, for at most 5 s
 *   handshake                 of a leader that has the key, in TLS; up to 256, for at most 10 s
 *   pending session           its handshake is over: it waits for its turn and is told its place each second, or that there is none
 *   session                   a process of its own (device_session.h)
 *
 * Of the first two no address has more than half, and where all places are taken the oldest of the address that has most goes:
 * whoever has no key can neither start a process nor shut others out. Connections of other devices that have the key
 * belong to the session whose number they name, and are passed to it.
 *
 * Sessions die with the listener. */
#ifndef INFER_LISTENER_H
#define INFER_LISTENER_H
#include "infer/cluster/address.h"
#include "infer/cluster/key_file.h"
#include "infer/weights.h"
#include <signal.h>

enum { LISTENER_MAX_QUEUE = 64 };

typedef struct ListenerOptions {
  const Weights *weights;
  const char *name;   /* of the device, for people */
  const KeyFile *key; /* NULL: the open one, for UNIX sockets alone */
  Address listen;
  int threads;         /* of a session */
  double idle_timeout; /* seconds after which a leader without a sign of life is left */
  int queue;           /* leaders that may wait; 0: all but one are refused */
  bool once;           /* ends after the first leader that was served */
  const volatile sig_atomic_t *stop;
} ListenerOptions;

/* BAD_USAGE: anything but a UNIX socket, without a key. Needs no weights: before they are loaded, too. */
Status listener_check(const ListenerOptions *options);

/* Until *stop, or an end as `once` says. Says on stderr where it listens (log_info), and a line for each leader. Fails as
 * listener_check, and when the files of the weights were written meanwhile (weights_unchanged): then the session is ended. */
Status listener_run(const ListenerOptions *options);

#endif
