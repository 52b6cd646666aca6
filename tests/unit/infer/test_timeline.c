/* A timeline keeps its events in order and sums what is computed. */
#include "infer/sim/schedule.h"
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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(events_stay_in_order)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
