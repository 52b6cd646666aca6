/* Numbers that JSON has, and those that it has not; texts that are no UTF-8. How failures to allocate are met is the checkpoints' tests'.
 */
#include "nn/json_build.h"
#include <cmocka.h>
#include <math.h>
#include <string.h>

static void what_is_not_finite_is_null(void **state) {
  (void)state;
  const double finite[] = {0, -2.5, 1e308}, other[] = {(double)NAN, (double)INFINITY, (double)-INFINITY};
  for (int i = 0; i < 3; i++) {
    json_t *number = json_build_number(finite[i]), *nothing = json_build_number(other[i]);
    assert_true(json_is_real(number) && json_real_value(number) == finite[i]);
    assert_true(json_is_null(nothing));
    json_decref(number);
    json_decref(nothing);
  }
}

/* A byte that belongs to no character becomes U+FFFD; a NUL is a character. */
static void texts_become_utf8(void **state) {
  (void)state;
  static const struct {
    const char *text;
    size_t bytes;
    const char *wanted;
  } cases[] = {{"d\xc3\xa4y", 4, "d\xc3\xa4y"}, {"a\xffz\xc3", 4, "a\xef\xbf\xbdz\xef\xbf\xbd"}, {"a\0z", 3, "a\0z"}, {NULL, 0, ""}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    json_t *value = json_build_text(cases[i].text, cases[i].bytes);
    size_t wanted = i == 2 ? 3 : strlen(cases[i].wanted);
    assert_int_equal(json_string_length(value), wanted);
    assert_memory_equal(json_string_value(value), cases[i].wanted, wanted);
    json_decref(value);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_not_finite_is_null), cmocka_unit_test(texts_become_utf8)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
