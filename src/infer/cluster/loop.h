/* An event loop over descriptors (epoll): whoever waits for several connections watches them, and is called when one can go on. Level
 * triggered, one thread for each loop, no timers: a step says how long it may wait.
 *
 * A watch belongs to its owner and must stay where it is while it is on a loop. A callback may unwatch and release any watch, its own and
 * others of the same step as well. */
#ifndef INFER_LOOP_H
#define INFER_LOOP_H
#include "base/status.h"
#include <stdbool.h>

typedef struct Loop Loop;

/* events: as of poll (POLLIN, POLLOUT, POLLRDHUP, and POLLHUP and POLLERR, which are always reported). */
typedef void LoopReady(void *context, short events);

typedef struct LoopWatch {
  LoopReady *ready;
  void *context;
  int fd;       /* -1: on no loop */
  short events; /* asked for */
} LoopWatch;

Status loop_new(Loop **loop);
void loop_free(Loop *loop); /* watches that are left are forgotten; accepts NULL */

/* After fork, in the child: closes the child's copy without changing what the parent's loop watches. */
void loop_forget(Loop *loop);

/* The descriptor stays the caller's, and must be unwatched before it is closed. events 0: errors and hang-ups alone. */
Status loop_watch(Loop *loop, LoopWatch *watch, int fd, short events, LoopReady *ready, void *context);
void loop_expect(Loop *loop, LoopWatch *watch, short events); /* other events from here on */
void loop_unwatch(Loop *loop, LoopWatch *watch);              /* idempotent once watched; a zeroed watch must have fd -1 */

/* Waits at most so long for the first event (0: not at all; INFINITY), then calls whoever is ready. A signal ends the wait early. */
Status loop_step(Loop *loop, double seconds);

#endif
