/* Server-sent events: the examples of the standard, in one piece and byte by byte, with each kind of line end; fields that are passed over;
 * an event that is too long; failures of the function that gets them. */
#include "serve/sse.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static char got[1024];

static Status keep(void *context, const char *data, size_t bytes) {
  (void)context;
  assert_int_equal(strlen(data), bytes);
  strncat(got, data, sizeof got - strlen(got) - 1);
  strncat(got, "|", sizeof got - strlen(got) - 1);
  return STATUS_OK;
}

static void check(const char *stream, const char *events) {
  for (size_t step = 1; step <= strlen(stream); step += step == 1 ? strlen(stream) - 1 : 1) {
    Sse sse;
    got[0] = '\0';
    sse_init(&sse, keep, NULL);
    for (size_t at = 0; at < strlen(stream); at += step) assert_int_equal(sse_add(&sse, stream + at, step), STATUS_OK);
    sse_release(&sse);
    assert_string_equal(got, events);
    if (step == strlen(stream)) break;
  }
}

static void events_are_cut_at_empty_lines(void **state) {
  (void)state;
  check("data: one\n\ndata: two\n\n", "one|two|");
  check("data: YHOO\ndata: +2\ndata: 10\n\n", "YHOO\n+2\n10|");
  check("data\n\ndata:\n\ndata: \n\n", "||"); /* a field without a colon is not ours; both others are empty */
  check("data:no space\n\ndata:  two spaces\n\n", "no space| two spaces|");
  check("data: never ended\n", "");
}

static void all_line_ends_count(void **state) {
  (void)state;
  check("data: a\r\n\r\ndata: b\r\rdata: c\n\n", "a|b|c|");
  check("data: a\r\ndata: b\r\n\r\n", "a\nb|");
}

static void other_fields_are_passed_over(void **state) {
  (void)state;
  check(": comment\n\nevent: x\nid: 1\nretry: 5\ndata: y\ndatabase: z\n\n\n\n", "y|");
}

static void long_events_are_refused(void **state) {
  (void)state;
  Sse sse;
  char *line = malloc(1 << 20);
  memset(line, 'x', 1 << 20);
  sse_init(&sse, keep, NULL);
  Status status = sse_add(&sse, "data: ", 6);
  for (int i = 0; i < 4 && status == STATUS_OK; i++) status = sse_add(&sse, line, 1 << 20);
  assert_int_equal(status, STATUS_BAD_FILE);
  sse_release(&sse);
  sse_init(&sse, keep, NULL); /* or of many lines */
  status = STATUS_OK;
  for (int i = 0; i < 5 && status == STATUS_OK; i++) {
    status = sse_add(&sse, "data: ", 6);
    if (status == STATUS_OK) status = sse_add(&sse, line, 1 << 20);
    if (status == STATUS_OK) status = sse_add(&sse, "\n", 1);
  }
  assert_int_equal(status, STATUS_BAD_FILE);
  sse_release(&sse);
  free(line);
}

static Status refuse(void *context, const char *data, size_t bytes) {
  (void)context, (void)data, (void)bytes;
  return status_set(STATUS_PEER, "no");
}

static void failures_end_it(void **state) {
  (void)state;
  Sse sse;
  sse_init(&sse, refuse, NULL);
  assert_int_equal(sse_add(&sse, "data: x\n\ndata: y\n\n", 18), STATUS_PEER);
  sse_release(&sse);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(events_are_cut_at_empty_lines), cmocka_unit_test(all_line_ends_count),
                                     cmocka_unit_test(other_fields_are_passed_over), cmocka_unit_test(long_events_are_refused),
                                     cmocka_unit_test(failures_end_it)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
