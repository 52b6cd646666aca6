/* Tokens for devices that were measured just now (LeaderMeasure): --split auto. */
#ifndef INFER_SPLIT_MEASURED_H
#define INFER_SPLIT_MEASURED_H
#include "infer/leader.h"
#include "infer/plan/split_auto.h"

typedef struct MeasuredSplit {
  int64_t counts[WIRE_NODES];      /* [nodes] */
  double predicted;                /* seconds of one sample, with plan->input_bytes on their way; embedding and head left out */
  double without;                  /* the same by the devices of `fewer` alone; as `predicted` where all are needed */
  uint64_t fewer;                  /* nodes, as bits, that are fastest among themselves */
  double bits_per_second, latency; /* of the links, as they were taken; 0: no limit */
} MeasuredSplit;

/* What the links are taken to be: `given`, or where that is NULL the slowest and longest of those measured. */
LinkOptions split_measured_links(const LeaderMeasure *measured, int nodes, const LinkOptions *given);

/* Profiles of all nodes: one that is not here is taken to be as slow as the slowest that is. */
void split_measured_profiles(const LeaderMeasure *measured, int nodes, DeviceProfile *profiles);

/* plan: profiles, links, devices, counts and input_rates are not read. */
Status split_measured_run(const PlanCase *plan, const LeaderMeasure *measured, int nodes, const LinkOptions *given, MeasuredSplit *split);

#endif
