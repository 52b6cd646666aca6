/* Noting what is computed between what is sent. */
#include "infer/virtual/virtual_exchange.h"
#include "base/clock.h"
#include "infer/sim/schedule.h"
#include "infer/transport/packet.h"
#include "vq/pack.h"
#include <stdlib.h>

static int parts_of(const VirtualExchange *virtual) { return virtual->setup.parts > 1 ? virtual->setup.parts : 1; }

/* The stretch since the last event. */
static Status note_compute(VirtualExchange *virtual) {
  return timeline_add(virtual->timeline, &(Event){.kind = EVENT_COMPUTE, .seconds = clock_spent() - virtual->since});
}

static uint64_t partners(const VirtualExchange *virtual, bool to) {
  const NetworkSetup *setup = &virtual->setup;
  uint64_t others = schedule_others(setup->self, setup->nodes), before = ((uint64_t)1 << setup->self) - 1;
  if (!setup->causal) return others;
  return to ? others & ~before : others & before;
}

/* ---- what leaves */

/* Codes in their packets; rows in a stream, which knows none. */
static MessageSize size_of(const VirtualExchange *virtual, const TransportPacket *packets, int count) {
  uint32_t bytes = 0;
  for (int f = 0; f < count; f++) bytes += (uint32_t)packets[f].bytes;
  if (virtual->setup.whole_rows) return schedule_stream(bytes);
  return (MessageSize){.packets = (uint32_t)count, .bytes = (uint32_t)count * PACKET_HEADER + bytes};
}

static Status send_part(VirtualExchange *virtual, const TokenLayout *layout, int block, int site, int part, int64_t first, const Tensor *h,
                        MessageSize *size) {
  const TransportPacket *packets;
  int count;
  TRY(network_encode_part(&virtual->network, layout, block, site, part, first, h, &packets, &count));
  *size = size_of(virtual, packets, count);
  return STATUS_OK;
}

/* ---- what comes */

static size_t payload_bytes(const VirtualExchange *virtual, int64_t tokens) {
  const NetworkSetup *setup = &virtual->setup;
  if (setup->whole_rows) return (size_t)(tokens * setup->width) * sizeof(float);
  return pack_dense_bytes(tokens, setup->books[0].groups, setup->books[0].entries);
}

/* Random codes, or numbers, of so many tokens. codes: room for theirs. */
static void draw_payload(const VirtualExchange *virtual, int64_t tokens, int32_t *codes, real *row, uint8_t *payload, Rng *rng) {
  const NetworkSetup *setup = &virtual->setup;
  const Codebook *book = setup->whole_rows ? NULL : &setup->books[0];
  for (int64_t i = 0; book && i < tokens * book->groups; i++) codes[i] = (int32_t)rng_below(rng, (uint64_t)book->entries);
  if (book) pack_dense(codes, tokens, book->groups, book->entries, payload);
  for (int64_t t = 0; !book && t < tokens; t++, payload += (size_t)setup->width * sizeof(float)) {
    for (int64_t i = 0; i < setup->width; i++) row[i] = (real)(2 * rng_uniform(rng) - 1);
    wire_pack_reals(row, (size_t)setup->width, payload);
  }
}

/* A peer's part, as its packets would bring it. */
static void draw_packets(VirtualExchange *virtual, VirtualPart *came, int64_t tokens, int32_t *codes, real *row, uint8_t **payload,
                         Rng *rng) {
  for (int f = 0; f < came->count; f++) {
    int64_t count = interleave_count(tokens, came->count, f);
    draw_payload(virtual, count, codes, row, *payload, rng);
    came->packets[f] = (TransportPacket){.payload = *payload, .bytes = payload_bytes(virtual, count)};
    *payload += came->packets[f].bytes;
  }
}

static int packets_of(const VirtualExchange *virtual, int64_t tokens) {
  const NetworkSetup *setup = &virtual->setup;
  int parts = parts_of(virtual);
  return interleave_packets(tokens, network_token_bits(setup), setup->max_packet, interleave_least(setup->least_packets, parts));
}

static Status draw_parts(VirtualExchange *virtual, int32_t *codes, real *row) {
  const NetworkSetup *setup = &virtual->setup;
  int parts = parts_of(virtual);
  uint8_t *payload = virtual->payloads;
  Rng rng;
  rng_init(&rng, 1, 0);
  for (int i = 0; i < setup->nodes * parts; i++) {
    VirtualPart *came = &virtual->came[i];
    int64_t first, tokens;
    layout_part_shared(setup->layout, i / parts, parts, i % parts, &first, &tokens);
    came->count = tokens > 0 && i / parts != setup->self ? packets_of(virtual, tokens) : 0;
    came->packets = calloc((size_t)came->count + 1, sizeof *came->packets);
    if (!came->packets) return status_set(STATUS_NO_MEMORY, "no memory for packets to measure with");
    draw_packets(virtual, came, tokens, codes, row, &payload, &rng);
  }
  return STATUS_OK;
}

static Status draw_all(VirtualExchange *virtual) {
  const NetworkSetup *setup = &virtual->setup;
  int64_t shared = setup->layout->shared, groups = setup->whole_rows ? 0 : setup->books[0].groups;
  int32_t *codes = malloc((size_t)(shared * groups + 1) * sizeof *codes);
  real *row = malloc((size_t)(setup->width + 1) * sizeof *row);
  virtual->payloads = malloc(payload_bytes(virtual, shared) + (size_t)shared); /* a byte more for each packet's last codes */
  Status status = codes && row && virtual->payloads ? draw_parts(virtual, codes, row)
                                                    : status_set(STATUS_NO_MEMORY, "no memory for packets to measure with");
  free(codes);
  free(row);
  return status;
}

static Status take_part(VirtualExchange *virtual, Tape *tape, const TokenLayout *layout, int block, int site, int part,
                        ExchangeRows *rows) {
  for (int d = 0; d < virtual->setup.nodes; d++) {
    const VirtualPart *came = &virtual->came[d * parts_of(virtual) + part];
    virtual->arrivals[d] = (TransportArrival){.packets = came->packets, .count = came->count};
  }
  return network_decode_part(&virtual->network, tape, layout, block, site, part, virtual->arrivals, rows);
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
  for (int site = 0; to != 0 && site < virtual->setup.sites; site++) {
    MessageSize size;
    TRY(send_part(virtual, layout, block, site, part, first, h[site], &size));
    TRY(note_compute(virtual));
    if (size.packets > 0) TRY(schedule_send(virtual->timeline, block, site, part, size, to));
    virtual->since = clock_spent();
  }
  return STATUS_OK;
}

/* Nodes that send something of this part. */
static uint64_t senders(const VirtualExchange *virtual, int part) {
  uint64_t from = partners(virtual, false), bits = 0;
  for (int d = 0; d < virtual->setup.nodes; d++) {
    int64_t first, count;
    layout_part_shared(virtual->setup.layout, d, parts_of(virtual), part, &first, &count);
    if (count > 0) bits |= (uint64_t)1 << d;
  }
  return bits & from;
}

static Status finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, ExchangeRows rows[2]) {
  VirtualExchange *virtual = (VirtualExchange *)self;
  uint64_t from = senders(virtual, part);
  TRY(note_compute(virtual));
  for (int site = 0; from != 0 && site < virtual->setup.sites; site++) TRY(schedule_wait(virtual->timeline, block, site, part, from));
  virtual->since = clock_spent();
  for (int site = 0; site < virtual->setup.sites; site++) TRY(take_part(virtual, tape, layout, block, site, part, &rows[site]));
  return STATUS_OK;
}

static const ExchangeParts in_parts = {count_parts, begin, finish};

/* ---- runs */

Status virtual_exchange_start(VirtualExchange *virtual, Timeline *timeline) {
  virtual->timeline = timeline;
  TRY(network_begin_request(&virtual->network, &(NetworkRequest){.number = virtual->network.request.number + 1, .batch = 1}));
  virtual->since = clock_spent();
  return STATUS_OK;
}

Status virtual_exchange_stop(VirtualExchange *virtual) { return note_compute(virtual); }

Status virtual_exchange_init(VirtualExchange *virtual, const NetworkSetup *setup) {
  *virtual = (VirtualExchange){.exchange = {.parts = &in_parts, .whole_rows = setup->whole_rows}, .setup = *setup};
  virtual->came = calloc((size_t)(setup->nodes * parts_of(virtual)), sizeof *virtual->came);
  if (!virtual->came) return status_set(STATUS_NO_MEMORY, "no memory for packets to measure with");
  Status status = network_init(&virtual->network, setup);
  if (status == STATUS_OK) status = draw_all(virtual);
  if (status != STATUS_OK) virtual_exchange_release(virtual);
  return status;
}

void virtual_exchange_release(VirtualExchange *virtual) {
  for (int i = 0; virtual->came && i < virtual->setup.nodes * parts_of(virtual); i++) free(virtual->came[i].packets);
  network_release(&virtual->network);
  free(virtual->came);
  free(virtual->payloads);
  *virtual = (VirtualExchange){0};
}
