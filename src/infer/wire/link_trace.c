/* Integration of a trace: linear in its points, which is at most some thousand for a run. */
#include "infer/wire/link_trace.h"
#include <stdlib.h>

static int step_at(const LinkTrace *trace, double at) {
  int i = 0;
  while (i + 1 < trace->count && trace->points[i + 1].seconds <= at) i++;
  return i;
}

double link_trace_rate(const LinkTrace *trace, double at) { return trace->points[step_at(trace, at)].bits_per_second; }

double link_trace_advance(const LinkTrace *trace, double from, double bits) {
  for (int i = step_at(trace, from);; i++) {
    double rate = trace->points[i].bits_per_second;
    if (i + 1 == trace->count) return from + bits / rate;
    double room = (trace->points[i + 1].seconds - from) * rate;
    if (bits <= room && rate > 0) return from + bits / rate;
    bits -= room;
    from = trace->points[i + 1].seconds;
  }
}

void link_trace_release(LinkTrace *trace) {
  free(trace->points);
  *trace = (LinkTrace){0};
}
