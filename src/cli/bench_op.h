/* astra-bench op: each operation by itself. */
#ifndef CLI_BENCH_OP_H
#define CLI_BENCH_OP_H
#include "base/status.h"

Status bench_op_run(int argc, char **argv);

#endif
