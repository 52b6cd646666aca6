/* Passing descriptors between two processes of this machine (SCM_RIGHTS over a socket pair), each with a note of what it is. Messages are
 * whole; neither side ever waits. */
#ifndef INFER_FD_PASSING_H
#define INFER_FD_PASSING_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum FdKind {
  FD_STREAM = 1, /* a connected stream to node `node` of epoch `epoch` */
  FD_CONNECTION, /* one that has come in from another device of this run, its HELLO read */
  FD_KIND_END
} FdKind;

typedef struct PassedFd {
  FdKind kind;
  uint16_t epoch, node;
  int fd; /* -1: none */
} PassedFd;

Status fd_passing_pair(int pair[2]);

/* The descriptor stays the caller's. PEER: the other end is gone, or its queue is full. */
Status fd_passing_send(int socket, const PassedFd *passed);

/* *any: whether there was one. The descriptor becomes the caller's. PEER: the other end is gone. */
Status fd_passing_receive(int socket, PassedFd *passed, bool *any);

#endif
