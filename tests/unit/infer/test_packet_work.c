/* The work of packets: plausible where it is measured, and put where it belongs. */
#include "infer/sim/packet_work.h"
#include "infer/sim/schedule.h"
#include "unit/float_equal.h"
#include <cmocka.h>
#include <string.h>

static const PacketWork work = {.out = {1e-3, 1e-6}, .in = {2e-3, 2e-6}, .stream_out = {0, 1e-7}, .stream_in = {0, 3e-7}};

static void plausible(double seconds, double min, double max) {
  if (!(seconds >= min && seconds <= max)) fail_msg("%g s is not from %g to %g", seconds, min, max);
}

static void a_packet_takes_microseconds(void **state) {
  (void)state;
  PacketWork measured;
  if (packet_work_measure(&measured) != STATUS_OK) fail_msg("%s", status_message());
  const PacketCost *datagrams[] = {&measured.out, &measured.in}, *streams[] = {&measured.stream_out, &measured.stream_in};
  for (int i = 0; i < 2; i++) {
    plausible(datagrams[i]->packet + 1200 * datagrams[i]->byte, 2e-7, 1e-3);
    plausible(streams[i]->byte, 1e-11, 1e-7);
    assert_float_equal(streams[i]->packet, 0, 0);
  }
}

/* Device 0 sends two packets of 100 bytes each to 1 and 2, which wait for them. */
static void open_three(Timeline from[3]) {
  assert_int_equal(schedule_compute(&from[0], 1), STATUS_OK);
  assert_int_equal(schedule_send(&from[0], 0, 0, 0, (MessageSize){.packets = 2, .bytes = 200}, 6), STATUS_OK);
  for (int d = 1; d < 3; d++) assert_int_equal(schedule_wait(&from[d], 0, 0, 0, 1), STATUS_OK);
  from[1].tokens = 7;
}

static void close_three(Timeline timelines[3]) {
  for (int d = 0; d < 3; d++) timeline_release(&timelines[d]);
}

static void check(bool datagrams, double out, double in) {
  Timeline from[3] = {0}, to[3] = {0};
  open_three(from);
  assert_int_equal(packet_work_add(&work, from, 3, datagrams, to), STATUS_OK);
  assert_int_equal(to[0].count, 3);
  assert_int_equal(to[0].list[1].kind, EVENT_FIXED); /* before it leaves */
  assert_float_equal(to[0].list[1].seconds, out, 1e-12);
  assert_int_equal(to[0].list[2].kind, EVENT_SEND);
  assert_int_equal(to[1].count, 2);
  assert_int_equal(to[1].list[0].kind, EVENT_WAIT);
  assert_float_equal(to[1].list[1].seconds, in, 1e-12);
  assert_float_equal(to[2].list[1].seconds, in, 1e-12);
  assert_int_equal(to[1].tokens, 7);
  close_three(from);
  close_three(to);
}

static void packets_take_time_on_both_sides(void **state) {
  (void)state;
  check(true, 2 * (2 * 1e-3 + 200e-6), 2 * 2e-3 + 400e-6);
  check(false, 2 * 200e-7, 200 * 3e-7);
}

static void what_nobody_sends_is_refused(void **state) {
  (void)state;
  Timeline from[3] = {0}, to[3] = {0};
  open_three(from);
  assert_int_equal(schedule_wait(&from[0], 0, 0, 0, 2), STATUS_OK);
  assert_int_equal(packet_work_add(&work, from, 3, true, to), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "device 0 waits for"));
  close_three(from);
  close_three(to);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_packet_takes_microseconds), cmocka_unit_test(packets_take_time_on_both_sides),
                                     cmocka_unit_test(what_nobody_sends_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
