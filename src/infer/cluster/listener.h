/* A worker's listener (astra-infer worker): it has loaded the model, listens, and forks one session per leader, so that nothing is loaded
 * twice and no state of one leader is left for the next. It computes nothing and starts no thread.
 *
 * One leader is served at a time. Everything before that happens in one event loop and in memory of fixed size:
 *
 *   unidentified connection   until its HELLO is complete and its proof checked (hello.h); at most 8,192, for at most 5 s
 *   handshake                 TLS handshake of a leader that has the key; at most 256, for at most 10 s
 *   pending session           handshake done: it waits for its turn and is told its position each second, or that the queue is full
 *   session                   a process of its own (device_session.h)
 *
 * No address can hold more than half of the slots of the first two, and when all are taken, the oldest connection of the address with the
 * most is dropped: callers without the key can neither start a process nor shut others out. Connections of other devices that have the key
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

/* A worker that has no checkpoint fetches the first leader's. */
typedef struct ListenerFetch {
  const char *directory;         /* where it goes (checkpoint_fetch.h) */
  Status (*load)(void *context); /* called when it is there: fills ListenerOptions.weights. Calls of leaders wait meanwhile */
  void *context;
} ListenerFetch;

typedef struct ListenerOptions {
  const Weights *weights;
  const ListenerFetch *fetch; /* NULL: the weights are loaded */
  const char *name;           /* of the device, for messages of leaders; NULL: none */
  const KeyFile *key;         /* NULL: the open key, on UNIX sockets only */
  Address listen;
  int threads;         /* of a session */
  double idle_timeout; /* seconds without a sign of life before a leader is dropped */
  int queue;           /* maximum number of waiting leaders; 0: all but one are refused */
  bool announce;       /* leaders find this worker by themselves (discovery.h) */
  bool once;           /* exit after the first leader that was served */
  const volatile sig_atomic_t *stop;
} ListenerOptions;

/* BAD_USAGE: no key on anything but a UNIX socket; an address announced that only this machine reaches. Can be called before the weights
 * are loaded. */
Status listener_check(const ListenerOptions *options);

/* Runs until *stop is set, or as `once` says. Logs the address and one line per leader (log_info). Fails as listener_check, and when the
 * weight files are modified while it runs (weights_unchanged), which also ends the session. */
Status listener_run(const ListenerOptions *options);

#endif
