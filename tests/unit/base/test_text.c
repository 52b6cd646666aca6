/* Ends of names, digits of bytes, plurals. */
#include "base/text.h"
#include <cmocka.h>
#include <string.h>

static void a_text_ends_with_its_own_end(void **state) {
  (void)state;
  assert_true(text_ends_with("a.txt", ".txt"));
  assert_true(text_ends_with(".txt", ".txt"));
  assert_true(text_ends_with("a", ""));
  assert_true(text_ends_with("", ""));
  assert_false(text_ends_with("txt", ".txt"));
  assert_false(text_ends_with("", "t"));
  assert_false(text_ends_with("a.txt.gz", ".txt"));
  assert_false(text_ends_with("a.TXT", ".txt"));
}

static void bytes_are_two_digits_each(void **state) {
  (void)state;
  char text[9];
  memset(text, '?', sizeof text);
  text_hex((const uint8_t[]){0x00, 0x0f, 0xa0, 0xff}, 4, text);
  assert_string_equal(text, "000fa0ff");
  text_hex((const uint8_t[]){0x7b}, 1, text);
  assert_string_equal(text, "7b");
  assert_int_equal(text[3], 'f'); /* nothing behind the NUL */
  text_hex(NULL, 0, text);
  assert_string_equal(text, "");
}

static void one_alone_is_no_plural(void **state) {
  (void)state;
  assert_string_equal(text_plural(1), "");
  assert_string_equal(text_plural(0), "s");
  assert_string_equal(text_plural(2), "s");
  assert_string_equal(text_plural(INT64_MAX), "s");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_text_ends_with_its_own_end), cmocka_unit_test(bytes_are_two_digits_each),
                                     cmocka_unit_test(one_alone_is_no_plural)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
