/* What devices send each other in a block, as events of a timeline: one place for prediction and measurement. Groups are numbered as
 * blocks see them: site = 2 which + phase for sums and joins, part = the device whose rows travel. (The runner numbers by step:
 * collective.h.) */
#ifndef INFER_STRATEGY_EVENTS_H
#define INFER_STRATEGY_EVENTS_H
#include "infer/virtual/group_size.h"
#include "infer/virtual/timeline.h"

uint64_t strategy_events_others(int device, int devices); /* bits of all but this one */

/* BAD_VALUE: no packet can hold it. */
Status strategy_events_send(Timeline *timeline, int block, int site, int part, GroupSize size, uint64_t peers);
Status strategy_events_wait(Timeline *timeline, int block, int site, int part, uint64_t peers);
Status strategy_events_compute(Timeline *timeline, double seconds);

/* Every device gets what each holds: own_bytes of this one. */
Status strategy_events_gather(Timeline *timeline, int block, int which, int device, int devices, double own_bytes);

/* A sum over all devices of rows that are divided among them for it: row_bytes [devices] of what each sums up. add_seconds: of this
 * device's additions. */
Status strategy_events_sum(Timeline *timeline, int block, int which, int device, int devices, const double *row_bytes, double add_seconds);

#endif
