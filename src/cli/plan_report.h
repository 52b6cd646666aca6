/* What astra-infer plan says: a table, one JSON object, a chart. */
#ifndef CLI_PLAN_REPORT_H
#define CLI_PLAN_REPORT_H
#include "cli/plan_peers.h"
#include "infer/plan/planner.h"

typedef struct PlanReport {
  const char *model;
  const PlannerSetup *setup;
  const DeviceProfile *profile; /* of this device, or of the fastest of `peers` */
  const PlanPeers *peers;       /* those that were measured; a count of 0: none */
  const Plan *plan;
  double calibrated; /* seconds of one device that computation was scaled to; 0: as measured */
} PlanReport;

void plan_report_text(const PlanReport *report);
Status plan_report_json(const PlanReport *report);                    /* on one line */
Status plan_report_chart(const PlanReport *report, const char *path); /* latency against devices, PNG */

#endif
