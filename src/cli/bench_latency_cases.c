/* A list of what was measured, and simulations of it. */
#include "cli/bench_latency_cases.h"
#include "infer/virtual/strategy_events.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct LatencyMeasured {
  LatencyCase of;
  Timeline device[WIRE_NODES];
} LatencyMeasured;

void bench_latency_cases_release(LatencyBench *bench) {
  for (int i = 0; i < bench->count; i++)
    for (int d = 0; d < WIRE_NODES; d++) timeline_release(&bench->list[i].device[d]);
  free(bench->list);
  bench_latency_model_close(&bench->model);
  bench->list = NULL;
  bench->count = bench->capacity = 0;
}

static bool same(const LatencyCase *a, const LatencyCase *b) {
  return a->strategy == b->strategy && a->groups == b->groups && a->devices == b->devices && a->parts == b->parts && a->tokens == b->tokens;
}

static Status new_measured(LatencyBench *bench, const LatencyCase *wanted, LatencyMeasured **measured) {
  if (bench->count == bench->capacity) {
    int capacity = bench->capacity ? 2 * bench->capacity : 32;
    LatencyMeasured *list = realloc(bench->list, (size_t)capacity * sizeof *list);
    if (!list) return status_set(STATUS_NO_MEMORY, "no memory for measurements");
    bench->list = list;
    bench->capacity = capacity;
  }
  *measured = &bench->list[bench->count++];
  **measured = (LatencyMeasured){.of = *wanted};
  return STATUS_OK;
}

/* ---- devices that compute their own tokens */

static Status measure_device(LatencyBench *bench, const LatencyCase *wanted, const int64_t *counts, int self, Timeline *timeline) {
  MeasureQuality quality;
  const DeviceCase device = {.strategy = wanted->strategy,
                             .devices = wanted->devices,
                             .self = self,
                             .tokens = wanted->tokens,
                             .counts = counts,
                             .books = bench->model.books,
                             .tables = bench->model.tables,
                             .parts = wanted->parts,
                             .least_packets = bench->least_packets};
  TRY(timeline_measure(timeline, &bench->model.weights, &device, bench->repeats, &quality));
  bench->quality.least_share = fmin(bench->quality.least_share, quality.least_share);
  bench->quality.spread = fmax(bench->quality.spread, quality.spread);
  bench->measured++;
  return STATUS_OK;
}

/* What a device like `from` does in the place of device `self`: the same, with others. */
static Status stand_in(const Timeline *from, int self, int devices, Timeline *to) {
  to->tokens = from->tokens;
  for (int i = 0; i < from->count; i++) {
    Event event = from->list[i];
    if (event.kind != EVENT_COMPUTE) event.peers = strategy_events_others(self, devices);
    TRY(timeline_add(to, &event));
  }
  return STATUS_OK;
}

static int alike(const int64_t *counts, int self) {
  for (int d = 0; d < self; d++)
    if (counts[d] == counts[self]) return d;
  return -1;
}

static Status measure_devices(LatencyBench *bench, LatencyMeasured *measured) {
  const LatencyCase *wanted = &measured->of;
  int64_t counts[WIRE_NODES];
  layout_even_counts(wanted->tokens, wanted->devices, counts);
  if (wanted->strategy == STRATEGY_ASTRA) TRY(bench_latency_model_groups(&bench->model, wanted->groups, bench->table_bytes));
  for (int d = 0; d < wanted->devices; d++) {
    int like = bench->measure_all ? -1 : alike(counts, d);
    if (like < 0)
      TRY(measure_device(bench, wanted, counts, d, &measured->device[d]));
    else
      TRY(stand_in(&measured->device[like], d, wanted->devices, &measured->device[d]));
  }
  return STATUS_OK;
}

/* ---- heads and columns divided: the single device's computation shared out without any loss, which is the best that they could do */

static Status share_out(LatencyBench *bench, const LatencyCase *wanted, int device, Timeline *timeline) {
  double single, all_rows = (double)wanted->tokens + 1, row_bytes = 4.0 * (double)bench->model.config.width, bytes[WIRE_NODES];
  int blocks = (int)bench->model.config.blocks, devices = wanted->devices;
  TRY(bench_latency_cases_single(bench, wanted->tokens, &single));
  double block = single / blocks, share = block / devices, own = all_rows * row_bytes / devices;
  for (int d = 0; d < devices; d++) bytes[d] = own;
  for (int b = 0; b < blocks; b++) {
    bool together = b >= blocks - bench->retained;
    if (wanted->strategy == STRATEGY_TP) {
      for (int which = 0; which < 2; which++) {
        TRY(strategy_events_compute(timeline, share / 2));
        TRY(strategy_events_sum(timeline, b, which, device, devices, bytes, 0));
      }
      continue;
    }
    if (together) TRY(strategy_events_gather(timeline, b, 0, device, devices, own));
    TRY(strategy_events_compute(timeline, together && wanted->strategy == STRATEGY_BP_AG ? block : share));
    if (together && wanted->strategy == STRATEGY_BP_SP) TRY(strategy_events_gather(timeline, b, 1, device, devices, own));
  }
  return STATUS_OK;
}

static Status find(LatencyBench *bench, const LatencyCase *wanted, int *found) {
  LatencyMeasured *measured = NULL;
  bool tokens_divided = strategy_facts(wanted->strategy)->divides_tokens || wanted->strategy == STRATEGY_SINGLE;
  for (*found = 0; *found < bench->count; ++*found)
    if (same(&bench->list[*found].of, wanted)) return STATUS_OK;
  if (bench->progress) bench->progress(wanted);
  if (!tokens_divided) { /* measured before this one, so that the list does not grow in between */
    double single;
    TRY(bench_latency_cases_single(bench, wanted->tokens, &single));
  }
  TRY(new_measured(bench, wanted, &measured));
  *found = bench->count - 1;
  Status status = STATUS_OK;
  if (tokens_divided) status = measure_devices(bench, measured);
  for (int d = 0; !tokens_divided && d < wanted->devices && status == STATUS_OK; d++)
    status = share_out(bench, wanted, d, &bench->list[*found].device[d]);
  if (status == STATUS_OK) return STATUS_OK;
  for (int d = 0; d < WIRE_NODES; d++) timeline_release(&bench->list[*found].device[d]);
  bench->count--;
  return status;
}

Status bench_latency_cases_single(LatencyBench *bench, int64_t tokens, double *seconds) {
  int found;
  TRY(find(bench, &(LatencyCase){.strategy = STRATEGY_SINGLE, .devices = 1, .parts = 1, .tokens = tokens}, &found));
  *seconds = timeline_seconds(&bench->list[found].device[0]);
  return STATUS_OK;
}

Status bench_latency_cases_run(LatencyBench *bench, const LatencyCase *wanted, const LatencyLink *link, double scale, SimResult *result) {
  int found;
  bool codes = strategy_facts(wanted->strategy)->sends_codes;
  TRY(find(bench, wanted, &found));
  LinkOptions links = bench->links;
  links.bits_per_second = link->bits_per_second;
  links.overhead = codes ? GROUP_DATAGRAM_OVERHEAD : GROUP_SEGMENT_OVERHEAD;
  if (link->trace) links.trace = *link->trace;
  if (!codes) links.loss = 0; /* a stream hides it */
  const SimOptions options = {
      .reliability = codes ? bench->reliability : NULL, .scale = scale, .start = link->start, .multicast = bench->multicast && codes};
  return net_sim_run(bench->list[found].device, wanted->devices, &links, &options, result);
}
