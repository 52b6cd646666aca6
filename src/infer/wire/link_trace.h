/* A rate that changes with time: steps, read from a file or drawn from a Markov chain. */
#ifndef INFER_LINK_TRACE_H
#define INFER_LINK_TRACE_H
#include "base/status.h"
#include <stddef.h>
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

/* "markov:20-100mbit[:SECONDS]" (link_trace_draw, 600 s), or the name of a file (link_trace_parse). Release *trace. */
Status link_trace_open(LinkTrace *trace, const char *text, uint64_t seed);

/* Lines of two numbers, seconds and Mbit/s, as traces of throughput are published; empty lines and those that begin with # are passed over.
 * BAD_FILE names the line: no numbers, times that do not rise from 0, rates below 0, a last rate of 0, more than LINK_TRACE_MOST. */
Status link_trace_parse(LinkTrace *trace, const char *text, size_t bytes);

/* Steps of a second; the rate moves between `least` and `most` in states of 10 Mbit/s, to another one with a probability that falls with
 * their distance. */
Status link_trace_draw(LinkTrace *trace, double least, double most, int seconds, uint64_t seed);

/* When `bits` that begin at `from` are out: the trace integrated. */
double link_trace_advance(const LinkTrace *trace, double from, double bits);
double link_trace_rate(const LinkTrace *trace, double at);

void link_trace_release(LinkTrace *trace);

#endif
