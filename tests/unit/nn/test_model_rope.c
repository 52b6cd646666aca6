/* Frequencies of rotary positions against values worked out by hand, and the tables made of them. */
#include "nn/model_internal.h"
#include "unit/float_equal.h"
#include <cmocka.h>
#include <math.h>

static const double TURN = 6.283185307179586;

static void plain_frequencies(void **state) {
  (void)state;
  double frequency[4];
  config_rope_frequencies(&(RopeConfig){.theta = 10000}, 8, frequency);
  static const double expected[] = {1, 0.1, 0.01, 0.001}; /* 10000^(-2i/8) */
  for (int i = 0; i < 4; i++) assert_float_equal(frequency[i], expected[i], 1e-15);
}

/* Wavelengths 2 pi f^-1 of heads of 8 with theta 1e8: 6.28, 628, 62832, 6.28e6. With a context of 8192 before, low factor 1 and high
 * factor 4 the limits are 2048 and 8192: two stay, two are slowed by the factor. */
static void slowed_frequencies(void **state) {
  (void)state;
  RopeConfig rope = {.theta = 1e8, .llama3 = true, .factor = 8, .low_factor = 1, .high_factor = 4, .original = 8192};
  double frequency[4];
  config_rope_frequencies(&rope, 8, frequency);
  static const double expected[] = {1, 0.01, 0.0001 / 8, 0.000001 / 8};
  for (int i = 0; i < 4; i++) assert_float_equal(frequency[i] / expected[i], 1, 1e-12);
}

/* A frequency whose wavelength fits into the old context 2.5 times lies half way between both limits: (f / 8 + f) / 2. */
static void frequency_between(void **state) {
  (void)state;
  double wanted = TURN * 2.5 / 8192, theta = 1 / (wanted * wanted); /* pair 1 of 4 numbers: theta^(-1/2) */
  RopeConfig rope = {.theta = theta, .llama3 = true, .factor = 8, .low_factor = 1, .high_factor = 4, .original = 8192};
  double frequency[2];
  config_rope_frequencies(&rope, 4, frequency);
  assert_float_equal(frequency[1] / (wanted * 9 / 16), 1, 1e-12);
  assert_float_equal(frequency[0], 1, 1e-15);
}

/* Llama 3.1: heads of 128, theta 500,000. Pair 28's wavelength, 2 pi 500000^(28/64) = 1,956, is below 2,048; pair 29's, 2,402, is between;
 * pair 34's, 6,695, too; pair 35's, 8,219, is above 8,192. */
static void llama_31(void **state) {
  (void)state;
  RopeConfig rope = {.theta = 500000, .llama3 = true, .factor = 8, .low_factor = 1, .high_factor = 4, .original = 8192};
  double frequency[64];
  config_rope_frequencies(&rope, 128, frequency);
  for (int i = 0; i < 64; i++) {
    double plain = pow(500000, -i / 64.0), ratio = frequency[i] / plain;
    if (i <= 28)
      assert_float_equal(ratio, 1, 1e-12);
    else if (i >= 35)
      assert_float_equal(ratio, 0.125, 1e-12);
    else
      assert_true(ratio > 0.126 && ratio < 0.99);
  }
  double turn = TURN * pow(500000, 29 / 64.0), share = (8192 / turn - 1) / 3;
  assert_float_equal(frequency[29] * turn / TURN, (1 - share) / 8 + share, 1e-12);
}

static void tables(void **state) {
  (void)state;
  ModelConfig config;
  Model *model;
  assert_int_equal(config_preset(&config, "llama-mini", 0), STATUS_OK);
  assert_int_equal(model_new(&model, &config), STATUS_OK);
  RopeTable table = model->rope;
  assert_int_equal(table.count, 512);
  for (int64_t position = 0; position < 512; position += 73) /* heads of 32: 16 pairs */
    for (int i = 0; i < 16; i++) {
      double angle = (double)position * pow(10000, -i / 16.0);
      assert_float_equal((double)table.cosine[position * 16 + i], cos(angle), 1e-6);
      assert_float_equal((double)table.sine[position * 16 + i], sin(angle), 1e-6);
    }
  model_free(model);
  config_release(&config);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(plain_frequencies), cmocka_unit_test(slowed_frequencies),
                                     cmocka_unit_test(frequency_between), cmocka_unit_test(llama_31), cmocka_unit_test(tables)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
