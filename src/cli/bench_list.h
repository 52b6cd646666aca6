/* What there is to run, and what of it has been run: experiments that come with the programs, or the rows of one. */
#ifndef CLI_BENCH_LIST_H
#define CLI_BENCH_LIST_H
#include "base/status.h"
#include "cli/bench_experiment.h"
#include <stdbool.h>

/* On stdout, without a name or for "all" a line for each experiment: its name, rows, seeds, how many evaluations of all are there, title.
 * With a name a line for each of its rows: the seeds with which it has been evaluated. Results lie in the folders of accuracy itself.
 * Errors as of experiment_open. */
Status list_experiments(const ExperimentChoice *choice, bool json);

#endif
