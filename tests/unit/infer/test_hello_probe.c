/* Measurements between leader and device: what is asked for is checked, a profile goes there and back, speeds that none can have are
 * refused. */
#include "infer/cluster/hello.h"
#include <cmocka.h>
#include <math.h>

static Status check(uint32_t what, uint32_t count, uint32_t bytes) {
  return hello_check_probe(&(WireHeader){.kind = WIRE_PROBE, .request = what, .count = count, .bytes = bytes}, 256);
}

static void only_what_there_is_can_be_asked_for(void **state) {
  (void)state;
  assert_int_equal(check(PROBE_COMPUTE, 1, 0), STATUS_OK);
  assert_int_equal(check(PROBE_COMPUTE, 256, 0), STATUS_OK);
  assert_int_equal(check(PROBE_LINK, 0, 0), STATUS_OK);
  assert_int_equal(check(PROBE_LINK, PROBE_MAX, PROBE_MAX), STATUS_OK);
  const uint32_t faults[][3] = {{PROBE_COMPUTE, 0, 0},
                                {PROBE_COMPUTE, 257, 0},
                                {PROBE_COMPUTE, 16, 1},
                                {PROBE_LINK, PROBE_MAX + 1, 0},
                                {PROBE_LINK, 0, PROBE_MAX + 1},
                                {PROBE_LINK, 0xffffffff, 0},
                                {0, 1, 0},
                                {3, 1, 0}};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
    if (check(faults[i][0], faults[i][1], faults[i][2]) != STATUS_BAD_VALUE) fail_msg("fault %d was accepted", (int)i);
}

static DeviceProfile profile(void) {
  DeviceProfile p = {.table = 1e-10, .byte = 3e-11, .fixed = 2e-5};
  for (int i = 0; i < PROFILE_SIZES; i++) p.linear[i] = 1e-11 * (i + 1), p.attention[i] = 1e-12 * (i + 1), p.assign[i] = 1e-13 * (i + 1);
  return p;
}

static void a_profile_goes_there_and_back(void **state) {
  (void)state;
  DeviceProfile sent = profile();
  DeviceProfile came;
  uint8_t bytes[PROFILE_BYTES];
  assert_int_equal(PROFILE_BYTES, 96);
  hello_profile(byte_cursor_to(bytes), &sent);
  assert_int_equal(hello_profile(byte_cursor_from(bytes), &came), STATUS_OK);
  assert_memory_equal(&sent, &came, sizeof sent);
  const struct {
    int at;
    double value;
  } fields[] = {{0, 1e-11}, {24, 1e-12}, {72, 1e-10}};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    uint8_t expected[8];
    wire_put_double(expected, fields[i].value);
    assert_memory_equal(bytes + fields[i].at, expected, sizeof expected);
  }
}

static void a_speed_that_none_can_have_is_refused(void **state) {
  (void)state;
  const double faults[] = {0, -1e-10, 1.1, INFINITY, NAN};
  DeviceProfile sent = profile();
  for (int number = 0; number < PROFILE_NUMBERS; number++)
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
      uint8_t bytes[PROFILE_BYTES];
      DeviceProfile came;
      hello_profile(byte_cursor_to(bytes), &sent);
      wire_put_double(bytes + 8 * number, faults[i]);
      assert_int_equal(hello_profile(byte_cursor_from(bytes), &came), STATUS_BAD_VALUE);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(only_what_there_is_can_be_asked_for), cmocka_unit_test(a_profile_goes_there_and_back),
                                     cmocka_unit_test(a_speed_that_none_can_have_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
