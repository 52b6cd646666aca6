/* Device maps: what is promised of every draw, the distribution of N, and repetition from the generator's state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/emulate.h"
#include <math.h>
#include <string.h>

enum { TOKENS = 64 };

static void device_counts(const TokenLayout *layout, int64_t *counts) {
  for (int d = 0; d < layout->devices; d++) counts[d] = layout->device_shared[d + 1] - layout->device_shared[d];
}

/* Tokens sum up, every device has some, they ascend within a device. Returns whether all stand in raster order. */
static bool check_map(const TokenLayout *layout) {
  int64_t counts[TOKENS], sum = 0;
  bool raster = true;
  device_counts(layout, counts);
  for (int d = 0; d < layout->devices; d++) {
    assert_true(counts[d] >= 1);
    sum += counts[d];
    for (int64_t r = layout->span[d].begin + 1; r < layout->span[d].begin + layout->span[d].count; r++)
      assert_true(layout->row_token[r] > layout->row_token[r - 1]);
  }
  assert_int_equal(sum, layout->tokens);
  for (int64_t r = 0; r < layout->rows; r++) raster = raster && layout->row_token[r] == r;
  return raster;
}

static void devices_are_uniform_in_the_range(void **state) {
  (void)state;
  TokenLayout layout = {0};
  Rng rng;
  rng_init(&rng, 42, 3);
  const DeviceMapOptions options = {.devices_min = 2, .devices_max = 8, .counts = COUNTS_EVEN, .permute = true};
  int32_t order[TOKENS];
  int drawn[9] = {0};
  const int draws = 7000;
  for (int i = 0; i < draws; i++) {
    assert_int_equal(device_map_draw(&layout, TOKENS, CLASS_DISTRIBUTED, &options, &rng, order), STATUS_OK);
    assert_in_range(layout.devices, 2, 8);
    drawn[layout.devices]++;
    check_map(&layout);
  }
  double chi = 0; /* 6 degrees of freedom: 22.5 is passed with probability 0.001 */
  for (int n = 2; n <= 8; n++) chi += (drawn[n] - 1000.0) * (drawn[n] - 1000.0) / 1000.0;
  assert_true(chi < 22.5);
  layout_release(&layout);
}

static void counts_are_as_asked(void **state) {
  (void)state;
  TokenLayout layout = {0};
  Rng rng;
  rng_init(&rng, 1, 0);
  int32_t order[TOKENS];
  int64_t counts[TOKENS];
  DeviceMapOptions options = {.devices_min = 3, .devices_max = 3, .counts = COUNTS_EVEN, .permute = true};
  assert_int_equal(device_map_draw(&layout, TOKENS, CLASS_NONE, &options, &rng, order), STATUS_OK);
  device_counts(&layout, counts);
  assert_memory_equal(counts, ((int64_t[]){22, 21, 21}), 3 * sizeof *counts);
  options.counts = COUNTS_FIXED;
  options.fixed = (int64_t[]){40, 4, 20};
  assert_int_equal(device_map_draw(&layout, TOKENS, CLASS_NONE, &options, &rng, order), STATUS_OK);
  device_counts(&layout, counts);
  assert_memory_equal(counts, options.fixed, 3 * sizeof *counts);
  assert_false(check_map(&layout));
  options.permute = false;
  assert_int_equal(device_map_draw(&layout, TOKENS, CLASS_NONE, &options, &rng, order), STATUS_OK);
  assert_true(check_map(&layout));
  layout_release(&layout);
}

/* A fixed layout is the same for every batch, with the counts that are drawn. */
static void a_fixed_layout_places_the_counts_that_are_drawn(void **state) {
  (void)state;
  TokenLayout layout = {0};
  Rng rng;
  rng_init(&rng, 4, 0);
  int32_t order[TOKENS], expected[TOKENS];
  const DeviceMapOptions options = {
      .devices_min = 2, .devices_max = 6, .counts = COUNTS_DIRICHLET, .concentration = 1, .map = {TOKEN_MAP_CHECKERBOARD, 0}, .side = 8};
  for (int i = 0; i < 50; i++) {
    int64_t counts[TOKENS];
    assert_int_equal(device_map_draw(&layout, TOKENS, CLASS_NONE, &options, &rng, order), STATUS_OK);
    device_counts(&layout, counts);
    assert_int_equal(token_map_order(&options.map, 8, 8, layout.devices, counts, expected), STATUS_OK);
    assert_memory_equal(layout.row_token, expected, sizeof expected);
  }
  layout_release(&layout);
}

/* As the runner's partition of so many nodes. */
static void evaluation_places_even_shares_as_the_configuration_says(void **state) {
  (void)state;
  const TokenMap maps[] = {{TOKEN_MAP_RASTER, 0}, {TOKEN_MAP_STRIDED, 0}, {TOKEN_MAP_CHECKERBOARD, 0}, {TOKEN_MAP_RANDOM, 3}};
  TokenLayout layout = {0};
  ModelConfig config;
  int32_t order[TOKENS], expected[TOKENS];
  int64_t counts[3] = {22, 21, 21};
  assert_int_equal(config_preset(&config, "vit-cifar", 10), STATUS_OK);
  config.astra.class_token = CLASS_NONE; /* so that rows are tokens */
  for (int i = 0; i < 4; i++) {
    config.astra.layout = maps[i];
    assert_int_equal(device_map_place(&layout, &config, TOKENS, 3, order), STATUS_OK);
    assert_int_equal(token_map_order(&maps[i], 8, 8, 3, counts, expected), STATUS_OK);
    assert_memory_equal(layout.row_token, expected, sizeof expected);
  }
  assert_int_equal(device_map_place(&layout, &config, TOKENS, TOKENS + 1, order), STATUS_BAD_VALUE);
  config_release(&config);
  layout_release(&layout);
}

static void dirichlet_counts_vary_with_concentration(void **state) {
  (void)state;
  TokenLayout layout = {0};
  Rng rng;
  rng_init(&rng, 5, 0);
  int32_t order[TOKENS];
  const double concentrations[] = {1e-3, 1, 1000};
  double spread[3] = {0};
  for (int c = 0; c < 3; c++) {
    const DeviceMapOptions options = {
        .devices_min = 4, .devices_max = 4, .counts = COUNTS_DIRICHLET, .concentration = concentrations[c], .permute = true};
    for (int i = 0; i < 500; i++) {
      int64_t counts[4];
      assert_int_equal(device_map_draw(&layout, TOKENS, CLASS_SINGLE, &options, &rng, order), STATUS_OK);
      for (int64_t r = 0, tokens = 0; r < layout.rows; r++) {
        tokens += layout.row_token[r] >= 0;
        if (r == layout.rows - 1) assert_int_equal(tokens, TOKENS);
      }
      device_counts(&layout, counts);
      counts[0]--; /* the class token */
      for (int d = 0; d < 4; d++) {
        assert_true(counts[d] >= 1);
        spread[c] += (double)((counts[d] - 16) * (counts[d] - 16)) / 2000;
      }
    }
  }
  /* Variance of a share of Dirichlet(a, a, a, a): 0.1875 / (4 a + 1), times 64^2; the floor of one token takes a little. */
  assert_true(spread[0] > 600 && spread[0] < 768);
  assert_true(fabs(spread[1] - 153.6) < 20);
  assert_true(spread[2] < 1);
  layout_release(&layout);
}

/* Each token is equally often on each device. */
static void permutations_are_uniform(void **state) {
  (void)state;
  TokenLayout layout = {0};
  Rng rng;
  rng_init(&rng, 9, 0);
  const DeviceMapOptions options = {.devices_min = 2, .devices_max = 2, .counts = COUNTS_EVEN, .permute = true};
  int32_t order[8];
  int on_first[8] = {0};
  for (int i = 0; i < 4000; i++) {
    assert_int_equal(device_map_draw(&layout, 8, CLASS_NONE, &options, &rng, order), STATUS_OK);
    for (int r = 0; r < 4; r++) on_first[layout.row_token[r]]++;
  }
  for (int t = 0; t < 8; t++) assert_in_range(on_first[t], 2000 - 130, 2000 + 130); /* 4 deviations */
  layout_release(&layout);
}

static void same_state_same_map(void **state) {
  (void)state;
  TokenLayout one = {0}, two = {0};
  Rng rng;
  rng_init(&rng, 11, 0);
  const DeviceMapOptions options = {.devices_min = 2, .devices_max = 6, .counts = COUNTS_DIRICHLET, .concentration = 1, .permute = true};
  int32_t order[TOKENS], different = 0;
  for (int i = 0; i < 50; i++) {
    Rng copy = rng;
    assert_int_equal(device_map_draw(&one, TOKENS, CLASS_DISTRIBUTED, &options, &rng, order), STATUS_OK);
    if (i > 0) different += one.rows != two.rows || memcmp(one.row_token, two.row_token, (size_t)one.rows * sizeof(int32_t)) != 0;
    assert_int_equal(device_map_draw(&two, TOKENS, CLASS_DISTRIBUTED, &options, &copy, order), STATUS_OK);
    assert_memory_equal(&rng, &copy, sizeof rng);
    assert_int_equal(one.rows, two.rows);
    assert_memory_equal(one.row_token, two.row_token, (size_t)one.rows * sizeof(int32_t));
  }
  assert_int_equal(different, 49);
  layout_release(&one);
  layout_release(&two);
}

static void assert_refused(const DeviceMapOptions *options, int64_t tokens) {
  TokenLayout layout = {0};
  Rng rng;
  rng_init(&rng, 1, 0);
  int32_t order[TOKENS];
  assert_int_equal(device_map_draw(&layout, tokens, CLASS_NONE, options, &rng, order), STATUS_BAD_VALUE);
  assert_true(strlen(status_message()) > 10);
  layout_release(&layout);
}

static void bad_options_are_refused(void **state) {
  (void)state;
  const int64_t short_sum[] = {10, 20}, beyond[] = {INT64_MAX, 2};
  assert_refused(&(DeviceMapOptions){.devices_min = 2, .devices_max = 9}, 8);
  assert_refused(&(DeviceMapOptions){.devices_min = 0, .devices_max = 4}, 8);
  assert_refused(&(DeviceMapOptions){.devices_min = 5, .devices_max = 4}, 8);
  assert_refused(&(DeviceMapOptions){.devices_min = 2, .devices_max = TOKEN_MAP_DEVICES + 1}, 1 << 20);
  assert_refused(&(DeviceMapOptions){2, 2, COUNTS_FIXED, short_sum, 0, true, {0}, 0}, TOKENS);
  assert_refused(&(DeviceMapOptions){2, 2, COUNTS_FIXED, beyond, 0, true, {0}, 0}, TOKENS);
  assert_refused(&(DeviceMapOptions){2, 3, COUNTS_FIXED, short_sum, 0, true, {0}, 0}, TOKENS);
  assert_refused(&(DeviceMapOptions){2, 2, COUNTS_DIRICHLET, NULL, 0, true, {0}, 0}, TOKENS);
  assert_refused(&(DeviceMapOptions){2, 2, COUNTS_DIRICHLET, NULL, (double)NAN, true, {0}, 0}, TOKENS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(devices_are_uniform_in_the_range),
      cmocka_unit_test(counts_are_as_asked),
      cmocka_unit_test(a_fixed_layout_places_the_counts_that_are_drawn),
      cmocka_unit_test(evaluation_places_even_shares_as_the_configuration_says),
      cmocka_unit_test(dirichlet_counts_vary_with_concentration),
      cmocka_unit_test(permutations_are_uniform),
      cmocka_unit_test(same_state_same_map),
      cmocka_unit_test(bad_options_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
