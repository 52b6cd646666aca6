/* Sums and gathers: see collective.h. All devices add in the order of their numbers, so that all hold equal bits. */
#include "infer/strategy/collective.h"
#include "base/clock.h"
#include "base/share.h"
#include "infer/transport/packet.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SITE_SCATTER, SITE_JOIN, SITES, NUMBER = 4 /* bytes */ };

/* ---- shares and messages */

/* Numbers in a device's share of all samples. */
static int64_t numbers_of(const ReduceStep *step, int nodes, int node) {
  return step->samples * share_even_count(step->rows, nodes, node) * step->width;
}

static int64_t whole_numbers(const ReduceStep *step) { return step->samples * step->rows * step->width; }

/* PacketRules.message_rows, a row being one number. */
static int64_t message_numbers(const PacketRules *rules, int sender, int block, int site, int part) {
  const CollectivePlan *plan = rules->message_context;
  const ReduceStep *step = &plan->steps[block];
  bool sent = site == SITE_SCATTER ? step->sum && sender != part : sender == part;
  return sent ? numbers_of(step, plan->nodes, part) : 0;
}

static uint64_t others(const Collective *c) { return (((uint64_t)1 << c->setup.nodes) - 1) & ~((uint64_t)1 << c->setup.self); }

static MessageKey key_of(const Collective *c, int site, int part) {
  return (MessageKey){.request = c->request, .block = (uint8_t)c->step, .site = (uint8_t)site, .part = (uint8_t)part};
}

/* Place of a step's messages in memory: the ring has one for each step that can be in flight (transport_thread_reserve). */
static size_t ring_place(const Collective *c) {
  uint64_t sequence = (uint64_t)(c->request - 1) * (uint64_t)c->setup.steps + (uint64_t)c->step;
  return (size_t)(sequence % (uint64_t)c->ring);
}

static Status note_fault(Collective *c, Status status) {
  if (status != STATUS_OK) c->fault = transport_thread_state(c->setup.transport).fault;
  return status;
}

/* ---- sending */

static int packets_for(const Collective *c, int64_t numbers) {
  return interleave_packets(numbers, 8.0 * NUMBER, transport_thread_max_packet(c->setup.transport), 1);
}

/* bytes [4 * numbers], which belong to this step. */
static Status send_rows(Collective *c, MessageKey key, int64_t numbers, const uint8_t *bytes, int lane, uint64_t peers) {
  TransportPacket *packets = c->packets + (ring_place(c) * (size_t)(c->setup.nodes + 1) + (size_t)lane) * (size_t)c->max_packets;
  int count = packets_for(c, numbers);
  if (count == 0 || count > c->max_packets)
    return status_set(STATUS_BAD_VALUE, "%lld numbers make more packets than a group can have; use a smaller --batch or --max-context",
                      (long long)numbers);
  for (int f = 0; f < count; f++) {
    packets[f] = (TransportPacket){.header = {.request = key.request,
                                              .block = key.block,
                                              .site = key.site,
                                              .part = key.part,
                                              .type = PACKET_RAW,
                                              .index = (uint16_t)f,
                                              .count = (uint16_t)count},
                                   .payload = bytes,
                                   .bytes = NUMBER * (size_t)interleave_count(numbers, count, f)};
    bytes += packets[f].bytes;
  }
  return note_fault(c, transport_thread_submit(c->setup.transport, key, packets, count, peers));
}

static Status reserve(Collective *c, MessageKey key) {
  double start = clock_now();
  Status status = note_fault(c, transport_thread_reserve(c->setup.transport, key, c->check, c->check_context));
  c->wait += clock_now() - start;
  return status;
}

/* Sends every other device its rows of a partial tensor, to be added up there: the next device first, as schedule_reduce has it, so that
 * devices that send at once do not all begin with the same one. */
static Status scatter(Collective *c, const ReduceStep *step, const real *partial) {
  uint8_t *bytes = c->scattered + ring_place(c) * c->whole_bytes;
  for (int i = 1; i < c->setup.nodes; i++) {
    int d = (c->setup.self + i) % c->setup.nodes;
    int64_t numbers = numbers_of(step, c->setup.nodes, d), first = share_even_begin(step->rows, c->setup.nodes, d) * step->width;
    MessageKey key = key_of(c, SITE_SCATTER, d);
    if (numbers == 0) continue;
    TRY(reserve(c, key));
    wire_pack_reals(partial + first, (size_t)numbers, bytes + NUMBER * first);
    TRY(send_rows(c, key, numbers, bytes + NUMBER * first, d, (uint64_t)1 << d));
  }
  return STATUS_OK;
}

/* Sends own rows to all others. */
static Status give(Collective *c, const ReduceStep *step, const real *own) {
  uint8_t *bytes = c->joined + ring_place(c) * c->share_bytes;
  int64_t numbers = numbers_of(step, c->setup.nodes, c->setup.self);
  MessageKey key = key_of(c, SITE_JOIN, c->setup.self);
  if (numbers == 0) return STATUS_OK;
  TRY(reserve(c, key));
  wire_pack_reals(own, (size_t)numbers, bytes);
  return send_rows(c, key, numbers, bytes, c->setup.nodes, others(c));
}

/* ---- receiving */

/* Joins the packets of a message. Rows of a peer that is gone cannot be replaced. */
static Status parse(Collective *c, int node, const TransportArrival *arrival, int64_t numbers, real *out) {
  int64_t parsed = 0;
  for (int f = 0; f < arrival->count && arrival->packets[f].payload; f++) {
    int64_t count = (int64_t)(arrival->packets[f].bytes / NUMBER);
    wire_parse_reals(arrival->packets[f].payload, (size_t)count, out + parsed);
    parsed += count;
  }
  int64_t finite = 0;
  while (finite < parsed && isfinite(out[finite])) finite++;
  if (finite == numbers) return STATUS_OK;
  c->fault = node;
  if (parsed == numbers) return status_set(STATUS_BAD_VALUE, "node %d: sent a number that is not finite", node);
  return status_set(STATUS_PEER, "node %d: is gone, and nothing can take the place of its rows", node);
}

/* Messages without numbers are not sent. */
static Status wait_for(Collective *c, MessageKey key, int64_t numbers, uint64_t peers) {
  double start = clock_now();
  if (numbers == 0) return STATUS_OK;
  Status status = note_fault(c, transport_thread_take(c->setup.transport, key, peers, c->arrivals, c->check, c->check_context));
  c->wait += clock_now() - start;
  return status;
}

/* Sums own rows in the order of the devices. */
static Status add_up(Collective *c, const ReduceStep *step, real *partial) {
  int self = c->setup.self;
  int64_t numbers = numbers_of(step, c->setup.nodes, self);
  real *own = partial + share_even_begin(step->rows, c->setup.nodes, self) * step->width;
  MessageKey key = key_of(c, SITE_SCATTER, self);
  TRY(wait_for(c, key, numbers, others(c)));
  if (numbers > 0) memset(c->sum, 0, (size_t)numbers * sizeof *c->sum);
  for (int d = 0; d < c->setup.nodes && numbers > 0; d++) {
    const real *from = d == self ? own : c->came;
    if (d != self) TRY(parse(c, d, &c->arrivals[d], numbers, c->came));
    for (int64_t i = 0; i < numbers; i++) c->sum[i] += from[i];
  }
  memcpy(own, c->sum, (size_t)numbers * sizeof *own);
  transport_thread_done(c->setup.transport, key, others(c));
  return STATUS_OK;
}

/* Receives the rows of the other devices into their places in each sample of all [samples, rows, width]. */
static Status take_others(Collective *c, const ReduceStep *step, real *all) {
  for (int d = 0; d < c->setup.nodes; d++) {
    int64_t each = share_even_count(step->rows, c->setup.nodes, d) * step->width, numbers = step->samples * each;
    int64_t first = share_even_begin(step->rows, c->setup.nodes, d) * step->width;
    MessageKey key = key_of(c, SITE_JOIN, d);
    if (d == c->setup.self) continue;
    TRY(wait_for(c, key, numbers, (uint64_t)1 << d));
    if (numbers > 0) TRY(parse(c, d, &c->arrivals[d], numbers, c->came));
    for (int64_t b = 0; b < step->samples && each > 0; b++)
      memcpy(all + b * step->rows * step->width + first, c->came + b * each, (size_t)each * sizeof *all);
    transport_thread_done(c->setup.transport, key, (uint64_t)1 << d);
  }
  return STATUS_OK;
}

/* ---- nn/exchange.h */

static Status next_step(const Collective *c, const ReduceStep *asked, const ReduceStep **step) {
  *step = &c->plan[c->request & 1].steps[c->step < c->setup.steps ? c->step : 0];
  const ReduceStep *s = *step;
  if (c->step < c->setup.steps && s->sum == asked->sum && s->samples == asked->samples && s->rows == asked->rows &&
      s->width == asked->width)
    return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "step %d of %d over all devices is another one than was said before", c->step, c->setup.steps);
}

static Status sum_over_all(Reduce *self, Tape *tape, int block, int which, Tensor *partial) {
  Collective *c = (Collective *)self;
  const ReduceStep asked = {.sum = true, .samples = 1, .rows = tensor_rows(partial), .width = tensor_width(partial)}, *step;
  (void)tape, (void)block, (void)which;
  TRY(next_step(c, &asked, &step));
  double start = clock_now(), waited = c->wait;
  TRY(scatter(c, step, partial->value));
  c->send += clock_now() - start - (c->wait - waited);
  TRY(add_up(c, step, partial->value));
  start = clock_now(), waited = c->wait;
  TRY(give(c, step, partial->value + share_even_begin(step->rows, c->setup.nodes, c->setup.self) * step->width));
  c->send += clock_now() - start - (c->wait - waited);
  TRY(take_others(c, step, partial->value));
  c->step++;
  return STATUS_OK;
}

static Status gather_all(Reduce *self, Tape *tape, int block, int which, const Tensor *own, int64_t rows, Tensor **all) {
  Collective *c = (Collective *)self;
  const int64_t width = tensor_width(own), mine = own->shape[1], shape[3] = {own->shape[0], rows, width};
  const ReduceStep asked = {.samples = own->shape[0], .rows = rows, .width = width}, *step;
  (void)block, (void)which;
  TRY(next_step(c, &asked, &step));
  if (!(*all = tape_tensor(tape, 3, shape))) return tape_status(tape);
  double start = clock_now(), waited = c->wait;
  TRY(give(c, step, own->value));
  c->send += clock_now() - start - (c->wait - waited);
  int64_t first = share_even_begin(rows, c->setup.nodes, c->setup.self) * width;
  for (int64_t b = 0; b < shape[0] && mine > 0; b++)
    memcpy((*all)->value + b * rows * width + first, own->value + b * mine * width, (size_t)(mine * width) * sizeof(real));
  TRY(take_others(c, step, (*all)->value));
  c->step++;
  return STATUS_OK;
}

/* ---- requests */

Status collective_begin_request(Collective *c, uint32_t request, const ReduceStep *steps) {
  CollectivePlan *plan = &c->plan[request & 1];
  for (int i = 0; i < c->setup.steps; i++) {
    if ((size_t)whole_numbers(&steps[i]) * NUMBER > c->whole_bytes ||
        (size_t)numbers_of(&steps[i], c->setup.nodes, 0) * NUMBER > c->share_bytes)
      return status_set(STATUS_BAD_VALUE, "step %d over all devices is larger than what was agreed on", i);
    plan->steps[i] = steps[i];
  }
  c->request = request;
  c->step = 0;
  c->wait = c->send = 0;
  return note_fault(c, transport_thread_begin_request(c->setup.transport, request, 1, &plan->rules, others(c), others(c)));
}

/* ---- beginning and end */

Status collective_check(const CollectiveSetup *setup) {
  if (setup->nodes <= COLLECTIVE_NODES && setup->steps <= COLLECTIVE_STEPS) return STATUS_OK;
  return status_set(STATUS_UNSUPPORTED, "sums over %d devices, %d in a request: %d and %d are possible", setup->nodes, setup->steps,
                    COLLECTIVE_NODES, COLLECTIVE_STEPS);
}

/* Bytes of the largest share and of the largest tensor. */
static void max_bytes(const CollectiveSetup *setup, size_t *share, size_t *whole) {
  *share = *whole = 0;
  for (int i = 0; i < setup->steps; i++) {
    size_t one = NUMBER * (size_t)numbers_of(&setup->max[i], setup->nodes, 0), all = NUMBER * (size_t)whole_numbers(&setup->max[i]);
    *share = one > *share ? one : *share;
    *whole = all > *whole ? all : *whole;
  }
}

void collective_transport(const CollectiveSetup *setup, TransportSetup *transport) {
  size_t whole;
  transport->self = setup->self;
  transport->nodes = setup->nodes;
  transport->blocks = setup->steps;
  transport->sites = SITES;
  transport->parts = setup->nodes;
  transport->max_packets = MAX_PACKETS;
  max_bytes(setup, &transport->max_message_bytes, &whole);
}

static Status allocate(Collective *c) {
  size_t ring = (size_t)c->ring, numbers = c->share_bytes / NUMBER, steps = (size_t)c->setup.steps;
  bool memory = (c->scattered = malloc(ring * c->whole_bytes + 1)) && (c->joined = malloc(ring * c->share_bytes + 1)) &&
                (c->packets = calloc(ring * (size_t)(c->setup.nodes + 1) * (size_t)c->max_packets, sizeof *c->packets)) &&
                (c->arrivals = calloc((size_t)c->setup.nodes, sizeof *c->arrivals)) && (c->came = malloc(numbers * sizeof(real) + 1)) &&
                (c->sum = malloc(numbers * sizeof(real) + 1));
  for (int i = 0; i < 2 && memory; i++) {
    c->plan[i].nodes = c->setup.nodes;
    c->plan[i].rules = (PacketRules){.blocks = c->setup.steps,
                                     .sites = SITES,
                                     .parts = c->setup.nodes,
                                     .width = 1,
                                     .raw = true,
                                     .message_rows = message_numbers,
                                     .message_context = &c->plan[i]};
    memory = (c->plan[i].steps = calloc(steps + 1, sizeof(ReduceStep))) != NULL;
  }
  return memory ? STATUS_OK
                : status_set(STATUS_NO_MEMORY, "no memory for rows of %d devices; use a smaller --batch or --max-context", c->setup.nodes);
}

Status collective_init(Collective *c, const CollectiveSetup *setup) {
  *c = (Collective){.reduce = {.self = setup->self, .devices = setup->nodes, .sum = sum_over_all, .gather = gather_all},
                    .setup = *setup,
                    .fault = -1,
                    .ring = transport_thread_state(setup->transport).ring};
  TRY(collective_check(setup));
  max_bytes(setup, &c->share_bytes, &c->whole_bytes);
  c->max_packets = c->share_bytes ? packets_for(c, (int64_t)(c->share_bytes / NUMBER)) : 1;
  if (c->max_packets == 0)
    return status_set(STATUS_BAD_VALUE, "%zu bytes of rows make more than %d packets; use a smaller --batch or --max-context",
                      c->share_bytes, MAX_PACKETS);
  Status status = allocate(c);
  if (status != STATUS_OK) collective_release(c);
  return status;
}

void collective_release(Collective *c) {
  for (int i = 0; i < 2; i++) free(c->plan[i].steps);
  free(c->scattered);
  free(c->joined);
  free(c->packets);
  free(c->arrivals);
  free(c->came);
  free(c->sum);
  *c = (Collective){.fault = -1};
}
