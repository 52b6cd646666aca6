/* Times of repetitions of the same work, summed up. */
#ifndef CLI_BENCH_TIMING_H
#define CLI_BENCH_TIMING_H
#include <jansson.h>
#include <stdint.h>

typedef struct BenchTiming {
  double median, least, mean; /* seconds */
  double spread;              /* half the range of the middle half, as a part of the median */
} BenchTiming;

/* seconds [count >= 1] are sorted. */
BenchTiming bench_timing_of(double *seconds, int64_t count);

/* As milliseconds, milliseconds_least and spread_percent. */
void bench_timing_json(const BenchTiming *timing, json_t *object);

#endif
