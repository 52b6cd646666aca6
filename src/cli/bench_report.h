/* What astra-bench step prints. */
#ifndef CLI_BENCH_REPORT_H
#define CLI_BENCH_REPORT_H
#include "cli/bench_peak.h"
#include "train/bench_step.h"

enum { BENCH_PLAIN, BENCH_ASTRA, BENCH_SIDES };

typedef struct BenchReport {
  bool forward, profile;
  int sides;       /* 1: the plain model alone */
  Session session; /* of both sides */
  BenchStep bench[BENCH_SIDES];
  double resident[BENCH_SIDES]; /* bytes: most that the process had held when this side (after those before it) had run */
  BenchPeak peak;
} BenchReport;

Status bench_report_text(BenchReport *report);
Status bench_report_json(BenchReport *report); /* one object on one line */

#endif
