/* Transports over the backend of backend_memory.h, each in a thread of its own, that send each other blocks of known bytes. */
#ifndef TESTS_TRANSPORT_SIDES_H
#define TESTS_TRANSPORT_SIDES_H
#include "backend_memory.h"
#include "infer/transport/transport_thread.h"
#include <cmocka.h>
#include <stdio.h>

/* Messages of 24 tokens of 2 codes of 8 bits in 6 packets of 4 tokens. */
enum { NODES = 3, BLOCKS = 4, PARTS = 2, TOKENS = 24, PACKETS = 6, EACH = 8, GROUP = PACKETS * EACH, REQUESTS = 5 };

/* In static memory: where an assertion fails, threads of its test go on. */
typedef struct Side {
  int self, nodes;
  MemoryPlace place;
  TransportThread *transport;
  Reliability reliability;
  PacketRules rules;
  int64_t part_rows[NODES];
  TransportPacket packets[2][PACKETS];
  uint8_t bytes[2][GROUP];
  int requests, missing, late, slow /* ms before it sends */;
  uint64_t wrong;
  Status status;
  char problem[256];
} Side;

static inline uint8_t content(int node, uint32_t request, int block, int i) {
  return (uint8_t)(node * 89 + (int)request * 31 + block * 7 + i);
}

static inline void open_masking(Side *side, MemoryWire *wire, int self, int nodes, Reliability reliability, const LinkOptions *links,
                                bool mask) {
  *side = (Side){.self = self, .nodes = nodes, .requests = REQUESTS, .place = {wire, self}, .reliability = reliability};
  for (int d = 0; d < NODES; d++) side->part_rows[d] = TOKENS;
  side->rules =
      (PacketRules){.blocks = BLOCKS, .sites = 1, .parts = 1, .groups = 2, .entries = 256, .width = 8, .part_rows = side->part_rows};
  TransportThreadSetup setup = {.transport.self = self,
                                .transport.nodes = nodes,
                                .open = memory_open,
                                .open_context = &side->place,
                                .transport.blocks = BLOCKS,
                                .transport.sites = 1,
                                .transport.parts = PARTS,
                                .transport.max_message_bytes = GROUP + TOKENS,
                                .transport.max_packets = TOKENS,
                                .transport.reliability = &side->reliability,
                                .transport.links = links,
                                .transport.timeout = reliability.timeout,
                                .transport.mask = mask};
  if (transport_thread_start(&side->transport, &setup) != STATUS_OK) fail_msg("%s", status_message());
}

static inline void open_side(Side *side, MemoryWire *wire, int self, int nodes, Reliability reliability, const LinkOptions *links) {
  open_masking(side, wire, self, nodes, reliability, links, false);
}

static inline uint64_t others(const Side *side) { return (((uint64_t)1 << side->nodes) - 1) & ~((uint64_t)1 << side->self); }

static inline Status send_block(Side *side, MessageKey key) {
  int slot = key.block & 1;
  TRY(transport_thread_reserve(side->transport, key, NULL, NULL));
  for (int i = 0; i < GROUP; i++) side->bytes[slot][i] = content(side->self, key.request, key.block, i);
  for (int f = 0; f < PACKETS; f++)
    side->packets[slot][f] = (TransportPacket){
        .header = {.request = key.request, .block = key.block, .type = PACKET_CODES, .index = (uint16_t)f, .count = PACKETS},
        .payload = side->bytes[slot] + f * EACH,
        .bytes = EACH};
  return transport_thread_submit(side->transport, key, side->packets[slot], PACKETS, others(side));
}

static inline void check_arrival(Side *side, int from, MessageKey key, const TransportArrival *arrival) {
  int missing = 0;
  side->late += arrival->late;
  for (int f = 0; f < arrival->count; f++) {
    const TransportPacket *packet = &arrival->packets[f];
    missing += !packet->payload;
    for (int i = 0; packet->payload && i < EACH; i++)
      side->wrong += packet->bytes != EACH || packet->payload[i] != content(from, key.request, key.block, f * EACH + i);
  }
  side->wrong += missing != arrival->missing || (arrival->count != PACKETS && arrival->count != 0);
  side->missing += arrival->count ? missing : PACKETS;
}

static inline Status run_block(Side *side, MessageKey key) {
  TransportArrival arrivals[NODES];
  if (side->slow) usleep((useconds_t)(1000 * side->slow));
  TRY(send_block(side, key));
  TRY(transport_thread_take(side->transport, key, others(side), arrivals, NULL, NULL));
  for (int d = 0; d < side->nodes; d++) {
    if (d != side->self) check_arrival(side, d, key, &arrivals[d]);
  }
  transport_thread_done(side->transport, key, others(side));
  return STATUS_OK;
}

static inline Status run_requests(Side *side) {
  for (uint32_t request = 1; request <= (uint32_t)side->requests; request++) {
    TRY(transport_thread_begin_request(side->transport, request, 1, &side->rules, others(side), others(side)));
    for (int block = 0; block < BLOCKS; block++) TRY(run_block(side, (MessageKey){.request = request, .block = (uint8_t)block}));
  }
  return STATUS_OK;
}

static inline void *run_side(void *argument) {
  Side *side = argument;
  side->status = run_requests(side);
  snprintf(side->problem, sizeof side->problem, "%s", status_message());
  return NULL;
}

/* All nodes on a wire of their own, which close_sides takes back. */
static inline MemoryWire *open_sides(Side *sides, int nodes, Reliability reliability, const LinkOptions *links, MemoryDecide *decide,
                                     void *context) {
  MemoryWire *wire = memory_wire_new(decide, context, PACKET_HEADER + 2 * EACH);
  for (int i = 0; i < nodes; i++) open_side(&sides[i], wire, i, nodes, reliability, links);
  return wire;
}

/* All sides at once, and all must have come through; none is stopped, so that each answers the others' questions. */
static inline void run_sides(Side *sides, int nodes) {
  pthread_t threads[NODES];
  for (int i = 0; i < nodes; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_side, &sides[i]), 0);
  for (int i = 0; i < nodes; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < nodes; i++) {
    assert_int_equal(sides[i].wrong, 0);
    if (sides[i].status != STATUS_OK) fail_msg("node %d: %s", i, sides[i].problem);
  }
}

static inline void close_sides(Side *sides, int nodes, MemoryWire *wire) {
  for (int i = 0; i < nodes; i++) transport_thread_stop(sides[i].transport);
  memory_wire_free(wire);
}

/* Node 0 of two, by itself, whose request 1 has begun; node 1 is the test. Returns the wire between them, which close_sides takes back. */
static inline MemoryWire *open_alone(Side *side, Reliability reliability, const LinkOptions *links) {
  MemoryWire *wire = memory_wire_new(NULL, NULL, PACKET_HEADER + 2 * EACH);
  open_side(side, wire, 0, 2, reliability, links);
  assert_int_equal(transport_thread_begin_request(side->transport, 1, 1, &side->rules, 2, 2), STATUS_OK);
  return wire;
}

static const Reliability with_deadline = {.mode = RELIABILITY_DEADLINE, .timeout = 20, .min_packets = PACKETS};
static const Reliability with_retransmit = {.mode = RELIABILITY_RETRANSMIT, .timeout = 20, .min_packets = PACKETS};

/* Packets of a peer whom nobody has asked for anything, as it likes: node 1 is this test. */
static inline void push_bytes(MemoryWire *wire, const uint8_t *packet, size_t bytes) {
  pthread_mutex_lock(&wire->lock);
  memory_push(&wire->queue[0][1], packet, bytes);
  pthread_mutex_unlock(&wire->lock);
  (void)!write(wire->event[0], &(uint64_t){1}, sizeof(uint64_t));
}

static inline void push_packet(MemoryWire *wire, Packet header, size_t payload, uint8_t fill) {
  uint8_t packet[MEMORY_BYTES];
  packet_pack(&header, packet);
  memset(packet + PACKET_HEADER, fill, payload);
  push_bytes(wire, packet, PACKET_HEADER + payload);
}

#endif
