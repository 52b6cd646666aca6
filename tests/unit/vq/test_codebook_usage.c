/* Usage of codes: counts, and the summary of cases known by hand. */
#include "unit/vq/vq_check.h"
#include "vq/codebook.h"

static void uniform_and_constant(void **state) {
  (void)state;
  CodeUsage usage;
  assert_int_equal(usage_init(&usage, 2, 8), STATUS_OK);
  int32_t codes[16]; /* [8, 2]: group 0 uses every code once, group 1 always code 3 */
  for (int r = 0; r < 8; r++) {
    codes[2 * r] = 7 - r;
    codes[2 * r + 1] = 3;
  }
  usage_add(&usage, codes, 8, 4.0);
  UsageSummary summary = usage_summary(&usage);
  CHECK_NEAR(summary.used, (1 + 1.0 / 8) / 2, 1e-15);
  CHECK_NEAR(summary.dead, 1 - (1 + 1.0 / 8) / 2, 1e-15);
  CHECK_NEAR(summary.perplexity, (8 + 1) / 2.0, 1e-12);
  CHECK_NEAR(summary.entropy_bits, (3 + 0) / 2.0, 1e-12);
  CHECK_NEAR(summary.distortion, 0.5, 1e-15);
  usage_add(&usage, codes, 4, 8.0);
  assert_int_equal(usage.rows, 12);
  assert_int_equal(usage.counts[7], 2);
  assert_int_equal(usage.counts[0], 1);
  assert_int_equal(usage.counts[8 + 3], 12);
  CHECK_NEAR(usage_summary(&usage).distortion, 1.0, 1e-15);
  usage_release(&usage);
}

static void nothing_seen(void **state) {
  (void)state;
  CodeUsage usage;
  assert_int_equal(usage_init(&usage, 1, 4), STATUS_OK);
  const int32_t code = 2;
  usage_add(&usage, &code, 1, 1.0);
  usage_clear(&usage);
  UsageSummary summary = usage_summary(&usage);
  CHECK_NEAR(summary.used, 0, 0);
  CHECK_NEAR(summary.dead, 1, 0);
  CHECK_NEAR(summary.perplexity, 0, 0);
  CHECK_NEAR(summary.distortion, 0, 0);
  usage_release(&usage);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(uniform_and_constant), cmocka_unit_test(nothing_seen)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
