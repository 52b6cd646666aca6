/* How many tokens each device gets, so that the predicted latency is least (predict.h): an even share of time first, then small moves
 * while they help, on links without loss and jitter: luck is no reason for a split. Deterministic. */
#ifndef INFER_SPLIT_AUTO_H
#define INFER_SPLIT_AUTO_H
#include "infer/plan/predict.h"

/* plan->counts is not read. counts [plan->devices] receives how many tokens each of the devices gets, in their order, each 1 at least;
 * *result what is predicted for them. BAD_VALUE: more devices than tokens. */
Status split_auto_counts(const PlanCase *plan, int64_t *counts, SimResult *result);

/* Where the climb begins: devices take as long as each other by themselves. */
Status split_auto_start(const PlanCase *plan, int64_t *counts, SimResult *result);

/* plan->parts becomes `wanted`, or where that is 0 the best of 1, 2, 4 and 8 for the split that a climb begins with, more only where that
 * is a fiftieth faster; 1 where blocks are not cut. */
Status split_auto_parts(PlanCase *plan, int wanted);

/* The same as split_auto_counts, and devices may be left out: those [0, *used) of chosen [plan->devices] serve, the best of the sets that
 * remain when the device with the fewest tokens is dropped again and again; counts [*used] belongs to them. */
Status split_auto_devices(const PlanCase *plan, int *chosen, int *used, int64_t *counts, SimResult *result);

#endif
