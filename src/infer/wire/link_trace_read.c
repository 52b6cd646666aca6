/* Traces from files and from chance. */
#include "base/files.h"
#include "base/rng.h"
#include "infer/wire/link_trace.h"
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double mbit = 1e6, state_width = 10e6, most_rate = 1e12, most_seconds = 1e7;
enum { DRAWN_SECONDS = 600, FILE_MOST = 1 << 20 };

static Status reserve(LinkTrace *trace) {
  *trace = (LinkTrace){.points = calloc(LINK_TRACE_MOST, sizeof *trace->points)};
  return trace->points ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for a trace");
}

/* ---- files ---- */

/* Two numbers and nothing else. */
static bool read_line(const char *line, double *seconds, double *rate) {
  char *end;
  *seconds = strtod(line, &end);
  if (end == line) return false;
  const char *second = end;
  *rate = strtod(second, &end);
  return end != second && end[strspn(end, " \t\r")] == 0;
}

static Status add_line(LinkTrace *trace, const char *line, int number) {
  double seconds, rate;
  if (line[strspn(line, " \t\r")] == 0 || line[0] == '#') return STATUS_OK;
  if (!read_line(line, &seconds, &rate)) return status_set(STATUS_BAD_FILE, "line %d: not two numbers, seconds and Mbit/s", number);
  bool first = trace->count == 0;
  if (trace->count == LINK_TRACE_MOST) return status_set(STATUS_BAD_FILE, "line %d: more than %d steps", number, LINK_TRACE_MOST);
  if (first ? seconds != 0 : !(seconds > trace->points[trace->count - 1].seconds && seconds <= most_seconds))
    return status_set(STATUS_BAD_FILE, "line %d: times must rise from 0", number);
  if (!(rate >= 0 && rate * mbit <= most_rate)) return status_set(STATUS_BAD_FILE, "line %d: a rate of %g Mbit/s", number, rate);
  trace->points[trace->count++] = (LinkTracePoint){.seconds = seconds, .bits_per_second = rate * mbit};
  return STATUS_OK;
}

static Status add_lines(LinkTrace *trace, const char *text, size_t bytes) {
  char line[128];
  int number = 0;
  for (size_t at = 0; at < bytes;) {
    const char *end = memchr(text + at, '\n', bytes - at);
    size_t length = end ? (size_t)(end - text) - at : bytes - at;
    number++;
    if (length >= sizeof line || memchr(text + at, 0, length)) return status_set(STATUS_BAD_FILE, "line %d: not two numbers", number);
    memcpy(line, text + at, length);
    line[length] = 0;
    TRY(add_line(trace, line, number));
    at += length + 1;
  }
  if (trace->count == 0) return status_set(STATUS_BAD_FILE, "no lines of seconds and Mbit/s");
  if (trace->points[trace->count - 1].bits_per_second <= 0) return status_set(STATUS_BAD_FILE, "line %d: the last rate is 0", number);
  return STATUS_OK;
}

Status link_trace_parse(LinkTrace *trace, const char *text, size_t bytes) {
  TRY(reserve(trace));
  Status status = add_lines(trace, text, bytes);
  if (status != STATUS_OK) link_trace_release(trace);
  return status;
}

/* ---- chance ---- */

/* From state `from` of `states`: to another one in proportion to 1 / distance. */
static int next_state(Rng *rng, int from, int states) {
  double sum = 0;
  for (int to = 0; to < states; to++) sum += to == from ? 0 : 1.0 / abs(to - from);
  double draw = rng_uniform(rng) * sum;
  for (int to = 0; to < states; to++) {
    if (to == from) continue;
    draw -= 1.0 / abs(to - from);
    if (draw < 0) return to;
  }
  return from;
}

Status link_trace_draw(LinkTrace *trace, double least, double most, int seconds, uint64_t seed) {
  Rng rng;
  if (!(least > 0 && least <= most && most <= most_rate) || seconds < 1 || seconds > LINK_TRACE_MOST)
    return status_set(STATUS_BAD_VALUE, "a trace from %g to %g bit/s of %d s: the rates must rise from above 0, for 1 to %d s", least, most,
                      seconds, LINK_TRACE_MOST);
  int states = (int)floor((most - least) / state_width) + 1;
  TRY(reserve(trace));
  rng_init(&rng, seed, 0x7ace);
  int state = (int)rng_below(&rng, (uint64_t)states);
  for (int i = 0; i < seconds; i++, state = next_state(&rng, state, states))
    trace->points[trace->count++] = (LinkTracePoint){.seconds = i, .bits_per_second = least + state * state_width};
  return STATUS_OK;
}

/* ---- either ---- */

static Status draw_as_named(LinkTrace *trace, const char *text, uint64_t seed) {
  double least, most;
  int seconds = DRAWN_SECONDS, used = 0, all = 0;
  bool read = sscanf(text, "markov:%lf-%lfmbit%n:%d%n", &least, &most, &used, &seconds, &all) >= 2;
  size_t end = (size_t)(all ? all : used);
  if (!read || end == 0 || end != strlen(text))
    return status_set(STATUS_BAD_VALUE, "%s is not of the form markov:20-100mbit or markov:20-100mbit:600", text);
  return link_trace_draw(trace, least * mbit, most * mbit, seconds, seed);
}

Status link_trace_open(LinkTrace *trace, const char *text, uint64_t seed) {
  char *data;
  size_t bytes;
  *trace = (LinkTrace){0};
  if (strncmp(text, "markov:", 7) == 0) return draw_as_named(trace, text, seed);
  TRY(files_read(text, FILE_MOST, &data, &bytes));
  Status status = link_trace_parse(trace, data, bytes);
  free(data);
  return status == STATUS_OK ? STATUS_OK : status_wrap(status, "%s", text);
}
