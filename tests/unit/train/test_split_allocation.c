/* Text is split by machine code where PCRE2 makes any: it works on the stack alone, and the interpreter, which is several times slower,
 * asks for memory. Runs of any length are split all the same. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/tokenizer/tokenizer_internal.h"
#include "unit/count_allocations.h"
#include "unit/data/data_testing.h"
#include <pcre2.h>

enum { RUN = 1 << 20 };

/* The pieces of a text, and what they asked of the system. */
static int64_t count_pieces(BpeWalk *walk, const char *text, size_t size, long *asked) {
  const long before = allocations_so_far();
  const char *piece;
  int64_t count = 0;
  bpe_split_start(walk, text, size);
  for (size_t length = 1; length > 0; count += length > 0) assert_ok(bpe_split_next(walk, &piece, &length));
  *asked = allocations_so_far() - before;
  return count;
}

static void test_machine_code(void **state) {
  (void)state;
  static const char text[] = "It's 12345 words,\r\n\n  and WE'LL   go!? \xc3\xa4\xe4\xb8\xad\xc2\xb2 ";
  uint32_t available = 0;
  long asked;
  allocations_need_count();
  if (pcre2_config(PCRE2_CONFIG_JIT, &available) < 0 || !available) {
    printf("skipped: this PCRE2 makes no machine code\n");
    skip();
  }
  for (BpePattern pattern = BPE_PATTERN_GPT2; pattern <= BPE_PATTERN_LLAMA3; pattern++) {
    BpeSplit *split;
    BpeWalk *walk;
    assert_ok(bpe_split_new(&split, pattern));
    assert_ok(bpe_split_walk(&walk, split));
    assert_true(count_pieces(walk, text, sizeof text - 1, &asked) > 10);
    assert_int_equal(asked, 0);
    bpe_split_walk_free(walk);
    bpe_split_free(split);
  }
}

/* Of each character a run, alone and behind a space: one piece, but for three digits each of Llama-3. */
static void test_long_runs(void **state) {
  (void)state;
  static const char *const characters[] = {"e", "\xc3\xa4", "\xe4\xb8\xad", "!", " ", "\n", "7"};
  char *text = malloc(4 * RUN);
  long asked;
  for (BpePattern pattern = BPE_PATTERN_GPT2; pattern <= BPE_PATTERN_LLAMA3; pattern++) {
    BpeSplit *split;
    BpeWalk *walk;
    assert_ok(bpe_split_new(&split, pattern));
    assert_ok(bpe_split_walk(&walk, split));
    for (size_t c = 0; c < sizeof characters / sizeof *characters; c++) {
      const size_t size = strlen(characters[c]);
      const bool digits = pattern == BPE_PATTERN_LLAMA3 && characters[c][0] == '7';
      for (size_t i = 0; i < RUN; i++) memcpy(text + i * size, characters[c], size);
      assert_int_equal(count_pieces(walk, text, RUN * size, &asked), digits ? (RUN + 2) / 3 : 1);
    }
    bpe_split_walk_free(walk);
    bpe_split_free(split);
  }
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_machine_code), cmocka_unit_test(test_long_runs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
