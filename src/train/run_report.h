/* What a run says on its way: a line, a row of metrics.csv and events for each interval and each evaluation, curves.png. */
#ifndef TRAIN_RUN_REPORT_H
#define TRAIN_RUN_REPORT_H
#include "base/progress.h"
#include "train/metrics.h"
#include "train/session.h"
#include "train/trainer.h"

/* The evaluations of a run so far, for --keep-best and --early-stopping. They lie in OUT/training/evaluations.txt, a line "STEP VALUE"
 * each, so that a resumed run knows them; the value is the task's first measure, of the devices where there are some. */

enum { BEST_UNKNOWN = -2 };
typedef struct Best {
  int64_t step;  /* of the best evaluation; -1: there was none */
  double value;  /* its */
  int64_t since; /* evaluations after it, none of them better */
  int64_t last;  /* step of the last one; -1: none; BEST_UNKNOWN: of a run whose evaluations were not noted */
} Best;

/* What was noted up to session->step; later lines, of steps that a resumed run takes once more, are dropped. A run that begins has none. */
Status best_open(Best *best, const Session *session);

/* Adds an evaluation at session->step; *better: it is the best one (the first of equals). */
Status best_add(Best *best, const Session *session, double value, bool *better);

/* Copies the checkpoint that lies in OUT (all but states, measures and images) to OUT/best. */
Status best_keep(const Session *session);

/* Whether options.early_stopping evaluations have passed without a better one. */
bool best_is_over(const Best *best, const Session *session);

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
