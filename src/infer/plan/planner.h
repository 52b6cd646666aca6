/* Which strategy is fastest on the available devices, and how many tokens each of them gets. Latencies are predicted from what a
 * device computes at its speed (probe.h) and from a simulated network (sim/simulate.h). Deterministic. */
#ifndef INFER_PLANNER_H
#define INFER_PLANNER_H
#include "infer/plan/probe.h"
#include "infer/sim/packet_work.h"
#include "infer/sim/simulate.h"
#include <signal.h>

/* ---- one case */

typedef struct PlanCase {
  const ModelConfig *config; /* astra.groups and the like are those to plan for */
  Strategy strategy;
  int64_t tokens;
  int devices;                   /* 1 for STRATEGY_SINGLE */
  const int64_t *counts;         /* [devices] content tokens of each; their sum is `tokens` */
  const DeviceProfile *profiles; /* [devices] */
  const LinkOptions *links;
  const LinkEnd *ends;            /* [devices] where their links differ (netem.h); NULL */
  const Reliability *reliability; /* of codes; NULL: a stream */
  int parts;                      /* of a block's codes, 1 at least; 1 where no codes are sent */
  int min_packets;                /* of a block and receiver */
  int retained;                   /* blocks of bp-* that devices compute together */
  int table_blocks; /* the first `table_blocks` blocks may look up keys and values of other devices' tokens, where kv_tables_pay says so */
  int64_t rows_measured;  /* of the largest products of `profiles`; 0: tokens */
  double coded_share;     /* entropy-coded bits of a code's bit; 0: codes are packed */
  bool all_rows;          /* the last block computes all rows, not the wanted ones alone */
  bool with_input;        /* the transfer of the input to the devices over `links` counts in the latency */
  int leader;             /* the device beside which the leader is, which sends the others their input */
  const LinkEnd *beside;  /* the link of a leader on a machine that is none of the devices; NULL: there is `leader` */
  double scale;           /* of computation; 0: 1 */
  double input_bytes;     /* of a token, which a device must have before it begins, where the links there were measured; 0: they have it */
  const PacketWork *work; /* what packets take of a device's processor; NULL: nothing */
  const double *input_rates;         /* [devices] bits a second of its transfer; 0: at once. NULL where input_bytes is 0 */
  const volatile sig_atomic_t *stop; /* set by a signal handler: end with INTERRUPTED; NULL: never */
} PlanCase;

/* Loss is left out where it is not modelled, over streams. With loss or jitter: the median of some requests. BAD_VALUE: devices, tokens or
 * parts that make no sense. INTERRUPTED. */
Status planner_latency(const PlanCase *plan, SimResult *result);

/* Whether so many devices can run the strategy: each needs a token, and where heads are divided a head; a request's sums and joins, and the
 * devices in them, are numbered (strategy/collective.h). retained: of bp-*. */
bool planner_possible(const ModelConfig *config, Strategy strategy, int devices, int64_t tokens, int retained);

/* plan->parts, not read, becomes what a node chooses with plan->counts: the best of 1, 2, 4 and 8, more only where that is a fiftieth
 * faster; 1 where no block is cut (one device, a decoder, strategies without codes). BAD_VALUE as planner_latency. */
Status planner_parts(PlanCase *plan);

/* ---- --split auto: tokens for devices that were measured just now (DeviceMeasure) */

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
void planner_link_ends(const DeviceMeasure *measured, int nodes, LinkEnd *ends);

/* The leader's own link: the best rates that were measured on it. Zero: none was. */
LinkEnd planner_leader_end(const DeviceMeasure *measured, int nodes);

/* The slowest rates and the longest latency of them. */
LinkEnd planner_slowest_link(const LinkEnd *ends, int nodes);

/* plan: profiles, links, ends, devices, counts and input_rates are not read; parts 0: the best number. given: links to plan for; NULL:
 * those measured, each device behind a link of its own (LINK_SWITCH). */
Status planner_split(const PlanCase *plan, const DeviceMeasure *measured, int nodes, const LinkOptions *given, MeasuredSplit *split);

/* Predicts the tokens plan->counts [nodes], with plan->parts, which are both read here; otherwise as planner_split: *seconds of one sample.
 */
Status planner_given_split(const PlanCase *plan, const DeviceMeasure *measured, int nodes, const LinkOptions *given, double *seconds);

/* ---- every strategy, number of groups and number of devices */

enum { PLANNER_GROUPS_MAX = 16 };

typedef struct PlannerSetup {
  const ModelConfig *config; /* of the checkpoint, or of a preset */
  int64_t tokens;
  int devices;                   /* available */
  const DeviceProfile *profiles; /* [devices], the fastest first */
  int64_t rows_measured;         /* of the largest products of `profiles`; 0: tokens */
  int leader;                    /* the one beside which the leader is; -1: none of them */
  LinkEnd beside;                /* the link of a leader that is beside none, as far as it is known; zero: no limit */
  uint64_t counts_tried;         /* bit n - 1: n devices are tried, the fastest ones */
  int groups[PLANNER_GROUPS_MAX], group_count;
  uint32_t strategies; /* bits of Strategy */
  const LinkOptions *links;
  const LinkEnd *ends; /* [devices] where their links differ (netem.h); NULL */
  const Reliability *reliability;
  const PacketWork *work; /* NULL: packets cost nothing */
  int parts;              /* of a block's codes; 0: the best of 1, 2, 4, 8 */
  int min_packets, retained;
  double table_bytes; /* memory for tables of all bit rates, of as many blocks as fit (kv_tables.h) */
  double scale;       /* of computation; 0: 1 */
  bool even;          /* tokens are divided evenly, not to measure */
  bool all_rows;
  bool untrained;  /* a preset: nothing has been trained, so that no number of groups needs other training than any other */
  bool with_input; /* latencies count the transfer of the input to the devices, which the paper's leave out */
} PlannerSetup;

typedef struct PlanRow {
  Strategy strategy;
  int groups;  /* of ASTRA; 0 otherwise */
  int devices; /* the fastest ones */
  int parts;
  int table_blocks;             /* with tables used on device 0 */
  bool loss_not_modelled;       /* goes over a stream, on links that lose packets: never recommended */
  bool other_groups;            /* none of the checkpoint's bit rates: needs training */
  int64_t counts[WIRE_NODES];   /* [devices] content tokens */
  double latency, wait, hidden; /* seconds; of the device that ends last; a share (simulate_hidden) */
  double measured;              /* seconds in virtual time, if it was measured; else 0 */
  double input;                 /* seconds of the transfer of the input, in latency only with_input */
  double speedup;               /* against the fastest device alone */
  double bytes_per_token;       /* payload over all blocks to one receiver */
  double fpar;                  /* full-precision attention rate */
} PlanRow;

typedef struct Plan {
  PlanRow *rows; /* [count], the fastest first, owned */
  int count;
  double single;          /* seconds of the fastest device alone */
  const PlanRow *best;    /* the first row whose answers are right without other training, which may be that of one device */
  const PlanRow *trained; /* a faster one, whose answers would be right with training of its own; NULL: there is none */
  char decision[160];     /* one sentence: what to do */
} Plan;

Status planner_run(const PlannerSetup *setup, Plan *plan);
Status planner_check_groups(const PlannerSetup *setup); /* BAD_VALUE: one of setup->groups does not divide the width */
void planner_release(Plan *plan);                       /* accepts a zeroed one */

#endif
