/* What astra-infer plan has found out (infer_plan.c), and how it is said (infer_plan_report.c). */
#ifndef CLI_INFER_PLAN_INTERNAL_H
#define CLI_INFER_PLAN_INTERNAL_H
#include "infer/cluster/address.h"
#include "infer/plan/planner.h"
#include "infer/plan/probe.h"
#include "infer/transport/netem.h"
#include "infer/wire.h"

typedef struct PlanPeers {
  int count;
  int leader;                           /* this device; -1: it takes no part */
  DeviceProfile profiles[WIRE_NODES];   /* [count], the fastest first */
  char names[WIRE_NODES][ADDRESS_TEXT]; /* "this device", or the worker's address */
  LinkEnd ends[WIRE_NODES];             /* [count] the link ends of each as they were measured; all zero where `linked` is not */
  LinkEnd beside;                       /* the leader's own */
  bool linked;                          /* one of them is another machine's, or might be */
} PlanPeers;

typedef struct PlanReport {
  const char *model;
  const PlannerSetup *setup;
  const DeviceProfile *profile; /* of this device, or of the fastest of `peers` */
  const PlanPeers *peers;       /* those that were measured; a count of 0: none */
  const Plan *plan;
  double calibrated; /* seconds of one device that computation was scaled to; 0: as measured */
} PlanReport;

/* A table. Latencies are of one sample: embedding and head are left out, sending the input to the devices is listed apart. */
void plan_report_text(const PlanReport *report);
Status plan_report_json(const PlanReport *report);                    /* on one line */
Status plan_report_chart(const PlanReport *report, const char *path); /* latency against devices, PNG */

#endif
