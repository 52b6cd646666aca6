/* Progress and log: durations, and what is written when stderr is not a terminal. */
#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include <cmocka.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char captured[2000];
static int kept_stderr;
static FILE *sink;

static void capture_start(void) {
  fflush(stderr);
  kept_stderr = dup(STDERR_FILENO);
  sink = tmpfile();
  dup2(fileno(sink), STDERR_FILENO);
}

static void capture_end(void) {
  fflush(stderr);
  dup2(kept_stderr, STDERR_FILENO);
  close(kept_stderr);
  rewind(sink);
  captured[fread(captured, 1, sizeof captured - 1, sink)] = 0;
  fclose(sink);
}

static void durations_are_short(void **state) {
  (void)state;
  const struct {
    double seconds;
    const char *text;
  } cases[] = {{0, "0.0s"},          {4.12, "4.1s"},    {9.94, "9.9s"},  {9.96, "10s"},          {59.4, "59s"},     {59.6, "1m00s"},
               {200, "3m20s"},       {3599.7, "1h00m"}, {3725, "1h02m"}, {359999, "99h59m"},     {360000, "4d04h"}, {1062000, "12d07h"},
               {1e300, "99999d00h"}, {-5, "0.0s"},      {NAN, "0.0s"},   {INFINITY, "99999d00h"}};
  char buffer[16];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_string_equal(progress_duration(cases[i].seconds, buffer), cases[i].text);
  }
}

static void plain_lines_without_a_terminal(void **state) {
  (void)state;
  Progress progress;
  capture_start();
  progress_start(&progress, "epoch 1", 200, false);
  progress_update(&progress, 10, "loss 1"); /* too soon: no line */
  progress.drawn -= 60;
  progress.started -= 60;
  progress_update(&progress, 50, "loss 2");
  progress_finish(&progress, 200, NULL);
  capture_end();
  assert_string_equal(captured, "epoch 1  25% 50/200  loss 2  ETA 3m00s\nepoch 1 100% 200/200  in 1m00s\n");
}

static void an_unknown_total_counts_up(void **state) {
  (void)state;
  Progress progress;
  char title[600];
  memset(title, 't', sizeof title - 1);
  title[sizeof title - 1] = 0;
  capture_start();
  progress_start(&progress, "reading", 0, false);
  progress_finish(&progress, 12, NULL);
  progress_start(&progress, title, 5, false); /* cut, not overrun */
  progress.terminal = true;
  progress_finish(&progress, 9, title);
  capture_end();
  assert_non_null(strstr(captured, "reading 12  in 0.0s\n"));
  assert_true(strlen(captured) < 700);
}

/* Title, percentage and time are always there, whatever the width; nothing is wider. */
static void a_bar_keeps_to_its_columns(void **state) {
  (void)state;
  char line[200];
  Progress progress = {.title = "training", .total = 1000, .started = 100, .terminal = true};
  progress_render(&progress, 250, "loss 1.234  rate 0.0001", 110, false, 79, line, sizeof line);
  assert_string_equal(line, "training [#####...............]  25% 250/1000  loss 1.234  rate 0.0001  ETA 30s");
  progress_render(&progress, 1000, NULL, 110, true, 79, line, sizeof line);
  assert_string_equal(line, "training [########################] 100% 1000/1000  in 10s");
  progress_render(&progress, 250, "loss 1.234  rate 0.0001", 110, false, 40, line, sizeof line);
  assert_string_equal(line, "training  25%  loss 1.234  ETA 30s"); /* half a part of a note says nothing */
  for (int columns = 24; columns < 120; columns++)
    for (int64_t total = 0; total < 2000000000; total = 10 * total + 9) {
      progress.total = total;
      progress_render(&progress, total / 4, "loss 1.234  rate 0.0001  and more than there is room for", 110, false, columns, line,
                      sizeof line);
      assert_true(strlen(line) <= (size_t)columns);
      if (total < 9) continue;
      assert_non_null(strchr(line, '%'));
      assert_non_null(strstr(line, "  ETA "));
    }
  progress.total = 1000, progress.first = 240; /* of a resumed run: 10 steps took 10 s */
  progress_render(&progress, 250, NULL, 110, false, 79, line, sizeof line);
  assert_non_null(strstr(line, "ETA 12m30s"));
}

static void quiet_is_silent(void **state) {
  (void)state;
  Progress progress;
  capture_start();
  progress_start(&progress, "x", 10, true);
  progress.drawn -= 60;
  progress_update(&progress, 5, NULL);
  progress_finish(&progress, 10, NULL);
  log_quiet(true);
  log_info("not shown");
  log_quiet(false);
  capture_end();
  assert_string_equal(captured, "");
}

static void messages_carry_the_program_and_level(void **state) {
  (void)state;
  static char text[9000];
  memset(text, 'y', sizeof text - 1);
  capture_start();
  log_program("astra-test");
  log_info("saved %d files", 3);
  log_warning("careful");
  log_error("failed");
  capture_end();
  assert_string_equal(captured, "astra-test: saved 3 files\nastra-test: warning: careful\nastra-test: error: failed\n");
  capture_start();
  log_error("%s", text); /* cut, still one line */
  capture_end();
  assert_int_equal(strlen(captured), sizeof captured - 1);
}

static void the_clock_moves_on(void **state) {
  (void)state;
  double start = clock_now();
  usleep(20000);
  double passed = clock_now() - start;
  assert_true(passed >= 0.0199 && passed < 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(durations_are_short),
      cmocka_unit_test(plain_lines_without_a_terminal),
      cmocka_unit_test(an_unknown_total_counts_up),
      cmocka_unit_test(a_bar_keeps_to_its_columns),
      cmocka_unit_test(quiet_is_silent),
      cmocka_unit_test(messages_carry_the_program_and_level),
      cmocka_unit_test(the_clock_moves_on),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
