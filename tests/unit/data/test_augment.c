/* Names of policies; that each operation is drawn equally often with strengths in its range; that a draw is a function of the generator. */
#include "data/augment.h"
#include "data_testing.h"

static void names(void **state) {
  (void)state;
  AugmentPolicy policy;
  assert_ok(augment_policy_parse(&policy, "none"));
  assert_int_equal(policy.kind, AUGMENT_NONE);
  assert_ok(augment_policy_parse(&policy, "crop"));
  assert_int_equal(policy.kind, AUGMENT_CROP);
  assert_ok(augment_policy_parse(&policy, "trivial"));
  assert_int_equal(policy.kind, AUGMENT_TRIVIAL);
  assert_ok(augment_policy_parse(&policy, "randaugment"));
  assert_true(policy.kind == AUGMENT_RANDAUGMENT && policy.operations == 2 && policy.level == 9);
  assert_ok(augment_policy_parse(&policy, "randaugment:14,30"));
  assert_true(policy.kind == AUGMENT_RANDAUGMENT && policy.operations == 14 && policy.level == 30);
  static const char *const wrong[] = {"",
                                      "tri",
                                      "crops",
                                      "crop:1",
                                      "trivial:",
                                      "randaugment:",
                                      "randaugment:2",
                                      "randaugment:2,",
                                      "randaugment:0,9",
                                      "randaugment:15,9",
                                      "randaugment:2,31",
                                      "randaugment:2,-1",
                                      "randaugment:-2,9",
                                      "randaugment: 2,9",
                                      "randaugment:2,9x",
                                      "randaugment:99999999999,9"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_fails(augment_policy_parse(&policy, wrong[i]), STATUS_BAD_VALUE, "trivial, randaugment or randaugment:N,M is accepted");
}

enum { SIDE = 16, BYTES = 3 * SIDE * SIDE };

/* Images that operations leave as they were tell of identity alone or of strengths of nothing; all others change noise. */
static int64_t count_changed(const char *name, int draws, uint64_t seed) {
  AugmentPolicy policy;
  Image image, spare = {0};
  Rng rng, noise;
  uint8_t before[BYTES];
  int64_t changed = 0;
  assert_ok(augment_policy_parse(&policy, name));
  assert_ok(image_new(&image, SIDE, SIDE));
  rng_init(&noise, 3, 0);
  for (int i = 0; i < BYTES; i++) before[i] = (uint8_t)rng_below(&noise, 200);
  rng_init(&rng, seed, 0);
  for (int i = 0; i < draws; i++) {
    memcpy(image.rgb, before, BYTES);
    assert_ok(augment_policy_apply(&policy, &rng, &image, &spare));
    changed += memcmp(image.rgb, before, BYTES) != 0;
  }
  image_release(&image);
  image_release(&spare);
  return changed;
}

/* Of 14 operations identity changes nothing, nor do nine at the lowest of 31 levels, posterize at three of them (8 bits, rounded) and
 * solarize at the seven whose threshold is above 199. */
static void trivial_draws_every_operation(void **state) {
  (void)state;
  double share = (double)count_changed("trivial", 20000, 1) / 20000;
  double expected = 1 - (1 + (9 + 3 + 7) / 31.0) / 14;
  if (share < expected - 0.012 || share > expected + 0.012) fail_msg("%g of the images changed, not about %g", share, expected);
}

static void randaugment_takes_its_strength(void **state) {
  (void)state;
  assert_in_range(count_changed("randaugment:1,0", 5000, 1), 2 * 5000 / 14 - 100,
                  2 * 5000 / 14 + 100); /* strength 0: autocontrast and equalize alone */
  assert_true(count_changed("randaugment:4,15", 5000, 1) > 4900);
  assert_int_equal(count_changed("crop", 100, 1), 0);
  assert_int_equal(count_changed("none", 100, 1), 0);
}

static void same_generator_same_image(void **state) {
  (void)state;
  AugmentPolicy policy;
  Image a, b, spare = {0}, used;
  assert_ok(augment_policy_parse(&policy, "randaugment:3,20"));
  assert_ok(image_new(&a, SIDE, SIDE));
  assert_ok(image_new(&b, SIDE, SIDE));
  assert_ok(image_new(&used, 5, 7)); /* scratch of another size, with rubbish in it */
  memset(used.rgb, 0x5a, 5 * 7 * 3);
  for (uint64_t stream = 0; stream < 200; stream++) {
    Rng rng, again;
    for (int i = 0; i < BYTES; i++) a.rgb[i] = b.rgb[i] = (uint8_t)(i * 7 + (int)stream);
    rng_init(&rng, 9, stream);
    again = rng;
    assert_ok(augment_policy_apply(&policy, &rng, &a, &spare));
    assert_ok(augment_policy_apply(&policy, &again, &b, &used));
    assert_memory_equal(a.rgb, b.rgb, BYTES);
    assert_memory_equal(&rng, &again, sizeof rng);
  }
  image_release(&a);
  image_release(&b);
  image_release(&spare);
  image_release(&used);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(names), cmocka_unit_test(trivial_draws_every_operation),
                                     cmocka_unit_test(randaugment_takes_its_strength), cmocka_unit_test(same_generator_same_image)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
