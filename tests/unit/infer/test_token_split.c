/* Which node holds which tokens of a text: sums, evenness, weights, fewer tokens than nodes, maps, and lists that are none. */
#include "infer/partition.h"
#include <cmocka.h>
#include <string.h>

static void assert_counts(const TokenSplit *split, int64_t tokens, int taking_part, const int64_t *expected) {
  int64_t counts[WIRE_NODES];
  assert_int_equal(token_split_counts(split, tokens, counts), taking_part);
  for (int d = 0; d < split->nodes; d++) assert_int_equal(counts[d], expected[d]);
}

static void even(void **state) {
  (void)state;
  TokenSplit split;
  assert_int_equal(token_split_init(&split, 4, NULL), STATUS_OK);
  assert_counts(&split, 512, 4, (int64_t[]){128, 128, 128, 128});
  assert_counts(&split, 10, 4, (int64_t[]){3, 3, 2, 2});
  assert_counts(&split, 3, 3, (int64_t[]){1, 1, 1, 0});
  assert_counts(&split, 1, 1, (int64_t[]){1, 0, 0, 0});
  assert_int_equal(token_split_init(&split, 1, NULL), STATUS_OK);
  assert_counts(&split, 7, 1, (int64_t[]){7});
}

static void weighted(void **state) {
  (void)state;
  TokenSplit split;
  assert_int_equal(token_split_init(&split, 3, "2,1,1"), STATUS_OK);
  assert_counts(&split, 8, 3, (int64_t[]){4, 2, 2});
  assert_counts(&split, 2, 2, (int64_t[]){1, 1, 0});
  assert_int_equal(token_split_init(&split, 2, "1e300,1e299"), STATUS_OK);
  assert_counts(&split, 11, 2, (int64_t[]){10, 1});
  assert_int_equal(token_split_init(&split, 2, "1000,1"), STATUS_OK);
  assert_counts(&split, 11, 2, (int64_t[]){10, 1}); /* everyone has one at least */
}

static void every_length_adds_up(void **state) {
  (void)state;
  TokenSplit split;
  assert_int_equal(token_split_init(&split, 5, "3,1,4,1,5"), STATUS_OK);
  for (int64_t tokens = 1; tokens < 300; tokens++) {
    int64_t counts[WIRE_NODES], sum = 0;
    int taking_part = token_split_counts(&split, tokens, counts);
    for (int d = 0; d < 5; d++) {
      assert_int_equal(counts[d] > 0, d < taking_part);
      sum += counts[d];
    }
    assert_int_equal(sum, tokens);
  }
}

static void maps(void **state) {
  (void)state;
  TokenSplit split;
  const int32_t good[] = {0, 0, 0, 1, 2, 2}, back[] = {0, 1, 0}, gap[] = {0, 2}, late[] = {1, 1};
  assert_int_equal(token_split_map(&split, good, 6), STATUS_OK);
  assert_counts(&split, 6, 3, (int64_t[]){3, 1, 2});
  assert_int_equal(token_split_map(&split, back, 3), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "contiguous"));
  assert_int_equal(token_split_map(&split, gap, 2), STATUS_BAD_VALUE);
  assert_int_equal(token_split_map(&split, late, 2), STATUS_BAD_VALUE);
  assert_int_equal(token_split_map(&split, good, 0), STATUS_BAD_VALUE);
}

static void what_is_no_list(void **state) {
  (void)state;
  TokenSplit split;
  const char *const lists[] = {"1,2,x", "1,2", "", "1,0,1", "1,-1,1", "1,nan,1", "1,1e-12,1"};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    assert_int_equal(token_split_init(&split, 3, lists[i]), STATUS_BAD_USAGE);
    assert_non_null(strstr(status_message(), "--split"));
  }
  assert_int_equal(token_split_init(&split, 0, NULL), STATUS_BAD_VALUE);
  assert_int_equal(token_split_init(&split, WIRE_NODES + 1, NULL), STATUS_BAD_VALUE);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(even), cmocka_unit_test(weighted), cmocka_unit_test(every_length_adds_up),
                                     cmocka_unit_test(maps), cmocka_unit_test(what_is_no_list)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
