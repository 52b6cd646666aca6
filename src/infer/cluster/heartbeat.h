/* Signs of life of a process that does something else between its calls: a thread calls `beat` every so often while nobody holds it.
 * Whoever holds it does so himself where he waits. A process that is stopped (Ctrl-Z, a debugger, a frozen machine) gives none. */
#ifndef INFER_HEARTBEAT_H
#define INFER_HEARTBEAT_H
#include "base/status.h"

typedef struct Heartbeat Heartbeat;

Status heartbeat_start(Heartbeat **heartbeat, double seconds, void (*beat)(void *context), void *context);
void heartbeat_stop(Heartbeat *heartbeat); /* not while it is held; accepts NULL, as the others do */

/* Between the two the beat is not called; they nest. */
void heartbeat_hold(Heartbeat *heartbeat);
void heartbeat_release(Heartbeat *heartbeat);

#endif
