/* The command scaling of astra-bench. */
#ifndef CLI_BENCH_SCALING_H
#define CLI_BENCH_SCALING_H
#include "base/status.h"

Status bench_scaling_run(int argc, char **argv);

#endif
