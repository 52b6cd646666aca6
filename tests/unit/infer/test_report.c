/* What the table of nodes derives from what a node counted. */
#include "infer/report.c"
#include <cmocka.h>

static double hidden(double span, double wait) { return hidden_share(&(NodeStatistics){.span = span, .wait = wait}); }

static void waiting_is_what_computing_did_not_hide(void **state) {
  (void)state;
  assert_true(hidden(2, 0) == 1);
  assert_true(hidden(2, 0.5) == 0.75);
  assert_true(hidden(2, 2) == 0);
  assert_true(hidden(2, 3) == 0); /* it waited before it sent anything */
  assert_true(isnan(hidden(0, 1)));
}

static void check_plan_line(double predicted, double measured, const char *expected) {
  char text[128] = "";
  FILE *stream = fmemopen(text, sizeof text, "w");
  assert_non_null(stream);
  report_plan_line(stream, predicted, measured);
  fclose(stream);
  assert_string_equal(text, expected);
}

static void prediction_and_measurement_stand_side_by_side(void **state) {
  (void)state;
  check_plan_line(0.1, 0.125, "predicted 100.0 ms a sample, measured 125.0 ms (+25%)\n");
  check_plan_line(0.1, 0.09, "predicted 100.0 ms a sample, measured 90.0 ms (-10%)\n");
  check_plan_line(1.23456, 0, "predicted 1234.6 ms a sample\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(waiting_is_what_computing_did_not_hide),
                                     cmocka_unit_test(prediction_and_measurement_stand_side_by_side)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
