/* astra-bench forward: the plain model's forward pass, and the decoding of a language model. */
#ifndef CLI_BENCH_FORWARD_H
#define CLI_BENCH_FORWARD_H
#include "base/status.h"

Status bench_forward_run(int argc, char **argv);

#endif
