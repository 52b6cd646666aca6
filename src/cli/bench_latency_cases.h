/* Measured cases of astra-bench latency: each (strategy, groups, devices, tokens, parts) is measured once, on one core, and then simulated
 * on any network at any speed. */
#ifndef CLI_BENCH_LATENCY_CASES_H
#define CLI_BENCH_LATENCY_CASES_H
#include "cli/bench_latency_model.h"
#include "infer/plan/device_profile.h"
#include "infer/virtual/net_sim.h"
#include "infer/virtual/packet_work.h"
#include "infer/virtual/timeline_measure.h"

typedef struct LatencyCase {
  Strategy strategy;
  int groups;  /* 0 but for astra */
  int entries; /* K, likewise */
  int devices; /* 1 of single */
  int parts;
  int64_t tokens;
} LatencyCase;

/* The device alone, which every speedup is over and by which computation is calibrated: measured before all others and behind them. */
typedef struct LatencySingle {
  double first, last; /* seconds; last 0: not yet */
  double spread;      /* of the runs of either */
  double share;       /* of a core, the least that it had */
} LatencySingle;

typedef struct LatencyBench {
  LatencyModel model;
  int repeats, least_packets;
  Arena *arena;          /* of all measurements; owned */
  PacketWork work;       /* counted as computation */
  DeviceProfile profile; /* by which parts are chosen */
  bool measure_all;      /* each device by itself, also those that are alike */
  double table_bytes;
  const Reliability *reliability; /* of codes */
  LinkOptions links;              /* rate and overhead are set for each simulation */
  int retained;                   /* blocks of bp-* that devices compute together */
  MeasureQuality quality;         /* the worst so far */
  int measured;                   /* devices */
  LatencySingle single;           /* at the number of tokens asked for first */
  int64_t warm_tokens; /* of the largest input that a single device was measured with: others take no more memory, and need no run
                        * for it to be touched */
  void (*progress)(const LatencyCase *wanted);
  struct LatencyMeasured *list; /* [count] */
  int count, capacity;
} LatencyBench;

void bench_latency_cases_release(LatencyBench *bench); /* accepts a zeroed one; the model with it */

/* Whether there can be such a case: a token for each device, or a head. */
bool bench_latency_cases_possible(const LatencyBench *bench, const LatencyCase *wanted);

/* Seconds that one device takes by itself. */
Status bench_latency_cases_single(LatencyBench *bench, int64_t tokens, double *seconds);

/* Measures it once more, into bench->single.last; from now on it takes the mean of both. */
Status bench_latency_cases_single_again(LatencyBench *bench, int64_t tokens);

/* The least share of a core that the case's devices had while they were measured. */
double bench_latency_cases_share(const LatencyBench *bench, const LatencyCase *wanted);

/* Runs of a device of which medians are taken: fewer of long inputs. */
int bench_latency_cases_repeats(const LatencyBench *bench, int64_t tokens);

/* Measures what has not been measured. trace NULL: at so many bits a second; else from `start` on in the trace. */
typedef struct LatencyLink {
  double bits_per_second;
  const LinkTrace *trace;
  double start;
} LatencyLink;
/* Into how many parts a node would cut its codes there, as plans choose it (predict.h), from 1, 2, 4, 8; 1 where others than codes travel.
 */
Status bench_latency_cases_parts(const LatencyBench *bench, const LatencyCase *of, const LatencyLink *link, double scale, int *parts);

Status bench_latency_cases_run(LatencyBench *bench, const LatencyCase *wanted, const LatencyLink *link, double scale, SimResult *result);

#endif
