/* The tokens of a model as text, and what is drawn of them. */
#include "infer/vocabulary.h"
#include <cmocka.h>
#include <string.h>

static Vocabulary vocabulary;

static int open_vocabulary(void **state) {
  (void)state;
  const ModelConfig config = {.vocabulary = 512};
  return vocabulary_open(&vocabulary, "tests/golden/stories260K", &config) == STATUS_OK ? 0 : -1;
}

static int close_vocabulary(void **state) {
  (void)state;
  vocabulary_close(&vocabulary);
  return 0;
}

typedef struct Shown {
  char text[64];
  size_t bytes;
} Shown;

static void show(void *context, const char *text, size_t bytes) {
  Shown *shown = context;
  assert_true(shown->bytes + bytes < sizeof shown->text);
  memcpy(shown->text + shown->bytes, text, bytes);
  shown->text[shown->bytes += bytes] = 0;
}

static void tokens_are_written_as_text(void **state) {
  (void)state;
  static const char story[] = "Once upon a time";
  const char *const stop = "upon";
  TokenList ids = {0};
  TextStream stream;
  Shown shown = {.bytes = 0};
  assert_int_equal(vocabulary_prompt(&vocabulary, story, strlen(story), false, &ids), STATUS_OK);
  assert_int_equal(ids.ids[0], vocabulary.begin);
  text_stream_init(&stream, &stop, 1, show, &shown);
  for (size_t i = 1; i < ids.count; i++) assert_int_equal(vocabulary_write(&vocabulary, ids.ids[i], i == 1, &stream), STATUS_OK);
  assert_true(stream.stopped);
  assert_string_equal(shown.text, "Once ");
  text_stream_release(&stream);
  /* The first word's space is text behind another one. */
  text_stream_init(&stream, NULL, 0, show, &shown);
  assert_int_equal(vocabulary_write(&vocabulary, ids.ids[1], false, &stream), STATUS_OK);
  text_stream_finish(&stream);
  assert_int_equal(strncmp(shown.text, "Once  O", 7), 0);
  assert_int_equal(vocabulary_write(&vocabulary, (int32_t)vocabulary.count, false, &stream), STATUS_BAD_VALUE);
  text_stream_release(&stream);
  token_list_release(&ids);
}

static void only_its_tokens_are_drawn(void **state) {
  (void)state;
  Sampling sampling = {.max = 7, .temperature = 0.5};
  vocabulary_sampling(&vocabulary, &sampling);
  assert_int_equal(sampling.vocabulary, vocabulary.count);
  assert_int_equal(sampling.ends, vocabulary.ends);
  assert_true(sampling.ends > 0);
  assert_int_equal(sampling.end[0], vocabulary.end[0]);
  assert_int_equal(sampling.max, 7);
  assert_true(sampling.temperature == 0.5);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_are_written_as_text), cmocka_unit_test(only_its_tokens_are_drawn)};
  return cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
}
