/* How a benchmark runs: the options that all commands of astra-bench share, and the start of what they ask for. */
#ifndef CLI_BENCH_RUN_H
#define CLI_BENCH_RUN_H
#include "base/options.h"

typedef struct BenchRun {
  int64_t seed, threads;
  const char *backend;
  bool json;
} BenchRun;

typedef struct BenchUsage {
  const char *line, *about; /* of --help */
} BenchUsage;

/* Parses argv by the rows `own` (ends with an entry whose kind is OPTION_GROUP and help is NULL) and, behind them, those of `run`, which is
 * set to its defaults first: --seed, --threads, --backend and --json. *helped: --help was asked for and is printed; nothing is left to do.
 */
Status bench_run_parse(BenchRun *run, const Option *own, const BenchUsage *usage, int argc, char **argv, bool *helped);

/* Checks the kernels, chooses the library of products and starts the pool; threads_stop ends it. */
Status bench_run_start(const BenchRun *run);

#endif
