/* The latency of a request in virtual time: each device's computation measured alone on one core (timeline_measure.h), one after the other,
 * and the network computed (net_sim.h). */
#ifndef INFER_VIRTUAL_LATENCY_H
#define INFER_VIRTUAL_LATENCY_H
#include "infer/sim/simulate.h"
#include "infer/virtual/packet_work.h"
#include "infer/virtual/timeline_measure.h"

typedef struct VirtualCase {
  const Weights *weights;
  DeviceCase device; /* of all devices; self is not read */
  int repeats;
  const LinkOptions *links;       /* overhead is not read: it follows from what travels */
  const LinkEnd *ends;            /* [devices] where their links differ (sim_network.h); NULL */
  const Reliability *reliability; /* of codes; NULL: a stream */
  const PacketWork *work;         /* counted as computation; NULL: packets take nothing of the processor */
  double scale;                   /* of computation; 0: 1 */
} VirtualCase;

/* Measures every device, also those that are alike. */
Status virtual_latency_measure(const VirtualCase *wanted, SimResult *result);

#endif
