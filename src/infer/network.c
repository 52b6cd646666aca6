/* Codes between nodes: requests, waiting and memory. What is in a packet is network_codec.c's; how it travels the transport's. */
#include "infer/network.h"
#include "base/clock.h"
#include "infer/transport/packet.h"
#include "vq/pack.h"
#include <stdlib.h>
#include <string.h>

static int parts_of(const NetworkSetup *setup) { return setup->parts > 1 ? setup->parts : 1; }
static int64_t shared_of(const TokenLayout *layout, int node) {
  return node < layout->devices ? layout->device_shared[node + 1] - layout->device_shared[node] : 0;
}
static int64_t max_of(const NetworkSetup *setup, int node) {
  return setup->batch_max * (setup->tokens_max ? setup->tokens_max : shared_of(setup->layout, node));
}
static int64_t max_of_any(const NetworkSetup *setup) {
  int64_t max = 0;
  for (int d = 0; d < setup->nodes; d++) max = max_of(setup, d) > max ? max_of(setup, d) : max;
  return max;
}
static bool has(uint64_t peers, int peer) { return peers >> peer & 1; }

size_t network_group_bytes(int64_t groups, int64_t entries, int64_t tokens, int packets) {
  size_t bytes = 0;
  for (int f = 0; f < packets; f++) bytes += PACKET_HEADER + pack_dense_bytes(interleave_count(tokens, packets, f), groups, entries);
  return bytes;
}

double network_token_bits(const NetworkSetup *setup) {
  if (setup->whole_rows) return 32.0 * (double)setup->width;
  return (double)setup->books[0].groups * pack_bits(setup->books[0].entries);
}

/* Packets of a group end in whole bytes each. */
static size_t payload_max(const NetworkSetup *setup, int64_t tokens) {
  if (setup->whole_rows) return (size_t)tokens * (size_t)setup->width * 4;
  return pack_dense_bytes(tokens, setup->books[0].groups, setup->books[0].entries) + (size_t)(tokens < MAX_PACKETS ? tokens : MAX_PACKETS);
}

void network_transport(const NetworkSetup *setup, TransportSetup *transport) {
  int64_t max = max_of_any(setup);
  transport->self = setup->self;
  transport->nodes = setup->nodes;
  transport->blocks = setup->blocks;
  transport->sites = setup->sites;
  transport->parts = parts_of(setup);
  transport->max_message_bytes = payload_max(setup, max);
  transport->max_packets = (int)(max < MAX_PACKETS ? max : MAX_PACKETS);
  transport->ahead = setup->tokens_max > 0;
}

/* ---- the exchange ---- */

static MessageKey key_of(const Network *net, int block, int site, int part) {
  return (MessageKey){.request = net->request.number, .block = (uint8_t)block, .site = (uint8_t)site, .part = (uint8_t)part};
}

static Status note_fault(Network *net, Status status) {
  if (status != STATUS_OK && net->setup.transport) net->fault = transport_thread_fault(net->setup.transport);
  return status;
}

static Status check_cancelled(const Network *net) {
  return net->cancelled && *net->cancelled ? status_set(STATUS_INTERRUPTED, "the request was cancelled") : STATUS_OK;
}

/* While the transport is waited for. */
static Status look_around(void *context) {
  const Network *net = context;
  if (net->check) TRY(net->check(net->check_context));
  return check_cancelled(net);
}

void network_gone(Network *net, int node) {
  if (net->setup.transport && node != net->setup.self) transport_thread_gone(net->setup.transport, node);
}

uint64_t network_part_senders(const Network *net, int part) {
  const PacketRules *rules = &net->rules[net->request.number & 1];
  uint64_t senders = 0;
  for (int d = 0; d < net->setup.nodes; d++) {
    if (has(net->senders, d) && rules->part_rows[d * rules->parts + part] > 0) senders |= (uint64_t)1 << d;
  }
  return senders;
}

static Status begin_part(Network *net, const TokenLayout *layout, int block, int site, int part, int64_t first, const Tensor *h) {
  const TransportPacket *packets;
  int count;
  if (h->shape[0] != net->request.batch)
    return status_set(STATUS_BAD_VALUE, "a batch of %lld in a request of %lld", (long long)h->shape[0], (long long)net->request.batch);
  if (net->progress && site == 0 && part == 0) net->progress(net->progress_context, block);
  TRY(check_cancelled(net));
  if (!net->receivers) return STATUS_OK;
  MessageKey key = key_of(net, block, site, part);
  double start = clock_now();
  TRY(note_fault(net, transport_thread_reserve(net->setup.transport, key, look_around, net)));
  double reserved = clock_now();
  TRY(network_encode_part(net, layout, block, site, part, first, h, &packets, &count));
  double encoded = clock_now();
  if (count) TRY(note_fault(net, transport_thread_submit(net->setup.transport, key, packets, count, net->receivers)));
  net->statistics.wait += reserved - start;
  net->statistics.quantise += encoded - reserved;
  net->statistics.send += clock_now() - encoded;
  return STATUS_OK;
}

static Status finish_part(Network *net, Tape *tape, const TokenLayout *layout, int block, int site, int part, ExchangeRows *rows) {
  MessageKey key = key_of(net, block, site, part);
  uint64_t senders = network_part_senders(net, part);
  double start = clock_now();
  TRY(note_fault(net, transport_thread_take(net->setup.transport, key, senders, net->arrivals, look_around, net)));
  double arrived = clock_now();
  TRY(network_decode_part(net, tape, layout, block, site, part, net->arrivals, rows));
  transport_thread_done(net->setup.transport, key, senders);
  net->statistics.wait += arrived - start;
  net->statistics.quantise += clock_now() - arrived;
  return STATUS_OK;
}

static Status in_parts(const Network *net) {
  if (net->parts == 1) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "a request whose blocks are cut into %d parts was computed by whole blocks", net->parts);
}

static Status network_begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int site, Tensor *h) {
  Network *net = (Network *)self;
  (void)tape;
  TRY(in_parts(net));
  if (site == 0) net->statistics.parts++;
  return begin_part(net, layout, block, site, 0, 0, h);
}

static Status network_finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int site, Tensor **remote,
                             const uint8_t **lost) {
  Network *net = (Network *)self;
  ExchangeRows rows;
  TRY(in_parts(net));
  const KvTables *keys = net->setup.keys;
  net->setup.keys = NULL; /* rows alone are asked for */
  Status status = finish_part(net, tape, layout, block, site, 0, &rows);
  net->setup.keys = keys;
  TRY(status);
  *remote = rows.x;
  *lost = rows.lost;
  return STATUS_OK;
}

static Status network_finish_rows(Exchange *self, Tape *tape, const TokenLayout *layout, int block, ExchangeRows *rows) {
  Network *net = (Network *)self;
  TRY(in_parts(net));
  return finish_part(net, tape, layout, block, 0, 0, rows);
}

static int parts_count(Exchange *self, const TokenLayout *layout, int64_t batch) {
  (void)layout, (void)batch;
  return ((Network *)self)->parts;
}

static Status parts_begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, int64_t first, int64_t rows,
                          Tensor *const h[2]) {
  Network *net = (Network *)self;
  (void)tape, (void)rows;
  net->statistics.parts++;
  for (int site = 0; site < net->setup.sites; site++) TRY(begin_part(net, layout, block, site, part, first, h[site]));
  return STATUS_OK;
}

static Status parts_finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, ExchangeRows rows[2]) {
  Network *net = (Network *)self;
  for (int site = 0; site < net->setup.sites; site++) TRY(finish_part(net, tape, layout, block, site, part, &rows[site]));
  return STATUS_OK;
}

static const ExchangeParts exchange_parts = {.count = parts_count, .begin = parts_begin, .finish = parts_finish};

/* ---- requests ---- */

static void meet_peers(Network *net) {
  const NetworkSetup *setup = &net->setup;
  net->senders = net->receivers = 0;
  for (int d = 0; d < setup->nodes; d++) {
    if (d == setup->self || shared_of(setup->layout, d) == 0 || setup->layout->rows == 0) continue;
    if (!(setup->causal && d > setup->self)) net->senders |= (uint64_t)1 << d;
    if (!(setup->causal && d < setup->self)) net->receivers |= (uint64_t)1 << d;
  }
}

/* The transport reads the rules of the last request until it has these: they have memory of their own. */
static void make_rules(Network *net) {
  const NetworkSetup *setup = &net->setup;
  int64_t *rows = net->part_rows + (net->request.number & 1) * (unsigned)(setup->nodes * parts_of(setup));
  for (int d = 0; d < setup->nodes; d++) {
    for (int p = 0; p < net->parts; p++) {
      int64_t first, count = 0;
      if (d < setup->layout->devices) layout_part_shared(setup->layout, d, net->parts, p, &first, &count);
      rows[d * net->parts + p] = count;
    }
  }
  net->rules[net->request.number & 1] = (PacketRules){.coded = setup->coding != NULL,
                                                      .nodes = setup->nodes,
                                                      .blocks = setup->blocks,
                                                      .sites = setup->sites,
                                                      .parts = net->parts,
                                                      .width = setup->width,
                                                      .raw = setup->whole_rows,
                                                      .part_rows = rows};
  if (setup->whole_rows) return;
  PacketRules *rules = &net->rules[net->request.number & 1];
  rules->groups = setup->books[0].groups;
  rules->entries = setup->books[0].entries;
  rules->width = setup->books[0].width;
}

static Status check_request(const Network *net, const NetworkRequest *request) {
  if (request->number != net->request.number + 1)
    return status_set(STATUS_BAD_VALUE, "request %u after request %u", request->number, net->request.number);
  if (request->batch < 1 || request->batch > net->setup.batch_max)
    return status_set(STATUS_BAD_VALUE, "a request of %lld samples; 1 to %lld are possible", (long long)request->batch,
                      (long long)net->setup.batch_max);
  if (request->keep && !net->kept) return status_set(STATUS_BAD_VALUE, "codes were asked for, but no room was made for them");
  return STATUS_OK;
}

Status network_begin_request(Network *net, const NetworkRequest *request) {
  TRY(check_request(net, request));
  net->request = *request;
  net->parts = request->batch > 1 || request->whole ? 1 : parts_of(&net->setup);
  net->statistics = (NodeStatistics){0};
  meet_peers(net);
  make_rules(net);
  if (!net->setup.transport) return STATUS_OK;
  return note_fault(net, transport_thread_begin_request(net->setup.transport, request->number, request->batch,
                                                        &net->rules[request->number & 1], net->senders, net->receivers));
}

void network_count(NodeStatistics *s, TransportThread *transport, TransportCounts *before) {
  const TransportCounts now = transport_thread_counts(transport);
  s->bytes_sent = now.bytes_sent - before->bytes_sent;
  s->bytes_received = now.bytes_received - before->bytes_received;
  s->payload_sent = now.payload_sent - before->payload_sent;
  s->messages_sent = now.packets_sent - before->packets_sent;
  s->messages_received = now.packets_received - before->packets_received;
  s->lost = now.lost - before->lost;
  s->late = now.late - before->late;
  s->lost_tokens = now.lost_tokens - before->lost_tokens;
  s->late_tokens = now.late_tokens - before->late_tokens;
  s->resent = now.resent - before->resent;
  s->span = now.span - before->span;
  *before = now;
}

void network_finish_statistics(Network *net) {
  if (net->setup.transport) network_count(&net->statistics, net->setup.transport, &net->before);
}

/* ---- memory ---- */

static size_t kept_bytes(const NetworkSetup *setup, size_t token_bytes) {
  return setup->keep_codes ? (size_t)(setup->blocks * setup->sites) * (size_t)max_of(setup, setup->self) * token_bytes : 0;
}
static size_t group_count(const Network *net) { return (size_t)(net->ring * net->setup.sites * parts_of(&net->setup)); }

size_t network_bytes(const Network *net) {
  const NetworkSetup *setup = &net->setup;
  if (!net->groups) return 0;
  size_t bytes = group_count(net) * (net->group_bytes + (size_t)net->max_packets * sizeof(TransportPacket));
  if (setup->whole_rows) return bytes + transport_thread_bytes(setup->transport);
  size_t max = (size_t)max_of_any(setup), own = (size_t)max_of(setup, setup->self), groups = (size_t)setup->books[0].groups;
  bytes += 2 * max * groups * sizeof(int32_t) + max * net->token_bytes + kept_bytes(setup, net->token_bytes);
  bytes += own * (size_t)setup->books[0].width * sizeof(real) + codebook_assign_scratch(&setup->books[0], (int64_t)own);
  return bytes + transport_thread_bytes(setup->transport);
}

static Status allocate_groups(Network *net) {
  bool memory = (net->groups = calloc(group_count(net), sizeof *net->groups)) != NULL;
  for (size_t i = 0; memory && i < group_count(net); i++) {
    memory = (net->groups[i].bytes = malloc(net->group_bytes)) &&
             (net->groups[i].packets = calloc((size_t)net->max_packets, sizeof(TransportPacket)));
  }
  return memory ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for packets; use a smaller --batch");
}

static Status allocate_losers(Network *net) {
  const NetworkSetup *setup = &net->setup;
  if (!setup->lose) return STATUS_OK;
  net->loss = *setup->lose;
  net->loss.lose_tokens = false; /* here a token is what is lost */
  net->losers = calloc((size_t)setup->nodes, sizeof *net->losers);
  if (!net->losers) return status_set(STATUS_NO_MEMORY, "no memory for %d links", setup->nodes);
  for (int d = 0; d < setup->nodes; d++) link_model_init(&net->losers[d], &net->loss, d, setup->self);
  return STATUS_OK;
}

static bool allocate_codes(Network *net) {
  const NetworkSetup *setup = &net->setup;
  const Codebook *book = &setup->books[0];
  size_t own = (size_t)max_of(setup, setup->self), max = (size_t)max_of_any(setup);
  return (net->gathered = malloc(own * (size_t)book->width * sizeof(real))) &&
         (net->codes = malloc(max * (size_t)book->groups * sizeof(int32_t))) &&
         (net->ordered = malloc(max * (size_t)book->groups * sizeof(int32_t))) && (net->aligned = malloc(max * net->token_bytes)) &&
         (net->scratch = malloc(codebook_assign_scratch(book, (int64_t)own))) &&
         (!setup->keep_codes || (net->kept = malloc(kept_bytes(setup, net->token_bytes))));
}

static Status allocate(Network *net) {
  const NetworkSetup *setup = &net->setup;
  size_t nodes = (size_t)setup->nodes;
  bool memory = (net->part_rows = calloc(2 * nodes * (size_t)parts_of(setup), sizeof *net->part_rows)) &&
                (net->arrivals = calloc(nodes, sizeof *net->arrivals)) && (setup->whole_rows || allocate_codes(net));
  if (!memory)
    return status_set(STATUS_NO_MEMORY, "no memory for codes of %lld samples; use a smaller --batch", (long long)setup->batch_max);
  TRY(allocate_losers(net));
  return allocate_groups(net);
}

/* Room for twice the packets that are needed now, should routes turn out to be narrower. */
static Status choose_packets(Network *net) {
  const NetworkSetup *setup = &net->setup;
  int64_t own = max_of(setup, setup->self);
  size_t max = setup->transport ? transport_thread_max_packet(setup->transport) : setup->max_packet;
  int packets = own ? interleave_packets(own, network_token_bits(setup), max, setup->min_packets) : 1;
  if (!packets)
    return status_set(STATUS_BAD_VALUE, "a batch of %lld makes more than %d packets of %zu bytes; use a smaller --batch",
                      (long long)setup->batch_max, MAX_PACKETS, max);
  net->max_packets = 2 * packets + 8 < MAX_PACKETS ? 2 * packets + 8 : MAX_PACKETS;
  return STATUS_OK;
}

Status network_init(Network *net, const NetworkSetup *setup) {
  *net = (Network){.exchange = {.begin = network_begin, .finish = network_finish}, .setup = *setup, .fault = -1, .parts = 1};
  if (setup->blocks > 255 || setup->sites > PACKET_SITES || parts_of(setup) > MAX_PARTS)
    return status_set(STATUS_UNSUPPORTED, "%d blocks of %d sites in %d parts: packets number at most 255, %d and %d", setup->blocks,
                      setup->sites, parts_of(setup), PACKET_SITES, MAX_PARTS);
  if (setup->whole_rows && (parts_of(setup) > 1 || setup->lose || setup->keep_codes))
    return status_set(STATUS_BAD_VALUE, "whole rows travel in one part, without loss, and have no codes");
  if (parts_of(setup) > 1) net->exchange.parts = &exchange_parts;
  net->exchange.whole_rows = setup->whole_rows;
  if (!setup->whole_rows) net->token_bytes = pack_bytes_per_token(setup->books[0].groups, setup->books[0].entries);
  net->ring = setup->transport ? transport_thread_ring(setup->transport) : 2;
  net->group_bytes = payload_max(setup, max_of(setup, setup->self));
  if (kv_tables_has(setup->keys, 0)) net->exchange.finish_rows = network_finish_rows;
  Status status = choose_packets(net);
  if (status == STATUS_OK) status = allocate(net);
  if (status != STATUS_OK) network_release(net);
  return status;
}

void network_release(Network *net) {
  for (size_t i = 0; net->groups && i < group_count(net); i++) {
    free(net->groups[i].bytes);
    free(net->groups[i].packets);
  }
  free(net->groups);
  free(net->part_rows);
  free(net->arrivals);
  free(net->gathered);
  free(net->codes);
  free(net->ordered);
  free(net->aligned);
  free(net->scratch);
  free(net->kept);
  free(net->losers);
  *net = (Network){.fault = -1};
}
