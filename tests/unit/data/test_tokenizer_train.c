/* Training against the plain rule (count all pairs, merge the best everywhere, begin again), ties, what the files hold, refusals. */
#include "data/tokenizer/tokenizer_internal.h"
#include "tokenizer_testing.h"

enum { PIECES = 256 + 60 + 1, WORDS = 4096, WORD = 64, KINDS = 512 };

/* ---- The plain rule ---- */

typedef struct Plain {
  char text[KINDS][WORD]; /* bytes of each symbol, NUL-terminated: the test's text has no NUL */
  int kinds;
  int32_t words[WORDS][WORD];
  int sizes[WORDS], count;
} Plain;

static void plain_start(Plain *plain, const char *text) {
  int32_t id_of[256];
  BpeSplit *split;
  BpeWalk *walk;
  for (int i = 0; i < 256; i++) {
    id_of[bpe_alphabet_byte(i)] = i;
    plain->text[i][0] = (char)bpe_alphabet_byte(i);
  }
  plain->kinds = 256;
  assert_ok(bpe_split_new(&split, BPE_PATTERN_GPT2));
  assert_ok(bpe_split_walk(&walk, split));
  bpe_split_start(walk, text, strlen(text));
  for (;;) {
    const char *piece;
    size_t size;
    assert_ok(bpe_split_next(walk, &piece, &size));
    if (size == 0) break;
    assert_true(size <= WORD && plain->count < WORDS);
    for (size_t i = 0; i < size; i++) plain->words[plain->count][i] = id_of[(unsigned char)piece[i]];
    plain->sizes[plain->count++] = (int)size;
  }
  bpe_split_walk_free(walk);
  bpe_split_free(split);
}

static int plain_best(const Plain *plain, int32_t best[2]) {
  static int counts[KINDS][KINDS];
  memset(counts, 0, sizeof counts);
  int max = 0;
  for (int i = 0; i < plain->count; i++)
    for (int j = 0; j + 1 < plain->sizes[i]; j++) counts[plain->words[i][j]][plain->words[i][j + 1]]++;
  for (int32_t left = 0; left < plain->kinds; left++)
    for (int32_t right = 0; right < plain->kinds; right++)
      if (counts[left][right] > max) max = counts[left][right], best[0] = left, best[1] = right;
  return max;
}

static void plain_merge(Plain *plain, const int32_t best[2], int32_t id) {
  for (int i = 0; i < plain->count; i++) {
    int32_t *word = plain->words[i];
    int kept = 0;
    for (int j = 0; j < plain->sizes[i]; kept++) {
      bool here = j + 1 < plain->sizes[i] && word[j] == best[0] && word[j + 1] == best[1];
      word[kept] = here ? id : word[j];
      j += here ? 2 : 1;
    }
    plain->sizes[i] = kept;
  }
}

/* The symbol of these bytes: a known one, or a new one. */
static int32_t plain_name(Plain *plain, const int32_t best[2]) {
  char joined[2 * WORD];
  snprintf(joined, sizeof joined, "%s%s", plain->text[best[0]], plain->text[best[1]]);
  assert_true(strlen(joined) < WORD);
  for (int32_t id = 0; id < plain->kinds; id++)
    if (strcmp(plain->text[id], joined) == 0) return id;
  strcpy(plain->text[plain->kinds], joined);
  return plain->kinds++;
}

/* ---- Texts ---- */

/* Words of few letters, so that ties, overlapping runs and two ways to the same piece occur. */
static char *random_words(uint64_t stream) {
  static char text[8192];
  Rng rng;
  char *out = text;
  rng_init(&rng, 42, stream);
  for (int i = 0; i < 400; i++) {
    for (uint64_t left = 1 + rng_below(&rng, 12); left > 0; left--) *out++ = (char)('a' + rng_below(&rng, 1 + stream % 4));
    *out++ = rng_below(&rng, 8) ? ' ' : '\n';
  }
  *out = 0;
  return text;
}

static Status train_on(const char *path, int64_t pieces, Tokenizer **tokenizer, TokenizerTraining *training) {
  *training = (TokenizerTraining){.quiet = true};
  return tokenizer_train(tokenizer, &path, 1, pieces, training);
}

static Tokenizer *train(const char *text, int64_t pieces) {
  TokenizerTraining training;
  Tokenizer *tokenizer;
  assert_ok(train_on(testing_write("train.txt", text, strlen(text)), pieces, &tokenizer, &training));
  assert_int_equal(training.bytes, strlen(text));
  return tokenizer;
}

static void test_plain_rule_gives_the_same(void **state) {
  (void)state;
  for (uint64_t stream = 1; stream < 12; stream++) {
    Plain *plain = calloc(1, sizeof *plain);
    assert_non_null(plain);
    const char *text = random_words(stream);
    plain_start(plain, text);
    for (int32_t best[2]; plain->kinds < PIECES - 1 && plain_best(plain, best) >= 2;) plain_merge(plain, best, plain_name(plain, best));
    assert_true(plain->kinds > 256 + 8);
    Tokenizer *tokenizer = train(text, plain->kinds + 1);
    for (int32_t id = 0; id < plain->kinds; id++) {
      size_t bytes;
      assert_string_equal(tokenizer_piece(tokenizer, id, &bytes), plain->text[id]);
    }
    assert_round_trip(tokenizer, text, strlen(text), false);
    tokenizer_close(tokenizer);
    free(plain);
  }
}

static void assert_piece(const Tokenizer *tokenizer, int32_t id, const char *want) {
  size_t bytes;
  assert_string_equal(tokenizer_piece(tokenizer, id, &bytes), want);
}

/* "ba" and "ab" occur twice each: the one whose left symbol has the lower id goes first. */
static void test_ties_go_to_the_lowest_ids(void **state) {
  (void)state;
  Tokenizer *tokenizer = train("ba\nba\nab\nab\n", 256 + 2 + 1);
  assert_piece(tokenizer, 256, "ab");
  assert_piece(tokenizer, 257, "ba");
  assert_piece(tokenizer, 258, "<|endoftext|>");
  assert_int_equal(tokenizer_end(tokenizer), 258);
  assert_encodes(tokenizer, "ba", false, 257);
  assert_encodes(tokenizer, "a<|endoftext|>", true, 64, 258);
  tokenizer_close(tokenizer);
}

static void test_saved_files(void **state) {
  (void)state;
  Tokenizer *tokenizer = train(random_words(3), 300);
  assert_ok(tokenizer_save(tokenizer, testing_path("trained/deep")));
  static const char *const files[] = {"trained/deep", "trained/deep/vocab.json", "trained/deep/tokenizer.json"};
  for (int i = 0; i < 3; i++) {
    Tokenizer *again = testing_tokenizer(testing_path(files[i]));
    assert_string_equal(tokenizer_fingerprint(again), tokenizer_fingerprint(tokenizer));
    assert_int_equal(tokenizer_count(again), 300);
    tokenizer_close(again);
  }
  tokenizer_close(tokenizer);
}

/* A packed file is unpacked on the way; the same text gives the same tokenizer. */
static void test_files(void **state) {
  (void)state;
  Tokenizer *tokenizers[2];
  char *text;
  size_t size;
  assert_ok(text_source_read_file(TOKENIZERS "gpt2/vocab.bpe.gz", 1 << 24, &text, &size));
  const char *paths[] = {TOKENIZERS "gpt2/vocab.bpe.gz", testing_write("plain.txt", text, size)};
  for (int i = 0; i < 2; i++) {
    TokenizerTraining training;
    assert_ok(train_on(paths[i], 1000, &tokenizers[i], &training));
    assert_int_equal(training.bytes, size);
    assert_true(training.words > 1000);
  }
  assert_string_equal(tokenizer_fingerprint(tokenizers[0]), tokenizer_fingerprint(tokenizers[1]));
  for (int i = 0; i < 2; i++) tokenizer_close(tokenizers[i]);
  free(text);
}

/* Two files are counted as one text, but for pieces over their border. */
static void test_two_files(void **state) {
  (void)state;
  TokenizerTraining training = {.quiet = true};
  Tokenizer *tokenizer, *whole = train("ba\nba\nab\nab\n", 256 + 2 + 1);
  char first[256], second[256];
  snprintf(first, sizeof first, "%s", testing_write("first.txt", "ba\nba\n", 6));
  snprintf(second, sizeof second, "%s", testing_write("second.txt", "ab\nab\n", 6));
  assert_ok(tokenizer_train(&tokenizer, (const char *const[]){first, second}, 2, 256 + 2 + 1, &training));
  assert_int_equal(training.bytes, 12);
  assert_string_equal(tokenizer_fingerprint(tokenizer), tokenizer_fingerprint(whole));
  tokenizer_close(tokenizer);
  tokenizer_close(whole);
}

static void test_refusals(void **state) {
  (void)state;
  TokenizerTraining training;
  Tokenizer *tokenizer;
  char path[256];
  snprintf(path, sizeof path, "%s", testing_write("abab.txt", "abab", 4));
  assert_fails(train_on(testing_path("none.txt"), 258, &tokenizer, &training), STATUS_NOT_FOUND, "none.txt");
  assert_null(tokenizer);
  assert_fails(train_on(path, 256, &tokenizer, &training), STATUS_BAD_VALUE, "257 to 1000000");
  assert_null(tokenizer);
  assert_fails(train_on(path, 259, &tokenizer, &training), STATUS_BAD_VALUE, "it allows 258");
  assert_null(tokenizer);
  assert_ok(train_on(path, 258, &tokenizer, &training));
  tokenizer_close(tokenizer);
  const char *empty = testing_write("empty.txt", "", 0);
  assert_fails(train_on(empty, 258, &tokenizer, &training), STATUS_BAD_VALUE, "/empty.txt: the text has too few");
  assert_fails(tokenizer_train(&tokenizer, (const char *const[]){empty, path, empty}, 3, 300, &training), STATUS_BAD_VALUE,
               "/empty.txt and 2 more: the text has too few");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_plain_rule_gives_the_same),
                                     cmocka_unit_test(test_ties_go_to_the_lowest_ids),
                                     cmocka_unit_test(test_saved_files),
                                     cmocka_unit_test(test_files),
                                     cmocka_unit_test(test_two_files),
                                     cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, testing_make_folder, testing_remove_folder);
}
