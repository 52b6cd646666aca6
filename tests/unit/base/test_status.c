/* Status: the message of the last failure, context in front, long messages, one message per thread. */
#include "base/status.h"
#include <cmocka.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static void set_keeps_code_and_message(void **state) {
  (void)state;
  assert_int_equal(status_set(STATUS_IO, "cannot read %s: %d", "a.bin", 7), STATUS_IO);
  assert_string_equal(status_message(), "cannot read a.bin: 7");
}

static void wrap_puts_context_in_front(void **state) {
  (void)state;
  status_set(STATUS_IO, "inner");
  assert_int_equal(status_wrap(STATUS_BAD_FILE, "outer %d", 2), STATUS_BAD_FILE);
  assert_string_equal(status_message(), "outer 2: inner");
  status_set(STATUS_IO, "again: %s", status_message()); /* the message as its own argument */
  assert_string_equal(status_message(), "again: outer 2: inner");
  status_wrap(STATUS_IO, "%s", status_message());
  assert_string_equal(status_message(), "again: outer 2: inner: again: outer 2: inner");
}

static void long_messages_are_cut(void **state) {
  (void)state;
  char text[6000];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = 0;
  status_set(STATUS_IO, "%s", text);
  size_t length = strlen(status_message());
  assert_in_range(length, 1000, 5999);
  for (int i = 0; i < 3; i++) status_wrap(STATUS_IO, "%s", text);
  assert_int_equal(strlen(status_message()), length);
  status_set(STATUS_IO, "inner");
  text[length - 3] = 0;
  status_wrap(STATUS_IO, "%s", text);
  assert_int_equal(strlen(status_message()), length);
}

static void every_code_has_a_text(void **state) {
  (void)state;
  for (int code = 0; code < STATUS_COUNT; code++) assert_true(strlen(status_text((Status)code)) > 1);
  assert_string_equal(status_text(STATUS_OK), "ok");
  assert_string_equal(status_text((Status)999), "unknown status");
}

static void *fail_elsewhere(void *seen) {
  *(size_t *)seen = strlen(status_message());
  status_set(STATUS_IO, "elsewhere");
  return NULL;
}

static void each_thread_has_its_own(void **state) {
  (void)state;
  pthread_t thread;
  size_t seen = 99;
  status_set(STATUS_IO, "here");
  pthread_create(&thread, NULL, fail_elsewhere, &seen);
  pthread_join(thread, NULL);
  assert_int_equal(seen, 0);
  assert_string_equal(status_message(), "here");
}

static Status tries(Status status, int *reached) {
  TRY(status);
  *reached = 1;
  return STATUS_OK;
}

static void try_passes_failures_on(void **state) {
  (void)state;
  int reached = 0;
  assert_int_equal(tries(STATUS_TIMEOUT, &reached), STATUS_TIMEOUT);
  assert_int_equal(reached, 0);
  assert_int_equal(tries(STATUS_OK, &reached), STATUS_OK);
  assert_int_equal(reached, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(set_keeps_code_and_message), cmocka_unit_test(wrap_puts_context_in_front), cmocka_unit_test(long_messages_are_cut),
      cmocka_unit_test(every_code_has_a_text),      cmocka_unit_test(each_thread_has_its_own),    cmocka_unit_test(try_passes_failures_on),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
