/* Transports over a backend that loses, repeats and reorders packets: what comes is what was sent, every mode of reliability does what it
 * promises under seeded loss, counts agree, nothing hangs. It mostly waits. */
#include "base/rng.h"
#include "infer/transport/packet.h"
#include "transport_sides.h"
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

static bool is_data(const uint8_t *packet) { return packet[5] >> 4 == PACKET_CODES; }

/* A share of all packets is lost, of any kind. Decided by (from, to, number), so that threads do not matter. */
typedef struct Loss {
  double share;
  uint64_t data[NODES][NODES]; /* [to][from] that were lost */
} Loss;

static MemoryFate lose_some(void *context, int from, int to, const uint8_t *packet, size_t bytes, uint64_t number) {
  Loss *loss = context;
  Rng rng;
  (void)bytes;
  rng_init(&rng, 11 + number, (uint64_t)(from * 8 + to));
  if (rng_uniform(&rng) >= loss->share) return MEMORY_KEEP;
  loss->data[to][from] += is_data(packet);
  return MEMORY_LOSE;
}

static MemoryFate confuse(void *context, int from, int to, const uint8_t *packet, size_t bytes, uint64_t number) {
  (void)context, (void)packet, (void)bytes;
  Rng rng;
  rng_init(&rng, number, (uint64_t)(from * 8 + to));
  return rng_below(&rng, 3) == 0 ? MEMORY_TWICE : rng_below(&rng, 3) == 0 ? MEMORY_OVERTAKEN : MEMORY_KEEP;
}

static void nothing_is_lost_without_loss(void **state) {
  (void)state;
  const Reliability modes[2] = {with_deadline, with_retransmit};
  for (int mode = 0; mode < 2; mode++) {
    static Side sides[NODES];
    MemoryWire *wire = open_sides(sides, NODES, modes[mode], NULL, NULL, NULL);
    run_sides(sides, NODES);
    for (int i = 0; i < NODES; i++) {
      TransportState counts = transport_thread_state(sides[i].transport);
      assert_int_equal(sides[i].missing + sides[i].late, 0);
      assert_int_equal(counts.lost, 0);
      assert_int_equal(counts.payload_sent, REQUESTS * BLOCKS * (NODES - 1) * GROUP);
      assert_true(counts.packets_sent >= REQUESTS * BLOCKS * (NODES - 1) * PACKETS);
      assert_true(counts.bytes_sent >= REQUESTS * BLOCKS * (NODES - 1) * PACKETS * (EACH + PACKET_HEADER + 5));
    }
    close_sides(sides, NODES, wire);
  }
}

static void repeated_and_reordered_packets_do_no_harm(void **state) {
  (void)state;
  static Side sides[NODES];
  MemoryWire *wire = open_sides(sides, NODES, with_retransmit, NULL, confuse, NULL);
  run_sides(sides, NODES);
  for (int i = 0; i < NODES; i++) assert_int_equal(sides[i].missing, 0);
  close_sides(sides, NODES, wire);
}

/* Requests of all nodes at a loss of 5% and of 30%: check looks at the sides when all is done. lost [NODES]: that each should have got. */
static void with_losses(Reliability reliability, void (*check)(Side *sides, const uint64_t *lost)) {
  for (int percent = 5; percent <= 30; percent += 25) {
    static Side sides[NODES];
    static Loss loss;
    loss = (Loss){.share = percent / 100.0};
    uint64_t lost[NODES] = {0};
    MemoryWire *wire = open_sides(sides, NODES, reliability, NULL, lose_some, &loss);
    run_sides(sides, NODES);
    for (int i = 0; i < NODES * NODES; i++) lost[i / NODES] += loss.data[i / NODES][i % NODES];
    check(sides, lost);
    close_sides(sides, NODES, wire);
  }
}

/* Every packet that the wire lost is counted by its receiver and missing in what it hands on, and no other one. */
static void must_be_masked(Side *sides, const uint64_t *lost) {
  for (int i = 0; i < NODES; i++) {
    TransportState counts = transport_thread_state(sides[i].transport);
    assert_true(lost[i] > 0);
    assert_int_equal(counts.lost + counts.late, lost[i]);
    assert_int_equal(counts.lost_tokens + counts.late_tokens, lost[i] * TOKENS / PACKETS);
    assert_int_equal(sides[i].missing, lost[i]);
  }
}

static void a_deadline_masks_what_was_lost(void **state) {
  (void)state;
  with_losses(with_deadline, must_be_masked);
}

static uint64_t count_resent(Side *sides) {
  uint64_t resent = 0;
  for (int i = 0; i < NODES; i++) resent += transport_thread_state(sides[i].transport).resent;
  return resent;
}

/* Nobody misses anything, and each lost packet was sent again, which is counted a little after it has left. */
static void must_be_there(Side *sides, const uint64_t *lost) {
  uint64_t all = 0;
  for (int i = 0; i < NODES; i++) {
    assert_int_equal(sides[i].missing, 0);
    all += lost[i];
  }
  assert_true(all > 0);
  for (double end = clock_now() + 10; count_resent(sides) < all && clock_now() < end;) usleep(1000);
  assert_true(count_resent(sides) >= all);
}

static void retransmission_brings_all_of_it(void **state) {
  (void)state;
  with_losses(with_retransmit, must_be_there);
}

/* A slow peer is waited for, since it says that it has not sent; a strict deadline does not wait. */
static void slowness_is_no_loss(void **state) {
  (void)state;
  for (int strict = 0; strict < 2; strict++) {
    static Side sides[2];
    Reliability reliability = with_deadline;
    reliability.deadline = strict ? 0.005 : 0;
    MemoryWire *wire = open_sides(sides, 2, reliability, NULL, NULL, NULL);
    sides[1].slow = 40;
    run_sides(sides, 2);
    assert_int_equal(transport_thread_state(sides[0].transport).lost, 0);
    if (!strict) assert_int_equal(sides[0].missing + sides[0].late, 0);
    if (strict) assert_true(sides[0].missing > 0 && sides[0].late > 0);
    close_sides(sides, 2, wire);
  }
}

/* ---- one side by itself ---- */

static void a_silent_peer_ends_a_request_that_may_lose_nothing(void **state) {
  (void)state;
  static Side side;
  Reliability reliability = with_retransmit;
  reliability.timeout = 0.2;
  MemoryWire *wire = memory_wire_new(NULL, NULL, PACKET_HEADER + 2 * EACH);
  open_side(&side, wire, 0, 2, reliability, NULL);
  double start = clock_now();
  assert_int_equal(run_requests(&side), STATUS_TIMEOUT);
  assert_non_null(strstr(status_message(), "no datagram of node 1 has come within 0.2 s"));
  assert_true(clock_now() - start >= 0.2 && clock_now() - start < 5);
  assert_int_equal(transport_thread_state(side.transport).fault, 1);
  close_sides(&side, 1, wire);
}

/* Where it may be masked it is waited for once, for --timeout; until each deadline where there is one. */
static void a_silent_peer_is_masked(void **state) {
  (void)state;
  for (int strict = 0; strict < 2; strict++) {
    static Side side;
    Reliability reliability = with_deadline;
    if (strict) reliability.deadline = 0.05;
    if (!strict) reliability.timeout = 0.2;
    MemoryWire *wire = memory_wire_new(NULL, NULL, PACKET_HEADER + 2 * EACH);
    open_masking(&side, wire, 0, 2, reliability, NULL, !strict);
    assert_int_equal(transport_thread_begin_request(side.transport, 1, 1, &side.rules, 2, 2), STATUS_OK);
    double start = clock_now();
    for (int block = 0; block < BLOCKS; block++)
      assert_int_equal(run_block(&side, (MessageKey){.request = 1, .block = (uint8_t)block}), STATUS_OK);
    assert_true(clock_now() - start >= 0.2 && clock_now() - start < 5);
    assert_int_equal(side.missing, BLOCKS * PACKETS);
    assert_int_equal(side.late, BLOCKS);
    assert_int_equal(transport_thread_state(side.transport).late_tokens, BLOCKS * TOKENS);
    assert_int_equal(transport_thread_state(side.transport).lost_tokens, 0);
    close_sides(&side, 1, wire);
  }
}

static void a_closed_peer_is_named_or_passed_over(void **state) {
  (void)state;
  static Side side;
  MemoryWire *wire = open_alone(&side, with_retransmit, NULL);
  pthread_mutex_lock(&wire->lock);
  wire->closed[1] = true;
  pthread_mutex_unlock(&wire->lock);
  assert_int_equal(run_block(&side, (MessageKey){.request = 1}), STATUS_PEER);
  assert_string_equal(status_message(), "node 1: closed the connection");
  assert_int_equal(transport_thread_state(side.transport).fault, 1);
  transport_thread_gone(side.transport, 1);
  uint64_t sent = transport_thread_state(side.transport).payload_sent;
  assert_int_equal(run_block(&side, (MessageKey){.request = 1, .block = 1}), STATUS_OK);
  assert_int_equal(side.missing, PACKETS);
  assert_int_equal(transport_thread_state(side.transport).payload_sent, sent);
  close_sides(&side, 1, wire);
}

/* Opens when it is told to give up. */
static Status open_never(void *context, Backend **backend) {
  *backend = NULL;
  while (!atomic_load((atomic_bool *)context)) usleep(1000);
  return status_set(STATUS_TIMEOUT, "nobody came");
}

static Status end_opening(void *context) {
  atomic_store((atomic_bool *)context, true);
  return status_set(STATUS_INTERRUPTED, "enough");
}

static void whoever_opens_may_give_up(void **state) {
  (void)state;
  atomic_bool over = false;
  TransportThread *transport;
  const TransportThreadSetup setup = {.transport.nodes = 2,
                                      .transport.reliability = &with_deadline,
                                      .open = open_never,
                                      .open_context = &over,
                                      .check = end_opening,
                                      .check_context = &over};
  assert_int_equal(transport_thread_start(&transport, &setup), STATUS_INTERRUPTED);
  assert_string_equal(status_message(), "enough");
  assert_null(transport);
}

static Status give_up(void *context) {
  (void)context;
  return status_set(STATUS_INTERRUPTED, "enough");
}

static void whoever_waits_may_give_up(void **state) {
  (void)state;
  static Side side;
  TransportArrival arrivals[NODES];
  MemoryWire *wire = open_alone(&side, with_retransmit, NULL);
  double start = clock_now();
  assert_int_equal(transport_thread_take(side.transport, (MessageKey){.request = 1}, 2, arrivals, give_up, NULL), STATUS_INTERRUPTED);
  assert_true(clock_now() - start < with_retransmit.timeout / 2);
  close_sides(&side, 1, wire);
}

static void hostile_packets_are_refused(void **state) {
  (void)state;
  static const struct {
    Packet packet;
    size_t payload;
    const char *message;
  } rows[] = {{{.request = 1, .block = BLOCKS, .count = PACKETS}, EACH, "block 4"},
              {{.request = 1, .count = PACKETS}, EACH - 1, "7 bytes where 8"},
              {{.request = 1, .count = TOKENS + 1}, 2, "packet 0 of 25"},
              {{.request = 0, .count = PACKETS}, EACH, "request 0"},
              {{.request = 1, .count = PACKETS, .type = PACKET_STATUS}, 6, "a question or an answer"},
              {{.request = 1, .count = 2000, .type = PACKET_QUERY}, 200, "a question or an answer"},
              {{.request = 1, .type = PACKET_QUERY}, 0, "where nothing is lost"},
              {{.request = 1, .type = PACKET_STATUS}, PACKET_STATUS_HEAD, "where nothing is lost"}};
  static const Reliability stream = {.mode = RELIABILITY_STREAM, .timeout = 20};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    static Side side;
    MemoryWire *wire = memory_wire_new(NULL, NULL, PACKET_HEADER + 2 * EACH);
    open_side(&side, wire, 0, 2, strstr(rows[i].message, "nothing") ? stream : with_deadline, NULL);
    assert_int_equal(transport_thread_begin_request(side.transport, 1, 1, &side.rules, 2, 2), STATUS_OK);
    push_packet(wire, rows[i].packet, rows[i].payload, 1);
    Status status = run_block(&side, (MessageKey){.request = 1});
    if (status != STATUS_BAD_VALUE || !strstr(status_message(), rows[i].message))
      fail_msg("row %zu: %s", i, status == STATUS_OK ? "accepted" : status_message());
    assert_int_equal(transport_thread_state(side.transport).fault, 1);
    close_sides(&side, 1, wire);
  }
}

/* The next request's packets may come first; those of long ago, and of long after, are left out. */
static void packets_of_other_requests(void **state) {
  (void)state;
  static Side side;
  TransportArrival arrivals[NODES];
  MemoryWire *wire = open_alone(&side, with_deadline, NULL);
  for (int block = 0; block < BLOCKS; block++) {
    for (int f = 0; f < PACKETS; f++)
      push_packet(wire, (Packet){.request = 1, .block = (uint8_t)block, .index = (uint16_t)f, .count = PACKETS}, EACH, (uint8_t)f);
    assert_int_equal(transport_thread_take(side.transport, (MessageKey){.request = 1, .block = (uint8_t)block}, 2, arrivals, NULL, NULL),
                     STATUS_OK);
    assert_int_equal(arrivals[1].missing, 0);
    transport_thread_done(side.transport, (MessageKey){.request = 1, .block = (uint8_t)block}, 2);
  }
  push_packet(wire, (Packet){.request = 9, .count = PACKETS}, EACH, 99);
  push_packet(wire, (Packet){.request = 1, .block = 1, .count = PACKETS}, EACH, 99);
  for (int f = 0; f < PACKETS; f++)
    push_packet(wire, (Packet){.request = 2, .index = (uint16_t)f, .count = PACKETS}, EACH, (uint8_t)(100 + f));
  while (transport_thread_state(side.transport).packets_received < (BLOCKS + 1) * PACKETS + 2) usleep(1000);
  assert_int_equal(transport_thread_state(side.transport).dropped, 2);
  assert_int_equal(transport_thread_begin_request(side.transport, 2, 1, &side.rules, 2, 2), STATUS_OK);
  assert_int_equal(transport_thread_take(side.transport, (MessageKey){.request = 2}, 2, arrivals, NULL, NULL), STATUS_OK);
  assert_int_equal(arrivals[1].missing, 0);
  for (int f = 0; f < PACKETS; f++) assert_int_equal(arrivals[1].packets[f].payload[0], 100 + f);
  close_sides(&side, 1, wire);
}

/* What had come by the deadline is not late because this process had no processor to take it. */
static void who_did_not_look_gives_nothing_up(void **state) {
  (void)state;
  static Side side;
  TransportArrival arrivals[NODES];
  Reliability reliability = with_deadline;
  reliability.deadline = 0.02;
  MemoryWire *wire = open_alone(&side, reliability, NULL);
  pthread_mutex_lock(&wire->lock);
  wire->stall[0] = 200000;
  pthread_mutex_unlock(&wire->lock);
  double start = clock_now();
  for (int f = 0; f < PACKETS; f++) push_packet(wire, (Packet){.request = 1, .index = (uint16_t)f, .count = PACKETS}, EACH, 1);
  assert_int_equal(transport_thread_take(side.transport, (MessageKey){.request = 1}, 2, arrivals, NULL, NULL), STATUS_OK);
  assert_true(clock_now() - start > 0.02);
  assert_int_equal(arrivals[1].missing, 0);
  assert_false(arrivals[1].late);
  close_sides(&side, 1, wire);
}

/* A block that one request cuts into parts and the one before does not: what comes of the second part before its request begins. */
static void parts_may_come_before_their_request(void **state) {
  (void)state;
  static Side side;
  TransportArrival arrivals[NODES];
  const int64_t part_rows[2 * PARTS] = {TOKENS, TOKENS, TOKENS, TOKENS};
  PacketRules cut;
  MemoryWire *wire = memory_wire_new(NULL, NULL, PACKET_HEADER + 2 * EACH);
  open_side(&side, wire, 0, 2, with_deadline, NULL);
  cut = side.rules;
  cut.parts = PARTS;
  cut.part_rows = part_rows;
  assert_int_equal(transport_thread_begin_request(side.transport, 1, 1, &side.rules, 2, 2), STATUS_OK);
  for (int i = 0; i < PARTS * PACKETS; i++) {
    const Packet header = {.request = 2, .part = (uint8_t)(i % PARTS), .index = (uint16_t)(i / PARTS), .count = PACKETS};
    push_packet(wire, header, EACH, (uint8_t)i);
  }
  while (transport_thread_state(side.transport).packets_received < PARTS * PACKETS) usleep(1000);
  assert_int_equal(transport_thread_begin_request(side.transport, 2, 1, &cut, 2, 2), STATUS_OK);
  assert_int_equal(transport_thread_take(side.transport, (MessageKey){.request = 2, .part = 1}, 2, arrivals, NULL, NULL), STATUS_OK);
  assert_int_equal(arrivals[1].missing, 0);
  for (int f = 0; f < PACKETS; f++) assert_int_equal(arrivals[1].packets[f].payload[0], PARTS * f + 1);
  close_sides(&side, 1, wire);
}

/* Packets of a type that node 0 has sent to node 1. */
static int count_sent(MemoryWire *wire, PacketType type) {
  int count = 0;
  pthread_mutex_lock(&wire->lock);
  const MemoryQueue *sent = &wire->queue[1][0];
  for (int i = 0; i < sent->count; i++) count += sent->bytes[(sent->first + i) % MEMORY_QUEUE][5] >> 4 == type;
  pthread_mutex_unlock(&wire->lock);
  return count;
}

static void wait_for_sent(MemoryWire *wire, PacketType type, int count) {
  for (double start = clock_now(); count_sent(wire, type) < count && clock_now() < start + 10;) usleep(1000);
  assert_int_equal(count_sent(wire, type), count);
}

/* Of time in which this process runs. */
static void *send_later(void *argument) {
  for (int i = 0; i < 25; i++) usleep(10000);
  for (int f = 0; f < PACKETS; f++) push_packet(argument, (Packet){.request = 1, .index = (uint16_t)f, .count = PACKETS}, EACH, 1);
  return NULL;
}

static pid_t stop_for_a_while(void) {
  pid_t parent = getpid(), child = fork();
  if (child) return child;
  usleep(100000);
  kill(parent, SIGSTOP);
  usleep(2500000); /* more than the deadline, which itself is far beyond the time when packets come */
  kill(parent, SIGCONT);
  _exit(0);
}

/* Waits with a deadline of 2 s for packets that `send` brings: all come. */
static void all_come(void *(*send)(void *wire), TransportCheck *check, void *context) {
  static Side side;
  TransportArrival arrivals[NODES];
  Reliability reliability = with_deadline;
  reliability.deadline = 2;
  MemoryWire *wire = open_alone(&side, reliability, NULL);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, send, wire), 0);
  assert_int_equal(transport_thread_take(side.transport, (MessageKey){.request = 1}, 2, arrivals, check, context), STATUS_OK);
  assert_int_equal(arrivals[1].count, PACKETS);
  assert_int_equal(arrivals[1].missing, 0);
  pthread_join(thread, NULL);
  close_sides(&side, 1, wire);
}

/* Ctrl-Z, or a machine that had no processor for it. */
static void time_without_a_processor_is_no_deadlines(void **state) {
  (void)state;
  pid_t child = stop_for_a_while();
  all_come(send_later, NULL, NULL);
  waitpid(child, NULL, 0);
}

static Status stay_away_once(void *context) {
  bool *stayed = context;
  if (!*stayed) usleep(2500000);
  *stayed = true;
  return STATUS_OK;
}

static void *send_much_later(void *wire) {
  usleep(2700000);
  return send_later(wire);
}

/* Nor is time in which it asked whether to continue, and did not wait. */
static void time_between_two_looks_is_no_deadlines(void **state) {
  (void)state;
  bool stayed = false;
  all_come(send_much_later, stay_away_once, &stayed);
  assert_true(stayed);
}

/* Node 1 says the same all the time. */
typedef struct Talker {
  MemoryWire *wire;
  PacketType type;
  size_t payload;
  atomic_bool over;
} Talker;

static void *talk_all_the_time(void *argument) {
  Talker *talker = argument;
  while (!atomic_load(&talker->over)) {
    push_packet(talker->wire, (Packet){.request = 1, .type = talker->type}, talker->payload, 0);
    usleep(1000);
  }
  return NULL;
}

/* Answers wake it up more often than it would look around by itself. */
static void whoever_is_told_things_may_give_up(void **state) {
  (void)state;
  static Side side;
  TransportArrival arrivals[NODES];
  Reliability reliability = with_retransmit;
  reliability.timeout = 2;
  MemoryWire *wire = open_alone(&side, reliability, NULL);
  Talker talker = {.wire = wire, .type = PACKET_STATUS, .payload = PACKET_STATUS_HEAD};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, talk_all_the_time, &talker), 0);
  assert_int_equal(transport_thread_take(side.transport, (MessageKey){.request = 1}, 2, arrivals, give_up, NULL), STATUS_INTERRUPTED);
  atomic_store(&talker.over, true);
  pthread_join(thread, NULL);
  close_sides(&side, 1, wire);
}

/* Two that wait for each other: questions that come are no sign that what is missing is on its way. */
static void who_is_asked_asks_as_well(void **state) {
  (void)state;
  static Side side;
  TransportArrival arrivals[NODES];
  Reliability reliability = with_retransmit;
  reliability.timeout = 0.5;
  MemoryWire *wire = open_alone(&side, reliability, NULL);
  Talker talker = {.wire = wire, .type = PACKET_QUERY};
  pthread_t thread;
  push_packet(wire, (Packet){.request = 1, .count = PACKETS}, EACH, 1);
  usleep(50000); /* they come slowly, hence it is patient */
  push_packet(wire, (Packet){.request = 1, .index = 1, .count = PACKETS}, EACH, 1);
  assert_int_equal(pthread_create(&thread, NULL, talk_all_the_time, &talker), 0);
  assert_int_equal(transport_thread_take(side.transport, (MessageKey){.request = 1}, 2, arrivals, NULL, NULL), STATUS_TIMEOUT);
  atomic_store(&talker.over, true);
  pthread_join(thread, NULL);
  transport_thread_stop(side.transport);
  assert_true(count_sent(wire, PACKET_QUERY) > 0);
  memory_wire_free(wire);
}

/* Whoever does not know yet how much there is may find it right behind its question. */
static void what_is_named_is_sent_again(void **state) {
  (void)state;
  static Side side;
  MemoryWire *wire = open_alone(&side, with_retransmit, NULL);
  assert_int_equal(send_block(&side, (MessageKey){.request = 1}), STATUS_OK);
  wait_for_sent(wire, PACKET_CODES, PACKETS);
  push_packet(wire, (Packet){.request = 1, .type = PACKET_QUERY}, 0, 0);
  wait_for_sent(wire, PACKET_STATUS, 1);
  push_packet(wire, (Packet){.request = 1, .type = PACKET_QUERY, .count = PACKETS}, 1, 1 << 4 | 1 << 2);
  wait_for_sent(wire, PACKET_CODES, PACKETS + 2);
  assert_int_equal(count_sent(wire, PACKET_STATUS), 2);
  /* Counted a little after it has left. */
  for (double end = clock_now() + 10; transport_thread_state(side.transport).resent < 2 && clock_now() < end;) usleep(1000);
  assert_int_equal(transport_thread_state(side.transport).resent, 2);
  close_sides(&side, 1, wire);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_lost_without_loss),
                                     cmocka_unit_test(repeated_and_reordered_packets_do_no_harm),
                                     cmocka_unit_test(a_deadline_masks_what_was_lost),
                                     cmocka_unit_test(retransmission_brings_all_of_it),
                                     cmocka_unit_test(slowness_is_no_loss),
                                     cmocka_unit_test(a_silent_peer_ends_a_request_that_may_lose_nothing),
                                     cmocka_unit_test(a_silent_peer_is_masked),
                                     cmocka_unit_test(a_closed_peer_is_named_or_passed_over),
                                     cmocka_unit_test(whoever_opens_may_give_up),
                                     cmocka_unit_test(whoever_waits_may_give_up),
                                     cmocka_unit_test(hostile_packets_are_refused),
                                     cmocka_unit_test(packets_of_other_requests),
                                     cmocka_unit_test(who_did_not_look_gives_nothing_up),
                                     cmocka_unit_test(time_without_a_processor_is_no_deadlines),
                                     cmocka_unit_test(time_between_two_looks_is_no_deadlines),
                                     cmocka_unit_test(parts_may_come_before_their_request),
                                     cmocka_unit_test(whoever_is_told_things_may_give_up),
                                     cmocka_unit_test(who_is_asked_asks_as_well),
                                     cmocka_unit_test(what_is_named_is_sent_again)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
