/* Texts go to devices by how fast they are, not by how much they happen to have had to do. */
#include "serve/pace.h"
#include <cmocka.h>

/* A device of step time `step` + `row` n decodes n sequences for a while; returns the time then. */
static double decode(Pace *pace, double now, double step, double row, int sequences, double seconds) {
  for (const double end = now + seconds; now < end;) {
    now += step + row * sequences;
    for (int i = 0; i < sequences; i++) pace->left++, pace_note(pace, now, sequences, true);
  }
  return now;
}

/* How many of 16 texts of 100 tokens the first of two devices gets. */
static int share(Pace pace[2]) {
  int first = 0;
  for (int text = 0; text < 16; text++) {
    const int chosen = pace_seconds(&pace[0], 100, 0) <= pace_seconds(&pace[1], 100, 0) ? 0 : 1;
    pace[chosen].left += 100;
    first += chosen == 0;
  }
  return first;
}

static void equal_devices_share_equally(void **state) {
  (void)state;
  static const double ratio[] = {1, 4, 8}; /* a / b */
  for (int i = 0; i < 3; i++) {
    Pace pace[2] = {{.left = 0}, {.left = 0}};
    decode(&pace[0], 1, 0.001 * ratio[i], 0.001, 1, 3);
    decode(&pace[1], 1, 0.001 * ratio[i], 0.001, 6, 3);
    if (ratio[i] >= 4) assert_true(pace[1].rate > 1.5 * pace[0].rate); /* tokens a second, which a batch has more of */
    const int first = share(pace);
    if (ratio[i] == 4) assert_int_equal(first, 8);
    assert_in_range(first, 6, 10);
  }
}

static void a_slow_device_gets_less(void **state) {
  (void)state;
  Pace pace[2] = {{.left = 0}, {.left = 0}};
  decode(&pace[0], 1, 0.004, 0.001, 4, 3);
  decode(&pace[1], 1, 0.012, 0.003, 4, 3);
  assert_int_equal(share(pace), 12);
}

static void what_is_not_known_is_as_usual(void **state) {
  (void)state;
  Pace pace = {.left = 100}, known = {.left = 100, .speed = 50};
  assert_true(pace_seconds(&pace, 100, 50) == 4 && pace_seconds(&known, 100, 200) == 4 && pace_seconds(&pace, 100, 0) == 200);
  double now = decode(&pace, 1, 0.01, 0.01, 1, 0.2); /* shorter than a window */
  assert_true(pace.rate == 0);
  pace.left++, pace_note(&pace, now + 60, 1, false); /* behind a minute with a prompt */
  now = decode(&pace, now + 120, 0.01, 0.01, 1, 0.04);
  assert_true(pace.rate == 0);
  decode(&pace, now, 0.01, 0.01, 1, 0.2);
  assert_true(pace.rate > 45 && pace.rate < 55);
  pace_restart(&pace);
  assert_true(pace.left == 0 && pace.tokens == 0 && pace.rate > 45 && pace.speed > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(equal_devices_share_equally), cmocka_unit_test(a_slow_device_gets_less),
                                     cmocka_unit_test(what_is_not_known_is_as_usual)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
