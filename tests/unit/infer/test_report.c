/* What the table of nodes derives from what a node counted. */
#include "infer/report.h"
#include <cmocka.h>
#include <math.h>

static double hidden(double span, double wait) { return report_hidden(&(NodeStatistics){.span = span, .wait = wait}); }

static void waiting_is_what_computing_did_not_hide(void **state) {
  (void)state;
  assert_true(hidden(2, 0) == 1);
  assert_true(hidden(2, 0.5) == 0.75);
  assert_true(hidden(2, 2) == 0);
  assert_true(hidden(2, 3) == 0); /* it waited before it sent anything */
  assert_true(isnan(hidden(0, 1)));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(waiting_is_what_computing_did_not_hide)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
