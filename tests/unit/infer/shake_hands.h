/* Calls a listener, and waits for the handshake of a connection to be over. */
#ifndef TESTS_SHAKE_HANDS_H
#define TESTS_SHAKE_HANDS_H
#include "base/clock.h"
#include "infer/cluster/connection.h"
#include <stdlib.h>

/* As connection_dial, on the heap: free it whatever comes back. */
static inline Status shake_hands_call(Connection **connection, const Address *address, HelloRole role, const uint8_t *session,
                                      const KeyFile *key) {
  *connection = malloc(sizeof **connection);
  if (!*connection) return status_set(STATUS_NO_MEMORY, "no memory for a connection");
  return connection_dial(*connection, address, role, session, key);
}

/* At most so many seconds: TIMEOUT, or as connection_step. */
static inline Status shake_hands(Connection *connection, double seconds) {
  double until = clock_now() + seconds;
  bool done;
  for (;;) {
    TRY(connection_step(connection, &done));
    if (done) return STATUS_OK;
    if (clock_now() >= until) return status_set(STATUS_TIMEOUT, "the handshake was not over within %g s", seconds);
    TRY(connections_wait(&connection, 1, -1, until - clock_now()));
  }
}

#endif
