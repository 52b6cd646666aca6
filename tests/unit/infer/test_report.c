/* What the table of nodes derives from what a node counted, and lines below it. */
#include "infer/cluster/leader_internal.h"
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
  check_plan_line(0.1, 0.125, "predicted 100.0 ms per sample, measured 125.0 ms (+25%)\n");
  check_plan_line(0.1, 0.09, "predicted 100.0 ms per sample, measured 90.0 ms (-10%)\n");
  check_plan_line(1.23456, 0, "predicted 1234.6 ms per sample\n");
}

static void bit_rates_that_were_used_are_told(void **state) {
  (void)state;
  ModelConfig config = {.astra = {.groups = 4, .rates = {1, 2, 4}, .rate_count = 3}};
  const Weights weights = {.config = &config};
  static Leader leader;
  leader = (Leader){.setup = {.weights = &weights}, .sums = {.rate_samples = {5, 0, 7}}};
  for (int several = 1; several >= 0; several--) {
    char text[128] = "";
    json_t *value = json_object();
    FILE *stream = fmemopen(text, sizeof text, "w");
    leader.sums.rate_samples[0] *= several;
    report_rates(stream, &leader);
    report_rates_json(value, &leader);
    fclose(stream);
    char *json = json_dumps(value, JSON_COMPACT);
    assert_string_equal(text, several ? "samples by bit rate: 5 with 1 group, 7 with 4 groups\n" : "");
    assert_string_equal(json, several ? "{\"rates\":[{\"groups\":1,\"samples\":5},{\"groups\":4,\"samples\":7}]}"
                                      : "{\"rates\":[{\"groups\":4,\"samples\":7}]}");
    free(json);
    json_decref(value);
  }
  json_t *none = json_object();
  config.astra.rate_count = 0;
  report_rates_json(none, &leader);
  assert_int_equal(json_object_size(none), 0);
  json_decref(none);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(waiting_is_what_computing_did_not_hide),
                                     cmocka_unit_test(prediction_and_measurement_stand_side_by_side),
                                     cmocka_unit_test(bit_rates_that_were_used_are_told)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
