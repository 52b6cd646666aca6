/* Recorders, runs of one device with them, their medians, and the simulation of all. */
#include "infer/sim/measure.h"
#include "base/clock.h"
#include "base/share.h"
#include "infer/code_exchange.h"
#include "infer/transport/packet.h"
#include "nn/layout.h"
#include "nn/tensor_parallel.h"
#include "vq/pack.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS_MAX = 32 };
static const size_t ARENA_BYTES = (size_t)1 << 36; /* of address space; pages come as they are touched */

/* ---- recorders: the exchange, or the sums and joins, of a device that is measured alone. What a node computes for them is computed, but
 * nobody sends and nobody waits: what would have been sent and waited for is noted in a timeline between the stretches of computation.
 *
 * Codes, or rows: begin quantises and packs, finish unpacks and looks up. What "came" are codes, or with whole_rows rows, drawn at random:
 * values do not change the time. */

typedef struct RecordedPart {
  TransportPacket *packets; /* [count] */
  int count;
} RecordedPart;

typedef struct ExchangeRecorder {
  Exchange exchange; /* first: give its address to model_encode */
  CodeExchangeSetup setup;
  CodeExchange network;
  Timeline *timeline; /* of the run under way */
  double since;       /* when the present stretch of computation began, on this thread's clock */
  RecordedPart *came; /* [nodes][parts] */
  uint8_t *payloads;  /* of all of them */
  TransportArrival arrivals[WIRE_NODES];
} ExchangeRecorder;

/* The stretch since the last event. */
static Status note(Timeline *timeline, double since) { return schedule_compute(timeline, clock_spent() - since); }

static int parts_of(const ExchangeRecorder *recorder) { return recorder->setup.parts > 1 ? recorder->setup.parts : 1; }

static uint64_t partners(const ExchangeRecorder *recorder, bool to) {
  return schedule_partners(recorder->setup.self, recorder->setup.nodes, recorder->setup.causal, to);
}

/* ---- what leaves */

/* Codes in their packets; rows in a stream, which knows none. */
static MessageSize size_of(const ExchangeRecorder *recorder, const TransportPacket *packets, int count) {
  uint32_t bytes = 0;
  for (int f = 0; f < count; f++) bytes += (uint32_t)packets[f].bytes;
  if (recorder->setup.whole_rows) return schedule_stream(bytes);
  return (MessageSize){.packets = (uint32_t)count, .bytes = (uint32_t)count * PACKET_HEADER + bytes};
}

static Status send_part(ExchangeRecorder *recorder, const TokenLayout *layout, int block, int site, int part, const Tensor *h,
                        MessageSize *size) {
  const TransportPacket *packets;
  int count;
  TRY(code_exchange_encode_part(&recorder->network, layout, block, site, part, h, &packets, &count));
  *size = size_of(recorder, packets, count);
  return STATUS_OK;
}

/* ---- what comes */

static size_t payload_bytes(const ExchangeRecorder *recorder, int64_t tokens) {
  const CodeExchangeSetup *setup = &recorder->setup;
  if (setup->whole_rows) return (size_t)(tokens * setup->width) * sizeof(float);
  return pack_dense_bytes(tokens, setup->books[0].groups, setup->books[0].entries);
}

/* Random codes, or numbers, of so many tokens. codes: room for theirs. */
static void draw_payload(const ExchangeRecorder *recorder, int64_t tokens, int32_t *codes, real *row, uint8_t *payload, Rng *rng) {
  const CodeExchangeSetup *setup = &recorder->setup;
  const Codebook *book = setup->whole_rows ? NULL : &setup->books[0];
  for (int64_t i = 0; book && i < tokens * book->groups; i++) codes[i] = (int32_t)rng_below(rng, (uint64_t)book->entries);
  if (book) pack_dense(codes, tokens, book->groups, book->entries, payload);
  for (int64_t t = 0; !book && t < tokens; t++, payload += (size_t)setup->width * sizeof(float)) {
    for (int64_t i = 0; i < setup->width; i++) row[i] = (real)(2 * rng_uniform(rng) - 1);
    wire_pack_reals(row, (size_t)setup->width, payload);
  }
}

/* A peer's part, as its packets would bring it. */
static void draw_packets(ExchangeRecorder *recorder, RecordedPart *came, int64_t tokens, int32_t *codes, real *row, uint8_t **payload,
                         Rng *rng) {
  for (int f = 0; f < came->count; f++) {
    int64_t count = interleave_count(tokens, came->count, f);
    draw_payload(recorder, count, codes, row, *payload, rng);
    came->packets[f] = (TransportPacket){.payload = *payload, .bytes = payload_bytes(recorder, count)};
    *payload += came->packets[f].bytes;
  }
}

static int packets_of(const ExchangeRecorder *recorder, int64_t tokens) {
  const CodeExchangeSetup *setup = &recorder->setup;
  int parts = parts_of(recorder);
  return interleave_packets(tokens, code_exchange_token_bits(setup), setup->max_packet, interleave_min(setup->min_packets, parts));
}

static Status draw_parts(ExchangeRecorder *recorder, int32_t *codes, real *row) {
  const CodeExchangeSetup *setup = &recorder->setup;
  int parts = parts_of(recorder);
  uint8_t *payload = recorder->payloads;
  Rng rng;
  rng_init(&rng, 1, 0);
  for (int i = 0; i < setup->nodes * parts; i++) {
    RecordedPart *came = &recorder->came[i];
    int64_t first, tokens;
    layout_part_shared(setup->layout, i / parts, parts, i % parts, &first, &tokens);
    came->count = tokens > 0 && i / parts != setup->self ? packets_of(recorder, tokens) : 0;
    came->packets = calloc((size_t)came->count + 1, sizeof *came->packets);
    if (!came->packets) return status_set(STATUS_NO_MEMORY, "no memory for packets to measure with");
    draw_packets(recorder, came, tokens, codes, row, &payload, &rng);
  }
  return STATUS_OK;
}

static Status draw_all(ExchangeRecorder *recorder) {
  const CodeExchangeSetup *setup = &recorder->setup;
  int64_t shared = setup->layout->shared, groups = setup->whole_rows ? 0 : setup->books[0].groups;
  int32_t *codes = malloc((size_t)(shared * groups + 1) * sizeof *codes);
  real *row = malloc((size_t)(setup->width + 1) * sizeof *row);
  recorder->payloads = malloc(payload_bytes(recorder, shared) + (size_t)shared); /* a byte more for each packet's last codes */
  Status status = codes && row && recorder->payloads ? draw_parts(recorder, codes, row)
                                                     : status_set(STATUS_NO_MEMORY, "no memory for packets to measure with");
  free(codes);
  free(row);
  return status;
}

static Status take_part(ExchangeRecorder *recorder, Tape *tape, const TokenLayout *layout, int block, int site, int part,
                        ExchangeRows *rows) {
  for (int d = 0; d < recorder->setup.nodes; d++) {
    const RecordedPart *came = &recorder->came[d * parts_of(recorder) + part];
    recorder->arrivals[d] = (TransportArrival){.packets = came->packets, .count = came->count};
  }
  return code_exchange_decode_part(&recorder->network, tape, layout, block, site, part, recorder->arrivals, rows);
}

/* ---- the exchange */

static Status begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  ExchangeRecorder *recorder = (ExchangeRecorder *)self;
  uint64_t to = partners(recorder, true);
  (void)tape;
  for (int site = 0; to != 0 && site < recorder->setup.sites; site++) {
    MessageSize size;
    TRY(send_part(recorder, layout, block, site, part, h[site], &size));
    TRY(note(recorder->timeline, recorder->since));
    if (size.packets > 0) TRY(schedule_send(recorder->timeline, block, site, part, size, to));
    recorder->since = clock_spent();
  }
  return STATUS_OK;
}

/* Nodes that send something of this part. */
static uint64_t senders(const ExchangeRecorder *recorder, int part) {
  uint64_t from = partners(recorder, false), bits = 0;
  for (int d = 0; d < recorder->setup.nodes; d++) {
    int64_t first, count;
    layout_part_shared(recorder->setup.layout, d, parts_of(recorder), part, &first, &count);
    if (count > 0) bits |= (uint64_t)1 << d;
  }
  return bits & from;
}

static Status finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, ExchangeRows rows[EXCHANGE_SITES]) {
  ExchangeRecorder *recorder = (ExchangeRecorder *)self;
  uint64_t from = senders(recorder, part);
  TRY(note(recorder->timeline, recorder->since));
  for (int site = 0; from != 0 && site < recorder->setup.sites; site++) TRY(schedule_wait(recorder->timeline, block, site, part, from));
  recorder->since = clock_spent();
  for (int site = 0; site < recorder->setup.sites; site++) TRY(take_part(recorder, tape, layout, block, site, part, &rows[site]));
  return STATUS_OK;
}

static Status exchange_recorder_start(ExchangeRecorder *recorder, Timeline *timeline) {
  recorder->timeline = timeline;
  TRY(code_exchange_begin_request(&recorder->network, &(CodeExchangeRequest){.number = recorder->network.request.number + 1, .batch = 1}));
  recorder->since = clock_spent();
  return STATUS_OK;
}

static Status exchange_recorder_stop(ExchangeRecorder *recorder) { return note(recorder->timeline, recorder->since); }

static void exchange_recorder_release(ExchangeRecorder *recorder) {
  for (int i = 0; recorder->came && i < recorder->setup.nodes * parts_of(recorder); i++) free(recorder->came[i].packets);
  code_exchange_release(&recorder->network);
  free(recorder->came);
  free(recorder->payloads);
  *recorder = (ExchangeRecorder){0};
}

static Status exchange_recorder_init(ExchangeRecorder *recorder, const CodeExchangeSetup *setup) {
  *recorder = (ExchangeRecorder){.exchange = {.begin = begin, .finish = finish, .whole_rows = setup->whole_rows}, .setup = *setup};
  recorder->exchange.parts = parts_of(recorder);
  recorder->came = calloc((size_t)(setup->nodes * parts_of(recorder)), sizeof *recorder->came);
  if (!recorder->came) return status_set(STATUS_NO_MEMORY, "no memory for packets to measure with");
  Status status = code_exchange_init(&recorder->network, setup);
  if (status == STATUS_OK) status = draw_all(recorder);
  if (status != STATUS_OK) exchange_recorder_release(recorder);
  return status;
}

/* ---- sums and joins: it adds and copies as many numbers as a device of a real collective does (strategy/collective.h); a sum is a
 * reduce-scatter by rows and a join. What "came" is zeroes. */

typedef struct ReduceRecorder {
  Reduce reduce; /* first: give its address to the blocks */
  Timeline *timeline;
  double since; /* when the present stretch of computation began, on this thread's clock */
  real *came;   /* [rows_max, width] */
  real *own;    /* likewise: what leaves */
} ReduceRecorder;

static Status sum(Reduce *self, Tape *tape, int block, int which, Tensor *partial) {
  ReduceRecorder *recorder = (ReduceRecorder *)self;
  const ReduceStep step = {.sum = true, .samples = 1, .rows = tensor_rows(partial), .width = tensor_width(partial)};
  int64_t first = share_even_begin(step.rows, self->devices, self->self) * step.width,
          count = share_even_count(step.rows, self->devices, self->self) * step.width;
  (void)tape;
  memcpy(recorder->own, partial->value, (size_t)tensor_count(partial) * sizeof(real)); /* all rows but its own leave */
  TRY(note(recorder->timeline, recorder->since));
  double begun = clock_spent();
  for (int d = 1; d < self->devices; d++)
    for (int64_t i = 0; i < count; i++) partial->value[first + i] += recorder->came[i];
  TRY(schedule_reduce(recorder->timeline, block, which, self->self, self->devices, &step, clock_spent() - begun));
  recorder->since = clock_spent();
  memcpy(recorder->own, recorder->came, (size_t)tensor_count(partial) * sizeof(real)); /* as many come in from the others */
  return STATUS_OK;
}

static Status gather(Reduce *self, Tape *tape, int block, int which, const Tensor *own, int64_t rows, Tensor **all) {
  ReduceRecorder *recorder = (ReduceRecorder *)self;
  const ReduceStep step = {.samples = own->shape[0], .rows = rows, .width = tensor_width(own)};
  TRY(note(recorder->timeline, recorder->since));
  TRY(schedule_reduce(recorder->timeline, block, which, self->self, self->devices, &step, 0));
  recorder->since = clock_spent();
  *all = tape_tensor(tape, 3, (int64_t[]){step.samples, rows, step.width});
  if (!*all) return tape_status(tape);
  memcpy((*all)->value, recorder->came, (size_t)tensor_count(*all) * sizeof(real));
  memcpy((*all)->value + share_even_begin(rows, self->devices, self->self) * step.width, own->value,
         (size_t)tensor_count(own) * sizeof(real));
  return STATUS_OK;
}

static void reduce_recorder_start(ReduceRecorder *recorder, Timeline *timeline) {
  recorder->timeline = timeline;
  recorder->since = clock_spent();
}

static Status reduce_recorder_stop(ReduceRecorder *recorder) { return note(recorder->timeline, recorder->since); }

static void reduce_recorder_release(ReduceRecorder *recorder) {
  free(recorder->came);
  free(recorder->own);
  *recorder = (ReduceRecorder){0};
}

static Status reduce_recorder_init(ReduceRecorder *recorder, int self, int devices, int64_t rows_max, int64_t width) {
  size_t count = (size_t)(rows_max * width);
  *recorder = (ReduceRecorder){.reduce = {.self = self, .devices = devices, .sum = sum, .gather = gather}};
  recorder->came = calloc(count, sizeof *recorder->came);
  recorder->own = calloc(count, sizeof *recorder->own);
  if (recorder->came && recorder->own) return STATUS_OK;
  reduce_recorder_release(recorder);
  return status_set(STATUS_NO_MEMORY, "no memory for rows to measure with");
}

/* ---- one device */

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
