/* Fuzz target: the transport, its packets, its policy and its simulated links, through its one input. The first two bytes choose the
 * policy, what carries the packets, what they may hold, and the links; then come records: a byte that says what happens, a length, bytes.
 * Packets come as they are, as datagrams of anybody, or sealed by a peer that has the key and keeps to nothing; time passes; the peer is
 * gone; it takes nothing for a while. Node 0 of two goes through two requests meanwhile. Holds: nothing is read or written past its
 * buffers; bytes that were not sealed never come through; a packet that keeps the rules packs to the same header and has as many bytes as
 * its rows take; what leaves keeps the rules; every message is decided, at a time that was announced; memory comes back. */
#include "fuzz/fuzz.h"
#include "infer/transport/seal.h"
#include "infer/transport/transport.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 2, SITES = 2, PARTS = 2, ROWS = 9, GROUPS = 2, ROW_BYTES = 16 /* at most */, MAX = 160, STEPS = 20000 };

/* As sums over all devices have them: other rows in each block, and none in some. */
static int64_t rows_of_message(const PacketRules *rules, int sender, int block, int site, int part) {
  (void)rules;
  return sender == part ? 0 : 2 * block + 3 * site;
}

/* The bytes of a packet's rows; one that is entropy-coded is shorter. A code has 8 bits, or 10, so that a packet's last byte is not full.
 */
static size_t payload_of(const PacketRules *rules, int64_t rows, int count, int index) {
  int64_t own = interleave_count(rows, count, index);
  need(own >= 1);
  return rules->raw ? (size_t)own * ROW_BYTES : ((size_t)own * GROUPS * (rules->entries > 256 ? 10 : 8) + 7) / 8;
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

/* What is accepted keeps the rules. */
static void check_packet(const PacketRules *rules, const uint8_t *bytes, size_t size) {
  Packet p;
  uint8_t again[PACKET_HEADER];
  if (packet_parse(bytes, size, 1, 1, rules, &p) != STATUS_OK) return;
  packet_pack(&p, again);
  need(memcmp(again, bytes, PACKET_HEADER) == 0);
  need(p.block < rules->blocks && p.site < rules->sites && p.part < rules->parts && p.count <= MAX_PACKETS);
  if (p.type != PACKET_CODES && p.type != PACKET_RAW) return;
  size_t whole = payload_of(rules, packet_rows(rules, 1, 1, p.block, p.site, p.part), p.count, p.index);
  need(p.flags & PACKET_CODED ? size - PACKET_HEADER < whole : size - PACKET_HEADER == whole);
}

/* In a buffer of exact size, so that a sanitizer sees one byte too many. */
static void put_in(Script *s, const uint8_t *packet, size_t bytes) {
  uint8_t *copy = malloc(bytes ? bytes : 1);
  need(copy != NULL);
  memcpy(copy, packet, bytes);
  check_packet(s->rules, copy, bytes);
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
    if (packet.type == PACKET_CODES || packet.type == PACKET_RAW)
      need(packet_parse(out.packet, out.bytes, 0, 1, s->rules, &packet) == STATUS_OK);
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

static void look_at(const PacketRules *rules, int64_t rows, const TransportArrival *arrival) {
  for (int f = 0; f < arrival->count; f++) {
    const TransportPacket *came = &arrival->packets[f];
    uint8_t copy[ROW_BYTES * ROWS]; /* a sanitizer is to see every byte */
    if (!came->payload) continue;
    size_t whole = payload_of(rules, rows, arrival->count, f);
    need(came->header.flags & PACKET_CODED ? came->bytes < whole : came->bytes == whole);
    memcpy(copy, came->payload, came->bytes);
    need(memcmp(copy, came->payload, came->bytes) == 0);
  }
}

/* In two packets, or in one of a single row. */
static Status send_own(Script *s, MessageKey key, TransportPacket packets[2]) {
  static uint8_t payload[ROW_BYTES * ROWS];
  int64_t rows = packet_rows(s->rules, 0, 1, key.block, key.site, key.part);
  int holds_up, steps = 0, count = rows < 2 ? (int)rows : 2;
  if (count == 0) return STATUS_OK;
  while (transport_reserve(s->transport, key, &holds_up) > 0) {
    go_on(s, s->now + 1e-3);
    need(++steps < STEPS);
  }
  for (int f = 0; f < count; f++)
    packets[f] = (TransportPacket){.header = {.request = key.request,
                                              .block = key.block,
                                              .site = key.site,
                                              .part = key.part,
                                              .type = s->rules->raw ? PACKET_RAW : PACKET_CODES,
                                              .index = (uint16_t)f,
                                              .count = (uint16_t)count},
                                   .payload = payload,
                                   .bytes = payload_of(s->rules, rows, count, f)};
  return transport_submit(s->transport, key, packets, count, 2, s->now);
}

static Status take(Script *s, MessageKey key) {
  TransportArrival arrivals[2];
  int64_t rows = packet_rows(s->rules, 1, 1, key.block, key.site, key.part);
  int steps = 0;
  double again;
  Expected expected = transport_expect(s->transport, key, rows > 0 ? 2 : 0, s->now);
  for (;;) {
    TRY(transport_take(s->transport, &expected, s->now, arrivals, &again));
    if (!expected.undecided) break;
    go_on(s, again);
    need(++steps < STEPS);
  }
  if (rows > 0) look_at(s->rules, rows, &arrivals[1]);
  transport_done(s->transport, key, 2);
  return STATUS_OK;
}

static void run(Script *s) {
  static TransportPacket packets[2 * BLOCKS * SITES * PARTS][2];
  const int sites = s->rules->sites, parts = s->rules->parts, messages = BLOCKS * sites * parts;
  Status status = STATUS_OK;
  for (uint32_t request = 1; request <= 2 && status == STATUS_OK; request++) {
    transport_begin_request(s->transport, request, 1, s->rules, 2, 2);
    for (int i = 0; i < messages && status == STATUS_OK; i++) {
      const MessageKey key = {
          .request = request, .block = (uint8_t)(i / (sites * parts)), .site = (uint8_t)(i / parts % sites), .part = (uint8_t)(i % parts)};
      status = send_own(s, key, packets[(int)(request - 1) * messages + i]);
      if (status == STATUS_OK) status = take(s, key);
    }
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const uint8_t key[SEAL_KEY + SEAL_IV] = {1, 2, 3};
  static const int64_t part_rows[2] = {ROWS, ROWS};
  if (size < 2) return 0;
  const uint8_t how = data[0], link = data[1];
  const bool raw = how & 64, by_message = how & 128, wide = how & 2 && how & (1 | 8);
  const PacketRules rules = {.blocks = BLOCKS,
                             .sites = by_message ? SITES : 1,
                             .parts = by_message ? PARTS : 1,
                             .groups = GROUPS,
                             .entries = wide ? 1000 : 256,
                             .width = ROW_BYTES / 4,
                             .part_rows = part_rows,
                             .raw = raw,
                             .coded = how & 4,
                             .message_rows = by_message ? rows_of_message : NULL};
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
                                .sites = rules.sites,
                                .parts = rules.parts,
                                .max_message_bytes = ROWS * (raw    ? ROW_BYTES
                                                             : wide ? GROUPS + 1
                                                                    : GROUPS),
                                .max_packets = ROWS,
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
