/* The latency of a request over a network that is only computed: discrete events over the devices' timelines and the links between them
 * (link_model.h). Deterministic.
 *
 * Groups leave packet by packet, each packet to all receivers in turn, while the device computes on. A device that waits asks and gives up
 * as the transport does, by the same rules (reliability.h, sim_judge.h); questions, answers and what is sent again take their place on the
 * links, and can be lost. A sender answers at once, whatever it computes. What was left out: a receiver that could not take a packet for
 * want of memory, and packets that are sent again while another copy is still on its way. */
#ifndef INFER_NET_SIM_H
#define INFER_NET_SIM_H
#include "infer/transport/netem.h"
#include "infer/transport/policy.h"
#include "infer/virtual/timeline.h"
#include "infer/wire.h"

typedef struct SimOptions {
  const Reliability *reliability; /* NULL: a stream */
  double scale;                   /* of every EVENT_COMPUTE; 0: 1 */
  double start;                   /* when the request begins, in the trace's time */
  const LinkEnd *ends;            /* [count] where devices' links differ (sim_network.h); NULL */
} SimOptions;

typedef struct SimDevice {
  double end;                          /* when its last event is over; times are since `start` */
  double compute, wait;                /* seconds of EVENT_COMPUTE, scaled, and EVENT_FIXED; waiting that they did not hide */
  double span;                         /* from each block's first send to its last arrival, summed */
  uint64_t bytes_sent;                 /* of packets with their headers, lower layers left out */
  uint64_t packets_lost, packets_late; /* that it did without: never came; not there at the deadline */
  uint64_t packets_resent;
} SimDevice;

typedef struct SimResult {
  double latency; /* the latest end */
  SimDevice device[WIRE_NODES];
} SimResult;

/* The share of the time in which packets were under way that the device spent computing: 1 - wait / span, 1 where nothing was sent. */
double net_sim_hidden(const SimDevice *device);

/* devices [count]. BAD_VALUE: an event waits for a group that nobody sends, or the devices wait for each other for ever (names both); a
 * timeline or link that makes no sense; loss under a stream, which hides it. TIMEOUT: reliability's (0: a minute) is over and nothing may
 * be left out, again both are named. */
Status net_sim_run(const Timeline *devices, int count, const LinkOptions *links, const SimOptions *options, SimResult *result);

#endif
