/* Where text is cut: the expressions of GPT-2 and Llama-3 on what they disagree about, white space as Unicode has it, bytes that are no
 * UTF-8. */
#include "data/tokenizer/tokenizer_internal.h"
#include "data_testing.h"

/* The pieces with '|' between them. */
static const char *pieces(BpePattern pattern, const char *text, size_t size) {
  static char joined[512];
  BpeSplit *split;
  BpeWalk *walk;
  char *out = joined;
  assert_ok(bpe_split_new(&split, pattern));
  assert_ok(bpe_split_walk(&walk, split));
  bpe_split_start(walk, text, size);
  for (;;) {
    const char *piece;
    size_t length;
    assert_ok(bpe_split_next(walk, &piece, &length));
    if (length == 0) break;
    assert_true((size_t)(out - joined) + length + 2 < sizeof joined);
    if (out > joined) *out++ = '|';
    memcpy(out, piece, length);
    out += length;
  }
  *out = 0;
  bpe_split_walk_free(walk);
  bpe_split_free(split);
  return joined;
}

#define assert_gpt2(text, want)   assert_string_equal(pieces(BPE_PATTERN_GPT2, text, sizeof text - 1), want)
#define assert_llama3(text, want) assert_string_equal(pieces(BPE_PATTERN_LLAMA3, text, sizeof text - 1), want)

static void test_gpt2(void **state) {
  (void)state;
  assert_gpt2("", "");
  assert_gpt2("He's 12345 and WE'LL go!?\n\n  x", "He|'s| 12345| and| WE|'|LL| go|!?|\n\n | x");
  assert_gpt2("'tis 'S", "'t|is| '|S");
  assert_gpt2("a\t b   ", "a|\t| b|   ");
  assert_gpt2("\xc3\xa4\xe4\xb8\xad\xc2\xb2 \xc2\xbd",
              "\xc3\xa4\xe4\xb8\xad|\xc2\xb2| \xc2\xbd"); /* letters, and numbers that are no digits */
}

static void test_llama3(void **state) {
  (void)state;
  assert_llama3("He's 12345 and WE'LL go!?\n\n  x", "He|'s| |123|45| and| WE|'LL| go|!?\n\n| | x");
  assert_llama3("$word (word)\r\n\r\nend", "$word| (|word|)\r\n\r\n|end");
  assert_llama3("a \n \n b", "a| \n \n| b");
}

/* U+0085, U+00A0 and U+3000 are white space; U+180E, which PCRE2's \s takes in, is none. */
static void test_white_space(void **state) {
  (void)state;
  assert_gpt2("a\xc2\x85\xc2\xa0\xe3\x80\x80", "a|\xc2\x85\xc2\xa0\xe3\x80\x80");
  assert_gpt2("a \xe1\xa0\x8e", "a| \xe1\xa0\x8e");
  assert_gpt2("!\xe1\xa0\x8e!", "!\xe1\xa0\x8e!");
  assert_llama3("!\xe1\xa0\x8e!", "!\xe1\xa0\x8e!");
  assert_gpt2("a\x1c\x1c", "a|\x1c\x1c"); /* separators of ASCII, white space in some languages only */
  assert_gpt2(" \x1c", " \x1c");
}

/* 's of either case, but not with the long s. */
static void test_contractions(void **state) {
  (void)state;
  assert_llama3("x'Sx x'Rex", "x|'S|x| x|'Re|x");
  assert_llama3("x'\xc5\xbfx", "x|'\xc5\xbfx");
}

/* Bytes in no character are pieces; what is before and behind them is split as a text of its own. */
static void test_invalid_utf8(void **state) {
  (void)state;
  assert_gpt2("ab\xff\xfe"
              "cd",
              "ab|\xff\xfe|cd");
  assert_gpt2("a  \x80 b", "a|  |\x80| b");
  assert_gpt2("\xc3", "\xc3");
  assert_gpt2("a\xe4\xb8", "a|\xe4\xb8");
  assert_gpt2("\xc0\x80x\xed\xa0\x80\xf4\x90\x80\x80\xe0\x80\x80\xf0\x80\x80\x80",
              "\xc0\x80|x|\xed\xa0\x80\xf4\x90\x80\x80\xe0\x80\x80\xf0\x80\x80\x80");
  assert_llama3("1\xff"
                "2",
                "1|\xff|2");
}

/* A step for each blank, more than PCRE2 takes unless told: one piece, and the blank before the letter with it. */
static void test_long_runs(void **state) {
  enum { BLANKS = 10500000 };
  (void)state;
  for (int pattern = BPE_PATTERN_GPT2; pattern <= BPE_PATTERN_LLAMA3; pattern++) {
    BpeSplit *split;
    BpeWalk *walk;
    char *text = malloc(BLANKS + 1);
    const char *piece;
    size_t length;
    assert_non_null(text);
    memset(text, ' ', BLANKS);
    text[BLANKS] = 'x';
    assert_ok(bpe_split_new(&split, (BpePattern)pattern));
    assert_ok(bpe_split_walk(&walk, split));
    bpe_split_start(walk, text, BLANKS + 1);
    assert_ok(bpe_split_next(walk, &piece, &length));
    assert_int_equal(length, BLANKS - 1);
    assert_ok(bpe_split_next(walk, &piece, &length));
    assert_int_equal(length, 2);
    bpe_split_walk_free(walk);
    bpe_split_free(split);
    free(text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_gpt2),         cmocka_unit_test(test_llama3),
                                     cmocka_unit_test(test_white_space),  cmocka_unit_test(test_contractions),
                                     cmocka_unit_test(test_invalid_utf8), cmocka_unit_test(test_long_runs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
