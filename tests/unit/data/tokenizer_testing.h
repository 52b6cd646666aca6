/* What the tests of tokenizers share: the bundled tokenizers, unpacked into the folder of the test, and comparisons of ids. */
#ifndef TOKENIZER_TESTING_H
#define TOKENIZER_TESTING_H
#include "base/clock.h"
#include "base/rng.h"
#include "data/text/text_source.h"
#include "data/tokenizer/tokenizer.h"
#include "data_testing.h"

#define TOKENIZERS "tests/golden/tokenizers/"

/* A bundled file, plain or packed, as FOLDER/name of the test's folder. */
static inline void testing_unpack(const char *packed, const char *relative) {
  char path[256], *text;
  size_t size;
  snprintf(path, sizeof path, TOKENIZERS "%s", packed);
  assert_ok(text_source_read_file(path, (size_t)1 << 24, &text, &size));
  testing_write(relative, text, size);
  free(text);
}

static inline void testing_unpack_all(void) {
  testing_unpack("gpt2/encoder.json.gz", "gpt2/encoder.json");
  testing_unpack("gpt2/vocab.bpe.gz", "gpt2/vocab.bpe");
  testing_unpack("llama3/tokenizer.model.gz", "llama3/tokenizer.model");
}

static inline Tokenizer *testing_tokenizer(const char *path) {
  Tokenizer *tokenizer;
  assert_ok(tokenizer_open(&tokenizer, path));
  return tokenizer;
}

static inline void assert_ids(const TokenList *list, const int32_t *ids, size_t count) {
  assert_int_equal(list->count, count);
  for (size_t i = 0; i < count; i++) assert_int_equal(list->ids[i], ids[i]);
}

#define assert_encodes(tokenizer, text, special, ...)                                                                                      \
  do {                                                                                                                                     \
    TokenList encoded = {0};                                                                                                               \
    assert_ok(tokenizer_encode(tokenizer, text, sizeof text - 1, special, &encoded));                                                      \
    assert_ids(&encoded, (const int32_t[]){__VA_ARGS__}, sizeof(int32_t[]){__VA_ARGS__} / sizeof(int32_t));                                \
    token_list_release(&encoded);                                                                                                          \
  } while (0)

/* Decoding what was encoded gives the same bytes. */
static inline void assert_round_trip(Tokenizer *tokenizer, const char *text, size_t size, bool special) {
  TokenList list = {0};
  char *back;
  size_t bytes;
  assert_ok(tokenizer_encode(tokenizer, text, size, special, &list));
  assert_ok(tokenizer_decode(tokenizer, list.ids, list.count, &back, &bytes));
  assert_int_equal(bytes, size);
  assert_memory_equal(back, text, size);
  assert_int_equal(back[bytes], 0);
  free(back);
  token_list_release(&list);
}

/* One text against a line of ids; returns the beginning of the next line. */
static inline const char *testing_case(Tokenizer *tokenizer, const char *text, size_t size, const char *line) {
  TokenList list = {0};
  size_t at = 0;
  assert_ok(tokenizer_encode(tokenizer, text, size, false, &list));
  for (; *line && *line != '\n'; at++) {
    char *end;
    long id = strtol(line, &end, 10);
    if (at >= list.count || list.ids[at] != id) fail_msg("token %zu of \"%.*s\" is not %ld", at, (int)size, text, id);
    for (line = end; *line == ' ' && line[1] == '\n'; line++) continue;
  }
  assert_int_equal(list.count, at);
  token_list_release(&list);
  return line + 1;
}

/* The ids of all texts of cases.inp, as name.out has them. */
static inline void assert_vectors(Tokenizer *tokenizer, const char *name) {
  static const char separator[] = "\n__ggml_vocab_test__\n";
  char path[128], *cases, *ids;
  size_t size, cases_size, count = 0;
  snprintf(path, sizeof path, TOKENIZERS "%s.out", name);
  assert_ok(files_read(TOKENIZERS "cases.inp", 1 << 20, &cases, &cases_size));
  assert_ok(files_read(path, 1 << 20, &ids, &size));
  const char *line = ids, *text = cases;
  for (const char *end; (end = strstr(text, separator)); text = end + sizeof separator - 1, count++) {
    assert_true(line < ids + size);
    line = testing_case(tokenizer, text, (size_t)(end - text), line);
  }
  assert_int_equal(count, 46);
  assert_ptr_equal(text, cases + cases_size);
  assert_ptr_equal(line, ids + size);
  free(cases);
  free(ids);
}

#endif
