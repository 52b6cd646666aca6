/* The exchange of one device that is measured alone: begin does what a node's does (quantise, pack; network_encode_part), finish what a
 * node's does with codes that came (unpack, look up; network_decode_part), but nobody sends and nobody waits. What would have been sent and
 * waited for is noted in a timeline between the stretches of computation. What "came" are codes, or with
 * whole_rows rows, drawn at random: values do not change the time. */
#ifndef INFER_VIRTUAL_EXCHANGE_H
#define INFER_VIRTUAL_EXCHANGE_H
#include "infer/network.h"
#include "infer/sim/schedule.h"

typedef struct VirtualPart {
  TransportPacket *packets; /* [count] */
  int count;
} VirtualPart;

typedef struct VirtualExchange {
  Exchange exchange; /* first: give its address to model_encode */
  NetworkSetup setup;
  Network network;
  Timeline *timeline; /* of the run under way */
  double since;       /* when the present stretch of computation began, on this thread's clock */
  VirtualPart *came;  /* [nodes][parts] */
  uint8_t *payloads;  /* of all of them */
  TransportArrival arrivals[WIRE_NODES];
} VirtualExchange;

/* One thread: stretches are seconds that the calling thread had a processor, so that a busy neighbour is not counted. */
Status virtual_exchange_init(VirtualExchange *exchange, const NetworkSetup *setup); /* transport NULL */
void virtual_exchange_release(VirtualExchange *exchange);                           /* accepts a zeroed one */

/* Before model_encode, and after it. timeline is empty. */
Status virtual_exchange_start(VirtualExchange *exchange, Timeline *timeline);
Status virtual_exchange_stop(VirtualExchange *exchange);

#endif
