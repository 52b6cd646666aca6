/* Orders and the median. */
#include "base/order.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static void texts_are_sorted_by_their_bytes(void **state) {
  (void)state;
  char *names[] = {"b", "\xc3\xa4", "B", "", "aa", "a"};
  static const char *const sorted[] = {"", "B", "a", "aa", "b", "\xc3\xa4"};
  qsort(names, 6, sizeof *names, order_by_bytes);
  for (int i = 0; i < 6; i++) assert_string_equal(names[i], sorted[i]);
}

static void numbers_are_sorted_by_size(void **state) {
  (void)state;
  double values[] = {2, -1e300, 0.5, 1e-300, 0.25, 2};
  static const double sorted[] = {-1e300, 1e-300, 0.25, 0.5, 2, 2};
  qsort(values, 6, sizeof *values, order_by_size);
  assert_memory_equal(values, sorted, sizeof sorted);
}

static void the_median_is_in_the_middle(void **state) {
  (void)state;
  double odd[] = {5, 1, 9}, even[] = {8, 1, 2, 100}, one[] = {7};
  assert_true(order_median(odd, 3) == 5);
  assert_true(order_median(even, 4) == 5);
  assert_true(order_median(one, 1) == 7);
  assert_true(even[0] == 1 && even[3] == 100); /* sorted now */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(texts_are_sorted_by_their_bytes), cmocka_unit_test(numbers_are_sorted_by_size),
                                     cmocka_unit_test(the_median_is_in_the_middle)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
