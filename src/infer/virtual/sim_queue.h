/* What is still to happen in a simulation, in the order of time; what falls on the same moment comes in the order in which it was put in,
 * so that the same simulation always runs alike. A binary heap. */
#ifndef INFER_SIM_QUEUE_H
#define INFER_SIM_QUEUE_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum SimKind {
  SIM_RUN,   /* a device goes on; `what`: which one */
  SIM_LOOK,  /* a device that waits looks at what has come; `what`: which one */
  SIM_ENTER, /* a packet reaches the port of whom it is for; `what`: its group, or the one that it is about */
  SIM_ARRIVE /* it has arrived, or would have */
} SimKind;

/* Packets besides those of a group, which are numbered from 0 on: the receiver's question, and what the sender answers. */
enum { SIM_QUESTION = -1, SIM_NOT_YET = -2, SIM_SENT = -3 };

typedef struct SimEvent {
  double time;
  uint64_t order; /* the queue's to set */
  SimKind kind;
  int what;
  int packet; /* its number in the group, or what it is besides */
  bool lost;
  size_t bytes; /* SIM_ENTER */
  double left;  /* SIM_ENTER: when its last bit is out of the sender's port */
} SimEvent;

typedef struct SimQueue {
  SimEvent *heap; /* [count] */
  int count, capacity;
  uint64_t order;
} SimQueue;

Status sim_queue_put(SimQueue *queue, SimEvent event); /* NO_MEMORY */
bool sim_queue_take(SimQueue *queue, SimEvent *event); /* false: nothing is left */
void sim_queue_release(SimQueue *queue);               /* accepts a zeroed one */

#endif
