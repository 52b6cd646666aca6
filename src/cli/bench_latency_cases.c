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
  arena_free(bench->arena);
  bench->arena = NULL;
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

/* ---- devices, one after another */

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
                             .least_packets = bench->least_packets,
                             .retained = bench->retained,
                             .arena = bench->arena,
                             .warm = bench->quick && wanted->tokens <= bench->warm_tokens};
  TRY(timeline_measure(timeline, &bench->model.weights, &device, bench->repeats, &quality));
  bench->quality.least_share = fmin(bench->quality.least_share, quality.least_share);
  bench->quality.spread = fmax(bench->quality.spread, quality.spread);
  bench->measured++;
  if (wanted->strategy == STRATEGY_SINGLE && wanted->tokens > bench->warm_tokens) bench->warm_tokens = wanted->tokens;
  return STATUS_OK;
}

/* What device `from` does, in the place of device `self`, which is like it: everybody moves on by as many places, the devices whose rows
 * travel (part, of sums and joins) as well. That a class row makes one device of sums longer by a row is passed over. */
static Status stand_in(const LatencyCase *of, const Timeline *timeline, int from, int self, Timeline *to) {
  bool by_rows = !strategy_facts(of->strategy)->divides_tokens;
  int moved = self - from + of->devices;
  to->tokens = timeline->tokens;
  for (int i = 0; i < timeline->count; i++) {
    Event event = timeline->list[i];
    uint64_t peers = 0;
    for (int d = 0; d < of->devices; d++) peers |= (event.peers >> d & 1) << (d + moved) % of->devices;
    event.peers = peers;
    if (by_rows && event.kind != EVENT_COMPUTE) event.part = (uint8_t)((event.part + moved) % of->devices);
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
      TRY(stand_in(wanted, &measured->device[like], like, d, &measured->device[d]));
  }
  return STATUS_OK;
}

static Status find(LatencyBench *bench, const LatencyCase *wanted, LatencyMeasured **found) {
  for (int i = 0; i < bench->count; i++)
    if (same(&bench->list[i].of, wanted)) {
      *found = &bench->list[i];
      return STATUS_OK;
    }
  if (bench->progress) bench->progress(wanted);
  TRY(new_measured(bench, wanted, found));
  Status status = measure_devices(bench, *found);
  if (status == STATUS_OK) return STATUS_OK;
  for (int d = 0; d < WIRE_NODES; d++) timeline_release(&(*found)->device[d]);
  bench->count--;
  return status;
}

Status bench_latency_cases_single(LatencyBench *bench, int64_t tokens, double *seconds) {
  LatencyMeasured *found;
  TRY(find(bench, &(LatencyCase){.strategy = STRATEGY_SINGLE, .devices = 1, .parts = 1, .tokens = tokens}, &found));
  *seconds = timeline_seconds(&found->device[0]);
  return STATUS_OK;
}

Status bench_latency_cases_run(LatencyBench *bench, const LatencyCase *wanted, const LatencyLink *link, double scale, SimResult *result) {
  LatencyMeasured *found;
  bool codes = strategy_facts(wanted->strategy)->sends_codes;
  TRY(find(bench, wanted, &found));
  LinkOptions links = bench->links;
  links.bits_per_second = link->bits_per_second;
  links.overhead = codes ? GROUP_DATAGRAM_OVERHEAD : GROUP_SEGMENT_OVERHEAD;
  if (link->trace) links.trace = *link->trace;
  if (!codes) links.loss = 0; /* a stream hides it */
  const SimOptions options = {
      .reliability = codes ? bench->reliability : NULL, .scale = scale, .start = link->start, .multicast = bench->multicast && codes};
  return net_sim_run(found->device, wanted->devices, &links, &options, result);
}
