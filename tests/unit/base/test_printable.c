/* What reaches a terminal of text that may hold anything, and that messages and progress bars go through it. */
#include "base/log.h"
#include "base/printable.h"
#include "base/progress.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void assert_shown(const char *text, const char *want) { assert_string_equal(printable(text), want); }

static void what_can_be_shown_stays(void **state) {
  (void)state;
  assert_shown("", "");
  assert_shown(NULL, "");
  assert_shown("plain text, 100% of \"it\"\\n", "plain text, 100% of \"it\"\\n");
  /* Greek, an accent of its own, CJK, an emoji, a no-break space, the last character before the surrogates and the first behind them */
  static const char kept[] = "\316\261 e\314\201 \346\274\242 \360\237\215\216 \302\240 \355\237\277 \356\200\200";
  assert_shown(kept, kept);
  assert_shown("\342\200\251\342\200\257\342\201\245\342\201\252",
               "\342\200\251\342\200\257\342\201\245\342\201\252"); /* beside the bidi ranges */
}

static void what_a_terminal_obeys_is_written_out(void **state) {
  (void)state;
  assert_shown("a\033[31mb\033]0;title\007", "a\\x1b[31mb\\x1b]0;title\\x07");
  assert_shown("1\n2\r3\t4\b5\1776", "1\\x0a2\\x0d3\\x094\\x085\\x7f6");
  assert_shown("\302\233"
               "31m\302\200\302\237",
               "\\x9b31m\\x80\\x9f"); /* C1 */
  assert_shown("\342\200\252\342\200\256\342\201\246\342\201\251", "\\u202a\\u202e\\u2066\\u2069");
  assert_shown("\377\303(\355\240\200\300\257", "\\xff\\xc3(\\xed\\xa0\\x80\\xc0\\xaf"); /* no UTF-8 */
  for (int c = 1; c < 256; c++) {
    const char text[2] = {(char)c, 0};
    assert_true((strlen(printable(text)) == 1) == (c >= ' ' && c < 0x7f));
  }
}

static void a_copy_is_cut_at_whole_characters(void **state) {
  (void)state;
  char to[PRINTABLE_ROOM];
  assert_string_equal(printable_copy(to, sizeof to, "fifteen letters", 15), "fifteen letters");
  assert_string_equal(printable_copy(to, sizeof to, "sixteen letters!", 16), "sixteen lett...");
  assert_string_equal(printable_copy(to, sizeof to, "ten bytes \033\033\033", 13), "ten bytes ...");
  assert_string_equal(printable_copy(to, sizeof to, "\033[2J", 2), "\\x1b[");
  char *text = malloc(100000);
  memset(text, '\033', 99999);
  text[99999] = 0;
  const char *shown = printable(text);
  assert_true(strlen(shown) < 4096 && strcmp(shown + strlen(shown) - 7, "\\x1b...") == 0);
  free(text);
}

static void four_copies_live_at_once(void **state) {
  (void)state;
  const char *a = printable("a"), *b = printable("b"), *c = printable("c"), *d = printable("d");
  assert_string_equal(a, "a");
  assert_string_equal(b, "b");
  assert_string_equal(c, "c");
  assert_string_equal(d, "d");
}

/* What `write` puts on stderr. */
static char *caught(void (*write_it)(void)) {
  static char text[8192];
  FILE *file = tmpfile();
  int kept = dup(STDERR_FILENO);
  fflush(stderr);
  dup2(fileno(file), STDERR_FILENO);
  write_it();
  fflush(stderr);
  dup2(kept, STDERR_FILENO);
  close(kept);
  rewind(file);
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  return text;
}

static void log_it(void) { log_error("%s: cannot be read\n", "a\033[2Jb\nastra: done"); }

static void log_much(void) {
  char text[5000];
  memset(text, '\033', sizeof text - 1);
  text[sizeof text - 1] = 0;
  log_warning("%s", text);
}

static void progress_it(void) {
  Progress progress;
  progress_start(&progress, "get \033[2J", 2, false);
  progress_finish(&progress, 2, "of \033[1m");
}

static void messages_and_bars_go_through_it(void **state) {
  (void)state;
  log_program("test");
  assert_string_equal(caught(log_it), "test: error: a\\x1b[2Jb\\x0aastra: done: cannot be read\\x0a\n");
  const char *much = caught(log_much);
  assert_null(strchr(much, '\033'));
  assert_string_equal(much + strlen(much) - 4, "...\n");
  const char *bar = caught(progress_it);
  assert_non_null(strstr(bar, "get \\x1b[2J"));
  assert_non_null(strstr(bar, "of \\x1b[1m"));
  assert_null(strchr(bar, '\033'));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_can_be_shown_stays),           cmocka_unit_test(what_a_terminal_obeys_is_written_out),
      cmocka_unit_test(a_copy_is_cut_at_whole_characters), cmocka_unit_test(four_copies_live_at_once),
      cmocka_unit_test(messages_and_bars_go_through_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
