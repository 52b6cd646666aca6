/* The cache of tokens: what it holds, that it is made once for each text and tokenizer, and that a hostile one is never believed. */
#include "data/text/token_cache.c" /* its check of bytes in memory */
#include "text_testing.h"

static int calls; /* of the encoder */

static TokenCache *open_with(const TextEncoder *encoder, const char *name, TextPart part) {
  TextSource *source;
  TokenCache *cache;
  assert_ok(text_source_open(&source, name, NULL, part));
  assert_ok(token_cache_open(&cache, source, encoder, &(TokenCacheOptions){testing_path("cache"), true}));
  text_source_close(source);
  return cache;
}

static void assert_tokens(const TokenCache *cache, const int32_t *expected, int64_t count) {
  int32_t ids[64];
  assert_int_equal(token_cache_facts(cache)->tokens, count);
  token_cache_copy(cache, 0, count, ids);
  for (int64_t i = 0; i < count; i++) assert_int_equal(ids[i], expected[i]);
}

static void test_documents_are_joined(void **state) {
  (void)state;
  TextEncoder encoder = text_testing_encoder(&calls);
  text_testing_put("a.txt", "ab\n\nc d\n");
  TokenCache *cache = open_with(&encoder, text_testing_name("text-lines", "a.txt"), TEXT_WHOLE);
  const TokenCacheFacts *facts = token_cache_facts(cache);
  assert_tokens(cache, (int32_t[]){'a', 'b', 256, 'c', ' ', 'd'}, 6);
  assert_int_equal(facts->width, 2);
  assert_int_equal(facts->documents, 2);
  assert_int_equal(facts->bytes, 5);
  assert_int_equal(facts->words, 3);
  assert_int_equal(facts->lines, 2);
  token_cache_close(cache);
  encoder.begin = TEXT_TESTING_BEGIN; /* another key, so made anew */
  cache = open_with(&encoder, text_testing_name("text-lines", "a.txt"), TEXT_WHOLE);
  assert_tokens(cache, (int32_t[]){257, 'a', 'b', 256, 257, 'c', ' ', 'd'}, 8);
  int32_t middle[3];
  token_cache_copy(cache, 3, 3, middle);
  assert_int_equal(middle[0], 256);
  assert_int_equal(middle[2], 'c');
  token_cache_close(cache);
  encoder.separator = -1;
  encoder.begin = -1;
  encoder.vocabulary = 65537; /* too many for two bytes */
  cache = open_with(&encoder, text_testing_name("text-lines", "a.txt"), TEXT_WHOLE);
  assert_tokens(cache, (int32_t[]){'a', 'b', 'c', ' ', 'd'}, 5);
  assert_int_equal(token_cache_facts(cache)->width, 4);
  token_cache_close(cache);
}

static void test_made_once(void **state) {
  (void)state;
  TextEncoder encoder = text_testing_encoder(&calls);
  text_testing_put("b.txt", "some text\n");
  token_cache_close(open_with(&encoder, text_testing_name("text", "b.txt"), TEXT_WHOLE));
  assert_int_equal(calls, 1);
  text_testing_put("copy-of-b.txt", "some text\n"); /* the content counts, not its place */
  token_cache_close(open_with(&encoder, text_testing_name("text", "copy-of-b.txt"), TEXT_WHOLE));
  assert_int_equal(calls, 1);
  text_testing_put("b.txt", "same size\n");
  TokenCache *cache = open_with(&encoder, text_testing_name("text", "b.txt"), TEXT_WHOLE);
  assert_int_equal(calls, 2);
  int32_t id;
  token_cache_copy(cache, 2, 1, &id);
  assert_int_equal(id, 'm');
  token_cache_close(cache);
  encoder.fingerprint = "another tokenizer";
  token_cache_close(open_with(&encoder, text_testing_name("text", "b.txt"), TEXT_WHOLE));
  assert_int_equal(calls, 3);
  text_testing_put("ab/1.txt", "ab"); /* where one document ends and the next begins is content too */
  text_testing_put("ab/2.txt", "c");
  text_testing_put("bc/1.txt", "a");
  text_testing_put("bc/2.txt", "bc");
  token_cache_close(open_with(&encoder, text_testing_name("text", "ab"), TEXT_WHOLE));
  token_cache_close(open_with(&encoder, text_testing_name("text", "bc"), TEXT_WHOLE));
  assert_int_equal(calls, 7);
}

/* One document either way, of the same bytes, but not of as many lines: neither takes the place of the other's tokens. */
static void test_a_line_is_no_file(void **state) {
  (void)state;
  TextEncoder encoder = text_testing_encoder(&calls);
  static const char *const kinds[] = {"text", "text-lines"};
  text_testing_put("l.txt", "a line without its end");
  calls = 0;
  for (int round = 0; round < 2; round++)
    for (int lines = 0; lines < 2; lines++) {
      TokenCache *cache = open_with(&encoder, text_testing_name(kinds[lines], "l.txt"), TEXT_WHOLE);
      assert_int_equal(token_cache_facts(cache)->lines, lines);
      token_cache_close(cache);
    }
  assert_int_equal(calls, 2);
}

/* The only file of the cache folder. */
static char *cache_file(void) {
  char **names, *path;
  size_t count;
  assert_ok(files_list(testing_path("cache"), &names, &count));
  assert_int_equal(count, 1);
  path = files_join(testing_path("cache"), names[0]);
  files_list_free(names, count);
  return path;
}

static void test_damage_is_mended(void **state) {
  (void)state;
  TextEncoder encoder = text_testing_encoder(&calls);
  text_testing_put("d.txt", "abcdefgh");
  TextSource *source;
  TokenCache *cache;
  for (int round = 0; round < 3; round++) {
    assert_ok(text_source_open(&source, text_testing_name("text", "d.txt"), NULL, TEXT_WHOLE));
    assert_ok(token_cache_open(&cache, source, &encoder, &(TokenCacheOptions){testing_path("cache"), true}));
    text_source_close(source);
    assert_int_equal(calls, round + 1);
    assert_tokens(cache, (int32_t[]){'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'}, 8);
    token_cache_close(cache);
    char *path = cache_file(), *bytes;
    size_t size;
    assert_ok(files_read(path, 1 << 20, &bytes, &size));
    if (round == 0) bytes[TOKEN_CACHE_HEADER + 3] = 2; /* id 0x0262 */
    assert_ok(files_write(path, bytes, round == 1 ? size - 1 : size));
    free(bytes);
    free(path);
    if (round == 2) return;
  }
}

/* Whatever in the header was changed, each number of which divides a perplexity: the file is made anew. */
static void test_a_changed_header_is_not_believed(void **state) {
  (void)state;
  TextEncoder encoder = text_testing_encoder(&calls);
  text_testing_put("d.txt", "ab c\ndefgh");
  TokenCache *first = open_with(&encoder, text_testing_name("text", "d.txt"), TEXT_WHOLE);
  const TokenCacheFacts made = *token_cache_facts(first);
  token_cache_close(first);
  assert_true(made.tokens == 10 && made.bytes == 10 && made.words == 3 && made.documents == 1);
  char *path = cache_file();
  for (int at = 0; at < TOKEN_CACHE_HEADER; at += 4) {
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    fputc(byte ^ 1, file);
    assert_int_equal(fclose(file), 0);
    calls = 0;
    TokenCache *cache = open_with(&encoder, text_testing_name("text", "d.txt"), TEXT_WHOLE);
    if (calls != 1) fail_msg("byte %d of the header is believed", at);
    const TokenCacheFacts *again = token_cache_facts(cache);
    assert_true(again->width == made.width && again->tokens == made.tokens && again->vocabulary == made.vocabulary);
    assert_true(again->documents == made.documents && again->bytes == made.bytes && again->words == made.words &&
                again->lines == made.lines);
    assert_memory_equal(again->content, made.content, TOKEN_CACHE_DIGEST);
    assert_memory_equal(again->tokenizer, made.tokenizer, TOKEN_CACHE_DIGEST);
    token_cache_close(cache);
  }
  free(path);
}

/* What the call writes to stderr; freed by the caller. */
static char *warnings_of(TokenCache **cache, TextSource *source, const TextEncoder *encoder, const char *directory) {
  char *text;
  size_t size;
  fflush(stderr);
  int kept = dup(STDERR_FILENO);
  assert_non_null(freopen(testing_path("stderr"), "w", stderr));
  Status status = token_cache_open(cache, source, encoder, &(TokenCacheOptions){directory, true});
  fflush(stderr);
  assert_true(dup2(kept, STDERR_FILENO) >= 0);
  close(kept);
  assert_ok(status);
  assert_ok(files_read(testing_path("stderr"), 1 << 16, &text, &size));
  return text;
}

/* The warning names what the place comes from, and no option: no program has one. */
static void assert_warns(TextSource *source, const TextEncoder *encoder, const char *directory, const char *words) {
  TokenCache *cache;
  char *text = warnings_of(&cache, source, encoder, directory);
  if (!strstr(text, "for this run only") || !strstr(text, words) || strstr(text, "--")) fail_msg("%s", text);
  free(text);
  assert_tokens(cache, (int32_t[]){'a', 'b', 'c'}, 3);
  token_cache_close(cache);
}

static void test_place_that_cannot_be_written(void **state) {
  (void)state;
  TextEncoder encoder = text_testing_encoder(&calls);
  text_testing_put("e.txt", "abc");
  TextSource *source;
  TokenCache *cache;
  assert_ok(text_source_open(&source, text_testing_name("text", "e.txt"), NULL, TEXT_WHOLE));
  assert_warns(source, &encoder, "/dev/null/none", "/dev/null/none cannot be written");
  assert_warns(source, &encoder, "/sys", "the tokens are kept for this run only"); /* root has all permissions, and can make no file */
  setenv("XDG_CACHE_HOME", "/dev/null/xdg", 1);
  assert_warns(source, &encoder, NULL, "XDG_CACHE_HOME names another place");
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  assert_warns(source, &encoder, NULL, "neither XDG_CACHE_HOME nor HOME is set");
  setenv("XDG_CACHE_HOME", testing_path("xdg"), 1);
  assert_ok(token_cache_open(&cache, source, &encoder, &(TokenCacheOptions){NULL, true}));
  assert_true(files_is_dir(testing_path("xdg/astra/tokens")));
  token_cache_close(cache);
  unsetenv("XDG_CACHE_HOME");
  text_source_close(source);
}

static Status encode_nothing(void *context, const char *text, size_t bytes, TokenList *out) {
  (void)context, (void)text, (void)bytes, (void)out;
  return STATUS_OK;
}

static Status encode_too_much(void *context, const char *text, size_t bytes, TokenList *out) {
  (void)context, (void)text, (void)bytes;
  return token_list_add(out, 10);
}

static void test_bad_encoders(void **state) {
  (void)state;
  TextSource *source;
  TokenCache *cache;
  TokenCacheOptions options = {testing_path("cache"), true};
  TextEncoder encoder = {.encode = encode_nothing, .vocabulary = 10, .begin = -1, .separator = -1, .fingerprint = "x"};
  text_testing_put("e.txt", "abc");
  assert_ok(text_source_open(&source, text_testing_name("text", "e.txt"), NULL, TEXT_WHOLE));
  assert_fails(token_cache_open(&cache, source, &encoder, &options), STATUS_BAD_FILE, "no tokens");
  encoder.encode = encode_too_much;
  assert_fails(token_cache_open(&cache, source, &encoder, &options), STATUS_BAD_VALUE, "id 10; its vocabulary has 0 to 9");
  assert_null(cache);
  encoder.vocabulary = 0;
  assert_fails(token_cache_open(&cache, source, &encoder, &options), STATUS_BAD_VALUE, "vocabulary of 0");
  char **names;
  size_t count;
  assert_ok(files_list(testing_path("cache"), &names, &count)); /* nothing half-made is left */
  files_list_free(names, count);
  assert_int_equal(count, 0);
  text_source_close(source);
}

/* Tokens of a text are not kept under the digest of another one that was there a moment before. */
static Status encode_and_change(void *context, const char *text, size_t bytes, TokenList *out) {
  text_testing_put("moving.txt", "cba");
  return text_testing_encode(context, text, bytes, out);
}

static void test_text_that_changes(void **state) {
  (void)state;
  TextSource *source;
  TokenCache *cache;
  TokenCacheOptions options = {testing_path("moving-cache"), true};
  TextEncoder encoder = text_testing_encoder(&calls);
  encoder.encode = encode_and_change;
  text_testing_put("moving.txt", "abc");
  assert_ok(text_source_open(&source, text_testing_name("text", "moving.txt"), NULL, TEXT_WHOLE));
  assert_fails(token_cache_open(&cache, source, &encoder, &options), STATUS_BAD_FILE, "the text changed while it was turned into tokens");
  assert_ok(token_cache_open(&cache, source, &encoder, &options));
  assert_tokens(cache, (int32_t[]){'c', 'b', 'a'}, 3);
  token_cache_close(cache);
  text_source_close(source);
}

/* Each field of the header out of its range. */
static void test_hostile_headers(void **state) {
  (void)state;
  TextEncoder encoder = text_testing_encoder(&calls);
  text_testing_put("h.txt", "hostile");
  token_cache_close(open_with(&encoder, text_testing_name("text", "h.txt"), TEXT_WHOLE));
  char *path = cache_file(), *bytes;
  size_t size;
  TokenCacheFacts facts;
  assert_ok(files_read(path, 1 << 20, &bytes, &size));
  free(path);
  uint8_t *data = (uint8_t *)bytes;
  assert_ok(token_cache_check(&facts, data, size, "h"));
  assert_fails(token_cache_check(&facts, data, size - 1, "h"), STATUS_BAD_FILE, "h: ");
  assert_fails(token_cache_check(&facts, data, TOKEN_CACHE_HEADER - 1, "h"), STATUS_BAD_FILE, "cut short");
  static const struct {
    size_t offset;
    uint8_t value;
    const char *says;
  } cases[] = {{0, 'X', "no cache"},       {8, 2, "version 2"},   {12, 3, "ids of 3 bytes"},   {12, 4, "7 tokens of 4 bytes"},
               {16, 8, "8 tokens"},        {23, 0x7f, "beyond"},  {24, 101, "vocabulary has"}, {31, 0x10, "beyond"},
               {29, 1, "a vocabulary of"}, {129, 0x55, "token 0"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint8_t kept[4] = {data[cases[i].offset], data[25], 0, 0};
    data[cases[i].offset] = cases[i].value;
    if (cases[i].offset == 24) data[25] = 0;
    assert_fails(token_cache_check(&facts, data, size, "h"), STATUS_BAD_FILE, cases[i].says);
    data[25] = kept[1];
    data[cases[i].offset] = kept[0];
  }
  free(bytes);
}

/* Long texts are encoded in blocks where that changes nothing, and whole where it might. */
static void test_blocks_and_wholes(void **state) {
  (void)state;
  TextEncoder encoder = text_testing_encoder(&calls);
  size_t size = 3 << 20;
  char *text = malloc(size + 1);
  assert_non_null(text);
  for (size_t i = 0; i < size; i++) text[i] = "word "[i % 5];
  text[size] = 0;
  text_testing_put("long.txt", text);
  TokenCache *cut = open_with(&encoder, text_testing_name("text", "long.txt"), TEXT_WHOLE);
  assert_true(calls > 1);
  calls = 0;
  encoder.cuttable = false;
  encoder.fingerprint = "whole";
  TokenCache *whole = open_with(&encoder, text_testing_name("text", "long.txt"), TEXT_WHOLE);
  assert_int_equal(calls, 1);
  assert_int_equal(token_cache_facts(cut)->tokens, size);
  assert_int_equal(token_cache_facts(whole)->tokens, size);
  int32_t a[64], b[64];
  for (size_t at = 0; at + 64 <= size; at += 64) {
    token_cache_copy(cut, (int64_t)at, 64, a);
    token_cache_copy(whole, (int64_t)at, 64, b);
    assert_memory_equal(a, b, sizeof a);
    for (int i = 0; i < 64; i++) assert_int_equal(a[i], text[at + (size_t)i]);
  }
  token_cache_close(cut);
  token_cache_close(whole);
  free(text);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, testing_make_folder, testing_remove_folder)
  const struct CMUnitTest tests[] = {CASE(test_documents_are_joined),
                                     CASE(test_made_once),
                                     CASE(test_a_line_is_no_file),
                                     CASE(test_damage_is_mended),
                                     CASE(test_a_changed_header_is_not_believed),
                                     CASE(test_place_that_cannot_be_written),
                                     CASE(test_bad_encoders),
                                     CASE(test_text_that_changes),
                                     CASE(test_hostile_headers),
                                     CASE(test_blocks_and_wholes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
