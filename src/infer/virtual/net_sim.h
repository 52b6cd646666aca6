/* The latency of a request over a network that is only computed: discrete events over the devices' timelines and the links between them
 * (link_model.h). Deterministic. */
#ifndef INFER_NET_SIM_H
#define INFER_NET_SIM_H
#include "infer/virtual/timeline.h"
#include "infer/wire.h"
#include "infer/wire/link_model.h"
#include "infer/wire/reliability.h"

typedef struct SimOptions {
  const Reliability *reliability; /* NULL: a stream */
  double scale;                   /* of every EVENT_COMPUTE */
  bool multicast;                 /* one transmission reaches all, on a switch's way in and in the air */
} SimOptions;

typedef struct SimDevice {
  double end;           /* when its last event is over */
  double compute, wait; /* seconds, scaled; waiting that computation did not hide */
  double span;          /* from each block's first send to its last arrival, summed */
  uint64_t bytes_sent, packets_lost;
} SimDevice;

typedef struct SimResult {
  double latency; /* the latest end */
  SimDevice device[WIRE_NODES];
} SimResult;

/* devices [count]. BAD_VALUE: an event waits for a group that nobody sends, or the devices wait for each other for ever; names both. */
Status net_sim_run(const Timeline *devices, int count, const LinkOptions *links, const SimOptions *options, SimResult *result);

#endif
