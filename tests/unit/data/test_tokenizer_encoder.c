/* The encoder over real tokenizers: special ids, that cutting long texts, where it is done, changes no token, and that the bytes of tokens
 * are those of the text. */
#include "data/text/token_cache.h"
#include "data/tokenizer/tokenizer.h"
#include "text_testing.h"
#include "tokenizer_testing.h"

static TokenCache *tokens(TextEncoder *encoder, const char *fingerprint, bool cuttable) {
  TextSource *source;
  TokenCache *cache;
  TextEncoder changed = *encoder;
  changed.fingerprint = fingerprint;
  changed.cuttable = cuttable;
  assert_ok(text_source_open(&source, text_testing_name("text", "long.txt"), NULL, TEXT_WHOLE));
  assert_ok(token_cache_open(&cache, source, &changed, &(TokenCacheOptions){testing_path("cache"), true}));
  text_source_close(source);
  return cache;
}

/* Three megabytes of real text, which come in several blocks. */
static void put_long_text(void) {
  char *text;
  size_t size;
  assert_ok(files_read(testing_shared("data/enwiki/valid.txt"), 1 << 24, &text, &size));
  char *thrice = malloc(3 * size);
  assert_non_null(thrice);
  for (int i = 0; i < 3; i++) memcpy(thrice + (size_t)i * size, text, size);
  testing_write("long.txt", thrice, 3 * size);
  free(thrice);
  free(text);
}

static void check(const char *relative, bool cuttable, int32_t begin, int32_t separator) {
  Tokenizer *tokenizer;
  TextEncoder encoder;
  put_long_text();
  assert_ok(tokenizer_open(&tokenizer, testing_shared(relative)));
  assert_ok(tokenizer_encoder(&encoder, tokenizer));
  assert_int_equal(encoder.cuttable, cuttable);
  assert_int_equal(encoder.begin, begin);
  assert_int_equal(encoder.separator, separator);
  TokenCache *cut = tokens(&encoder, encoder.fingerprint, encoder.cuttable), *whole = tokens(&encoder, "whole", false);
  int64_t count = token_cache_facts(whole)->tokens;
  assert_int_equal(token_cache_facts(cut)->tokens, count);
  for (int64_t i = 0; i < count; i++) {
    int32_t a, b;
    token_cache_copy(cut, i, 1, &a);
    token_cache_copy(whole, i, 1, &b);
    assert_int_equal(a, b);
  }
  token_cache_close(cut);
  token_cache_close(whole);
  tokenizer_close(tokenizer);
}

static void test_gpt2(void **state) {
  (void)state;
  check("data/gpt2-tokenizer", true, -1, 50256);
}

static void test_llama3(void **state) {
  (void)state;
  check("data/llama3-tokenizer", true, 128000, 128001);
}

/* It puts a space before a text, so that halves are not what the whole is. */
static void test_scored(void **state) {
  (void)state;
  check("data/stories260K", false, 1, 2);
}

/* Over a whole corpus, token by token behind the one before it. */
static void check_bytes(const char *path, const char *name) {
  Tokenizer *tokenizer = testing_tokenizer(path);
  TextEncoder encoder;
  TextSource *source;
  TokenCache *cache;
  assert_ok(tokenizer_encoder(&encoder, tokenizer));
  assert_ok(text_source_open(&source, name, NULL, TEXT_WHOLE));
  assert_ok(token_cache_open(&cache, source, &encoder, &(TokenCacheOptions){testing_path("cache"), true}));
  int64_t sum = 0;
  int32_t before = -1, id;
  for (int64_t i = 0; i < token_cache_facts(cache)->tokens; i++, before = id) {
    token_cache_copy(cache, i, 1, &id);
    sum += (int64_t)tokenizer_text_bytes(tokenizer, before, id);
  }
  assert_int_equal(sum, token_cache_facts(cache)->bytes);
  assert_int_equal(tokenizer_text_bytes(tokenizer, -1, encoder.separator), 0);
  assert_int_equal(tokenizer_text_bytes(tokenizer, -1, (int32_t)tokenizer_count(tokenizer)), 0);
  assert_int_equal(tokenizer_text_bytes(tokenizer, -1, -1), 0);
  token_cache_close(cache);
  text_source_close(source);
  tokenizer_close(tokenizer);
}

static void test_bytes_of_tokens(void **state) {
  (void)state;
  testing_unpack_all();
  text_testing_put("documents.txt", "the first\n  two spaces, \xc3\xa4 and \xe2\x82\xac\n\n \nx\n</s> is text\n\xff\n");
  char folders[3][512];
  snprintf(folders[0], sizeof folders[0], "%s", testing_path("gpt2"));
  snprintf(folders[1], sizeof folders[1], "%s", testing_path("llama3"));
  snprintf(folders[2], sizeof folders[2], TOKENIZERS "stories260K/tok512.bin");
  for (int i = 0; i < 3; i++) {
    check_bytes(folders[i], text_testing_name("text-lines", "documents.txt"));
    check_bytes(folders[i], text_testing_name("text", "documents.txt"));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_gpt2), cmocka_unit_test(test_llama3), cmocka_unit_test(test_scored),
                                     cmocka_unit_test(test_bytes_of_tokens)};
  return cmocka_run_group_tests(tests, testing_make_folder, testing_remove_folder);
}
