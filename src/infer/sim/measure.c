/* Runs of one device, their medians, and the simulation of all. */
#include "infer/sim/measure.h"
#include "base/clock.h"
#include "infer/sim/recorder.h"
#include "infer/transport/packet.h"
#include "nn/tensor_parallel.h"
#include <math.h>
#include <stdlib.h>

enum { REPEATS_MAX = 32 };
static const size_t ARENA_BYTES = (size_t)1 << 36; /* of address space; pages come as they are touched */

typedef struct Measurement {
  const Weights *weights;
  const DeviceCase *device;
  TokenLayout layout;
  ExchangeRecorder exchange; /* tokens divided */
  ReduceRecorder reduce;     /* heads and columns divided */
  bool alone;                /* nobody to exchange with */
  bool by_heads;
  Arena *arena;
  Tape *tape;
  real *rows; /* [S, D] the input */
} Measurement;

static Status build_layout(Measurement *m) {
  const ModelConfig *config = m->weights->config;
  const DeviceCase *device = m->device;
  ClassToken class_token = device->strategy == STRATEGY_SP ? CLASS_SINGLE : config->astra.class_token;
  if (config_is_decoder(config)) class_token = CLASS_NONE;
  m->alone = device->strategy == STRATEGY_SINGLE || device->devices == 1;
  m->by_heads = !m->alone && !strategy_facts(device->strategy)->divides_tokens;
  if (m->alone || m->by_heads) return layout_build_plain(&m->layout, device->tokens, class_token);
  return layout_build(&m->layout, device->tokens, device->devices, device->counts, NULL, class_token, device->self);
}

static Status open_exchange(Measurement *m) {
  const ModelConfig *config = m->weights->config;
  const DeviceCase *device = m->device;
  bool whole = device->strategy == STRATEGY_SP;
  size_t all = (size_t)(m->layout.shared * config_whole_width(config)) * sizeof(float); /* a stream takes a packet of any size */
  if (m->alone) return STATUS_OK;
  if (m->by_heads) return reduce_recorder_init(&m->reduce, device->self, device->devices, m->layout.rows, config->width);
  const CodeExchangeSetup setup = {.self = device->self,
                                   .nodes = device->devices,
                                   .layout = &m->layout,
                                   .books = device->books ? device->books : m->weights->books,
                                   .blocks = (int)config->blocks,
                                   .sites = whole ? config_whole_sites(config) : config_sites(config),
                                   .parts = device->parts,
                                   .batch_max = 1,
                                   .min_packets = device->min_packets,
                                   .keys = whole ? NULL : device->tables,
                                   .causal = config_is_decoder(config),
                                   .whole_rows = whole,
                                   .width = config_whole_width(config),
                                   .max_packet = whole ? all : SCHEDULE_PACKET_MAX - PACKET_HEADER};
  return exchange_recorder_init(&m->exchange, &setup);
}

static Status open_measurement(Measurement *m) {
  TRY(build_layout(m));
  TRY(open_exchange(m));
  int64_t count = m->layout.rows * m->weights->config->width;
  m->arena = m->device->arena ? m->device->arena : arena_new(ARENA_BYTES);
  m->tape = m->arena ? tape_new(m->arena) : NULL;
  if (m->tape) tape_use_bf16(m->tape, m->weights->bf16);
  m->rows = malloc((size_t)count * sizeof *m->rows);
  if (!m->tape || !m->rows)
    return status_set(STATUS_NO_MEMORY, "no memory to measure a device with %lld tokens", (long long)m->layout.rows);
  tape_record(m->tape, false);
  Rng rng;
  rng_init(&rng, 2, (uint64_t)m->device->self);
  for (int64_t i = 0; i < count; i++) m->rows[i] = (real)(2 * rng_uniform(&rng) - 1);
  return STATUS_OK;
}

static void close_measurement(Measurement *m) {
  exchange_recorder_release(&m->exchange);
  reduce_recorder_release(&m->reduce);
  layout_release(&m->layout);
  tape_free(m->tape);
  if (!m->device->arena) arena_free(m->arena);
  free(m->rows);
}

/* ---- one run */

static ModelInput input_of(Measurement *m) {
  const int64_t shape[3] = {1, m->layout.rows, m->weights->config->width};
  return (ModelInput){.rows = tape_constant(m->tape, 3, shape, m->rows), .batch = 1};
}

static Status encode(Measurement *m) {
  const ModelInput input = input_of(m);
  model_encode(m->weights->model, m->tape, &input, &m->layout, m->alone ? NULL : &m->exchange.exchange, m->device->rows);
  return tape_status(m->tape);
}

static Status run_alone(Measurement *m, Timeline *timeline) {
  double begun = clock_spent();
  TRY(encode(m));
  return timeline_add(timeline, &(Event){.kind = EVENT_COMPUTE, .seconds = clock_spent() - begun});
}

static Status run_together(Measurement *m, Timeline *timeline) {
  TRY(exchange_recorder_start(&m->exchange, timeline));
  TRY(encode(m));
  return exchange_recorder_stop(&m->exchange);
}

static Status run_by_heads(Measurement *m, Timeline *timeline) {
  const ModelInput input = input_of(m);
  const TensorParallel how = {.strategy = m->device->strategy, .retained = m->device->retained, .reduce = &m->reduce.reduce};
  reduce_recorder_start(&m->reduce, timeline);
  tensor_parallel_encode(m->weights->model, m->tape, &input, &m->layout, &how, m->device->rows);
  TRY(tape_status(m->tape));
  return reduce_recorder_stop(&m->reduce);
}

static Status run(Measurement *m, Timeline *timeline, double *share) {
  double wall = clock_now(), processor = clock_spent();
  Status status = m->alone ? run_alone(m, timeline) : m->by_heads ? run_by_heads(m, timeline) : run_together(m, timeline);
  *share = (clock_spent() - processor) / (clock_now() - wall);
  tape_clear(m->tape);
  return status;
}

/* ---- many runs */

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, by_size);
  return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* So that they sum up to `seconds`: medians of many short stretches do not, and a device alone has but one. */
static void stretch(Timeline *timeline, double seconds) {
  double sum = timeline_seconds(timeline);
  for (int i = 0; i < timeline->count && sum > 0; i++) timeline->list[i].seconds *= seconds / sum;
}

/* All runs have the same events; each stretch's median becomes the first one's, their sum the median of the runs' sums. */
static Status take_medians(Timeline *runs, int count, MeasureQuality *quality) {
  double values[REPEATS_MAX];
  for (int r = 0; r < count; r++) values[r] = timeline_seconds(&runs[r]);
  double middle = median(values, count);
  quality->spread = middle > 0 ? (values[count - 1] - values[0]) / middle : 0;
  for (int i = 0; i < runs[0].count; i++) {
    for (int r = 0; r < count; r++) {
      if (runs[r].count != runs[0].count) return status_set(STATUS_BAD_VALUE, "two runs of one device differ in what they send");
      values[r] = runs[r].list[i].seconds;
    }
    runs[0].list[i].seconds = median(values, count);
  }
  stretch(&runs[0], middle);
  return STATUS_OK;
}

static Status measure(Measurement *m, Timeline *timeline, int repeats, MeasureQuality *quality) {
  Timeline runs[REPEATS_MAX] = {0};
  double share;
  *quality = (MeasureQuality){.min_share = 1};
  Status status = m->device->warm ? STATUS_OK : run(m, &runs[0], &share);
  timeline_release(&runs[0]);
  for (int r = 0; r < repeats && status == STATUS_OK; r++) {
    status = run(m, &runs[r], &share);
    quality->min_share = fmin(quality->min_share, share);
  }
  if (status == STATUS_OK) status = take_medians(runs, repeats, quality);
  if (status == STATUS_OK) {
    *timeline = runs[0];
    timeline->tokens = m->device->strategy == STRATEGY_SINGLE ? m->device->tokens : m->device->counts[m->device->self];
    runs[0] = (Timeline){0};
  }
  for (int r = 0; r < REPEATS_MAX; r++) timeline_release(&runs[r]);
  return status;
}

Status measure_timeline(Timeline *timeline, const Weights *weights, const DeviceCase *device, int repeats, MeasureQuality *quality) {
  Measurement m = {.weights = weights, .device = device};
  MeasureQuality unused;
  *timeline = (Timeline){0};
  if (repeats < 1 || repeats > REPEATS_MAX) return status_set(STATUS_BAD_VALUE, "%d repeats: 1 to %d are possible", repeats, REPEATS_MAX);
  Status status = open_measurement(&m);
  if (status == STATUS_OK) status = measure(&m, timeline, repeats, quality ? quality : &unused);
  close_measurement(&m);
  return status;
}

/* ---- all devices */

static Status simulate(const MeasuredCase *wanted, const Timeline *timelines, SimResult *result) {
  LinkOptions links = *wanted->links;
  bool codes = strategy_facts(wanted->device.strategy)->sends_codes;
  links.overhead = codes ? SCHEDULE_DATAGRAM_OVERHEAD : SCHEDULE_SEGMENT_OVERHEAD;
  if (!codes) links.loss = 0; /* a stream hides it */
  const SimOptions options = {.reliability = codes ? wanted->reliability : NULL, .ends = wanted->ends, .scale = wanted->scale};
  return simulate_run(timelines, wanted->device.devices, &links, &options, result);
}

static Status simulate_with_work(const MeasuredCase *wanted, const Timeline *timelines, SimResult *result) {
  Timeline worked[WIRE_NODES] = {0};
  bool codes = strategy_facts(wanted->device.strategy)->sends_codes;
  Status status = packet_work_add(wanted->work, timelines, wanted->device.devices, codes, worked);
  if (status == STATUS_OK) status = simulate(wanted, worked, result);
  for (int d = 0; d < WIRE_NODES; d++) timeline_release(&worked[d]);
  return status;
}

Status measure_latency(const MeasuredCase *wanted, SimResult *result) {
  Timeline timelines[WIRE_NODES] = {0};
  Status status = STATUS_OK;
  for (int d = 0; d < wanted->device.devices && status == STATUS_OK; d++) {
    DeviceCase device = wanted->device;
    device.self = d;
    status = measure_timeline(&timelines[d], wanted->weights, &device, wanted->repeats, NULL);
  }
  if (status == STATUS_OK) status = wanted->work ? simulate_with_work(wanted, timelines, result) : simulate(wanted, timelines, result);
  for (int d = 0; d < WIRE_NODES; d++) timeline_release(&timelines[d]);
  return status;
}
