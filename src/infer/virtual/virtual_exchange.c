/* Noting what is computed between what is sent. */
#include "infer/virtual/virtual_exchange.h"
#include "base/clock.h"
#include "infer/virtual/strategy_events.h"
#include "infer/wire/interleave.h"
#include "vq/pack.h"
#include <stdlib.h>
#include <string.h>

static int parts_of(const VirtualExchange *virtual) { return virtual->setup.network.parts > 1 ? virtual->setup.network.parts : 1; }

/* The stretch since the last event. */
static Status note_compute(VirtualExchange *virtual) {
  return timeline_add(virtual->timeline, &(Event){.kind = EVENT_COMPUTE, .seconds = clock_spent() - virtual->since});
}

static uint64_t partners(const VirtualExchange *virtual, bool to) {
  const NetworkSetup *setup = &virtual->setup.network;
  uint64_t others = strategy_events_others(setup->self, setup->nodes), before = ((uint64_t)1 << setup->self) - 1;
  if (!setup->causal) return others;
  return to ? others & ~before : others & before;
}

/* ---- codes */

static Status send_codes(VirtualExchange *virtual, const TokenLayout *layout, int block, int site, int part, int64_t first, const Tensor *h,
                         GroupSize *size) {
  const CourierPacket *packets;
  int count;
  TRY(network_encode_part(&virtual->network, layout, block, site, part, first, h, &packets, &count));
  *size = (GroupSize){.packets = (uint32_t)count, .bytes = (uint32_t)count * PACKET_HEADER};
  for (int f = 0; f < count; f++) size->bytes += (uint32_t)packets[f].bytes;
  return STATUS_OK;
}

/* Random codes of a peer's part, as its packets would bring them. */
static void draw_packets(VirtualExchange *virtual, VirtualPart *came, int64_t tokens, int32_t *codes, uint8_t **payload, Rng *rng) {
  const Codebook *book = &virtual->setup.network.books[0];
  for (int f = 0; f < came->count; f++) {
    int64_t count = interleave_count(tokens, came->count, f);
    for (int64_t i = 0; i < count * book->groups; i++) codes[i] = (int32_t)rng_below(rng, (uint64_t)book->entries);
    came->packets[f] = (CourierPacket){.payload = *payload, .bytes = pack_dense_bytes(count, book->groups, book->entries)};
    pack_dense(codes, count, book->groups, book->entries, *payload);
    *payload += came->packets[f].bytes;
  }
}

static int packets_of(const VirtualExchange *virtual, int64_t tokens) {
  const NetworkSetup *setup = &virtual->setup.network;
  const Codebook *book = &setup->books[0];
  int parts = parts_of(virtual);
  return interleave_packets(tokens, (double)book->groups * pack_bits(book->entries), setup->packet_most,
                            (setup->least_packets + parts - 1) / parts);
}

static Status draw_codes(VirtualExchange *virtual) {
  const NetworkSetup *setup = &virtual->setup.network;
  const Codebook *book = &setup->books[0];
  int parts = parts_of(virtual);
  size_t room = pack_dense_bytes(setup->layout->shared, book->groups, book->entries) + (size_t)setup->layout->shared;
  int32_t *codes = malloc((size_t)(setup->layout->shared * book->groups + 1) * sizeof *codes);
  uint8_t *payload = virtual->payloads = malloc(room);
  Rng rng;
  rng_init(&rng, 1, 0);
  Status status = codes && payload ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for codes to measure with");
  for (int i = 0; status == STATUS_OK && i < setup->nodes * parts; i++) {
    VirtualPart *came = &virtual->came[i];
    int64_t first, tokens;
    layout_part_shared(setup->layout, i / parts, parts, i % parts, &first, &tokens);
    came->count = tokens > 0 && i / parts != setup->self ? packets_of(virtual, tokens) : 0;
    came->packets = calloc((size_t)came->count + 1, sizeof *came->packets);
    if (came->packets)
      draw_packets(virtual, came, tokens, codes, &payload, &rng);
    else
      status = status_set(STATUS_NO_MEMORY, "no memory for packets to measure with");
  }
  free(codes);
  return status;
}

static Status take_codes(VirtualExchange *virtual, Tape *tape, const TokenLayout *layout, int block, int site, int part,
                         ExchangeRows *rows) {
  for (int d = 0; d < virtual->setup.network.nodes; d++) {
    const VirtualPart *came = &virtual->came[d * parts_of(virtual) + part];
    virtual->arrivals[d] = (CourierArrival){.packets = came->packets, .count = came->count};
  }
  return network_decode_part(&virtual->network, tape, layout, block, site, part, virtual->arrivals, rows);
}

/* ---- whole rows */

static Status send_rows(VirtualExchange *virtual, const TokenLayout *layout, const Tensor *h, GroupSize *size) {
  size_t bytes = (size_t)tensor_width(h) * sizeof *h->value;
  for (int64_t i = 0; i < layout->shared_rows; i++)
    memcpy(virtual->gather + i * tensor_width(h), h->value + layout->shared_row[i] * tensor_width(h), bytes);
  *size = group_size_stream((double)layout->shared_rows * 4.0 * (double)tensor_width(h));
  return STATUS_OK;
}

static Status take_rows(VirtualExchange *virtual, Tape *tape, const TokenLayout *layout, ExchangeRows *rows) {
  ExchangeRun *run = tape_alloc(tape, sizeof *run);
  Tensor *x = tape_tensor(tape, 3, (int64_t[]){1, layout->remote, virtual->setup.width});
  if (!run || !x) return tape_status(tape);
  memcpy(x->value, virtual->rows, (size_t)(layout->remote * virtual->setup.width) * sizeof *x->value);
  *run = (ExchangeRun){.place = 0, .count = layout->remote};
  *rows = (ExchangeRows){.runs = 1, .run = run, .x = x};
  return STATUS_OK;
}

static Status draw_rows(VirtualExchange *virtual) {
  size_t count = (size_t)(virtual->setup.network.layout->shared * virtual->setup.width) + 1;
  virtual->rows = malloc(count * sizeof *virtual->rows);
  virtual->gather = malloc(count * sizeof *virtual->gather);
  if (!virtual->rows || !virtual->gather) return status_set(STATUS_NO_MEMORY, "no memory for rows to measure with");
  Rng rng;
  rng_init(&rng, 1, 1);
  for (size_t i = 0; i < count; i++) virtual->rows[i] = (real)(2 * rng_uniform(&rng) - 1);
  return STATUS_OK;
}

/* ---- the exchange */

static int count_parts(Exchange *self, const TokenLayout *layout, int64_t batch) {
  (void)layout, (void)batch;
  return parts_of((VirtualExchange *)self);
}

static Status begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, int64_t first, int64_t rows,
                    Tensor *const h[2]) {
  VirtualExchange *virtual = (VirtualExchange *)self;
  uint64_t to = partners(virtual, true);
  (void)tape, (void)rows;
  for (int site = 0; to != 0 && site < virtual->setup.network.sites; site++) {
    GroupSize size;
    TRY(virtual->setup.raw ? send_rows(virtual, layout, h[site], &size)
                           : send_codes(virtual, layout, block, site, part, first, h[site], &size));
    TRY(note_compute(virtual));
    if (size.packets > 0) TRY(strategy_events_send(virtual->timeline, block, site, part, size, to));
    virtual->since = clock_spent();
  }
  return STATUS_OK;
}

/* Nodes that send something of this part. */
static uint64_t senders(const VirtualExchange *virtual, int part) {
  uint64_t from = partners(virtual, false), bits = 0;
  for (int d = 0; d < virtual->setup.network.nodes; d++) {
    int64_t first, count;
    layout_part_shared(virtual->setup.network.layout, d, parts_of(virtual), part, &first, &count);
    if (count > 0) bits |= (uint64_t)1 << d;
  }
  return bits & from;
}

static Status finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, ExchangeRows rows[2]) {
  VirtualExchange *virtual = (VirtualExchange *)self;
  uint64_t from = senders(virtual, part);
  TRY(note_compute(virtual));
  for (int site = 0; from != 0 && site < virtual->setup.network.sites; site++)
    TRY(strategy_events_wait(virtual->timeline, block, site, part, from));
  virtual->since = clock_spent();
  for (int site = 0; site < virtual->setup.network.sites; site++)
    TRY(virtual->setup.raw ? take_rows(virtual, tape, layout, &rows[site])
                           : take_codes(virtual, tape, layout, block, site, part, &rows[site]));
  return STATUS_OK;
}

static const ExchangeParts in_parts = {count_parts, begin, finish};

/* ---- runs */

Status virtual_exchange_start(VirtualExchange *virtual, Timeline *timeline) {
  virtual->timeline = timeline;
  if (!virtual->setup.raw)
    TRY(network_begin_request(&virtual->network, &(NetworkRequest){.number = virtual->network.request.number + 1, .batch = 1}));
  virtual->since = clock_spent();
  return STATUS_OK;
}

Status virtual_exchange_stop(VirtualExchange *virtual) { return note_compute(virtual); }

Status virtual_exchange_init(VirtualExchange *virtual, const VirtualExchangeSetup *setup) {
  *virtual = (VirtualExchange){.exchange = {.parts = &in_parts, .whole_rows = setup->raw}, .setup = *setup};
  if (setup->raw && parts_of(virtual) > 1)
    return status_set(STATUS_BAD_VALUE, "whole rows travel in one part, not in %d", parts_of(virtual));
  virtual->came = calloc((size_t)(setup->network.nodes * parts_of(virtual)), sizeof *virtual->came);
  if (!virtual->came) return status_set(STATUS_NO_MEMORY, "no memory for packets to measure with");
  Status status = setup->raw ? draw_rows(virtual) : network_init(&virtual->network, &setup->network);
  if (status == STATUS_OK && !setup->raw) status = draw_codes(virtual);
  if (status != STATUS_OK) virtual_exchange_release(virtual);
  return status;
}

void virtual_exchange_release(VirtualExchange *virtual) {
  for (int i = 0; virtual->came && i < virtual->setup.network.nodes * parts_of(virtual); i++) free(virtual->came[i].packets);
  network_release(&virtual->network);
  free(virtual->came);
  free(virtual->payloads);
  free(virtual->rows);
  free(virtual->gather);
  *virtual = (VirtualExchange){0};
}
