/* The links of a simulated network: which ones a packet takes in a mesh, through a switch, in the air, and what they make of it. */
#ifndef INFER_SIM_NETWORK_H
#define INFER_SIM_NETWORK_H
#include "infer/transport/netem.h"
#include "infer/virtual/sim_groups.h"
#include "infer/virtual/sim_queue.h"

typedef struct SimNetwork {
  const LinkOptions *options;
  int nodes;
  LinkModel *pair; /* [nodes, nodes] from, to: latency, jitter and fates; in a mesh its rate as well */
  LinkModel *rest; /* [nodes, nodes] fates of what is sent as it is needed, which have chances of their own (netem.h) */
  LinkModel *port; /* switch: [2, nodes] ways in, then ways out; air: [1] */
} SimNetwork;

/* ends [nodes]: what each device's own way allows, of a mesh's pairs the narrower of two, through a switch of its port; the air has one
 * rate for all. NULL: as the options say. BAD_VALUE, NO_MEMORY. */
Status sim_network_init(SimNetwork *network, const LinkOptions *options, const LinkEnd *ends, int nodes);
void sim_network_release(SimNetwork *network); /* accepts a zeroed one */

/* At `now`, in the order of time, `packet` of these groups (of one sender and event, one for each receiver) is given to the links: each
 * gets its SIM_ARRIVE, some of which are lost, and counts as under way. The first receiver is the one behind the sender, so that devices
 * that send at once do not all begin with the same one. *bytes: what the sender put on its links, lower layers left out. */
Status sim_network_send(SimNetwork *network, SimQueue *queue, double now, SimGroups *groups, SimGroup *const *to, int count, int packet,
                        uint64_t *bytes);
/* To one receiver: a packet that is sent again, or a question or an answer (SIM_QUESTION...) of so many bytes about the group. */
Status sim_network_again(SimNetwork *network, SimQueue *queue, double now, SimGroups *groups, SimGroup *group, int packet, uint64_t *bytes);
Status sim_network_tell(SimNetwork *network, SimQueue *queue, double now, SimGroups *groups, SimGroup *group, int what, size_t size,
                        uint64_t *bytes);
/* Seconds that so many bytes take between two devices while nothing else is under way. */
double sim_network_idle(const SimNetwork *network, int from, int to, size_t bytes);

/* SIM_ENTER. */
Status sim_network_enter(SimNetwork *network, SimQueue *queue, const SimGroups *groups, const SimEvent *event);

#endif
