/* A rate that changes with time: steps, read from a file or drawn from a Markov chain. */
#ifndef INFER_LINK_TRACE_H
#define INFER_LINK_TRACE_H
#include "base/status.h"
#include <stdint.h>

typedef struct LinkTracePoint {
  double seconds;         /* since the start; the first is 0, they rise */
  double bits_per_second; /* from then on; not negative, the last one above 0 */
} LinkTracePoint;

enum { LINK_TRACE_MOST = 4096 };
typedef struct LinkTrace {
  LinkTracePoint *points; /* [count] */
  int count;              /* 0: no trace */
} LinkTrace;

/* When `bits` that begin at `from` are out: the trace integrated. */
double link_trace_advance(const LinkTrace *trace, double from, double bits);
double link_trace_rate(const LinkTrace *trace, double at);

void link_trace_release(LinkTrace *trace);

#endif
