/* Maps of tokens to devices: permutations with the given counts for every grid and number of devices, the images that their names
 * promise, even spreading with uneven counts, and the same numbers on every machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nn/layout.h"
#include <math.h>
#include <string.h>

enum { MAX = 16 * 16, DEVICES = 20 };

static const TokenMap maps[] = {{TOKEN_MAP_RASTER, 0}, {TOKEN_MAP_STRIDED, 0}, {TOKEN_MAP_CHECKERBOARD, 0}, {TOKEN_MAP_RANDOM, 7}};
enum { MAPS = sizeof maps / sizeof *maps };

static void order_of(TokenMap map, int64_t height, int64_t width, int devices, const int64_t *counts, int32_t *order) {
  if (token_map_order(&map, height, width, devices, counts, order) != STATUS_OK) fail_msg("%s", status_message());
}

static void devices_of(TokenMap map, int64_t height, int64_t width, int devices, const int64_t *counts, int *device_of) {
  int32_t order[MAX];
  order_of(map, height, width, devices, counts, order);
  for (int64_t d = 0, place = 0; d < devices; d++)
    for (int64_t i = 0; i < counts[d]; i++) device_of[order[place++]] = (int)d;
}

/* One token at least, the rest anyhow. */
static void draw_counts(Rng *rng, int64_t tokens, int devices, int64_t *counts) {
  for (int d = 0; d < devices; d++) counts[d] = 1;
  for (int64_t i = devices; i < tokens; i++) counts[rng_below(rng, 1 + rng_below(rng, (uint64_t)devices))]++;
}

static void every_map_is_a_permutation_that_ascends_within_devices(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 1, 0);
  for (int round = 0; round < 400; round++) {
    int64_t height = 1 + (int64_t)rng_below(&rng, 16), width = 1 + (int64_t)rng_below(&rng, 16), tokens = height * width;
    int devices = 1 + (int)rng_below(&rng, (uint64_t)(tokens < DEVICES ? tokens : DEVICES));
    int64_t counts[DEVICES];
    draw_counts(&rng, tokens, devices, counts);
    for (int m = 0; m < MAPS; m++) {
      int32_t order[MAX], again[MAX];
      bool seen[MAX] = {false};
      order_of(maps[m], height, width, devices, counts, order);
      for (int64_t d = 0, i = 0; d < devices; d++)
        for (int64_t end = i + counts[d], begin = i; i < end; i++) {
          assert_in_range(order[i], 0, tokens - 1);
          assert_false(seen[order[i]]);
          seen[order[i]] = true;
          assert_true(i == begin || order[i] > order[i - 1]);
        }
      order_of(maps[m], height, width, devices, counts, again);
      assert_memory_equal(order, again, (size_t)tokens * sizeof *order);
    }
  }
}

static void expect_image(TokenMap map, int64_t side, int devices, const int64_t *counts, const char *image) {
  int device_of[MAX];
  char text[MAX + 1];
  devices_of(map, side, side, devices, counts, device_of);
  for (int64_t i = 0; i < side * side; i++) text[i] = (char)('0' + device_of[i]);
  text[side * side] = 0;
  assert_string_equal(text, image);
}

static void maps_look_as_their_names_say(void **state) {
  (void)state;
  const TokenMap raster = maps[0], strided = maps[1], checkerboard = maps[2];
  expect_image(raster, 4, 3, (int64_t[]){6, 5, 5}, "0000001111122222");
  expect_image(strided, 4, 4, (int64_t[]){4, 4, 4, 4}, "0123012301230123");
  expect_image(strided, 4, 3, (int64_t[]){6, 5, 5}, "0120120120120120");
  expect_image(strided, 4, 2, (int64_t[]){12, 4}, "0010001000100010");
  expect_image(checkerboard, 4, 2, (int64_t[]){8, 8}, "0101101001011010");
  expect_image(checkerboard, 4, 4, (int64_t[]){4, 4, 4, 4}, "0202313102023131");
  expect_image(checkerboard, 3, 2, (int64_t[]){5, 4}, "010101010");
  expect_image(checkerboard, 4, 2, (int64_t[]){12, 4}, "0000101000001010");
}

/* The numbers of a map are part of a checkpoint's meaning: these are the same on every machine and in every version. */
static void a_random_map_follows_from_its_seed_alone(void **state) {
  (void)state;
  expect_image((TokenMap){TOKEN_MAP_RANDOM, 1}, 4, 3, (int64_t[]){8, 4, 4}, "1020120010102200");
  expect_image((TokenMap){TOKEN_MAP_RANDOM, 2}, 4, 3, (int64_t[]){8, 4, 4}, "0110200002201012");
}

/* Of the first i tokens a device has its share to within one and half a token for each device beside it, weighed by the share. */
static void strided_spreads_uneven_shares_evenly(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 2, 0);
  for (int round = 0; round < 200; round++) {
    int device_of[MAX], devices = 1 + (int)rng_below(&rng, 12);
    int64_t counts[DEVICES], taken[DEVICES] = {0};
    draw_counts(&rng, MAX, devices, counts);
    devices_of(maps[1], 16, 16, devices, counts, device_of);
    for (int64_t i = 0; i < MAX; i++) {
      taken[device_of[i]]++;
      for (int d = 0; d < devices; d++) {
        double share = (double)counts[d] / MAX, off = fabs((double)taken[d] - share * (double)(i + 1));
        assert_true(off <= 1 + share * devices / 2);
      }
    }
  }
}

/* In each quarter of the image and of its quarters a device has its share to within a few tokens; the raster map does not. */
static double worst_window(TokenMap map, int devices, const int64_t *counts) {
  int device_of[MAX];
  double worst = 0;
  devices_of(map, 16, 16, devices, counts, device_of);
  for (int side = 4; side <= 8; side += 4)
    for (int y = 0; y < 16; y += side)
      for (int x = 0; x < 16; x += side)
        for (int d = 0; d < devices; d++) {
          int here = 0;
          for (int i = 0; i < side * side; i++) here += device_of[(y + i / side) * 16 + x + i % side] == d;
          worst = fmax(worst, fabs(here - (double)counts[d] * side * side / MAX));
        }
  return worst;
}

static void checkerboard_spreads_in_two_dimensions(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 3, 0);
  for (int round = 0; round < 200; round++) {
    int devices = 2 + (int)rng_below(&rng, 9);
    int64_t counts[DEVICES];
    draw_counts(&rng, MAX, devices, counts);
    assert_true(worst_window(maps[2], devices, counts) <= 2);
  }
  assert_true(worst_window(maps[0], 4, (int64_t[]){64, 64, 64, 64}) > 10);
}

static void names_are_read_and_written(void **state) {
  (void)state;
  const char *const good[] = {"raster", "strided", "checkerboard", "random:7", "random:0", "random:9000000000000000"};
  const char *const bad[] = {"",
                             "Raster",
                             "random",
                             "random:",
                             "random:-1",
                             "random: 1",
                             "random:1x",
                             "permuted",
                             "rasterize",
                             "strided ",
                             "trained",
                             "random:9000000000000001",
                             "random:99999999999999999999"};
  char name[TOKEN_MAP_NAME];
  TokenMap map;
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    assert_true(token_map_parse(good[i], &map));
    token_map_name(&map, name);
    assert_string_equal(name, good[i]);
  }
  map = (TokenMap){TOKEN_MAP_RANDOM, 5};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(token_map_parse(bad[i], &map));
  assert_true(map.kind == TOKEN_MAP_RANDOM && map.seed == 5);
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  int32_t order[16];
  const int64_t good[2] = {8, 8}, few[2] = {8, 7}, many[2] = {8, 9}, none[2] = {16, 0}, wraps[2] = {INT64_MAX, INT64_MAX};
  for (int m = 0; m < MAPS; m++) {
    assert_int_equal(token_map_order(&maps[m], 4, 4, 2, good, order), STATUS_OK);
    assert_int_equal(token_map_order(&maps[m], 4, 4, 2, few, order), STATUS_BAD_VALUE);
    assert_int_equal(token_map_order(&maps[m], 4, 4, 2, many, order), STATUS_BAD_VALUE);
    assert_int_equal(token_map_order(&maps[m], 4, 4, 2, none, order), STATUS_BAD_VALUE);
    assert_int_equal(token_map_order(&maps[m], 4, 4, 2, wraps, order), STATUS_BAD_VALUE);
    assert_int_equal(token_map_order(&maps[m], 0, 4, 2, good, order), STATUS_BAD_VALUE);
    assert_int_equal(token_map_order(&maps[m], 4, 4, 0, good, order), STATUS_BAD_VALUE);
    assert_int_equal(token_map_order(&maps[m], 64, 64, TOKEN_MAP_DEVICES + 1, good, order), STATUS_BAD_VALUE);
    assert_int_equal(token_map_order(&maps[m], INT64_C(1) << 40, INT64_C(1) << 40, 2, good, order), STATUS_BAD_VALUE);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_map_is_a_permutation_that_ascends_within_devices),
                                     cmocka_unit_test(maps_look_as_their_names_say),
                                     cmocka_unit_test(a_random_map_follows_from_its_seed_alone),
                                     cmocka_unit_test(strided_spreads_uneven_shares_evenly),
                                     cmocka_unit_test(checkerboard_spreads_in_two_dimensions),
                                     cmocka_unit_test(names_are_read_and_written),
                                     cmocka_unit_test(what_does_not_fit_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
