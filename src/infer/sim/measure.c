/* Recorders, runs of one device with them, their medians, and the simulation of all. */
#include "infer/sim/measure.h"
#include "base/clock.h"
#include "base/order.h"
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
 * nothing is sent or waited for: what would have been is noted in a timeline between the stretches of computation.
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

/* ---- what comes */

static size_t payload_bytes(const ExchangeRecorder *recorder, int64_t tokens) {
  const CodeExchangeSetup *setup = &recorder->setup;
  PacketRules rules = {.raw = setup->whole_rows, .width = setup->width};
  if (!rules.raw) rules.groups = setup->books[0].groups, rules.entries = setup->books[0].entries;
  return packet_payload_bytes(&rules, tokens);
}

/* What one peer's packets would hold of a part of `tokens` tokens: codes, or numbers, drawn at random. codes, row: room for a packet's, or
 * a token's. */
static void draw_packets(ExchangeRecorder *recorder, RecordedPart *came, int64_t tokens, int32_t *codes, real *row, uint8_t **payload,
                         Rng *rng) {
  const CodeExchangeSetup *setup = &recorder->setup;
  const Codebook *book = setup->whole_rows ? NULL : &setup->books[0];
  for (int f = 0; f < came->count; f++) {
    int64_t count = interleave_count(tokens, came->count, f);
    size_t bytes = payload_bytes(recorder, count);
    for (int64_t i = 0; book && i < count * book->groups; i++) codes[i] = (int32_t)rng_below(rng, (uint64_t)book->entries);
    if (book) pack_dense(codes, count, book->groups, book->entries, *payload);
    for (int64_t t = 0; !book && t < count; t++) {
      for (int64_t i = 0; i < setup->width; i++) row[i] = (real)(2 * rng_uniform(rng) - 1);
      wire_pack_reals(row, (size_t)setup->width, *payload + (size_t)(t * setup->width) * sizeof(float));
    }
    came->packets[f] = (TransportPacket){.payload = *payload, .bytes = bytes};
    *payload += bytes;
  }
}

static Status draw_all(ExchangeRecorder *recorder) {
  const CodeExchangeSetup *setup = &recorder->setup;
  const int parts = parts_of(recorder), min = interleave_min(setup->min_packets, parts);
  int64_t shared = setup->layout->shared, groups = setup->whole_rows ? 0 : setup->books[0].groups;
  int32_t *codes = malloc((size_t)(shared * groups + 1) * sizeof *codes);
  real *row = malloc((size_t)(setup->width + 1) * sizeof *row);
  uint8_t *payload = recorder->payloads =
      malloc(payload_bytes(recorder, shared) + (size_t)shared); /* a byte more for each packet's codes */
  bool memory = codes && row && payload;
  Rng rng;
  rng_init(&rng, 1, 0);
  for (int i = 0; memory && i < setup->nodes * parts; i++) {
    RecordedPart *came = &recorder->came[i];
    int64_t first, tokens;
    layout_part_shared(setup->layout, i / parts, parts, i % parts, &first, &tokens);
    if (tokens > 0 && i / parts != setup->self)
      came->count = interleave_packets(tokens, recorder->network.token_bits, setup->max_packet, min);
    memory = (came->packets = calloc((size_t)came->count + 1, sizeof *came->packets)) != NULL;
    if (memory) draw_packets(recorder, came, tokens, codes, row, &payload, &rng);
  }
  free(codes);
  free(row);
  return memory ? STATUS_OK : status_no_memory(NULL, "packets to measure with");
}

/* ---- the exchange */

static void hand_on_predictor(ExchangeRecorder *recorder) {
  for (int i = 0; i < EXCHANGE_SITES; i++) {
    recorder->network.exchange.predict_weight[i] = recorder->exchange.predict_weight[i];
    recorder->network.exchange.predict_bias[i] = recorder->exchange.predict_bias[i];
  }
}

static Status know(Exchange *self, Tape *tape, const TokenLayout *layout, int part, Tensor *own, Tensor *remote) {
  ExchangeRecorder *recorder = (ExchangeRecorder *)self;
  return recorder->network.exchange.know(&recorder->network.exchange, tape, layout, part, own, remote);
}

static Status begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  ExchangeRecorder *recorder = (ExchangeRecorder *)self;
  uint64_t to = partners(recorder, true);
  hand_on_predictor(recorder);
  for (int site = 0; to != 0 && site < recorder->setup.sites; site++) {
    const TransportPacket *packets;
    int count;
    uint32_t bytes = 0;
    TRY(code_exchange_encode_part(&recorder->network, tape, layout, block, site, part, h[site], &packets, &count));
    for (int f = 0; f < count; f++) bytes += (uint32_t)packets[f].bytes;
    /* Codes are sent in their packets, rows in a stream, which knows none. */
    MessageSize size = {.packets = (uint32_t)count, .bytes = (uint32_t)count * PACKET_HEADER + bytes};
    if (recorder->setup.whole_rows) size = schedule_stream(bytes);
    TRY(note(recorder->timeline, recorder->since));
    if (size.packets > 0) TRY(schedule_send(recorder->timeline, block, site, part, size, to));
    recorder->since = clock_spent();
  }
  return STATUS_OK;
}

static Status finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, ExchangeRows rows[EXCHANGE_SITES]) {
  ExchangeRecorder *recorder = (ExchangeRecorder *)self;
  uint64_t from = 0; /* the nodes that send something of this part */
  for (int d = 0; d < recorder->setup.nodes; d++) {
    int64_t first, count;
    layout_part_shared(recorder->setup.layout, d, parts_of(recorder), part, &first, &count);
    if (count > 0) from |= (uint64_t)1 << d;
  }
  from &= partners(recorder, false);
  hand_on_predictor(recorder);
  TRY(note(recorder->timeline, recorder->since));
  for (int site = 0; from != 0 && site < recorder->setup.sites; site++) TRY(schedule_wait(recorder->timeline, block, site, part, from));
  recorder->since = clock_spent();
  for (int site = 0; site < recorder->setup.sites; site++) {
    for (int d = 0; d < recorder->setup.nodes; d++) {
      const RecordedPart *came = &recorder->came[d * parts_of(recorder) + part];
      recorder->arrivals[d] = (TransportArrival){.packets = came->packets, .count = came->count};
    }
    TRY(code_exchange_decode_part(&recorder->network, tape, layout, block, site, part, recorder->arrivals, &rows[site]));
  }
  return STATUS_OK;
}

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
  recorder->exchange.know = setup->first ? know : NULL;
  recorder->came = calloc((size_t)(setup->nodes * parts_of(recorder)), sizeof *recorder->came);
  if (!recorder->came) return status_no_memory(NULL, "packets to measure with");
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
  real *came;   /* [rows of the largest step, width] */
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

/* ---- one device */

typedef struct Measurement {
  const Weights *weights;
  const DeviceCase *device;
  TokenLayout layout;
  ExchangeRecorder exchange; /* tokens divided */
  ReduceRecorder reduce;     /* heads and columns divided */
  bool alone;                /* no other device to exchange with */
  bool by_heads;
  Arena *arena;
  Tape *tape;
  real *rows;   /* [S, D] the input */
  int32_t *ids; /* of a text [T]: zeros, for the others' tokens where they are known (AstraConfig.exact_first) */
} Measurement;

/* The device's rows, and who it exchanges what with. */
static Status open_exchange(Measurement *m) {
  const ModelConfig *config = m->weights->config;
  const DeviceCase *device = m->device;
  bool whole = device->strategy == STRATEGY_SP;
  ClassToken class_token = config_is_decoder(config) ? CLASS_NONE : whole ? CLASS_SINGLE : config->astra.class_token;
  m->alone = device->strategy == STRATEGY_SINGLE || device->devices == 1;
  m->by_heads = !m->alone && !strategy_facts(device->strategy)->divides_tokens;
  if (m->alone) return layout_build_plain(&m->layout, device->tokens, class_token);
  if (m->by_heads) {
    TRY(layout_build_plain(&m->layout, device->tokens, class_token));
    size_t count = (size_t)(m->layout.rows * config->width);
    m->reduce.reduce = (Reduce){.self = device->self, .devices = device->devices, .sum = sum, .gather = gather};
    m->reduce.came = calloc(count, sizeof *m->reduce.came);
    m->reduce.own = calloc(count, sizeof *m->reduce.own);
    if (m->reduce.came && m->reduce.own) return STATUS_OK;
    return status_no_memory(NULL, "rows to measure with");
  }
  TRY(layout_build(&m->layout, device->tokens, device->devices, device->counts, NULL, class_token, device->self));
  size_t all = (size_t)(m->layout.shared * config_whole_width(config)) * sizeof(float); /* a stream takes a packet of any size */
  CodeExchangeSetup setup = code_exchange_setup_of(config, whole);
  setup.self = device->self;
  setup.nodes = device->devices;
  setup.layout = &m->layout;
  setup.books = device->books ? device->books : m->weights->books;
  setup.parts = device->parts;
  setup.batch_max = 1;
  setup.min_packets = device->min_packets;
  setup.keys = whole ? NULL : device->tables;
  setup.causal = config_is_decoder(config);
  setup.max_packet = whole ? all : SCHEDULE_PACKET_MAX - PACKET_HEADER;
  return exchange_recorder_init(&m->exchange, &setup);
}

static Status open_measurement(Measurement *m) {
  TRY(open_exchange(m));
  int64_t count = m->layout.rows * m->weights->config->width;
  m->arena = m->device->arena ? m->device->arena : arena_new(ARENA_BYTES);
  m->tape = m->arena ? tape_new(m->arena) : NULL;
  if (m->tape) tape_use_bf16(m->tape, m->weights->bf16);
  m->rows = malloc((size_t)count * sizeof *m->rows);
  if (!m->tape || !m->rows)
    return status_set(STATUS_NO_MEMORY, "no memory to measure a device with %lld tokens", (long long)m->layout.rows);
  tape_record(m->tape, false);
  if (config_is_decoder(m->weights->config) && !(m->ids = calloc((size_t)m->layout.tokens, sizeof *m->ids)))
    return status_set(STATUS_NO_MEMORY, "no memory for the ids of %lld tokens", (long long)m->layout.tokens);
  Rng rng;
  rng_init(&rng, 2, (uint64_t)m->device->self);
  for (int64_t i = 0; i < count; i++) m->rows[i] = (real)(2 * rng_uniform(&rng) - 1);
  return STATUS_OK;
}

/* ---- one run */

/* *share: of a core that the run had. */
static Status run(Measurement *m, Timeline *timeline, double *share) {
  const double wall = clock_now(), processor = clock_spent();
  const ModelInput input = {
      .rows = tape_constant(m->tape, 3, (int64_t[]){1, m->layout.rows, m->weights->config->width}, m->rows), .ids = m->ids, .batch = 1};
  CodeExchange *network = &m->exchange.network;
  Status status = STATUS_OK;
  if (!m->alone && !m->by_heads)
    status = code_exchange_begin_request(network, &(CodeExchangeRequest){.number = network->request.number + 1, .batch = 1});
  m->exchange.timeline = m->reduce.timeline = timeline;
  m->exchange.since = m->reduce.since = clock_spent();
  if (status == STATUS_OK && m->by_heads) {
    const TensorParallel how = {.strategy = m->device->strategy, .retained = m->device->retained, .reduce = &m->reduce.reduce};
    tensor_parallel_encode(m->weights->model, m->tape, &input, &m->layout, &how, m->device->rows);
  } else if (status == STATUS_OK) {
    model_encode(m->weights->model, m->tape, &input, &m->layout, m->alone ? NULL : &m->exchange.exchange, m->device->rows);
  }
  if (status == STATUS_OK) status = tape_status(m->tape);
  if (status == STATUS_OK) status = note(timeline, m->by_heads ? m->reduce.since : m->exchange.since);
  *share = (clock_spent() - processor) / (clock_now() - wall);
  tape_clear(m->tape);
  return status;
}

/* ---- many runs */

/* All runs have the same events; each stretch's median becomes the first one's, their sum the median of the runs' sums. */
static Status take_medians(Timeline *runs, int count, MeasureQuality *quality) {
  double values[REPEATS_MAX];
  for (int r = 0; r < count; r++) values[r] = timeline_seconds(&runs[r]);
  double middle = order_median(values, (size_t)count);
  quality->spread = middle > 0 ? (values[count - 1] - values[0]) / middle : 0;
  for (int i = 0; i < runs[0].count; i++) {
    for (int r = 0; r < count; r++) {
      if (runs[r].count != runs[0].count) return status_set(STATUS_BAD_VALUE, "two runs of one device differ in what they send");
      values[r] = runs[r].list[i].seconds;
    }
    runs[0].list[i].seconds = order_median(values, (size_t)count);
  }
  /* Medians of many short stretches do not sum up to that of the sums, and a device alone has but one. */
  double total = timeline_seconds(&runs[0]);
  for (int i = 0; i < runs[0].count && total > 0; i++) runs[0].list[i].seconds *= middle / total;
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
  exchange_recorder_release(&m.exchange);
  free(m.reduce.came);
  free(m.reduce.own);
  layout_release(&m.layout);
  tape_free(m.tape);
  if (!device->arena) arena_free(m.arena);
  free(m.rows);
  free(m.ids);
  return status;
}

/* ---- all devices */

Status measure_latency(const MeasuredCase *wanted, SimResult *result) {
  Timeline timelines[WIRE_NODES] = {0}, worked[WIRE_NODES] = {0};
  const bool datagrams =
      strategy_facts(wanted->device.strategy)->sends_codes && wanted->reliability && wanted->reliability->mode != RELIABILITY_STREAM;
  const int devices = wanted->device.devices;
  const SimOptions options = {.reliability = wanted->reliability, .ends = wanted->ends, .scale = wanted->scale};
  Status status = STATUS_OK;
  for (int d = 0; d < devices && status == STATUS_OK; d++) {
    DeviceCase device = wanted->device;
    device.self = d;
    status = measure_timeline(&timelines[d], wanted->weights, &device, wanted->repeats, NULL);
  }
  if (status == STATUS_OK && wanted->work) status = packet_work_add(wanted->work, timelines, devices, datagrams, worked);
  if (status == STATUS_OK)
    status = simulate_request(wanted->work ? worked : timelines, devices, datagrams, wanted->links, &options, result);
  for (int d = 0; d < WIRE_NODES; d++) timeline_release(&timelines[d]), timeline_release(&worked[d]);
  return status;
}
