/* Measured cases of astra-bench latency: each (strategy, groups, devices, tokens, parts) is measured once, on one core, and then simulated
 * on any network at any speed. */
#ifndef CLI_BENCH_LATENCY_CASES_H
#define CLI_BENCH_LATENCY_CASES_H
#include "cli/bench_latency_model.h"
#include "infer/virtual/net_sim.h"
#include "infer/virtual/timeline_measure.h"

typedef struct LatencyCase {
  Strategy strategy;
  int groups;  /* 0 but for astra */
  int devices; /* 1 of single */
  int parts;
  int64_t tokens;
} LatencyCase;

typedef struct LatencyBench {
  LatencyModel model;
  int repeats, least_packets;
  Arena *arena;     /* of all measurements; owned */
  bool quick;       /* measurements behind the first one have no run for cold memory */
  bool measure_all; /* each device by itself, also those that are alike */
  double table_bytes;
  const Reliability *reliability; /* of codes */
  LinkOptions links;              /* rate and overhead are set for each simulation */
  bool multicast;
  int retained;           /* blocks of bp-* that devices compute together */
  MeasureQuality quality; /* the worst so far */
  int measured;           /* devices */
  int64_t warm_tokens;    /* of the largest input that a single device was measured with: others take no more memory */
  void (*progress)(const LatencyCase *wanted);
  struct LatencyMeasured *list; /* [count] */
  int count, capacity;
} LatencyBench;

void bench_latency_cases_release(LatencyBench *bench); /* accepts a zeroed one; the model with it */

/* Seconds that one device takes by itself. */
Status bench_latency_cases_single(LatencyBench *bench, int64_t tokens, double *seconds);

/* Measures what has not been measured. trace NULL: at so many bits a second; else from `start` on in the trace. */
typedef struct LatencyLink {
  double bits_per_second;
  const LinkTrace *trace;
  double start;
} LatencyLink;
Status bench_latency_cases_run(LatencyBench *bench, const LatencyCase *wanted, const LatencyLink *link, double scale, SimResult *result);

#endif
