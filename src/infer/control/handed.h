/* What one process of this machine hands to another through a pair of sockets that the two share: descriptors, each with a note of what it
 * is, and the porter's orders to those who wait. Whole messages; neither side ever waits. */
#ifndef INFER_HANDED_H
#define INFER_HANDED_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum HandedKind {
  HANDED_STREAM = 1, /* a connected stream to node `number` of epoch `epoch` */
  HANDED_CALL,       /* a connection that has come in: whoever dialled says who it is */
  HANDED_GREETED,    /* child to porter: the leader has the key */
  HANDED_START,      /* porter to child: serve the leader */
  HANDED_WAIT,       /* porter to child: at place `number` of the queue */
  HANDED_REFUSE,     /* porter to child: tell the leader that this device is busy */
  HANDED_END
} HandedKind;

enum { HANDED_SESSION = 16 };

typedef struct Handed {
  HandedKind kind;
  uint16_t epoch, number;
  uint8_t session[HANDED_SESSION]; /* of HANDED_GREETED */
  int fd;                          /* -1: none */
} Handed;

Status handed_pair(int pair[2]);

/* The descriptor stays the caller's. PEER: the other end is gone, or takes nothing more. */
Status handed_send(int socket, const Handed *handed);

/* *any false: nothing is there. The descriptor becomes the caller's. PEER: the other end is gone. */
Status handed_receive(int socket, Handed *handed, bool *any);

#endif
