/* What a run says on its way: a line, a row of metrics.csv and events for each interval and each evaluation, curves.png. */
#ifndef TRAIN_RUN_REPORT_H
#define TRAIN_RUN_REPORT_H
#include "base/progress.h"
#include "train/best.h"
#include "train/metrics.h"
#include "train/trainer.h"

enum { RUN_REPORT_FIXED = 10, RUN_REPORT_COLUMNS = RUN_REPORT_FIXED + 2 * TASK_MEASURES + 1, RUN_REPORT_NAME = 40 };

/* Set session, result and first_step; the rest is private. */
typedef struct RunReport {
  Session *session;
  TrainResult *result;
  int64_t first_step; /* of this process */
  Best best;
  Progress bar; /* on a terminal; elsewhere there are lines */
  Metrics *metrics;
  char names[RUN_REPORT_COLUMNS][RUN_REPORT_NAME];
  int columns;
  StepResult interval; /* sums over its micro-batches */
  int64_t batches;
  double started, interval_started;
  double rate, norm; /* of the last step */
} RunReport;

Status run_report_open(RunReport *run);
void run_report_add(RunReport *run, const StepResult *part); /* a micro-batch */
void run_report_step(RunReport *run);                        /* after each: the bar */
Status run_report_interval(RunReport *run);
Status run_report_evaluation(RunReport *run); /* validates, plain and emulated */
Status run_report_draw(const RunReport *run);
double run_report_close(RunReport *run); /* seconds since run_report_open */

#endif
