/* Text as it comes: whole characters, nothing of a stop string, whatever pieces it comes in. */
#include "infer/text_stream.h"
#include <cmocka.h>
#include <string.h>

typedef struct Shown {
  char text[256];
  size_t bytes;
  int writes;
} Shown;

static void show(void *context, const char *text, size_t bytes) {
  Shown *shown = context;
  assert_true(shown->bytes + bytes < sizeof shown->text);
  memcpy(shown->text + shown->bytes, text, bytes);
  shown->text[shown->bytes += bytes] = 0;
  shown->writes++;
}

/* In pieces of `size` bytes; what was shown before the end, in `early`, and at the end. */
static void run(const char *text, size_t size, const char *const *stops, int count, Shown *early, Shown *shown, bool *stopped) {
  TextStream stream;
  *shown = (Shown){.bytes = 0};
  text_stream_init(&stream, stops, count, show, shown);
  for (size_t at = 0, length = strlen(text); at < length; at += size)
    assert_int_equal(text_stream_add(&stream, text + at, length - at < size ? length - at : size), STATUS_OK);
  *early = *shown;
  *stopped = stream.stopped;
  text_stream_finish(&stream);
  text_stream_release(&stream);
}

static void assert_shows(const char *text, const char *const *stops, int count, const char *early, const char *whole, bool stops_there) {
  for (size_t size = 1; size <= strlen(text); size++) {
    Shown before, shown;
    bool stopped;
    run(text, size, stops, count, &before, &shown, &stopped);
    assert_string_equal(before.text, early);
    assert_string_equal(shown.text, whole);
    assert_int_equal(stopped, stops_there);
  }
}

static void without_stop_strings_all_is_shown_at_once(void **state) {
  (void)state;
  assert_shows("plain text", NULL, 0, "plain text", "plain text", false);
}

static void it_ends_before_a_stop_string(void **state) {
  (void)state;
  const char *const stops[] = {"END", "stop"};
  assert_shows("some text END more", stops, 2, "some text ", "some text ", true);
  assert_shows("a stop and an END", stops, 2, "a ", "a ", true);
  assert_shows("END", stops, 2, "", "", true);
  assert_shows("EEND", stops, 2, "E", "E", true);
}

static void what_may_be_its_beginning_is_held_back(void **state) {
  (void)state;
  const char *const stops[] = {"END"};
  assert_shows("text EN", stops, 1, "text ", "text EN", false);
  assert_shows("text ENOUGH", stops, 1, "text ENOUGH", "text ENOUGH", false);
  const char *const repeating[] = {"aab"};
  assert_shows("aaaaa", repeating, 1, "aaa", "aaaaa", false);
  assert_shows("aaaab", repeating, 1, "aa", "aa", true);
}

static void the_one_that_is_whole_first_counts(void **state) {
  (void)state;
  const char *const stops[] = {"bcde", "cd", "abcdef"}, *const together[] = {"cd", "abcd", "bcd"};
  assert_shows("xabcdefg", stops, 3, "xab", "xab", true);
  assert_shows("xabcdefg", together, 3, "x", "x", true);
}

static void a_longer_one_that_never_comes_hides_nothing(void **state) {
  (void)state;
  const char *const stops[] = {"abcX", "b"};
  assert_shows("abc", stops, 2, "a", "a", true);
}

static void characters_are_whole(void **state) {
  (void)state;
  const struct {
    const char *text, *early;
  } cases[] = {{"a\xc3\xa9", "a\xc3\xa9"},
               {"a\xc3", "a"},
               {"\xe2\x82\xac!", "\xe2\x82\xac!"},
               {"x\xe2\x82", "x"},
               {"x\xf0\x9f\x99", "x"},
               {"\xf0\x9f\x99\x82", "\xf0\x9f\x99\x82"},
               {"\xff\xfe", "\xff\xfe"}, /* no text: nothing to wait for */
               {"\x82\x82\x82\x82", "\x82\x82\x82\x82"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_shows(cases[i].text, NULL, 0, cases[i].early, cases[i].text, false); /* a cut-off one comes at the end as it is */
}

static void every_write_ends_with_a_character(void **state) {
  (void)state;
  Shown early, shown;
  bool stopped;
  run("\xe2\x82\xac\xc3\xa9", 1, NULL, 0, &early, &shown, &stopped);
  assert_int_equal(shown.writes, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(without_stop_strings_all_is_shown_at_once),
                                     cmocka_unit_test(it_ends_before_a_stop_string),
                                     cmocka_unit_test(what_may_be_its_beginning_is_held_back),
                                     cmocka_unit_test(the_one_that_is_whole_first_counts),
                                     cmocka_unit_test(a_longer_one_that_never_comes_hides_nothing),
                                     cmocka_unit_test(characters_are_whole),
                                     cmocka_unit_test(every_write_ends_with_a_character)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
