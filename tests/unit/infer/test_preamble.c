/* The first bytes of a connection: exact layout, refusal of others, arrival in pieces, and the answer of another release. */
#include "infer/control/preamble.h"
#include "infer/link.h"
#include <cmocka.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint8_t session[GREETING_SESSION] = "fifteen letters";

static void the_layout_is_the_documented_one(void **state) {
  (void)state;
  uint8_t bytes[PREAMBLE_BYTES], expected[PREAMBLE_BYTES] = {0x53, 0x54, 0x52, 0x41, 3, 2, 0, 0};
  Preamble preamble = {.version = WIRE_VERSION, .role = PREAMBLE_PEER}, got;
  memcpy(preamble.session, session, sizeof session);
  memcpy(expected + 8, session, sizeof session);
  preamble_pack(&preamble, bytes);
  assert_memory_equal(bytes, expected, sizeof bytes);
  assert_int_equal(preamble_parse(bytes, &got), STATUS_OK);
  assert_true(got.version == 3 && got.role == PREAMBLE_PEER && memcmp(got.session, session, sizeof session) == 0);
}

static void other_bytes_are_refused(void **state) {
  (void)state;
  const struct { int at, value; } faults[] = {{0, 0x16}, {3, 0}, {5, 0}, {5, 3}, {5, 4}, {5, 255}, {6, 1}, {7, 1}};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    uint8_t bytes[PREAMBLE_BYTES];
    Preamble preamble = {.version = 2, .role = PREAMBLE_LEADER};
    preamble_pack(&preamble, bytes);
    bytes[faults[i].at] = (uint8_t)faults[i].value;
    assert_int_equal(preamble_parse(bytes, &preamble), STATUS_BAD_VALUE);
  }
}

static void it_may_come_in_pieces_and_leaves_what_follows(void **state) {
  (void)state;
  uint8_t bytes[PREAMBLE_BYTES + 3] = {0}, rest[8];
  Preamble preamble = {.version = 9, .role = PREAMBLE_LEADER}, got;
  PreambleTaken taken = {.got = 0};
  int pair[2];
  bool done = true;
  preamble_pack(&preamble, bytes);
  memcpy(bytes + PREAMBLE_BYTES, "TLS", 3);
  assert_int_equal(link_pair(pair), STATUS_OK);
  assert_int_equal(preamble_take(pair[1], &taken, &got, &done), STATUS_OK);
  assert_false(done);
  assert_int_equal(write(pair[0], bytes, 10), 10);
  assert_int_equal(preamble_take(pair[1], &taken, &got, &done), STATUS_OK);
  assert_false(done);
  assert_int_equal(poll(&(struct pollfd){.fd = pair[1], .events = POLLIN}, 1, 0), 0); /* a piece keeps nobody awake who waits for more */
  assert_int_equal(write(pair[0], bytes + 10, sizeof bytes - 10), sizeof bytes - 10);
  assert_int_equal(preamble_take(pair[1], &taken, &got, &done), STATUS_OK);
  assert_true(done && got.version == 9);
  assert_int_equal(read(pair[1], rest, sizeof rest), 3);
  assert_memory_equal(rest, "TLS", 3);
  close(pair[0]);
  taken.got = 23;
  assert_int_equal(preamble_take(pair[1], &taken, &got, &done), STATUS_PEER);
  close(pair[1]);
}

static void another_release_is_named(void **state) {
  (void)state;
  uint8_t bytes[PREAMBLE_BYTES];
  Preamble preamble = {.version = 9, .role = PREAMBLE_LEADER};
  int pair[2];
  assert_int_equal(link_pair(pair), STATUS_OK);
  assert_int_equal(preamble_check_answer(pair[0], "worker x"), STATUS_OK); /* nothing has come */
  preamble_pack(&preamble, bytes);
  assert_int_equal(write(pair[1], bytes, sizeof bytes), sizeof bytes);
  assert_int_equal(preamble_check_answer(pair[0], "worker x"), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "worker x: another protocol version: 9 there, 3 here"));
  assert_int_equal(read(pair[0], bytes, sizeof bytes), sizeof bytes);
  memset(bytes, 0x16, sizeof bytes); /* a TLS record */
  assert_int_equal(write(pair[1], bytes, sizeof bytes), sizeof bytes);
  assert_int_equal(preamble_check_answer(pair[0], "worker x"), STATUS_OK);
  close(pair[0]);
  close(pair[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_layout_is_the_documented_one), cmocka_unit_test(other_bytes_are_refused),
                                     cmocka_unit_test(it_may_come_in_pieces_and_leaves_what_follows),
                                     cmocka_unit_test(another_release_is_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
