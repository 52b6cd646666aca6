/* What this machine does at best on matrix products of the sizes that a vision transformer has: the yardstick of a step. */
#ifndef CLI_BENCH_PEAK_H
#define CLI_BENCH_PEAK_H
#include "base/status.h"

typedef struct BenchPeak {
  double one, all; /* FLOP/s on the calling thread alone; on the whole pool */
} BenchPeak;

/* Raises `peak` to the best of some runs: measure before and after a benchmark, as a shared machine changes its speed. */
Status bench_peak_measure(BenchPeak *peak);

#endif
