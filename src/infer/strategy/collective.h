/* Sums and gathers of whole rows over all devices (nn/exchange.h) by a transport whose backend loses nothing. Their steps are given before
 * each request, so that every length on the wire follows from them.
 *
 *   sum     site 0, part d: each device sends d its share of the rows that d adds up        (reduce-scatter)
 *           site 1, part s: device s sends all others the rows that it has added up         (all-gather)
 *   gather  site 1, part s: device s sends all others its rows
 *
 * In a packet's header the block is the number of the step in the request. Payloads are float32, the numbers of a message one after
 * another. Bytes that a device sends: 4 W (R - R_own) + 4 W R_own (N - 1) for a sum of R rows, 4 W R_own (N - 1) for a gather. */
#ifndef INFER_COLLECTIVE_H
#define INFER_COLLECTIVE_H
#include "infer/transport/transport_thread.h"
#include "infer/wire.h"
#include "nn/exchange.h"

enum { COLLECTIVE_STEPS = 255, COLLECTIVE_NODES = MAX_PARTS };

typedef struct CollectiveSetup {
  int self, nodes;
  int steps;                  /* of each request */
  const ReduceStep *max;      /* [steps] of the largest request; read only by collective_init and collective_transport */
  TransportThread *transport; /* needed while the collective is used, not when it is released */
} CollectiveSetup;

/* UNSUPPORTED: more devices or steps than packets can number. */
Status collective_check(const CollectiveSetup *setup);

/* Sets the fields of a transport's setup that follow from the collective's; setup->transport is not used. */
void collective_transport(const CollectiveSetup *setup, TransportSetup *transport);

/* The plan of one request; read by the transport's thread. */
typedef struct CollectivePlan {
  PacketRules rules;
  int nodes;
  ReduceStep *steps; /* [steps] */
} CollectivePlan;

typedef struct Collective {
  Reduce reduce; /* first: give its address to the blocks */
  CollectiveSetup setup;
  TransportCheck *check; /* called while others are waited for (transport_thread.h); may be NULL */
  void *check_context;
  int fault;         /* the peer that caused a failure; -1: none */
  double wait, send; /* seconds of the current request */
  uint32_t request;
  int step;               /* the next one */
  CollectivePlan plan[2]; /* [request & 1] */
  int ring, max_packets;
  size_t share_bytes, whole_bytes; /* of the largest step */
  uint8_t *scattered;              /* [ring][whole_bytes] rows that others add up */
  uint8_t *joined;                 /* [ring][share_bytes] own rows */
  TransportPacket *packets;        /* [ring][nodes + 1][max_packets]: to each device, and to all */
  TransportArrival *arrivals;      /* [nodes] */
  real *came, *sum;                /* [numbers of the largest share] */
} Collective;

Status collective_init(Collective *collective, const CollectiveSetup *setup);
void collective_release(Collective *collective); /* after transport_thread_stop; accepts a zeroed one */

/* steps [setup.steps], copied: none larger than setup.max was. */
Status collective_begin_request(Collective *collective, uint32_t request, const ReduceStep *steps);

#endif
