/* See bench_timing.h. */
#include "cli/bench_timing.h"
#include <stdlib.h>

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

BenchTiming bench_timing_of(double *seconds, int64_t count) {
  BenchTiming timing = {0};
  qsort(seconds, (size_t)count, sizeof *seconds, ascending);
  for (int64_t i = 0; i < count; i++) timing.mean += seconds[i] / (double)count;
  timing.median = (seconds[(count - 1) / 2] + seconds[count / 2]) / 2;
  timing.least = seconds[0];
  timing.spread = timing.median > 0 ? (seconds[3 * (count - 1) / 4] - seconds[(count - 1) / 4]) / 2 / timing.median : 0;
  return timing;
}

void bench_timing_json(const BenchTiming *timing, json_t *object) {
  json_object_set_new(object, "milliseconds", json_real(1e3 * timing->median));
  json_object_set_new(object, "milliseconds_least", json_real(1e3 * timing->least));
  json_object_set_new(object, "spread_percent", json_real(100 * timing->spread));
}
