/* The groups of packets of a simulation, one for each receiver of what a timeline sends, and what has come of them. */
#ifndef INFER_SIM_GROUPS_H
#define INFER_SIM_GROUPS_H
#include "infer/transport/policy.h"
#include "infer/virtual/timeline.h"
#include <stdbool.h>

typedef struct SimGroup {
  const Event *event; /* that sends it */
  int sender, receiver;
  int arrived;   /* packets */
  int under_way; /* packets that have left or wait for a link */
  double left;   /* when its last packet so far was out */
  bool sent, decided;
  /* What the receiver knows; times are -INFINITY until then. */
  bool known;         /* how many packets it has */
  double last;        /* packet of it that came */
  double waiting;     /* since then it can do nothing else */
  double asked, told; /* last question, last answer */
  int unanswered;     /* questions since then */
  SenderState says;   /* that answer */
} SimGroup;

typedef struct SimGroups {
  SimGroup *list; /* [count] in the order of senders, their events and receivers */
  int count;
  int *slots; /* [slots_count], a power of 2: index into list, -1: free */
  uint32_t slots_count;
} SimGroups;

/* devices [count]. BAD_VALUE: a timeline makes no sense; NO_MEMORY. */
Status sim_groups_init(SimGroups *groups, const Timeline *devices, int count);
void sim_groups_release(SimGroups *groups); /* accepts a zeroed one */

/* That of the same block, site and part as the event's; NULL: it is never sent. */
SimGroup *sim_groups_find(const SimGroups *groups, int sender, int receiver, const Event *event);

int sim_groups_missing(const SimGroup *group); /* packets that did not come */

#endif
