/* A timeline keeps its events in order and sums what is computed; who sends to whom; sizes of what a stream carries. */
#include "infer/sim/schedule.h"
#include "infer/transport/netem.h"
#include <cmocka.h>

static void events_stay_in_order(void **state) {
  (void)state;
  Timeline timeline = {0};
  for (int i = 0; i < 1000; i++) {
    const Event event = {.kind = (EventKind)(i % 3), .seconds = 0.5, .block = (uint8_t)i, .bytes = (uint32_t)i};
    assert_int_equal(timeline_add(&timeline, &event), STATUS_OK);
  }
  assert_int_equal(timeline.count, 1000);
  for (int i = 0; i < 1000; i++) assert_true(timeline.list[i].bytes == (uint32_t)i && timeline.list[i].kind == (EventKind)(i % 3));
  assert_true(timeline_seconds(&timeline) == 334 * 0.5); /* sending and waiting are not computing */
  timeline_release(&timeline);
  assert_true(timeline.list == NULL && timeline_seconds(&timeline) == 0);
}

/* Whom a device sends to, and who waits for it, are the same pairs; of a causal model those behind it. */
static void senders_and_receivers_agree(void **state) {
  (void)state;
  for (int devices = 1; devices <= 64; devices++)
    for (int a = 0; a < devices; a++)
      for (int b = 0; b < devices; b++)
        for (int causal = 0; causal < 2; causal++) {
          bool sends = schedule_partners(a, devices, causal, true) >> b & 1, waits = schedule_partners(b, devices, causal, false) >> a & 1;
          assert_int_equal(sends, causal ? a < b : a != b);
          assert_int_equal(waits, sends);
        }
  assert_true(schedule_partners(1, 4, false, true) == 0xd); /* nobody beyond the last one */
}

/* 12 bytes of header once; segments beyond the sixteenth bring their own overhead along. */
static void streams_are_cut_into_segments(void **state) {
  (void)state;
  const double room = LINK_SEGMENT_MAX;
  const struct {
    double bytes, segments, overhead;
  } cases[] = {{0, 1, 0},
               {1, 1, 0},
               {room - 12, 1, 0},
               {room - 11, 2, 0},
               {3 * room, 4, 0},
               {16 * room - 12, 16, 0},
               {16 * room - 11, 16, 66},
               {20 * room - 12, 16, 4 * 66}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const MessageSize size = schedule_stream(cases[i].bytes);
    assert_true(size.packets == cases[i].segments && size.bytes == cases[i].bytes + 12 + cases[i].overhead);
  }
  assert_int_equal(schedule_stream(1e10).packets, 0); /* no message can hold it */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(events_stay_in_order), cmocka_unit_test(senders_and_receivers_agree),
                                     cmocka_unit_test(streams_are_cut_into_segments)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
