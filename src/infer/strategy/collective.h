/* Sums and gathers of whole rows over all devices (nn/reduce.h) by a courier whose carrier loses nothing. What they will be is said before
 * each request, so that every length on the wire follows from it.
 *
 *   sum     site 0, part d: each device sends d its share of the rows that d adds up        (reduce-scatter)
 *           site 1, part s: device s sends all others the rows that it has added up         (all-gather)
 *   gather  site 1, part s: device s sends all others its rows
 *
 * In a packet's header the block is the number of the step in the request. Payloads are float32, the numbers of a group one behind the
 * other. Bytes that a device sends: 4 W (R - R_own) + 4 W R_own (N - 1) for a sum of R rows, 4 W R_own (N - 1) for a gather. */
#ifndef INFER_COLLECTIVE_H
#define INFER_COLLECTIVE_H
#include "infer/wire.h"
#include "infer/wire/courier.h"
#include "nn/reduce.h"

enum { COLLECTIVE_STEPS = 255, COLLECTIVE_NODES = PARTS_MOST };

typedef struct CollectiveSetup {
  int self, nodes;
  int steps;              /* of each request */
  const ReduceStep *most; /* [steps] of the largest request; read by init and courier alone */
  Courier *courier;       /* outlives the collective's use, not the collective */
} CollectiveSetup;

/* UNSUPPORTED: more devices or steps than packets can number. */
Status collective_check(const CollectiveSetup *setup);

/* A courier for it: what of its setup follows. The courier is not there yet. */
void collective_courier(const CollectiveSetup *setup, CourierSetup *courier);

/* What is known of one request; the courier's thread looks at it. */
typedef struct CollectivePlan {
  PacketRules rules;
  int nodes;
  ReduceStep *steps; /* [steps] */
} CollectivePlan;

typedef struct Collective {
  Reduce reduce; /* first: give its address to the blocks */
  CollectiveSetup setup;
  CourierCheck *check; /* called while others are waited for (courier.h); may be NULL */
  void *check_context;
  int accused;       /* the peer that a failure is about; -1: none */
  double wait, send; /* seconds of the request under way */
  uint32_t request;
  int step;               /* the next one */
  CollectivePlan plan[2]; /* [request & 1] */
  int ring, packets_most;
  size_t share_bytes, whole_bytes; /* of the largest step */
  uint8_t *scattered;              /* [ring][whole_bytes] rows that others add up */
  uint8_t *joined;                 /* [ring][share_bytes] own rows */
  CourierPacket *packets;          /* [ring][nodes + 1][packets_most]: to each device, and to all */
  CourierArrival *arrivals;        /* [nodes] */
  real *came, *sum;                /* [numbers of the largest share] */
} Collective;

Status collective_init(Collective *collective, const CollectiveSetup *setup);
void collective_release(Collective *collective); /* after courier_stop; accepts a zeroed one */

/* steps [setup.steps], copied: none larger than setup.most was. */
Status collective_begin_request(Collective *collective, uint32_t request, const ReduceStep *steps);

size_t collective_bytes(const Collective *collective); /* of memory, the courier's included; 0 of a zeroed one */

#endif
