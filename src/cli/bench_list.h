/* What there is to run, and what of it has been run: experiments that come with the programs, or the rows of one. */
#ifndef CLI_BENCH_LIST_H
#define CLI_BENCH_LIST_H
#include "base/status.h"
#include <stdbool.h>

/* Options of the command accuracy of the same names; NULL: not given. */
typedef struct ListOptions {
  const char *table, *out, *seeds;
  bool quick, json;
} ListOptions;

/* On stdout, without table or for "all" a line for each experiment: its name, rows, seeds, how many evaluations of all are there, title.
 * With table a line for each of its rows: the seeds with which it has been evaluated. Results lie in the folders of accuracy itself. Errors
 * as of experiment_read and experiment_choose_seeds. */
Status list_experiments(const ListOptions *options);

#endif
