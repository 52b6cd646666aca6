/* astra-bench peak: what this machine does at best with 1, 2, 4... threads. */
#ifndef CLI_BENCH_MACHINE_H
#define CLI_BENCH_MACHINE_H
#include "base/status.h"

Status bench_machine_run(int argc, char **argv);

#endif
