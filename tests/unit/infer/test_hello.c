/* The first words between devices: exact layout, who has the key and who has not, refusal of other bytes, the answer of another release. */
#include "infer/cluster/connection.h"
#include "infer/cluster/hello.h"
#include <cmocka.h>
#include <string.h>
#include <unistd.h>

static const uint8_t session[HELLO_SESSION] = "fifteen letters";
static KeyFile key, other, none;

static int make_keys(void **state) {
  (void)state;
  none = key_file_open();
  memset(key.bytes, 0x5a, sizeof key.bytes);
  memset(other.bytes, 0xa5, sizeof other.bytes);
  return 0;
}

static Hello hello_of(HelloRole role) {
  Hello hello = {.role = role};
  memcpy(hello.session, session, sizeof session);
  return hello;
}

static void the_layout_is_the_documented_one(void **state) {
  (void)state;
  const uint8_t expected[WIRE_HEADER + 8] = {0x53, 0x54, 0x52, 0x41, WIRE_VERSION, 1, [20] = HELLO_PAYLOAD, [24] = 2, 1};
  uint8_t bytes[HELLO_BYTES], again[HELLO_BYTES];
  Hello sent = hello_of(HELLO_PEER), got;
  assert_int_equal(HELLO_BYTES, 96);
  assert_int_equal(hello_pack(&sent, &key, bytes), STATUS_OK);
  assert_memory_equal(bytes, expected, sizeof expected);
  assert_memory_equal(bytes + 32, session, sizeof session);
  for (size_t i = 0; i < sizeof bytes; i++) assert_int_equal(hello_read(bytes, i, &key, &got), HELLO_INCOMPLETE);
  assert_int_equal(hello_read(bytes, sizeof bytes, &key, &got), HELLO_LET_IN);
  assert_true(got.role == HELLO_PEER && got.keyed);
  assert_memory_equal(got.session, session, sizeof session);
  assert_int_equal(hello_pack(&sent, &key, again), STATUS_OK);
  assert_memory_not_equal(bytes + 48, again + 48, HELLO_NONCE + HELLO_PROOF); /* never the same twice */
}

static void who_has_the_key_is_let_in(void **state) {
  (void)state;
  const struct {
    const KeyFile *caller, *listener;
    HelloResult result;
  } rows[] = {{&key, &key, HELLO_LET_IN},       {&none, &none, HELLO_LET_IN},    {NULL, NULL, HELLO_LET_IN},
              {NULL, &none, HELLO_LET_IN},      {&other, &key, HELLO_OTHER_KEY}, {&none, &key, HELLO_NEEDS_KEY},
              {&key, &none, HELLO_NEEDS_NO_KEY}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    uint8_t bytes[HELLO_BYTES];
    Hello hello = hello_of(HELLO_LEADER);
    assert_int_equal(hello_pack(&hello, rows[i].caller, bytes), STATUS_OK);
    assert_int_equal(hello_read(bytes, sizeof bytes, rows[i].listener, &hello), rows[i].result);
  }
}

/* The proof is of every byte. */
static void what_was_changed_is_not_let_in(void **state) {
  (void)state;
  for (int bit = 0; bit < 8 * HELLO_BYTES; bit++) {
    uint8_t bytes[HELLO_BYTES];
    Hello hello = hello_of(HELLO_LEADER);
    assert_int_equal(hello_pack(&hello, &key, bytes), STATUS_OK);
    bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    assert_int_not_equal(hello_read(bytes, sizeof bytes, &key, &hello), HELLO_LET_IN);
  }
}

static void other_bytes_are_refused(void **state) {
  (void)state;
  const struct {
    int at, value;
  } faults[] = {{0, 0x16}, {3, 0},  {4, 3},  {5, 13}, {6, 1},  {7, 1},  {8, 1}, {12, 1},
                {16, 1},   {20, 0}, {24, 0}, {24, 3}, {25, 2}, {26, 1}, {31, 1}};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    uint8_t bytes[HELLO_BYTES];
    Hello hello = hello_of(HELLO_LEADER);
    assert_int_equal(hello_pack(&hello, &key, bytes), STATUS_OK);
    bytes[faults[i].at] = (uint8_t)faults[i].value;
    assert_int_equal(hello_read(bytes, sizeof bytes, &key, &hello), faults[i].at == 4 ? HELLO_OTHER_VERSION : HELLO_NONE);
  }
  Hello hello;
  assert_int_equal(hello_read((const uint8_t *)"STRA", 4, &key, &hello), HELLO_INCOMPLETE);
  assert_int_equal(hello_read((const uint8_t *)"ST", 2, &key, &hello), HELLO_INCOMPLETE);
  assert_int_equal(hello_read((const uint8_t *)"GET ", 2, &key, &hello), HELLO_NONE);
}

static void another_release_is_named(void **state) {
  (void)state;
  uint8_t bytes[HELLO_MAX_ANSWER];
  Connection *connection;
  bool done;
  int pair[2];
  assert_int_equal(connection_pair(pair), STATUS_OK);
  assert_int_equal(connection_tls(&connection, pair[0], CONNECTION_DIALS, &key), STATUS_OK);
  assert_int_equal(connection_step(connection, &done), STATUS_OK); /* nothing has come */
  assert_int_equal(hello_pack_answer(HELLO_OTHER_VERSION, bytes), WIRE_HEADER);
  /* what releases of version 3 look at: magic, version, a role from 1 to 2, two zeroes */
  assert_memory_equal(bytes, "STRA\7\1\0\0", 8);
  bytes[4] = 9;
  assert_int_equal(write(pair[1], bytes, WIRE_HEADER), WIRE_HEADER);
  assert_int_equal(connection_step(connection, &done), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "another protocol version: 9 there, 7 here"));
  assert_int_equal(read(pair[0], bytes, WIRE_HEADER), WIRE_HEADER); /* it is left where it was */
  memset(bytes, 0x16, sizeof bytes);                                /* a TLS record */
  assert_int_equal(write(pair[1], bytes, sizeof bytes), sizeof bytes);
  connection_step(connection, &done);
  assert_null(strstr(status_message(), "another protocol version"));
  connection_free(connection);
  close(pair[1]);
}

/* ---- WELCOME */

static Welcome sample = {.fingerprints = {.model = 0x0102030405060708, .codebook = UINT64_MAX}, .name = "kitchen"};

static void a_welcome_survives_the_way(void **state) {
  (void)state;
  uint8_t bytes[WELCOME_BYTES];
  Welcome got;
  hello_welcome(byte_cursor_to(bytes), &sample);
  assert_memory_equal(bytes, ((const uint8_t[]){8, 7, 6, 5, 4, 3, 2, 1, 255, 255}), 10);
  assert_memory_equal(bytes + 16, "kitchen", 8);
  assert_int_equal(hello_welcome(byte_cursor_from(bytes), &got), STATUS_OK);
  assert_memory_equal(&got, &sample, sizeof got);
}

/* It is cut within a character, and leaders take whole ones only. */
static void long_names_are_sent_as_far_as_they_fit(void **state) {
  (void)state;
  uint8_t bytes[WELCOME_BYTES];
  Welcome sent = sample, got;
  for (int i = 0; i < WELCOME_NAME / 2; i++) memcpy(sent.name + 2 * i, "\xc3\xa4", 2);
  sent.name[1] = 27;
  hello_welcome(byte_cursor_to(bytes), &sent);
  assert_int_equal(hello_welcome(byte_cursor_from(bytes), &got), STATUS_OK);
  assert_int_equal(strlen(got.name), WELCOME_NAME - 1);
  assert_memory_equal(got.name, "  \xc3\xa4", 4);
  assert_int_equal(got.name[WELCOME_NAME - 2], ' ');
}

static void names_that_are_no_text_are_refused(void **state) {
  (void)state;
  static const int faults[][2] = {{16, 27}, {17, 127}, {18, 0x9b}, {22, 0xc2}, {25, 'x'}, {63, 'x'}};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    uint8_t bytes[WELCOME_BYTES];
    Welcome got;
    hello_welcome(byte_cursor_to(bytes), &sample);
    bytes[faults[i][0]] = (uint8_t)faults[i][1];
    assert_int_equal(hello_welcome(byte_cursor_from(bytes), &got), STATUS_BAD_VALUE);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_layout_is_the_documented_one),
                                     cmocka_unit_test(who_has_the_key_is_let_in),
                                     cmocka_unit_test(what_was_changed_is_not_let_in),
                                     cmocka_unit_test(other_bytes_are_refused),
                                     cmocka_unit_test(another_release_is_named),
                                     cmocka_unit_test(a_welcome_survives_the_way),
                                     cmocka_unit_test(long_names_are_sent_as_far_as_they_fit),
                                     cmocka_unit_test(names_that_are_no_text_are_refused)};
  return cmocka_run_group_tests(tests, make_keys, NULL);
}
