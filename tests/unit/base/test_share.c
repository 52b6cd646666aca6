/* Even parts of a whole: contiguous, complete, at most one apart, the first ones larger; a batch's shares among ranks likewise complete. */
#include "base/share.h"
#include <cmocka.h>

static void even_parts_follow_each_other(void **state) {
  (void)state;
  for (int64_t count = 0; count <= 40; count++)
    for (int parts = 1; parts <= 9; parts++) {
      int64_t at = 0;
      for (int part = 0; part < parts; part++) {
        int64_t own = share_even_count(count, parts, part);
        assert_int_equal(share_even_begin(count, parts, part), at);
        assert_true(own == count / parts || (own == count / parts + 1 && part < count % parts));
        at += own;
      }
      assert_int_equal(at, count);
      assert_int_equal(share_even_begin(count, parts, parts), count);
    }
}

static void shares_of_ranks_are_the_whole(void **state) {
  (void)state;
  for (int64_t count = 0; count <= 40; count++)
    for (int parts = 1; parts <= 9; parts++) {
      int64_t at = 0;
      for (int part = 0; part < parts; part++) {
        assert_int_equal(share_begin(count, (Share){part, parts}), at);
        at = share_end(count, (Share){part, parts});
      }
      assert_int_equal(at, count);
    }
  assert_true(share_begin(7, (Share){0, 0}) == 0 && share_end(7, (Share){0, 0}) == 7);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(even_parts_follow_each_other), cmocka_unit_test(shares_of_ranks_are_the_whole)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
