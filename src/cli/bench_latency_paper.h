/* Numbers that the paper prints about the encoder of 12 blocks and width 768, for charts beside ours. Mesh links; a GPU on which the single
 * device takes 99.9 ms for 1,024 tokens. */
#ifndef CLI_BENCH_LATENCY_PAPER_H
#define CLI_BENCH_LATENCY_PAPER_H
#include "nn/strategy.h"
#include <stdint.h>

/* Speedup over the single device; 0: not printed. */
double bench_latency_paper_speedup(Strategy strategy, int groups, int devices, int64_t tokens, double mbit);

/* Milliseconds of ASTRA on four devices, 1,024 tokens; 0: not printed. */
double bench_latency_paper_milliseconds(int groups, double mbit);

/* Speedup of ASTRA with one group over another strategy on four devices, 1,024 tokens; 0: not printed. */
double bench_latency_paper_over(Strategy strategy, double mbit);

#endif
