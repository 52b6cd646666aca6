/* The process that stands at a device's door (astra-infer worker): it has loaded the model, listens, and forks a session for each leader
 * that calls, so that nothing is loaded again and nothing of one leader is left for the next. It computes nothing and starts no thread.
 *
 * One leader is served at a time. A child takes each leader's connection from the first byte of TLS on, so that a slow or hostile handshake
 * keeps nobody else waiting; it says when the leader has shown the key, and then goes on as the session, waits its turn (telling its leader
 * so each second), or tells it that the device is busy. Connections of other devices belong to the session whose number they name, and are
 * handed to it.
 *
 * Children die with the porter. Bounded: connections that have not said who they are, handshakes under way, the queue. Of the first two
 * whoever has lasted longest makes room for a newcomer: somebody without the key cannot shut the door by standing in it. */
#ifndef INFER_PORTER_H
#define INFER_PORTER_H
#include "infer/control/address.h"
#include "infer/control/key_file.h"
#include "infer/weights.h"
#include <signal.h>

enum { PORTER_QUEUE_MOST = 64 };

typedef struct PorterOptions {
  const Weights *weights;
  const char *name;   /* of the device, for people */
  const KeyFile *key; /* NULL: the open one, which needs a local address */
  Address listen;
  int threads; /* of a session */
  int queue;   /* leaders that may wait; 0: all but one are refused */
  bool once;   /* ends after the first leader that was served */
  const volatile sig_atomic_t *stop;
} PorterOptions;

/* BAD_USAGE: an address that others can reach, without a key. Needs no weights: before they are loaded, too. */
Status porter_check(const PorterOptions *options);

/* Until *stop, or an end as `once` says. Says on stderr where it listens (log_info), and a line for each leader. Fails as
 * porter_check, and when the files of the weights were written meanwhile (weights_unchanged): then all sessions are ended. */
Status porter_run(const PorterOptions *options);

#endif
