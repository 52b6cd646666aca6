/* Fuzz target: the transport, through its one input. The first two bytes choose the policy, what carries the packets, and simulated links;
 * then come records: a byte that says what happens, a length, bytes. Packets come as they are, as datagrams of anybody, or sealed by a peer
 * that has the key and keeps to nothing; time passes; the peer is gone; it takes nothing for a while. Node 0 of two goes through two
 * requests meanwhile. Holds: nothing is read or written past its buffers; bytes that were not sealed never come through; what leaves keeps
 * the rules; every message is decided, at a time that was announced; memory comes back. */
#include "infer/transport/seal.h"
#include "infer/transport/transport.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BLOCKS = 2, TOKENS = 9, MAX = 128, STEPS = 20000 };

static void need(bool holds) {
  if (!holds) abort();
}

typedef struct Script {
  const uint8_t *data;
  size_t size, at;
  DatagramSender sender;
  DatagramReceiver receiver;
  Transport *transport;
  const PacketRules *rules;
  double now;
  uint64_t blocked;
} Script;

/* In a buffer of exact size, so that a sanitizer sees one byte too many. */
static void put_in(Script *s, const uint8_t *packet, size_t bytes) {
  uint8_t *copy = malloc(bytes ? bytes : 1);
  need(copy != NULL);
  memcpy(copy, packet, bytes);
  transport_input(s->transport, 1, copy, bytes, s->now);
  free(copy);
}

static void put_in_datagram(Script *s, uint8_t *datagram, size_t size, bool honest) {
  size_t bytes;
  if (datagram_sender(datagram, size) < 0) return;
  const uint8_t *packet = datagram_open(&s->receiver, datagram, size, &bytes);
  need(honest || !packet);
  if (packet) put_in(s, packet, bytes);
}

static void put_in_sealed(Script *s, const uint8_t *from, size_t bytes, bool twice) {
  uint8_t datagram[MAX + DATAGRAM_AROUND], again[MAX + DATAGRAM_AROUND];
  need(datagram_close(&s->sender, from, bytes, datagram) == STATUS_OK);
  memcpy(again, datagram, bytes + DATAGRAM_AROUND);
  put_in_datagram(s, datagram, bytes + DATAGRAM_AROUND, true);
  if (twice) put_in_datagram(s, again, bytes + DATAGRAM_AROUND, false);
}

/* What is due leaves, and keeps the rules that the other one would look at. */
static void let_leave(Script *s) {
  TransportOutput out;
  while (transport_output(s->transport, s->now, s->blocked, &out)) {
    Packet packet;
    need(out.peer == 1 && out.bytes >= PACKET_HEADER && out.bytes <= MAX);
    packet_read(out.packet, &packet);
    need(packet.type < PACKET_TYPES && packet.request > 0);
    if (packet.type == PACKET_CODES) need(packet_parse(out.packet, out.bytes, 0, 1, s->rules, &packet) == STATUS_OK);
    transport_sent(s->transport, 1);
  }
}

/* The next record; false: there is none. */
static bool next_record(Script *s) {
  uint8_t datagram[MAX];
  if (s->at + 2 > s->size) return false;
  uint8_t what = s->data[s->at] % 8;
  size_t bytes = s->data[s->at + 1] % MAX;
  s->at += 2;
  s->blocked = 0;
  if (what >= 5) { /* bytes is a number here */
    if (what == 5) s->now += 1e-4 * (double)bytes;
    if (what == 6) s->blocked = 2;
    if (what == 7) transport_leave(s->transport, 1);
    return true;
  }
  if (bytes > s->size - s->at) bytes = s->size - s->at;
  const uint8_t *from = s->data + s->at;
  s->at += bytes;
  if (what == 0) {
    memcpy(datagram, from, bytes);
    put_in_datagram(s, datagram, bytes, false);
  } else if (what <= 2) {
    put_in_sealed(s, from, bytes, what == 2);
  } else {
    put_in(s, from, bytes);
  }
  return true;
}

/* Something happens: a record, or else time passes until `again`. */
static void go_on(Script *s, double again) {
  transport_caught_up(s->transport, s->now);
  let_leave(s);
  if (next_record(s)) return;
  s->blocked = 0;
  double next = fmin(again, transport_deadline(s->transport, 0));
  need(next < s->now + 60); /* it is known when to look again */
  s->now = fmax(s->now + 1e-9, next);
}

static void look_at(const TransportArrival *arrival) {
  for (int f = 0; f < arrival->count; f++) {
    const TransportPacket *came = &arrival->packets[f];
    uint8_t copy[2 * TOKENS]; /* a sanitizer is to see every byte */
    need(came->bytes <= sizeof copy);
    if (came->payload) memcpy(copy, came->payload, came->bytes);
    need(!came->payload || memcmp(copy, came->payload, came->bytes) == 0);
  }
}

static Status run_block(Script *s, MessageKey key, const TransportPacket *packets, int count) {
  TransportArrival arrivals[2];
  int holds_up, steps = 0;
  double again;
  while (transport_reserve(s->transport, key, &holds_up) > 0) {
    go_on(s, s->now + 1e-3);
    need(++steps < STEPS);
  }
  TRY(transport_submit(s->transport, key, packets, count, 2, s->now));
  Expected expected = transport_expect(s->transport, key, 2, s->now);
  for (;;) {
    TRY(transport_take(s->transport, &expected, s->now, arrivals, &again));
    if (!expected.undecided) break;
    go_on(s, again);
    need(++steps < STEPS);
  }
  look_at(&arrivals[1]);
  transport_done(s->transport, key, 2);
  return STATUS_OK;
}

static void run(Script *s) {
  static uint8_t payload[2 * TOKENS];
  static TransportPacket packets[2 * BLOCKS][2];
  Status status = STATUS_OK;
  for (uint32_t request = 1; request <= 2 && status == STATUS_OK; request++) {
    transport_begin_request(s->transport, request, 1, s->rules, 2, 2);
    for (int block = 0; block < BLOCKS && status == STATUS_OK; block++) {
      MessageKey key = {.request = request, .block = (uint8_t)block};
      TransportPacket *own = packets[(request - 1) * BLOCKS + (unsigned)block];
      for (int f = 0; f < 2; f++)
        own[f] = (TransportPacket){.header = {.request = request, .block = key.block, .index = (uint16_t)f, .count = 2},
                                   .payload = payload,
                                   .bytes = 2 * (size_t)interleave_count(TOKENS, 2, f)};
      status = run_block(s, key, own, 2);
    }
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const uint8_t key[SEAL_KEY + SEAL_IV] = {1, 2, 3};
  static const int64_t part_rows[2] = {TOKENS, TOKENS};
  if (size < 2) return 0;
  const uint8_t how = data[0], link = data[1];
  const PacketRules rules = {.nodes = 2,
                             .blocks = BLOCKS,
                             .sites = 1,
                             .parts = 1,
                             .groups = 2,
                             .entries = 256,
                             .width = 4,
                             .part_rows = part_rows,
                             .coded = how & 4};
  const bool ordered = how & 8;
  const Reliability reliability = {.mode = ordered   ? RELIABILITY_STREAM
                                           : how & 1 ? RELIABILITY_RETRANSMIT
                                                     : RELIABILITY_DEADLINE,
                                   .deadline = !ordered && !(how & 1) && how & 2 ? 5e-3 : 0,
                                   .timeout = 0.5};
  const LinkOptions links = {.bits_per_second = 1e4 * (link & 15),
                             .latency = 1e-3 * (link >> 4 & 3),
                             .loss = link & 64 ? 0.3 : 0,
                             .topology = link & 128 ? LINK_SWITCH : LINK_MESH,
                             .seed = 1};
  Script script = {.data = data, .size = size > 2048 ? 2048 : size, .at = 2, .sender = {.self = 1}, .rules = &rules, .now = 1};
  const TransportSetup setup = {.nodes = 2,
                                .blocks = BLOCKS,
                                .sites = 1,
                                .parts = 1,
                                .max_message_bytes = 2 * TOKENS,
                                .max_packets = TOKENS,
                                .ahead = how & 16,
                                .reliability = &reliability,
                                .links = link ? &links : NULL,
                                .timeout = reliability.timeout,
                                .mask = how & 32,
                                .max_packet = MAX,
                                .overhead = 24,
                                .reliable = ordered,
                                .ordered = ordered};
  need(seal_new(&script.sender.seal, key, true) == STATUS_OK && seal_new(&script.receiver.seal, key, false) == STATUS_OK);
  need(transport_new(&script.transport, &setup, script.now) == STATUS_OK);
  run(&script);
  transport_free(script.transport);
  seal_free(script.sender.seal);
  seal_free(script.receiver.seal);
  return 0;
}
