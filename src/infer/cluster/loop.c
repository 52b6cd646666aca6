/* See loop.h. */
#include "infer/cluster/loop.h"
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

_Static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLHUP == POLLHUP && EPOLLERR == POLLERR, "epoll and poll name events alike");

Status loop_open(Loop *loop) {
  loop->fd = epoll_create1(EPOLL_CLOEXEC);
  return loop->fd >= 0 ? STATUS_OK : status_set(STATUS_IO, "cannot make an event loop: %s", strerror(errno));
}

void loop_close(Loop *loop) {
  if (loop->fd >= 0) close(loop->fd);
  loop->fd = -1;
}

static int control(Loop *loop, int what, LoopWatch *watch) {
  struct epoll_event event = {.events = (uint32_t)(unsigned short)watch->events, .data.ptr = watch};
  return epoll_ctl(loop->fd, what, watch->fd, &event);
}

Status loop_watch(Loop *loop, LoopWatch *watch, int fd, short events, LoopReady *ready, void *context) {
  *watch = (LoopWatch){.ready = ready, .context = context, .fd = fd, .events = events};
  if (control(loop, EPOLL_CTL_ADD, watch) == 0) return STATUS_OK;
  watch->fd = -1;
  return status_set(STATUS_IO, "cannot watch a descriptor: %s", strerror(errno));
}

void loop_expect(Loop *loop, LoopWatch *watch, short events) {
  if (watch->events == events) return;
  watch->events = events;
  control(loop, EPOLL_CTL_MOD, watch);
}

void loop_unwatch(Loop *loop, LoopWatch *watch) {
  if (watch->fd < 0) return;
  control(loop, EPOLL_CTL_DEL, watch);
  watch->fd = -1;
  for (int i = loop->next; i < loop->count; i++) {
    if (loop->batch[i].data.ptr == watch) loop->batch[i].data.ptr = NULL;
  }
}

Status loop_step(Loop *loop, double seconds) {
  loop->next = 0;
  loop->count = epoll_wait(loop->fd, loop->batch, sizeof loop->batch / sizeof *loop->batch, (int)ceil(seconds * 1000));
  if (loop->count < 0 && errno != EINTR) return status_set(STATUS_IO, "cannot wait for events: %s", strerror(errno));
  while (loop->next < loop->count) {
    const struct epoll_event *event = &loop->batch[loop->next++];
    LoopWatch *watch = event->data.ptr;
    if (watch) watch->ready(watch->context, (short)event->events);
  }
  loop->next = loop->count = 0;
  return STATUS_OK;
}
