/* What comes of an experiment's runs: means over seeds, differences from the baseline, as files, text and JSON. Rows and seeds without a
 * figure are left out. */
#ifndef CLI_BENCH_RESULTS_H
#define CLI_BENCH_RESULTS_H
#include "cli/bench_experiment.h"

#define RESULTS_CHART "results.png" /* in the experiment's folder */

/* Writes results.csv (a row per run, with its command lines), metrics.csv (what the trainings logged), results.md (the table) and, where at
 * least two rows have an x, results.png into the experiment's folder. */
Status results_write(const Experiment *e);

/* The table on stdout. */
Status results_print(const Experiment *e);

/* One JSON object on stdout. */
Status results_print_json(const Experiment *e);

#endif
