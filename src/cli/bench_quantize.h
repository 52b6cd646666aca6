/* The command quantize of astra-bench: accuracy and latency of checkpoints at 32, 8 and 4 bits, the table of the ASTRA paper. */
#ifndef CLI_BENCH_QUANTIZE_H
#define CLI_BENCH_QUANTIZE_H
#include "base/status.h"

Status bench_quantize_run(int argc, char **argv);

#endif
