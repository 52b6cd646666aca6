/* Numbers that JSON has, and those that it has not. How failures to allocate are met is the checkpoints' tests'. */
#include "nn/json_build.h"
#include <cmocka.h>
#include <math.h>

static void what_is_not_finite_is_null(void **state) {
  (void)state;
  const double finite[] = {0, -2.5, 1e308}, other[] = {(double)NAN, (double)INFINITY, (double)-INFINITY};
  for (int i = 0; i < 3; i++) {
    json_t *number = json_build_number(finite[i]), *nothing = json_build_number(other[i]);
    assert_true(json_is_real(number) && json_real_value(number) == finite[i]);
    assert_true(json_is_null(nothing));
    json_decref(number);
    json_decref(nothing);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_not_finite_is_null)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
