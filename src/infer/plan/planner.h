/* Which strategy is fastest on the devices that there are: every strategy, number of groups and number of devices is predicted. */
#ifndef INFER_PLANNER_H
#define INFER_PLANNER_H
#include "infer/plan/split.h"

enum { PLANNER_GROUPS_MAX = 16 };

typedef struct PlannerSetup {
  const ModelConfig *config; /* of the checkpoint, or of a preset */
  int64_t tokens;
  int devices;                   /* that there are */
  const DeviceProfile *profiles; /* [devices], the fastest first */
  uint64_t counts_tried;         /* bit n - 1: n devices are tried, the fastest ones */
  int groups[PLANNER_GROUPS_MAX], group_count;
  uint32_t strategies; /* bits of Strategy */
  const LinkOptions *links;
  const LinkEnd *ends; /* [devices] where their links differ (netem.h); NULL */
  const Reliability *reliability;
  const PacketWork *work; /* NULL: packets cost nothing */
  int parts;              /* of a block's codes; 0: the best of 1, 2, 4, 8 */
  int min_packets, retained;
  double table_bytes; /* memory for tables, of as many blocks as fit (kv_tables.h, predict_uses_tables) */
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
  bool tables;                           /* of some blocks at least, used on device 0 */
  int table_blocks;                      /* how many */
  bool loss_not_modelled;                /* goes over a stream, on links that lose packets: never recommended */
  bool other_groups;                     /* the checkpoint has another number: needs training */
  int64_t counts[WIRE_NODES];            /* [devices] content tokens */
  double latency, compute, wait, hidden; /* seconds; of the device that ends last; a share */
  double measured;                       /* seconds in virtual time, if somebody measured it; 0 */
  double input;                          /* seconds of the transfer of the input (predict_input), in latency only with_input */
  double speedup;                        /* against the fastest device alone */
  double bytes_per_token;                /* payload over all blocks to one receiver */
  double fpar;                           /* full-precision attention rate */
} PlanRow;

typedef struct Plan {
  PlanRow *rows; /* [count], the fastest first, owned */
  int count;
  double single;          /* seconds of the fastest device alone */
  const PlanRow *best;    /* the first row whose answers are right without other training, which may be that of one device */
  const PlanRow *trained; /* a faster one, whose answers would be right with training of its own; NULL: there is none */
} Plan;

Status planner_run(const PlannerSetup *setup, Plan *plan);
void planner_release(Plan *plan); /* accepts a zeroed one */

/* One sentence: what to do. */
const char *planner_decision(const Plan *plan, char text[160]);

#endif
