/* What each device does in a request, as a timeline: stretches of computation, and between them messages that it sends or needs; and what
 * is sent in a block, stated once for plans, simulations and what is measured.
 *
 * Messages are numbered as blocks see them: site = 2 which + phase for sums and joins, part = the device whose rows travel. (The runner
 * numbers by step: collective.h.) */
#ifndef INFER_SCHEDULE_H
#define INFER_SCHEDULE_H
#include "base/status.h"
#include "nn/exchange.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum EventKind {
  EVENT_COMPUTE, /* `seconds` of the model's arithmetic */
  EVENT_FIXED, /* `seconds` that do not become fewer on a device that computes faster: packets through the system, transfer of the input */
  EVENT_SEND,  /* a message to `peers` */
  EVENT_WAIT   /* until the same message of each of `peers` is there */
} EventKind;

typedef struct Event {
  EventKind kind;
  double seconds;
  uint8_t block, site, part;
  uint32_t packets, bytes; /* EVENT_SEND: of the message, to each receiver; bytes with the packets' headers, without lower layers */
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

/* ---- sizes of messages: the same arithmetic for what is measured, predicted and sent */

/* An Ethernet frame of 1,500 bytes. */
enum {
  SCHEDULE_PACKET_MAX = 1500 - 28 - 8 - 16, /* bytes of a datagram's packet: less IPv4 and UDP, clear header, tag */
  SCHEDULE_DATAGRAM_OVERHEAD = 8 + 16 + 28 + 14,
  SCHEDULE_STREAM_PACKETS = 16
};

typedef struct MessageSize {
  uint32_t packets, bytes;
} MessageSize;

/* So many bytes of rows in a stream, which knows no packets: up to SCHEDULE_STREAM_PACKETS pieces, so that others get their turn on a
 * shared link, and the overhead of all segments beyond one a piece is in `bytes`. */
MessageSize schedule_stream(double bytes);

/* ---- what devices send each other in a block */

/* Devices (bits) to whom this one's tokens go, or whose tokens it sees: all others, or where attention is causal those on one side. */
uint64_t schedule_partners(int device, int devices, bool causal, bool to);

/* BAD_VALUE: no packet can hold it. */
Status schedule_send(Timeline *timeline, int block, int site, int part, MessageSize size, uint64_t peers);
Status schedule_wait(Timeline *timeline, int block, int site, int part, uint64_t peers);
Status schedule_compute(Timeline *timeline, double seconds);

/* A join: every device gets the rows that each holds. Or a sum over all devices, for which rows are divided among them and joined when they
 * are added up; add_seconds: of this device's additions. Who has no rows sends nothing. */
Status schedule_reduce(Timeline *timeline, int block, int which, int device, int devices, const ReduceStep *step, double add_seconds);

#endif
