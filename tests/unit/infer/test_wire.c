/* Headers survive the way out and back, stand on the wire as documented, and nothing malformed is taken. */
#include "infer/request.h"
#include "infer/wire.h"
#include <cmocka.h>
#include <math.h>
#include <string.h>

static const WireHeader sample = {.kind = WIRE_RESULT,
                                  .sender = 3,
                                  .block = 11,
                                  .flags = WIRE_WANT_CODES,
                                  .request = 0x01020304,
                                  .count = 0xA0B0C0D0,
                                  .bytes = 0x00010203};

static void round_trip(void **state) {
  (void)state;
  uint8_t bytes[WIRE_HEADER];
  WireHeader header = {0};
  wire_pack(&sample, bytes);
  assert_int_equal(wire_parse(bytes, 0x00010203, &header), STATUS_OK);
  assert_int_equal(header.kind, sample.kind);
  assert_int_equal(header.sender, sample.sender);
  assert_int_equal(header.block, sample.block);
  assert_int_equal(header.flags, sample.flags);
  assert_int_equal(header.request, sample.request);
  assert_int_equal(header.count, sample.count);
  assert_int_equal(header.bytes, sample.bytes);
}

static void layout_is_the_documented_one(void **state) {
  (void)state;
  const uint8_t expected[WIRE_HEADER] = {0x53, 0x54, 0x52, 0x41, 7,    4,    3,    11,   0,    1,    0, 0,
                                         0x04, 0x03, 0x02, 0x01, 0xD0, 0xC0, 0xB0, 0xA0, 0x03, 0x02, 1, 0};
  uint8_t bytes[WIRE_HEADER];
  wire_pack(&sample, bytes);
  assert_memory_equal(bytes, expected, WIRE_HEADER);
}

static void every_malformed_field_is_refused(void **state) {
  (void)state;
  const struct {
    int offset;
    uint8_t value;
  } faults[] = {{0, 0}, {3, 0},    {4, 3},  {4, 0},  {5, 0},  {5, WIRE_KIND_END}, {5, 255}, {8, 1},
                {9, 2}, {9, 0x81}, {10, 1}, {11, 1}, {22, 2}, {23, 0xFF}};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    uint8_t bytes[WIRE_HEADER];
    WireHeader header;
    wire_pack(&sample, bytes);
    bytes[faults[i].offset] = faults[i].value;
    assert_int_equal(wire_parse(bytes, 0x00010203, &header), STATUS_BAD_VALUE);
  }
}

static void a_block_is_of_three_kinds_alone(void **state) {
  (void)state;
  for (int kind = 1; kind < WIRE_KIND_END; kind++)
    for (uint8_t block = 0; block < 2; block++) {
      uint8_t bytes[WIRE_HEADER];
      WireHeader header = {.kind = (uint8_t)kind, .block = block};
      const bool has = kind == WIRE_RESULT || kind == WIRE_PROGRESS || kind == WIRE_SEQUENCE;
      wire_pack(&header, bytes);
      const bool refused = wire_parse(bytes, 0, &header) != STATUS_OK; /* some for the length of their payload, which is checked later */
      assert_int_equal(refused && strstr(status_message(), "reserved bytes"), block && !has);
    }
}

static void kinds_have_names(void **state) {
  (void)state;
  assert_string_equal(wire_kind_name(WIRE_RESULT), "RESULT");
  for (int kind = 0; kind < 256; kind++)
    assert_int_equal(strcmp(wire_kind_name((uint8_t)kind), "unknown") == 0, kind == 0 || kind >= WIRE_KIND_END);
}

static void length_limit_is_exact(void **state) {
  (void)state;
  uint8_t bytes[WIRE_HEADER];
  WireHeader header;
  wire_pack(&sample, bytes);
  assert_int_equal(wire_parse(bytes, 0x00010202, &header), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "66051"));
}

static void statistics_round_trip(void **state) {
  (void)state;
  NodeStatistics sent = {1.25, 0.5, 0, 1e-9, 3, 4, 5, 1, UINT64_MAX, 3, 1ULL << 40, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  NodeStatistics got;
  uint8_t bytes[WIRE_STATISTICS];
  request_statistics(byte_cursor_to(bytes), &sent);
  assert_int_equal(request_statistics(byte_cursor_from(bytes), &got), STATUS_OK);
  assert_memory_equal(&sent, &got, sizeof sent);
}

static void statistics_add_up(void **state) {
  (void)state;
  NodeStatistics sum = {.wait = 1.5, .elapsed = 2, .lost = 3, .parts = 1};
  wire_add_statistics(&sum, &(NodeStatistics){.wait = 0.25, .elapsed = 1, .bytes_sent = 9, .lost = 4, .parts = 12});
  assert_true(sum.wait == 1.75 && sum.elapsed == 3 && sum.compute == 0);
  assert_true(sum.bytes_sent == 9 && sum.lost == 7 && sum.parts == 13 && sum.late == 0);
}

static void times_that_are_no_times_are_refused(void **state) {
  (void)state;
  const double bad[] = {-1, NAN, INFINITY};
  for (int i = 0; i < 3; i++) {
    NodeStatistics s = {.wait = bad[i]}, got;
    uint8_t bytes[WIRE_STATISTICS];
    request_statistics(byte_cursor_to(bytes), &s);
    assert_int_equal(request_statistics(byte_cursor_from(bytes), &got), STATUS_BAD_VALUE);
  }
}

static void reals_are_little_endian_float32(void **state) {
  (void)state;
  const real values[3] = {1, (real)-0.5, (real)3.14159274};
  const uint8_t expected[12] = {0, 0, 0x80, 0x3F, 0, 0, 0, 0xBF, 0xDB, 0x0F, 0x49, 0x40};
  uint8_t bytes[13] = {0}; /* odd address: no alignment is assumed */
  real back[3];
  wire_pack_reals(values, 3, bytes + 1);
  assert_memory_equal(bytes + 1, expected, 12);
  wire_parse_reals(bytes + 1, 3, back);
  assert_memory_equal(back, values, sizeof values);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(round_trip),
                                     cmocka_unit_test(layout_is_the_documented_one),
                                     cmocka_unit_test(every_malformed_field_is_refused),
                                     cmocka_unit_test(a_block_is_of_three_kinds_alone),
                                     cmocka_unit_test(kinds_have_names),
                                     cmocka_unit_test(length_limit_is_exact),
                                     cmocka_unit_test(statistics_round_trip),
                                     cmocka_unit_test(statistics_add_up),
                                     cmocka_unit_test(times_that_are_no_times_are_refused),
                                     cmocka_unit_test(reals_are_little_endian_float32)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
