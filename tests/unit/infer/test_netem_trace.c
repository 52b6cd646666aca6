/* Traces from texts, files and chance. */
#include "base/files.h"
#include "infer/transport/netem.c"
#include "unit/remove_tree.h"
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void lines_become_steps(void **state) {
  (void)state;
  LinkTrace trace;
  const char *text = "# a comment\n0 20\n\n1.5\t0 \r\n3 7.25";
  assert_int_equal(parse(&trace, text, strlen(text)), STATUS_OK);
  assert_int_equal(trace.count, 3);
  assert_true(link_trace_rate(&trace, 1) == 20e6 && link_trace_rate(&trace, 2) == 0 && link_trace_rate(&trace, 99) == 7.25e6);
  link_trace_release(&trace);
}

static void broken_texts_name_the_line(void **state) {
  (void)state;
  static const char *const rows[][2] = {{"", "no lines"},         {"0 20\nx", "line 2"},     {"0", "line 1"},       {"0 1 2", "line 1"},
                                        {"1 20", "rise from 0"},  {"0 1\n0 2", "line 2"},    {"0 -1", "a rate of"}, {"0 nan", "a rate of"},
                                        {"0 1\nnan 3", "line 2"}, {"0 1\n1 0", "last rate"}, {"0 1e99", "a rate"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    LinkTrace trace;
    assert_int_equal(parse(&trace, rows[i][0], strlen(rows[i][0])), STATUS_BAD_FILE);
    if (!strstr(status_message(), rows[i][1])) fail_msg("'%s': %s", rows[i][0], status_message());
    assert_null(trace.points);
  }
  LinkTrace trace;
  assert_int_equal(parse(&trace, "0 1\0", 4), STATUS_BAD_FILE);
}

static void too_many_steps(void **state) {
  (void)state;
  LinkTrace trace;
  char *text = malloc(MAX_TRACE_POINTS * 16);
  size_t at = 0;
  for (int i = 0; i < MAX_TRACE_POINTS; i++) at += (size_t)sprintf(text + at, "%d 5\n", i);
  assert_int_equal(parse(&trace, text, at), STATUS_OK);
  assert_int_equal(trace.count, MAX_TRACE_POINTS);
  link_trace_release(&trace);
  at += (size_t)sprintf(text + at, "9999 5\n");
  assert_int_equal(parse(&trace, text, at), STATUS_BAD_FILE);
  assert_non_null(strstr(status_message(), "more than 4096"));
  free(text);
}

/* States of 10 Mbit/s; near ones are likelier: with distances 1, 2... the weights are 1, 1/2... */
static void chance_moves_to_neighbours(void **state) {
  (void)state;
  LinkTrace trace, same;
  assert_int_equal(link_trace_open(&trace, "markov:20-100mbit:4096", 7), STATUS_OK);
  assert_int_equal(link_trace_open(&same, "markov:20-100mbit:4096", 7), STATUS_OK);
  int near = 0, far = 0;
  for (int i = 0; i < trace.count; i++) {
    double rate = trace.points[i].bits_per_second, step = i ? fabs(rate - trace.points[i - 1].bits_per_second) / 10e6 : 1;
    assert_true(rate >= 20e6 && rate <= 100e6 && fmod(rate, 10e6) == 0 && trace.points[i].seconds == i);
    assert_true(rate == same.points[i].bits_per_second && step >= 1);
    near += step == 1;
    far += step == 8;
  }
  assert_true(near > 1500 && near < 2500 && far > 0 && far < 200);
  link_trace_release(&trace);
  link_trace_release(&same);
}

static void names_and_files(void **state) {
  (void)state;
  LinkTrace trace;
  assert_int_equal(link_trace_open(&trace, "markov:20-100mbit", 1), STATUS_OK);
  assert_int_equal(trace.count, 600);
  link_trace_release(&trace);
  assert_int_equal(link_trace_open(&trace, "markov:5-5mbit:3", 1), STATUS_OK);
  assert_true(trace.count == 3 && trace.points[2].bits_per_second == 5e6);
  link_trace_release(&trace);
  static const char *const wrong[] = {"markov:",         "markov:20-100",       "markov:100-20mbit",
                                      "markov:0-20mbit", "markov:20-100mbit:0", "markov:20-100mbit:5x"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_int_equal(link_trace_open(&trace, wrong[i], 1), STATUS_BAD_VALUE);
  char folder[TEMPORARY_PATH], path[TEMPORARY_PATH + 16];
  assert_int_equal(make_temporary_folder(folder), 0);
  snprintf(path, sizeof path, "%s/trace", folder);
  assert_int_equal(files_write(path, "0 1\n2 x\n", 8), STATUS_OK);
  assert_int_equal(link_trace_open(&trace, path, 1), STATUS_BAD_FILE);
  assert_non_null(strstr(status_message(), path));
  assert_int_equal(files_write(path, "0 1\n2 3\n", 8), STATUS_OK);
  assert_int_equal(link_trace_open(&trace, path, 1), STATUS_OK);
  assert_int_equal(trace.count, 2);
  link_trace_release(&trace);
  assert_int_equal(remove_tree(folder), 0);
  assert_true(link_trace_open(&trace, path, 1) != STATUS_OK);
}

static void a_rest_goes_on_where_the_trace_was(void **state) {
  (void)state;
  LinkTrace trace, rest;
  assert_int_equal(parse(&trace, "0 20\n2 5\n6 8", 12), STATUS_OK);
  for (double seconds = 0; seconds < 9; seconds += 0.5) {
    assert_int_equal(link_trace_rest(&rest, &trace, seconds), STATUS_OK);
    assert_int_equal(rest.count, seconds < 2 ? 3 : seconds < 6 ? 2 : 1);
    assert_true(rest.points[0].seconds == 0);
    for (double at = 0; at < 9; at += 0.5) assert_true(link_trace_rate(&rest, at) == link_trace_rate(&trace, seconds + at));
    link_trace_release(&rest);
  }
  link_trace_release(&trace);
  assert_int_equal(link_trace_rest(&rest, &trace, 1), STATUS_OK);
  assert_true(rest.count == 0 && !rest.points);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(lines_become_steps), cmocka_unit_test(broken_texts_name_the_line),
                                     cmocka_unit_test(too_many_steps),     cmocka_unit_test(chance_moves_to_neighbours),
                                     cmocka_unit_test(names_and_files),    cmocka_unit_test(a_rest_goes_on_where_the_trace_was)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
