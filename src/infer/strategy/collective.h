/* Sums and gathers of whole rows over all devices (nn/reduce.h) by a courier whose carrier loses nothing: a sum is a reduce-scatter by rows
 * and a gather. Groups are numbered site = 2 which + phase, part = the device whose rows they are. */
#ifndef INFER_COLLECTIVE_H
#define INFER_COLLECTIVE_H
#include "infer/wire/courier.h"
#include "nn/reduce.h"

typedef struct Collective {
  Reduce reduce; /* first: give its address to the blocks */
  Courier *courier;
  int self, nodes;
  int64_t rows_most, width; /* of the largest tensor, batch included */
  uint32_t request;         /* the one under way; the owner's to set */
  uint8_t *outgoing;
  real *sum;
} Collective;

Status collective_init(Collective *collective, Courier *courier, int self, int nodes, int64_t rows_most, int64_t width);
void collective_release(Collective *collective); /* accepts a zeroed one */

#endif
