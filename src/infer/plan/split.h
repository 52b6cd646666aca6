/* How many tokens each device gets, so that the predicted latency is least (predict.h): an even share of time first, then small moves
 * while they help, on links without loss and jitter, so that no split is chosen for the luck of one request. Deterministic. */
#ifndef INFER_SPLIT_H
#define INFER_SPLIT_H
#include "infer/cluster/leader.h"
#include "infer/plan/predict.h"

/* plan->counts is not read. counts [plan->devices] receives how many tokens each of the devices gets, in their order, each 1 at least;
 * *result what is predicted for them. BAD_VALUE: more devices than tokens. */
Status split_auto_counts(const PlanCase *plan, int64_t *counts, SimResult *result);

/* plan->parts becomes `wanted`, or where that is 0 the best of 1, 2, 4 and 8 for the split that a climb begins with, more only where that
 * is a fiftieth faster; 1 where blocks are not cut. */
Status split_auto_parts(PlanCase *plan, int wanted);

/* ---- --split auto: tokens for devices that were measured just now (LeaderMeasure) */

typedef struct MeasuredSplit {
  int64_t counts[WIRE_NODES];      /* [nodes] */
  int parts;                       /* of a block's codes: plan->parts, or the best number */
  double predicted;                /* seconds of one sample, the transfer of plan->input_bytes included; embedding and head left out */
  double without;                  /* the same by the devices of `fewer` alone; as `predicted` where all are needed */
  uint64_t fewer;                  /* nodes, as bits, that are fastest among themselves */
  LinkEnd ends[WIRE_NODES];        /* [nodes] links as they were measured; all zero where they were given */
  double bits_per_second, latency; /* the slowest and the longest of the links; 0: no limit */
} MeasuredSplit;

/* What each device's own link allows, by what the leader measured of it: ends [nodes]. A device beside the leader has the best of the
 * leader's links, one that is not here is as slow as the slowest. */
void split_measured_ends(const LeaderMeasure *measured, int nodes, LinkEnd *ends);

/* The slowest rates and the longest latency of them. */
LinkEnd split_measured_slowest(const LinkEnd *ends, int nodes);

/* plan: profiles, links, ends, devices, counts and input_rates are not read; parts 0: the best number. given: links to plan for; NULL:
 * those measured, each device behind a link of its own (LINK_SWITCH). */
Status split_measured_run(const PlanCase *plan, const LeaderMeasure *measured, int nodes, const LinkOptions *given, MeasuredSplit *split);

#endif
