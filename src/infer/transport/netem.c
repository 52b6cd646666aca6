/* The arithmetic of links: see netem.h. */
#include "infer/transport/netem.h"
#include "base/files.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- traces: linear in their points, which are at most some thousand for a run */

static int step_at(const LinkTrace *trace, double at) {
  int i = 0;
  while (i + 1 < trace->count && trace->points[i + 1].seconds <= at) i++;
  return i;
}

double link_trace_rate(const LinkTrace *trace, double at) { return trace->points[step_at(trace, at)].bits_per_second; }

/* When `bits` that begin at `from` are out: the trace integrated. */
static double advance(const LinkTrace *trace, double from, double bits) {
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

/* ---- traces from files and from chance */

static const double mbit = 1e6, state_width = 10e6, max_rate = 1e12, max_seconds = 1e7;
enum { DRAWN_SECONDS = 600, FILE_MAX = 1 << 20 };

static Status reserve(LinkTrace *trace) {
  *trace = (LinkTrace){.points = calloc(MAX_TRACE_POINTS, sizeof *trace->points)};
  return trace->points ? STATUS_OK : status_no_memory(NULL, "a trace");
}

Status link_trace_rest(LinkTrace *rest, const LinkTrace *trace, double seconds) {
  *rest = (LinkTrace){0};
  if (trace->count == 0) return STATUS_OK;
  TRY(reserve(rest));
  for (int i = step_at(trace, seconds); i < trace->count; i++) {
    const LinkTracePoint *point = &trace->points[i];
    rest->points[rest->count++] = (LinkTracePoint){fmax(0, point->seconds - seconds), point->bits_per_second};
  }
  return STATUS_OK;
}

/* ---- files ---- */

static Status add_line(LinkTrace *trace, const char *line, int number) {
  double seconds, rate;
  char *second, *end;
  if (line[strspn(line, " \t\r")] == 0 || line[0] == '#') return STATUS_OK;
  seconds = strtod(line, &second);
  rate = strtod(second, &end);
  if (second == line || end == second || end[strspn(end, " \t\r")]) /* two numbers and nothing else */
    return status_set(STATUS_BAD_FILE, "line %d: not two numbers, seconds and Mbit/s", number);
  bool first = trace->count == 0;
  if (trace->count == MAX_TRACE_POINTS) return status_set(STATUS_BAD_FILE, "line %d: more than %d steps", number, MAX_TRACE_POINTS);
  if (first ? seconds != 0 : !(seconds > trace->points[trace->count - 1].seconds && seconds <= max_seconds))
    return status_set(STATUS_BAD_FILE, "line %d: times must rise from 0", number);
  if (!(rate >= 0 && rate * mbit <= max_rate)) return status_set(STATUS_BAD_FILE, "line %d: a rate of %g Mbit/s", number, rate);
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

static Status parse(LinkTrace *trace, const char *text, size_t bytes) {
  TRY(reserve(trace));
  Status status = add_lines(trace, text, bytes);
  if (status != STATUS_OK) link_trace_release(trace);
  return status;
}

/* ---- chance ---- */

/* Steps of a second; the rate moves between `min` and `max` in states of 10 Mbit/s, to another one with a probability that falls with their
 * distance. */
static Status draw(LinkTrace *trace, double min, double max, int seconds, uint64_t seed) {
  Rng rng;
  if (!(min > 0 && min <= max && max <= max_rate) || seconds < 1 || seconds > MAX_TRACE_POINTS)
    return status_set(STATUS_BAD_VALUE, "a trace from %g to %g bit/s of %d s: the rates must rise from above 0, for 1 to %d s", min, max,
                      seconds, MAX_TRACE_POINTS);
  int states = (int)floor((max - min) / state_width) + 1;
  TRY(reserve(trace));
  rng_init(&rng, seed, 0x7ace);
  int state = (int)rng_below(&rng, (uint64_t)states);
  for (int i = 0; i < seconds; i++) {
    trace->points[trace->count++] = (LinkTracePoint){.seconds = i, .bits_per_second = min + state * state_width};
    double sum = 0, left;
    int next = state;
    for (int to = 0; to < states; to++) sum += to == state ? 0 : 1.0 / abs(to - state);
    left = rng_uniform(&rng) * sum;
    for (int to = 0; to < states && left >= 0; to++) {
      if (to == state) continue;
      left -= 1.0 / abs(to - state); /* in proportion to 1 / distance */
      if (left < 0) next = to;
    }
    state = next;
  }
  return STATUS_OK;
}

Status link_trace_open(LinkTrace *trace, const char *text, uint64_t seed) {
  char *data;
  size_t bytes;
  *trace = (LinkTrace){0};
  if (strncmp(text, "markov:", 7) == 0) {
    double min, max;
    int steps = DRAWN_SECONDS, used = 0, all = 0;
    bool read = sscanf(text, "markov:%lf-%lfmbit%n:%d%n", &min, &max, &used, &steps, &all) >= 2;
    size_t end = (size_t)(all ? all : used);
    if (!read || end == 0 || end != strlen(text))
      return status_set(STATUS_BAD_VALUE, "%s is not of the form markov:20-100mbit or markov:20-100mbit:600", text);
    return draw(trace, min * mbit, max * mbit, steps, seed);
  }
  TRY(files_read(text, FILE_MAX, &data, &bytes));
  Status status = parse(trace, data, bytes);
  free(data);
  return status == STATUS_OK ? STATUS_OK : status_wrap(status, "%s", text);
}

/* ---- links. Random numbers: one stream for what is lost and one for jitter, so that either can be changed alone */

void link_model_init(LinkModel *link, const LinkOptions *options, int from, int to) {
  uint64_t pair = (uint64_t)(uint32_t)from << 32 | (uint32_t)to;
  *link = (LinkModel){
      .options = options, .rate = options->bits_per_second, .latency = options->latency, .busy = -INFINITY, .arrived = -INFINITY};
  rng_init(&link->fate, options->seed, 2 * pair);
  rng_init(&link->jitter, options->seed, 2 * pair + 1);
}

/* This link is slower (rate, bits a second; 0: not) or longer than the options say, never the other way round. */
static void limit(LinkModel *link, double rate, double latency) {
  link->rate = link_slower(link->rate, rate);
  link->latency = fmax(link->latency, latency);
}

static double bits_of(const LinkOptions *o, size_t bytes) {
  const size_t segments = o->segment && bytes > o->segment ? (bytes + o->segment - 1) / o->segment : 1;
  return 8 * (double)(bytes + segments * o->overhead);
}

/* When the last bit of a packet of `bytes` bytes (plus overhead) that was ready then has left. Calls in the order of `ready`. */
static double leave(LinkModel *link, double ready, size_t bytes) {
  const LinkOptions *o = link->options;
  double bits = bits_of(o, bytes), rate = o->trace.count ? link_trace_rate(&o->trace, ready) : link->rate;
  if (!o->trace.count && rate <= 0) return ready;
  double from = fmax(link->busy, ready);
  link->busy = o->trace.count ? advance(&o->trace, from, bits) : from + bits / rate;
  link->carried += link->busy - from;
  return fmax(ready, link->busy);
}

Status link_loss_check(const LinkOptions *o) {
  if (!(o->loss >= 0 && o->loss < 1)) return status_set(STATUS_BAD_VALUE, "a loss of %g: it must be from 0 to below 1", o->loss);
  const double shortest = o->loss / (1 - o->loss); /* of a burst, where each is followed by a packet that arrives */
  if (o->loss_model == LOSS_GILBERT_ELLIOTT && fmax(1, o->loss_burst) < shortest * (1 - 1e-9))
    return status_set(STATUS_BAD_VALUE, "a loss of %g in bursts of %g %s: so many are lost only in bursts of %g or more", o->loss,
                      o->loss_burst, o->lose_tokens ? "tokens" : "packets", shortest);
  return STATUS_OK;
}

bool link_model_loses(LinkModel *link) {
  const LinkOptions *o = link->options;
  if (o->loss <= 0 || o->lose_tokens) return false;
  if (o->loss_model == LOSS_BERNOULLI) return rng_uniform(&link->fate) < o->loss;
  /* Gilbert and Elliott: the bad state is left with 1 / b and entered so that it holds the wanted share of packets. */
  double leaves = 1 / fmax(1, o->loss_burst), chance = rng_uniform(&link->fate);
  return link->bad = link->bad ? chance >= leaves : chance < leaves * o->loss / (1 - o->loss);
}

/* ---- all links of a device: one for each peer, and two for the ports of a switch */

Status netem_init(Netem *netem, const LinkOptions *options, const LinkEnd *ends, LinkModel *medium, int self, int nodes, double start) {
  *netem = (Netem){.active = options != NULL, .start = start, .medium = medium};
  if (!options) return STATUS_OK;
  if (!(options->bits_per_second >= 0) || !isfinite(options->bits_per_second))
    return status_set(STATUS_BAD_VALUE, "a link of %g bits per second: it needs a finite rate, or 0 for no limit",
                      options->bits_per_second);
  if (!(options->latency >= 0 && options->jitter >= 0 && isfinite(options->latency + options->jitter)))
    return status_set(STATUS_BAD_VALUE, "latency %g s and jitter %g s: both must be finite and not negative", options->latency,
                      options->jitter);
  TRY(link_loss_check(options));
  if (options->topology == LINK_SHARED && !medium)
    return status_set(STATUS_UNSUPPORTED, "--link-model shared-medium needs virtual time (astra-infer plan, astra-bench latency)");
  netem->options = *options;
  netem->links = malloc((size_t)nodes * sizeof *netem->links);
  netem->chances = malloc((size_t)nodes * sizeof *netem->chances);
  netem->port_rate = malloc((size_t)nodes * sizeof *netem->port_rate);
  if (!netem->links || !netem->chances || !netem->port_rate) return status_set(STATUS_NO_MEMORY, "no memory for %d links", nodes);
  for (int d = 0; d < nodes; d++) {
    link_model_init(&netem->links[d], &netem->options, self, d);
    link_model_init(&netem->chances[d], &netem->options, nodes + self, nodes + d);
    netem->port_rate[d] = link_slower(options->bits_per_second, ends ? ends[d].out : 0);
    if (!ends) continue;
    double rate = link_slower(ends[self].out, ends[d].in), latency = fmax(ends[self].latency, ends[d].latency);
    limit(&netem->links[d], rate, latency);
    limit(&netem->chances[d], rate, latency);
  }
  link_model_init(&netem->out, &netem->options, self, self);
  link_model_init(&netem->in, &netem->options, self, self);
  if (ends) limit(&netem->out, ends[self].out, 0);
  if (ends) limit(&netem->in, ends[self].in, 0);
  return STATUS_OK;
}

void netem_release(Netem *netem) {
  free(netem->links);
  free(netem->chances);
  free(netem->port_rate);
  *netem = (Netem){0};
}

double netem_send(Netem *netem, int peer, double ready, size_t bytes, bool planned, double *left, bool *lost) {
  *lost = false;
  *left = ready;
  if (!netem->active) return ready;
  LinkModel *link = &netem->links[peer];
  LinkModel *const path[] = {[LINK_MESH] = link, [LINK_SWITCH] = &netem->out, [LINK_SHARED] = netem->medium};
  double out = leave(path[netem->options.topology], ready - netem->start, bytes);
  *left = netem->start + out;
  LinkModel *chance = planned ? link : &netem->chances[peer];
  *lost = link_model_loses(chance);
  chance->arrived = link->arrived; /* nothing overtakes */
  double delay = chance->latency;
  if (netem->options.jitter > 0) delay += netem->options.jitter * (2 * rng_uniform(&chance->jitter) - 1);
  chance->arrived = fmax(out + fmax(delay, 0), chance->arrived);
  link->arrived = chance->arrived;
  return netem->start + link->arrived;
}

/* Cut through: a packet takes the port from when its first bit came, so that one by itself is not delayed twice. */
double netem_receive(Netem *netem, int peer, double reached, size_t bytes) {
  if (!netem->active || netem->options.topology != LINK_SWITCH) return reached;
  LinkModel sender = {.options = &netem->options, .rate = netem->port_rate[peer], .busy = -INFINITY};
  double at = reached - netem->start, took = leave(&sender, at, bytes) - at;
  return netem->start + fmax(at, leave(&netem->in, at - took, bytes));
}

double netem_idle(const Netem *netem, int peer, size_t bytes) {
  if (!netem->active) return 0;
  const LinkModel *link = &netem->links[peer];
  return link->latency + (link->rate > 0 ? bits_of(&netem->options, bytes) / link->rate : 0);
}

double netem_carried(const Netem *netem, int peer) {
  if (!netem->active) return 0;
  const LinkModel *const path[] = {[LINK_MESH] = &netem->links[peer], [LINK_SWITCH] = &netem->out, [LINK_SHARED] = netem->medium};
  return path[netem->options.topology]->carried;
}

double netem_carried_in(const Netem *netem) { return netem->active ? netem->in.carried : 0; }
