/* What of a text is shown: whole characters, no control characters, bytes that are none marked, and whether there is more. */
#include "base/printable.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static void assert_shown(const char *text, size_t bytes, size_t max, const char *expected) {
  char *copy = malloc(bytes + 1), *shown; /* of exact size: nothing behind the text is looked at */
  assert_non_null(copy);
  memcpy(copy, text, bytes);
  shown = printable_excerpt(copy, bytes, max);
  assert_string_equal(shown, expected);
  free(shown);
  free(copy);
}

static void a_short_text_is_shown_whole(void **state) {
  (void)state;
  assert_shown("a cat", 5, 5, "a cat");
  assert_shown("", 0, 5, "");
  assert_shown("na\xc3\xafve", 6, 6, "na\xc3\xafve");
}

static void it_ends_with_a_whole_character(void **state) {
  (void)state;
  static const char text[] = "ab\xe2\x82\xac"
                             "cd"; /* a euro sign */
  const char *expected[] = {"...",
                            "a...",
                            "ab...",
                            "ab...",
                            "ab...",
                            "ab\xe2\x82\xac...",
                            "ab\xe2\x82\xac"
                            "c...",
                            "ab\xe2\x82\xac"
                            "cd"};
  for (size_t max = 0; max < sizeof text; max++) assert_shown(text, sizeof text - 1, max, expected[max]);
}

/* Line ends, tabs, NUL, escape, delete; and CSI, of which UTF-8 makes two bytes. */
static void control_characters_are_spaces(void **state) {
  (void)state;
  assert_shown("a\n\tb\0c\x1b[2J\x7f"
               "d",
               12, 100, "a  b c [2J d");
  assert_shown("a\xc2\x9b"
               "2Jb\xc2\xa0",
               8, 100, "a 2Jb\xc2\xa0");
}

static void bytes_that_are_no_character_are_marked(void **state) {
  (void)state;
  assert_shown("\x82"
               "a\xff"
               "b\xe2\x82",
               6, 100,
               "\xef\xbf\xbd"
               "a\xef\xbf\xbd"
               "b\xef\xbf\xbd\xef\xbf\xbd");
  assert_shown("\x82\x82\x82", 3, 2, "\xef\xbf\xbd\xef\xbf\xbd...");
}

static void what_is_no_text_becomes_blank(void **state) {
  (void)state;
  char text[] = "a\x1b[2J\x7f\xc2\x9b\x9b\xe2\x82\xac\xe2\x82";
  assert_false(printable_is(text, sizeof text - 1));
  assert_true(printable_blank(text, sizeof text - 1));
  assert_string_equal(text, "a [2J    \xe2\x82\xac  ");
  assert_false(printable_blank(text, sizeof text - 1));
  assert_true(printable_is(text, sizeof text - 1));
  assert_false(printable_is(text, 11));
  assert_true(printable_blank(text, 11)); /* which ends within a character */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_short_text_is_shown_whole), cmocka_unit_test(it_ends_with_a_whole_character),
                                     cmocka_unit_test(control_characters_are_spaces),
                                     cmocka_unit_test(bytes_that_are_no_character_are_marked),
                                     cmocka_unit_test(what_is_no_text_becomes_blank)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
