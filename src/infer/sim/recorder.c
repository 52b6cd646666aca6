/* Noting what is computed between what is sent: see recorder.h. */
#include "infer/sim/recorder.h"
#include "base/clock.h"
#include "base/share.h"
#include "infer/transport/packet.h"
#include "nn/layout.h"
#include "vq/pack.h"
#include <stdlib.h>
#include <string.h>

static int parts_of(const ExchangeRecorder *recorder) { return recorder->setup.parts > 1 ? recorder->setup.parts : 1; }

/* The stretch since the last event. */
static Status note_compute(ExchangeRecorder *recorder) {
  return timeline_add(recorder->timeline, &(Event){.kind = EVENT_COMPUTE, .seconds = clock_spent() - recorder->since});
}

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
    TRY(note_compute(recorder));
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
  TRY(note_compute(recorder));
  for (int site = 0; from != 0 && site < recorder->setup.sites; site++) TRY(schedule_wait(recorder->timeline, block, site, part, from));
  recorder->since = clock_spent();
  for (int site = 0; site < recorder->setup.sites; site++) TRY(take_part(recorder, tape, layout, block, site, part, &rows[site]));
  return STATUS_OK;
}

/* ---- runs */

Status exchange_recorder_start(ExchangeRecorder *recorder, Timeline *timeline) {
  recorder->timeline = timeline;
  TRY(code_exchange_begin_request(&recorder->network, &(CodeExchangeRequest){.number = recorder->network.request.number + 1, .batch = 1}));
  recorder->since = clock_spent();
  return STATUS_OK;
}

Status exchange_recorder_stop(ExchangeRecorder *recorder) { return note_compute(recorder); }

Status exchange_recorder_init(ExchangeRecorder *recorder, const CodeExchangeSetup *setup) {
  *recorder = (ExchangeRecorder){.exchange = {.begin = begin, .finish = finish, .whole_rows = setup->whole_rows}, .setup = *setup};
  recorder->exchange.parts = parts_of(recorder);
  recorder->came = calloc((size_t)(setup->nodes * parts_of(recorder)), sizeof *recorder->came);
  if (!recorder->came) return status_set(STATUS_NO_MEMORY, "no memory for packets to measure with");
  Status status = code_exchange_init(&recorder->network, setup);
  if (status == STATUS_OK) status = draw_all(recorder);
  if (status != STATUS_OK) exchange_recorder_release(recorder);
  return status;
}

void exchange_recorder_release(ExchangeRecorder *recorder) {
  for (int i = 0; recorder->came && i < recorder->setup.nodes * parts_of(recorder); i++) free(recorder->came[i].packets);
  code_exchange_release(&recorder->network);
  free(recorder->came);
  free(recorder->payloads);
  *recorder = (ExchangeRecorder){0};
}

/* ---- sums and joins: a sum is a reduce-scatter by rows and a join ---- */

static Status note_addition(ReduceRecorder *recorder) { return schedule_compute(recorder->timeline, clock_spent() - recorder->since); }

static Status sum(Reduce *self, Tape *tape, int block, int which, Tensor *partial) {
  ReduceRecorder *recorder = (ReduceRecorder *)self;
  const ReduceStep step = {.sum = true, .samples = 1, .rows = tensor_rows(partial), .width = tensor_width(partial)};
  int64_t first = share_even_begin(step.rows, self->devices, self->self) * step.width,
          count = share_even_count(step.rows, self->devices, self->self) * step.width;
  (void)tape;
  memcpy(recorder->own, partial->value, (size_t)tensor_count(partial) * sizeof(real)); /* all rows but its own leave */
  TRY(note_addition(recorder));
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
  TRY(note_addition(recorder));
  TRY(schedule_reduce(recorder->timeline, block, which, self->self, self->devices, &step, 0));
  recorder->since = clock_spent();
  *all = tape_tensor(tape, 3, (int64_t[]){step.samples, rows, step.width});
  if (!*all) return tape_status(tape);
  memcpy((*all)->value, recorder->came, (size_t)tensor_count(*all) * sizeof(real));
  memcpy((*all)->value + share_even_begin(rows, self->devices, self->self) * step.width, own->value,
         (size_t)tensor_count(own) * sizeof(real));
  return STATUS_OK;
}

void reduce_recorder_start(ReduceRecorder *recorder, Timeline *timeline) {
  recorder->timeline = timeline;
  recorder->since = clock_spent();
}

Status reduce_recorder_stop(ReduceRecorder *recorder) { return note_addition(recorder); }

Status reduce_recorder_init(ReduceRecorder *recorder, int self, int devices, int64_t rows_max, int64_t width) {
  size_t count = (size_t)(rows_max * width);
  *recorder = (ReduceRecorder){.reduce = {.self = self, .devices = devices, .sum = sum, .gather = gather}};
  recorder->came = calloc(count, sizeof *recorder->came);
  recorder->own = calloc(count, sizeof *recorder->own);
  if (recorder->came && recorder->own) return STATUS_OK;
  reduce_recorder_release(recorder);
  return status_set(STATUS_NO_MEMORY, "no memory for rows to measure with");
}

void reduce_recorder_release(ReduceRecorder *recorder) {
  free(recorder->came);
  free(recorder->own);
  *recorder = (ReduceRecorder){0};
}
