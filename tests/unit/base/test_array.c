/* Arrays that grow: what is in them stays, room grows in powers of two, and what does not fit leaves all as it was. */
#include "base/array.h"
#include <cmocka.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct Words {
  int64_t *list;
  size_t count, room;
} Words;

static void elements_stay_while_the_array_grows(void **state) {
  (void)state;
  Words words = {0};
  size_t moves = 0;
  for (int64_t i = 0; i < 1000; i++) {
    size_t before = words.room;
    assert_int_equal(ARRAY_RESERVE(words.list, words.count, 1, words.room, "words"), STATUS_OK);
    moves += words.room != before;
    words.list[words.count++] = i;
  }
  for (int64_t i = 0; i < 1000; i++) assert_int_equal(words.list[i], i);
  assert_int_equal(words.room, 1024);
  assert_int_equal(moves, 7);
  free(words.list);
}

static void many_at_once_fit(void **state) {
  (void)state;
  Words words = {0};
  assert_int_equal(ARRAY_RESERVE(words.list, words.count, 100, words.room, "words"), STATUS_OK);
  assert_true(words.room >= 100);
  words.count = 100;
  size_t room = words.room;
  assert_int_equal(ARRAY_RESERVE(words.list, words.count, room - 100, words.room, "words"), STATUS_OK);
  assert_int_equal(words.room, room); /* it was there */
  assert_int_equal(ARRAY_RESERVE(words.list, words.count, room - 99, words.room, "words"), STATUS_OK);
  assert_int_equal(words.room, 2 * room);
  free(words.list);
}

static void what_cannot_fit_changes_nothing(void **state) {
  (void)state;
  Words words = {0};
  assert_int_equal(ARRAY_RESERVE(words.list, words.count, 1, words.room, "words"), STATUS_OK);
  Words before = words;
  const size_t more[] = {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / sizeof *words.list, SIZE_MAX / 2 / sizeof *words.list + 1};
  for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
    assert_int_equal(ARRAY_RESERVE(words.list, 1, more[i], words.room, "words"), STATUS_NO_MEMORY);
    assert_string_equal(status_message(), "no memory for words");
    assert_memory_equal(&words, &before, sizeof words);
  }
  free(words.list);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(elements_stay_while_the_array_grows), cmocka_unit_test(many_at_once_fit),
                                     cmocka_unit_test(what_cannot_fit_changes_nothing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
