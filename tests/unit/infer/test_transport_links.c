/* Transports over shaped links: as slow as was asked for, no slower by their own questions, and what waits before a port is not lost. It
 * mostly waits. */
#include "transport_sides.h"
#include <math.h>
#include <stdatomic.h>

/* Seconds that all requests take; nothing is lost. */
static double time_links(const LinkOptions *links) {
  Side sides[2];
  MemoryWire *wire = open_sides(sides, 2, with_deadline, links, NULL, NULL);
  double start = clock_now();
  run_sides(sides, 2);
  double took = clock_now() - start;
  for (int i = 0; i < 2; i++) assert_int_equal(sides[i].missing, 0);
  close_sides(sides, 2, wire);
  return took;
}

/* 6 packets of 25 bytes each at 8,000 bytes a second and 20 ms: a block takes 18.75 + 20 ms, and both directions go at once. Never less;
 * more where others take the processor, hence the best of some tries. */
static void links_are_as_slow_as_was_asked_for(void **state) {
  (void)state;
  const LinkOptions links = {.bits_per_second = 64000, .latency = 0.02};
  double best = INFINITY, min = REQUESTS * BLOCKS * (0.02 + 150 / 8000.0);
  for (int i = 0; i < 4 && best > 1.6 * min; i++) {
    double took = time_links(&links);
    if (took < min) fail_msg("%g s, %g are right", took, min);
    best = fmin(best, took);
  }
  if (best > 1.6 * min) fail_msg("%g s, %g are right", best, min);
}

static MemoryFate count_questions(void *context, int from, int to, const uint8_t *packet, size_t bytes, uint64_t number) {
  (void)from, (void)to, (void)bytes, (void)number;
  atomic_fetch_add((atomic_int *)context, packet[5] >> 4 == PACKET_QUERY);
  return MEMORY_KEEP;
}

/* A block's packets take 0.3 s: questions must not take their place, and --timeout must do for one of them. */
static void a_slow_link_carries_codes(void **state) {
  (void)state;
  const LinkOptions links = {.bits_per_second = 4000};
  const Reliability modes[2] = {with_deadline, with_retransmit};
  for (int mode = 0; mode < 2; mode++) {
    Side sides[2];
    atomic_int questions = 0;
    Reliability reliability = modes[mode];
    reliability.timeout = 5;
    MemoryWire *wire = open_sides(sides, 2, reliability, &links, count_questions, &questions);
    for (int i = 0; i < 2; i++) sides[i].requests = 1;
    run_sides(sides, 2);
    for (int i = 0; i < 2; i++) {
      assert_int_equal(sides[i].missing + sides[i].late, 0);
      assert_int_equal(transport_thread_state(sides[i].transport).resent, 0);
    }
    assert_true(questions <= 2 * BLOCKS * PACKETS);
    close_sides(sides, 2, wire);
  }
}

/* Node 1 says that it has sent all of it, of which only a part has passed this device's port. */
static Status say_sent(void *context) {
  uint8_t packet[PACKET_HEADER + PACKET_STATUS_HEAD + 1];
  packet_pack(&(Packet){.request = 1, .type = PACKET_STATUS, .count = PACKETS}, packet);
  memcpy(packet + PACKET_HEADER, (const uint8_t[]){1, 0, 0, 0, (1 << PACKETS) - 1}, PACKET_STATUS_HEAD + 1);
  push_bytes(context, packet, sizeof packet);
  return STATUS_OK;
}

/* The port takes 25 ms for a packet: it is asked after the first ones have come, long before the last one. */
static void what_waits_before_a_port_is_not_lost(void **state) {
  (void)state;
  const LinkOptions links = {.bits_per_second = 8000, .topology = LINK_SWITCH};
  Side side;
  TransportArrival arrivals[NODES];
  MemoryWire *wire = open_alone(&side, with_deadline, &links);
  for (int f = 0; f < PACKETS; f++) push_packet(wire, (Packet){.request = 1, .index = (uint16_t)f, .count = PACKETS}, EACH, 1);
  assert_int_equal(transport_thread_take(side.transport, (MessageKey){.request = 1}, 2, arrivals, say_sent, wire), STATUS_OK);
  assert_int_equal(arrivals[1].missing, 0);
  close_sides(&side, 1, wire);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_slow_link_carries_codes), cmocka_unit_test(links_are_as_slow_as_was_asked_for),
                                     cmocka_unit_test(what_waits_before_a_port_is_not_lost)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
