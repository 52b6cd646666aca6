/* IdleTimeout: ends after its time without a byte, starts anew with each, and leaves out the time in which nobody looked. */
#include "infer/cluster/connection.h"
#include <cmocka.h>

static void silence_ends_it(void **state) {
  (void)state;
  IdleTimeout idle_timeout;
  connection_idle_start(&idle_timeout, 2, 7, 100);
  assert_true(connection_idle_slice(&idle_timeout) == CONNECTION_IDLE_SLICE);
  for (double now = 100.25; now <= 102; now += 0.25) assert_false(connection_idle_ends(&idle_timeout, 7, now));
  assert_true(connection_idle_ends(&idle_timeout, 7, 102.25));
}

static void a_byte_starts_it_anew(void **state) {
  (void)state;
  IdleTimeout idle_timeout;
  uint64_t bytes = 7;
  connection_idle_start(&idle_timeout, 2, bytes, 100);
  for (double now = 100.25; now <= 130; now += 0.25) assert_false(connection_idle_ends(&idle_timeout, (int)now % 2 ? bytes : ++bytes, now));
}

static void time_in_which_nobody_looked_does_not_count(void **state) {
  (void)state;
  IdleTimeout idle_timeout;
  connection_idle_start(&idle_timeout, 2, 7, 100);
  assert_false(connection_idle_ends(&idle_timeout, 7, 101)); /* a busy machine: counts */
  assert_false(connection_idle_ends(&idle_timeout, 7, 3701));
  assert_false(connection_idle_ends(&idle_timeout, 7, 3701.5));
  assert_true(connection_idle_ends(&idle_timeout, 7, 3702.25)); /* one second before, one slice, and this one */
}

static void a_short_one_looks_as_often_as_it_must(void **state) {
  (void)state;
  IdleTimeout idle_timeout;
  connection_idle_start(&idle_timeout, 0.1, 0, 5);
  assert_true(connection_idle_slice(&idle_timeout) == 0.1);
  assert_true(connection_idle_ends(&idle_timeout, 0, 5.11));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(silence_ends_it), cmocka_unit_test(a_byte_starts_it_anew),
                                     cmocka_unit_test(time_in_which_nobody_looked_does_not_count),
                                     cmocka_unit_test(a_short_one_looks_as_often_as_it_must)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
