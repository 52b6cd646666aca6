/* The protocol between transports, in one thread and in a time that the test keeps: what is lost, repeated, overtaken or late, questions,
 * answers and what is sent again, masks, deadlines, and peers that break the rules. */
#include "infer/transport/transport.h"
#include <cmocka.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Messages of 24 tokens of 2 codes of 8 bits in 6 packets of 4 tokens. */
enum { NODES = 3, BLOCKS = 3, TOKENS = 24, PACKETS = 6, EACH = 8, BYTES = PACKETS * EACH, UNDER_WAY = 4096, ANY = -1 };

typedef struct Flying {
  double at;
  int from, to;
  uint8_t bytes[PACKET_HEADER + 256];
  size_t size;
} Flying;

/* What becomes of a packet: how many copies arrive, and when each does. */
typedef int Fate(int from, int to, const Packet *packet, int number, double at[2]);

typedef struct World {
  int nodes;
  double now, delay;
  Transport *transport[NODES];
  uint8_t bytes[NODES][BLOCKS][BYTES];
  TransportPacket packets[NODES][BLOCKS][PACKETS];
  PacketRules rules;
  int64_t part_rows[NODES];
  Reliability reliability;
  Fate *fate;
  int seen[NODES][NODES];
  Flying list[UNDER_WAY];
  int count, questions, answers, resent;
} World;

static World w;

static int as_sent(int from, int to, const Packet *packet, int number, double at[2]) {
  (void)from, (void)to, (void)packet, (void)number, (void)at;
  return 1;
}

static void open_world(int nodes, Reliability reliability, Fate *fate, const LinkOptions *links, bool mask, bool ordered) {
  w = (World){.nodes = nodes, .now = 100, .delay = 1e-3, .reliability = reliability, .fate = fate ? fate : as_sent};
  for (int d = 0; d < NODES; d++) w.part_rows[d] = TOKENS;
  w.rules = (PacketRules){.blocks = BLOCKS, .sites = 1, .parts = 1, .groups = 2, .entries = 256, .width = 4, .part_rows = w.part_rows};
  for (int d = 0; d < nodes; d++) {
    const TransportSetup setup = {.self = d,
                                  .nodes = nodes,
                                  .blocks = BLOCKS,
                                  .sites = 1,
                                  .parts = 1,
                                  .max_message_bytes = BYTES,
                                  .max_packets = TOKENS,
                                  .reliability = &w.reliability,
                                  .links = links,
                                  .timeout = reliability.timeout,
                                  .mask = mask,
                                  .max_packet = PACKET_HEADER + 2 * EACH,
                                  .reliable = ordered,
                                  .ordered = ordered};
    assert_int_equal(transport_new(&w.transport[d], &setup, w.now), STATUS_OK);
    transport_caught_up(w.transport[d], INFINITY);
  }
}

static void close_world(void) {
  for (int d = 0; d < w.nodes; d++) transport_free(w.transport[d]);
}

static uint64_t others(int self) { return (((uint64_t)1 << w.nodes) - 1) & ~((uint64_t)1 << self); }

static void begin(uint32_t request) {
  for (int d = 0; d < w.nodes; d++) transport_begin_request(w.transport[d], request, 1, &w.rules, others(d), others(d));
}

static uint8_t content(int node, int block, int i) { return (uint8_t)(node * 89 + block * 7 + i); }

static void submit(int d, uint32_t request, int block) {
  for (int i = 0; i < BYTES; i++) w.bytes[d][block][i] = content(d, block, i);
  for (int f = 0; f < PACKETS; f++)
    w.packets[d][block][f] = (TransportPacket){
        .header = {.request = request, .block = (uint8_t)block, .type = PACKET_CODES, .index = (uint16_t)f, .count = PACKETS},
        .payload = w.bytes[d][block] + f * EACH,
        .bytes = EACH};
  MessageKey key = {.request = request, .block = (uint8_t)block};
  assert_int_equal(transport_submit(w.transport[d], key, w.packets[d][block], PACKETS, others(d), w.now), STATUS_OK);
}

/* Everything that is due now leaves; each copy arrives a delay later, or when its fate says. */
static void let_leave(int d) {
  TransportOutput out;
  while (transport_output(w.transport[d], w.now, 0, &out)) {
    Packet packet;
    packet_read(out.packet, &packet);
    w.questions += packet.type == PACKET_QUERY;
    w.answers += packet.type == PACKET_STATUS;
    double at[2] = {w.now + w.delay, w.now + w.delay};
    int copies = w.fate(d, out.peer, &packet, w.seen[d][out.peer]++, at);
    for (int i = 0; i < copies; i++) {
      assert_true(w.count < UNDER_WAY);
      w.list[w.count] = (Flying){.at = at[i], .from = d, .to = out.peer, .size = out.bytes};
      memcpy(w.list[w.count++].bytes, out.packet, out.bytes);
    }
    transport_sent(w.transport[d], out.peer);
  }
}

/* The world until the next moment at which anything happens, at the latest `again`. */
static void pass_time(double again) {
  double next = again;
  for (int d = 0; d < w.nodes; d++) let_leave(d);
  for (int i = 0; i < w.count; i++) next = fmin(next, w.list[i].at);
  for (int d = 0; d < w.nodes; d++) next = fmin(next, transport_deadline(w.transport[d], 0));
  assert_true(isfinite(next));
  w.now = fmax(w.now, next);
  for (int i = 0; i < w.count;) {
    const Flying f = w.list[i];
    if (f.at > w.now) {
      i++;
      continue;
    }
    memmove(&w.list[i], &w.list[i + 1], (size_t)(--w.count - i) * sizeof *w.list);
    assert_true(transport_input(w.transport[f.to], f.from, f.bytes, f.size, w.now));
  }
}

static Status take(int d, uint32_t request, int block, TransportArrival arrivals[NODES]) {
  double again;
  MessageKey key = {.request = request, .block = (uint8_t)block};
  Expected expected = transport_expect(w.transport[d], key, others(d), w.now);
  for (;;) {
    TRY(transport_take(w.transport[d], &expected, w.now, arrivals, &again));
    if (!expected.undecided) break;
    pass_time(again);
  }
  for (int from = 0; from < w.nodes; from++) {
    for (int f = 0; from != d && f < arrivals[from].count; f++) {
      const TransportPacket *packet = &arrivals[from].packets[f];
      for (int i = 0; packet->payload && i < EACH; i++) assert_int_equal(packet->payload[i], content(from, block, f * EACH + i));
    }
  }
  transport_done(w.transport[d], key, others(d));
  return STATUS_OK;
}

/* All nodes exchange all blocks of two requests. Returns packets that node 0 went on without. */
static int run_requests(void) {
  TransportArrival arrivals[NODES];
  int missing = 0, holds_up;
  for (uint32_t request = 1; request <= 2; request++) {
    begin(request);
    for (int block = 0; block < BLOCKS; block++) {
      for (int d = 0; d < w.nodes; d++) {
        while (transport_reserve(w.transport[d], (MessageKey){.request = request, .block = (uint8_t)block}, &holds_up))
          pass_time(w.now + 1e-3);
        submit(d, request, block);
      }
      for (int d = 0; d < w.nodes; d++) {
        assert_int_equal(take(d, request, block, arrivals), STATUS_OK);
        for (int from = 0; d == 0 && from < w.nodes; from++) missing += from ? arrivals[from].missing : 0;
      }
    }
  }
  return missing;
}

static const Reliability deadline = {.mode = RELIABILITY_DEADLINE, .timeout = 20, .min_packets = PACKETS},
                         retransmit = {.mode = RELIABILITY_RETRANSMIT, .timeout = 20, .min_packets = PACKETS},
                         stream = {.mode = RELIABILITY_STREAM, .timeout = 20};

static void all_of_it_comes(void **state) {
  (void)state;
  for (int mode = 0; mode < 3; mode++) {
    open_world(NODES, mode == 0 ? stream : mode == 1 ? deadline : retransmit, NULL, NULL, false, mode == 0);
    assert_int_equal(run_requests(), 0);
    const TransportState *counts = transport_state(w.transport[0]);
    assert_int_equal(counts->lost + counts->late + counts->resent, 0);
    assert_int_equal(counts->payload_sent, 2 * BLOCKS * (NODES - 1) * BYTES);
    assert_true(counts->packets_sent >= 2 * BLOCKS * (NODES - 1) * PACKETS);
    assert_true(counts->span > 2 * BLOCKS * w.delay * 0.99 && counts->span < 2 * BLOCKS * w.delay * 1.01);
    close_world();
  }
}

static int twice_and_overtaken(int from, int to, const Packet *packet, int number, double at[2]) {
  (void)from, (void)to, (void)packet;
  at[0] += number % 3 == 0 ? 3e-4 : 0; /* behind the two that follow */
  at[1] += 1e-4 * (number % 7);
  return number % 2 ? 2 : 1;
}

static void order_and_copies_make_no_difference(void **state) {
  (void)state;
  open_world(NODES, deadline, twice_and_overtaken, NULL, false, false);
  assert_int_equal(run_requests(), 0);
  assert_int_equal(transport_state(w.transport[0])->lost, 0);
  close_world();
}

static int lose_a_sixth(int from, int to, const Packet *packet, int number, double at[2]) {
  (void)from, (void)number, (void)at;
  return !(to == 0 && packet->type == PACKET_CODES && packet->index == 4);
}

/* The sender says that it has sent it: it is lost a grace later, long before any deadline. */
static void a_lost_packet_is_masked(void **state) {
  (void)state;
  open_world(NODES, deadline, lose_a_sixth, NULL, false, false);
  assert_int_equal(run_requests(), 2 * BLOCKS * (NODES - 1));
  const TransportState *counts = transport_state(w.transport[0]);
  assert_int_equal(counts->lost, 2 * BLOCKS * (NODES - 1));
  assert_int_equal(counts->lost_tokens, 4 * 2 * BLOCKS * (NODES - 1));
  assert_int_equal(counts->late, 0);
  assert_true(w.now < 100 + 2 * BLOCKS * 0.2);
  assert_true(w.questions >= 2 * BLOCKS * (NODES - 1) && w.answers >= w.questions - NODES);
  close_world();
}

static int lose_first_copies(int from, int to, const Packet *packet, int number, double at[2]) {
  static uint32_t last[NODES][NODES][PACKETS];
  (void)at, (void)number;
  if (packet->type != PACKET_CODES || packet->index % 2) return 1;
  uint32_t *seen = &last[from][to][packet->index], place = packet->request * 100 + packet->block;
  bool first = *seen != place;
  *seen = place;
  return !first;
}

static void what_is_lost_is_sent_again(void **state) {
  (void)state;
  open_world(2, retransmit, lose_first_copies, NULL, false, false);
  assert_int_equal(run_requests(), 0);
  for (int d = 0; d < 2; d++) {
    const TransportState *counts = transport_state(w.transport[d]);
    assert_int_equal(counts->lost + counts->late, 0);
    assert_int_equal(counts->resent, 2 * BLOCKS * PACKETS / 2); /* those that were lost, and no others */
  }
  close_world();
}

static int lose_all_but_one(int from, int to, const Packet *packet, int number, double at[2]) {
  (void)from, (void)number, (void)at;
  return packet->type != PACKET_CODES || to != 0 || packet->index == 2;
}

/* A strict deadline does not ask what became of the rest. */
static void what_is_late_is_masked_at_the_deadline(void **state) {
  (void)state;
  Reliability strict = deadline;
  TransportArrival arrivals[NODES];
  strict.deadline = 2e-3;
  open_world(2, strict, lose_all_but_one, NULL, false, false);
  begin(1);
  double start = w.now;
  submit(1, 1, 0);
  assert_int_equal(take(0, 1, 0, arrivals), STATUS_OK);
  assert_true(arrivals[1].late && arrivals[1].count == PACKETS && arrivals[1].missing == PACKETS - 1);
  assert_true(fabs(w.now - start - 2e-3) < 1e-9);
  assert_int_equal(transport_state(w.transport[0])->late, PACKETS - 1);
  assert_non_null(arrivals[1].packets[2].payload);
  assert_null(arrivals[1].packets[0].payload);
  close_world();
}

/* A peer that has not sent yet is waited for, however long it takes; questions become rarer. */
static void slowness_is_no_loss(void **state) {
  (void)state;
  TransportArrival arrivals[NODES];
  double again;
  open_world(2, deadline, NULL, NULL, false, false);
  begin(1);
  Expected expected = transport_expect(w.transport[0], (MessageKey){.request = 1}, 2, w.now);
  while (w.now < 103) {
    assert_int_equal(transport_take(w.transport[0], &expected, w.now, arrivals, &again), STATUS_OK);
    assert_true(expected.undecided);
    pass_time(fmin(again, w.now + 0.1));
  }
  assert_true(w.questions > 2 && w.questions < 1500);
  submit(1, 1, 0);
  while (expected.undecided) {
    assert_int_equal(transport_take(w.transport[0], &expected, w.now, arrivals, &again), STATUS_OK);
    if (expected.undecided) pass_time(again);
  }
  assert_int_equal(arrivals[1].missing, 0);
  close_world();
}

static int lose_all(int from, int to, const Packet *packet, int number, double at[2]) {
  (void)from, (void)to, (void)packet, (void)number, (void)at;
  return 0;
}

static void silence_ends_a_request_or_is_masked(void **state) {
  (void)state;
  TransportArrival arrivals[NODES];
  for (int mask = 0; mask < 2; mask++) {
    open_world(2, retransmit, lose_all, NULL, mask, false);
    begin(1);
    submit(1, 1, 0);
    assert_int_equal(take(0, 1, 0, arrivals), mask ? STATUS_OK : STATUS_TIMEOUT);
    if (mask) {
      assert_true(arrivals[1].late && arrivals[1].count == 0);
      assert_int_equal(transport_state(w.transport[0])->left, 2);
    } else {
      assert_int_equal(transport_state(w.transport[0])->fault, 1);
      assert_non_null(strstr(status_message(), "no datagram of node 1"));
    }
    assert_true(fabs(w.now - 120) < 0.1);
    close_world();
  }
}

/* Simulated links hold packets back; what is lost there never leaves, and the same ones are lost each time. */
static void links_throttle_and_lose(void **state) {
  (void)state;
  TransportArrival arrivals[NODES];
  const LinkOptions slow = {.bits_per_second = 8 * (PACKET_HEADER + EACH) * 100, .latency = 5e-3};
  open_world(2, deadline, NULL, &slow, false, false);
  begin(1);
  submit(1, 1, 0);
  assert_int_equal(take(0, 1, 0, arrivals), STATUS_OK);
  assert_int_equal(arrivals[1].missing, 0);
  assert_true(fabs(w.now - (100 + PACKETS * 0.01 + 5e-3 + w.delay)) < 1e-9);
  close_world();
  int missing[2];
  for (int i = 0; i < 2; i++) {
    const LinkOptions lossy = {.loss = 0.2, .seed = 3};
    open_world(NODES, deadline, NULL, &lossy, false, false);
    missing[i] = run_requests();
    close_world();
  }
  assert_true(missing[0] > 0 && missing[0] == missing[1]);
}

/* The next request's packets may come first; those of long ago, and of long after, are left out. */
static void other_requests_packets(void **state) {
  (void)state;
  TransportArrival arrivals[NODES];
  open_world(2, deadline, NULL, NULL, false, false);
  transport_begin_request(w.transport[1], 1, 1, &w.rules, 1, 1);
  submit(1, 1, 0);
  for (int i = 0; i < 3; i++) pass_time(w.now + 1e-3); /* before node 0 begins */
  begin(1);
  assert_int_equal(take(0, 1, 0, arrivals), STATUS_OK);
  assert_int_equal(arrivals[1].missing, 0);
  uint8_t packet[PACKET_HEADER + EACH] = {0};
  packet_pack(&(Packet){.request = 1, .block = 0, .count = PACKETS}, packet);
  assert_true(transport_input(w.transport[0], 1, packet, sizeof packet, w.now));
  packet_pack(&(Packet){.request = 9, .block = 0, .count = PACKETS}, packet);
  assert_true(transport_input(w.transport[0], 1, packet, sizeof packet, w.now));
  assert_int_equal(transport_state(w.transport[0])->dropped, 2);
  assert_int_equal(transport_check(w.transport[0]), STATUS_OK);
  close_world();
}

/* On a stream a packet for which there is no room yet is held back, and put in again. */
static void a_stream_is_held_back(void **state) {
  (void)state;
  uint8_t packet[PACKET_HEADER + BYTES] = {0};
  TransportArrival arrivals[NODES];
  double again;
  open_world(2, stream, NULL, NULL, false, true);
  begin(1);
  for (int block = 0; block < 3; block++) {
    packet_pack(&(Packet){.request = 1, .block = (uint8_t)block, .count = 1}, packet);
    assert_int_equal(transport_input(w.transport[0], 1, packet, sizeof packet, w.now), block < transport_state(w.transport[0])->ring);
  }
  Expected expected = transport_expect(w.transport[0], (MessageKey){.request = 1}, 2, w.now);
  assert_int_equal(transport_take(w.transport[0], &expected, w.now, arrivals, &again), STATUS_OK);
  assert_true(!expected.undecided && arrivals[1].count == 1);
  transport_done(w.transport[0], (MessageKey){.request = 1}, 2);
  assert_true(transport_input(w.transport[0], 1, packet, sizeof packet, w.now));
  close_world();
}

/* A whole packet of node 1 for node 0. */
static void put_in(uint32_t request, int block, int index) {
  uint8_t packet[PACKET_HEADER + EACH] = {0};
  packet_pack(&(Packet){.request = request, .block = (uint8_t)block, .index = (uint16_t)index, .count = PACKETS}, packet);
  memset(packet + PACKET_HEADER, index, EACH);
  assert_true(transport_input(w.transport[0], 1, packet, sizeof packet, w.now));
}

/* A stream brings what had not come at the deadline after all, perhaps when the next request is at work. */
static void a_stream_may_be_late(void **state) {
  (void)state;
  Reliability strict = stream;
  TransportArrival arrivals[NODES];
  strict.deadline = 2e-3;
  for (int left_out = 0; left_out < 2; left_out++) {
    open_world(2, strict, NULL, NULL, false, true);
    begin(1);
    put_in(1, 0, 0);
    put_in(1, 0, 1);
    for (int block = 0; block < BLOCKS; block++) {
      MessageKey key = {.request = 1, .block = (uint8_t)block};
      Expected expected = transport_expect(w.transport[0], key, 2, w.now);
      for (double again; expected.undecided; w.now = fmax(w.now, fmin(again, w.now + 1)))
        assert_int_equal(transport_take(w.transport[0], &expected, w.now, arrivals, &again), STATUS_OK);
      assert_true(arrivals[1].late && arrivals[1].missing == (block ? 0 : PACKETS - 2));
      transport_done(w.transport[0], key, 2);
    }
    begin(2);
    for (int f = 2; f < PACKETS; f++) put_in(1, 0, f);
    for (int f = 0; !left_out && f < 2 * PACKETS; f++) put_in(1, 1 + f / PACKETS, f % PACKETS);
    for (int f = 0; f < PACKETS; f++) put_in(2, 0, f);
    assert_int_equal(transport_check(w.transport[0]), STATUS_OK);
    assert_int_equal(transport_state(w.transport[0])->dropped, PACKETS - 2 + (left_out ? 0 : 2 * PACKETS));
    Expected expected = transport_expect(w.transport[0], (MessageKey){.request = 2}, 2, w.now);
    double again;
    assert_int_equal(transport_take(w.transport[0], &expected, w.now, arrivals, &again), STATUS_OK);
    assert_true(!expected.undecided && arrivals[1].count == PACKETS && arrivals[1].missing == 0);
    for (int f = 0; f < PACKETS; f++) assert_int_equal(arrivals[1].packets[f].payload[0], f);
    put_in(1, 2, 0); /* but nothing comes twice */
    assert_int_equal(transport_check(w.transport[0]), STATUS_BAD_VALUE);
    assert_non_null(strstr(status_message(), "request 1, block 2 where request 2, block 1 was expected"));
    close_world();
  }
}

static void who_takes_no_part_sends_nothing(void **state) {
  (void)state;
  for (int ordered = 0; ordered < 2; ordered++) {
    open_world(2, ordered ? stream : deadline, NULL, NULL, false, ordered);
    w.part_rows[1] = 0;
    begin(1);
    put_in(1, 0, 0);
    assert_int_equal(transport_check(w.transport[0]), STATUS_BAD_VALUE);
    assert_non_null(strstr(status_message(), "does not hear it in this request"));
    close_world();
  }
}

static void rules_are_kept(void **state) {
  (void)state;
  static const struct {
    Packet packet;
    size_t payload;
    bool ordered;
    const char *message;
  } rows[] = {{{.request = 1, .block = BLOCKS, .count = PACKETS}, EACH, false, "block 3"},
              {{.request = 1, .count = PACKETS}, EACH - 1, false, "7 bytes where 8"},
              {{.request = 1, .count = TOKENS + 1}, 2, false, "packet 0 of 25"},
              {{.request = 0, .count = PACKETS}, EACH, false, "request 0"},
              {{.request = 1, .count = PACKETS, .type = PACKET_STATUS}, 6, false, "a question or an answer"},
              {{.request = 1, .count = 2000, .type = PACKET_QUERY}, 200, false, "a question or an answer"},
              {{.request = 1, .type = PACKET_QUERY}, 0, true, "where nothing is lost"},
              {{.request = 1, .block = 1, .count = PACKETS}, EACH, true, "block 1 where request 1, block 0"},
              {{.request = 1, .index = 1, .count = PACKETS}, EACH, true, "packet 1 of 6 where packet 0"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    uint8_t packet[PACKET_HEADER + 256] = {0};
    open_world(2, rows[i].ordered ? stream : deadline, NULL, NULL, false, rows[i].ordered);
    begin(1);
    packet_pack(&rows[i].packet, packet);
    assert_true(transport_input(w.transport[0], 1, packet, PACKET_HEADER + rows[i].payload, w.now));
    if (transport_check(w.transport[0]) != STATUS_BAD_VALUE || !strstr(status_message(), rows[i].message))
      fail_msg("row %zu: %s", i, transport_check(w.transport[0]) == STATUS_OK ? "accepted" : status_message());
    assert_int_equal(transport_state(w.transport[0])->fault, 1);
    close_world();
  }
}

static void memory_is_lent_until_it_has_left(void **state) {
  (void)state;
  int holds_up;
  open_world(2, deadline, NULL, NULL, false, false);
  begin(1);
  submit(0, 1, 0);
  MessageKey later = {.request = 1, .block = 2}; /* two blocks on: the same place */
  assert_true(transport_reserve(w.transport[0], later, &holds_up) > 0);
  assert_int_equal(transport_submit(w.transport[0], later, w.packets[0][0], PACKETS, 2, w.now), STATUS_BAD_VALUE);
  let_leave(0);
  assert_int_equal(transport_reserve(w.transport[0], later, &holds_up), 0);
  assert_true(transport_is_idle(w.transport[0]));
  close_world();
}

/* Packets that will never be out: the wait for their memory is the peer's fault, and ends as such. */
static void a_link_without_speed_holds_up(void **state) {
  (void)state;
  const LinkOptions links = {.bits_per_second = 1e-308};
  int holds_up = -1;
  open_world(2, deadline, NULL, &links, false, false);
  begin(1);
  submit(0, 1, 0);
  let_leave(0);
  assert_int_equal(w.count, 0);
  assert_false(isfinite(transport_deadline(w.transport[0], 0)));
  assert_true(transport_reserve(w.transport[0], (MessageKey){.request = 1, .block = 2}, &holds_up) > 0);
  assert_int_equal(holds_up, 1);
  assert_false(transport_is_idle(w.transport[0]));
  close_world();
}

static void a_message_has_as_many_packets_as_there_is_room_for(void **state) {
  (void)state;
  static TransportPacket packets[TOKENS + 1];
  const MessageKey key = {.request = 1};
  open_world(2, deadline, NULL, NULL, false, false);
  begin(1);
  assert_int_equal(transport_submit(w.transport[0], key, packets, TOKENS + 1, 2, w.now), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "25 packets; 24 are possible"));
  assert_int_equal(transport_submit(w.transport[0], key, packets, TOKENS, 2, w.now), STATUS_OK);
  close_world();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_of_it_comes),
                                     cmocka_unit_test(order_and_copies_make_no_difference),
                                     cmocka_unit_test(a_lost_packet_is_masked),
                                     cmocka_unit_test(what_is_lost_is_sent_again),
                                     cmocka_unit_test(what_is_late_is_masked_at_the_deadline),
                                     cmocka_unit_test(slowness_is_no_loss),
                                     cmocka_unit_test(silence_ends_a_request_or_is_masked),
                                     cmocka_unit_test(links_throttle_and_lose),
                                     cmocka_unit_test(other_requests_packets),
                                     cmocka_unit_test(a_stream_is_held_back),
                                     cmocka_unit_test(a_stream_may_be_late),
                                     cmocka_unit_test(who_takes_no_part_sends_nothing),
                                     cmocka_unit_test(rules_are_kept),
                                     cmocka_unit_test(memory_is_lent_until_it_has_left),
                                     cmocka_unit_test(a_link_without_speed_holds_up),
                                     cmocka_unit_test(a_message_has_as_many_packets_as_there_is_room_for)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
