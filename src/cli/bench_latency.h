/* astra-bench latency: the paper's latency figures from this runner, in virtual time. */
#ifndef CLI_BENCH_LATENCY_H
#define CLI_BENCH_LATENCY_H
#include "base/status.h"

Status bench_latency_run(int argc, char **argv);

#endif
