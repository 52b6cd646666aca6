/* The names of strategies, and the facts that the rest relies on. */
#include "nn/strategy.h"
#include <cmocka.h>
#include <string.h>

static void names_are_found_again(void **state) {
  (void)state;
  for (int i = 0; i < STRATEGY_COUNT; i++) {
    Strategy found;
    assert_int_equal(strategy_find(&found, strategy_facts((Strategy)i)->name), STATUS_OK);
    assert_int_equal(found, i);
  }
}

static void others_are_refused_with_a_list(void **state) {
  (void)state;
  Strategy found;
  assert_int_equal(strategy_find(&found, "bp"), STATUS_BAD_VALUE);
  assert_string_equal(status_message(), "unknown strategy \"bp\"; accepted are astra, single, tp, sp, bp-ag, bp-sp");
}

static void lists_have_the_order_of_the_enum(void **state) {
  (void)state;
  char list[STRATEGY_LIST];
  assert_string_equal(strategy_list("|", false, list), "astra|single|tp|sp|bp-ag|bp-sp");
  assert_string_equal(strategy_list(", ", true, list), "single, tp, sp, bp-ag, bp-sp");
}

static void codes_alone_need_codebooks(void **state) {
  (void)state;
  for (int i = 0; i < STRATEGY_COUNT; i++)
    assert_int_equal(strategy_facts((Strategy)i)->needs_codebooks, strategy_facts((Strategy)i)->sends_codes);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(names_are_found_again), cmocka_unit_test(others_are_refused_with_a_list),
                                     cmocka_unit_test(lists_have_the_order_of_the_enum), cmocka_unit_test(codes_alone_need_codebooks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
