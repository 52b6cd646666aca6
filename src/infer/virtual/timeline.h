/* What one device does in a request, as it was measured alone: stretches of computation, and between them groups that it sends or needs. */
#ifndef INFER_TIMELINE_H
#define INFER_TIMELINE_H
#include "base/status.h"
#include <stdint.h>

typedef enum EventKind {
  EVENT_COMPUTE, /* `seconds` of the model's arithmetic */
  EVENT_FIXED,   /* `seconds` that do not become fewer on a device that computes faster: packets through the system, input on its way */
  EVENT_SEND,    /* a group to `peers` */
  EVENT_WAIT     /* until the same group of each of `peers` is there */
} EventKind;

typedef struct Event {
  EventKind kind;
  double seconds;
  uint8_t block, site, part;
  uint32_t packets, bytes; /* EVENT_SEND: of the group, to each receiver; bytes with the packets' headers, without lower layers */
  uint64_t peers;          /* bits of nodes */
} Event;

typedef struct Timeline {
  Event *list; /* [count], owned */
  int count, capacity;
  int64_t tokens; /* that the device holds */
} Timeline;

Status timeline_add(Timeline *timeline, const Event *event); /* NO_MEMORY */
double timeline_seconds(const Timeline *timeline);           /* of computation */
void timeline_release(Timeline *timeline);

#endif
