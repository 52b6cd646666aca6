/* An event loop (epoll): level triggered, no timers: a step says how long it may wait. A watch must stay where it is while it is on the
 * loop. A callback may unwatch and release any watch, its own and others of the same step as well. */
#ifndef INFER_LOOP_H
#define INFER_LOOP_H
#include "base/status.h"
#include <sys/epoll.h>

/* events: as of poll (POLLIN, POLLOUT, POLLRDHUP, and POLLHUP and POLLERR, which are always reported). */
typedef void LoopReady(void *context, short events);

typedef struct LoopWatch {
  LoopReady *ready;
  void *context;
  int fd;       /* -1: not on the loop */
  short events; /* asked for */
} LoopWatch;

typedef struct Loop {
  int fd;
  struct epoll_event batch[256]; /* of the current step: an entry whose watch has left meanwhile is NULL */
  int next, count;
} Loop;

Status loop_open(Loop *loop);
void loop_close(Loop *loop); /* accepts one with fd -1 */

/* The descriptor stays the caller's, and must be unwatched before it is closed. events 0: errors and hang-ups alone. */
Status loop_watch(Loop *loop, LoopWatch *watch, int fd, short events, LoopReady *ready, void *context);
void loop_expect(Loop *loop, LoopWatch *watch, short events);
void loop_unwatch(Loop *loop, LoopWatch *watch); /* accepts one with fd -1 */

/* Waits at most so long for the first event, then calls the watches that are ready. A signal ends the wait early. */
Status loop_step(Loop *loop, double seconds);

#endif
