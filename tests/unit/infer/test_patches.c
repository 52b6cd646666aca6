/* Patches of images: levels are found where an image has them and nowhere else, give the same bits again, and stand in the order of a
 * node's rows; other patches than its own are not written. */
#include "infer/patches.h"
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

enum { SIDE = 8, PATCH = 4, TOKENS = 4, PIXELS = 3 * SIDE * SIDE, BATCH = 2, DEPTH = 3 * PATCH * PATCH };
static const ModelConfig config = {
    .channels = 3, .image = SIDE, .patch = PATCH, .image_mean = {0.5, 0.485, 0.1}, .image_std = {0.5, 0.229, 0.3}};

/* As the loader makes them of level l. */
static float normalised(int channel, int level) {
  return (float)((level / 255.0 - config.image_mean[channel]) / config.image_std[channel]);
}

static int level_at(int64_t i) { return (int)(i * 37 % 256); }

static void fill(float *pixels) {
  for (int64_t i = 0; i < BATCH * PIXELS; i++) pixels[i] = normalised((int)(i / (SIDE * SIDE) % 3), level_at(i));
}

static void every_level_is_found(void **state) {
  (void)state;
  PatchLevels levels = {0};
  float pixels[BATCH * PIXELS];
  uint8_t found[BATCH * PIXELS];
  for (int shift = 0; shift < 256; shift++) {
    for (int64_t i = 0; i < BATCH * PIXELS; i++) pixels[i] = normalised((int)(i / (SIDE * SIDE) % 3), (level_at(i) + shift) % 256);
    assert_true(patches_find_levels(&levels, &config, pixels, BATCH, found));
    for (int64_t i = 0; i < BATCH * PIXELS; i++) assert_int_equal(found[i], (level_at(i) + shift) % 256);
  }
}

static void what_is_no_level_is_not_taken_for_one(void **state) {
  (void)state;
  PatchLevels levels = {0};
  float pixels[BATCH * PIXELS];
  uint8_t found[BATCH * PIXELS];
  const float others[] = {nextafterf(normalised(2, 9), 10), normalised(0, 9), NAN, INFINITY, -INFINITY, 1e30F, -0.0F};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    fill(pixels);
    pixels[BATCH * PIXELS - 1] = others[i]; /* of channel 2 */
    if (patches_find_levels(&levels, &config, pixels, BATCH, found)) fail_msg("number %d is no level", (int)i);
  }
}

/* A node with tokens 3 and 1, in this order, and a class token in front. */
static void patches_of_a_node_come_back(void **state) {
  (void)state;
  int32_t tokens[] = {-1, 3, 1};
  const TokenLayout layout = {.rows = 3, .row_token = tokens};
  float pixels[BATCH * PIXELS];
  uint8_t found[BATCH * PIXELS];
  PatchLevels levels = {0};
  fill(pixels);
  assert_true(patches_find_levels(&levels, &config, pixels, BATCH, found));
  for (int as_levels = 0; as_levels < 2; as_levels++) {
    size_t bytes = patches_bytes(&config, BATCH, 2, as_levels);
    uint8_t *packed = malloc(bytes);
    real back[BATCH * PIXELS];
    assert_int_equal(bytes, 4 + BATCH * 2 * DEPTH * (as_levels ? 1 : 4));
    patches_pack(&config, &layout, BATCH, pixels, as_levels ? found : NULL, packed);
    assert_int_equal(packed[0], as_levels);
    if (as_levels) assert_int_equal(packed[4], level_at(4 * SIDE + 4)); /* the corner of token 3 */
    for (int64_t i = 0; i < BATCH * PIXELS; i++) back[i] = -77;
    assert_int_equal(patches_parse(packed, &config, &layout, BATCH, as_levels, back), STATUS_OK);
    for (int64_t i = 0; i < BATCH * PIXELS; i++) {
      int64_t token = i % (SIDE * SIDE) / SIDE / PATCH * (SIDE / PATCH) + i % SIDE / PATCH;
      float here = (float)back[i];
      if (token == 1 || token == 3)
        assert_memory_equal(&here, &pixels[i], sizeof here);
      else
        assert_true(here == -77);
    }
    packed[0] ^= 1;
    assert_int_equal(patches_parse(packed, &config, &layout, BATCH, as_levels, back), STATUS_BAD_VALUE);
    packed[0] ^= 1, packed[3] = 1;
    assert_int_equal(patches_parse(packed, &config, &layout, BATCH, as_levels, back), STATUS_BAD_VALUE);
    free(packed);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_level_is_found), cmocka_unit_test(what_is_no_level_is_not_taken_for_one),
                                     cmocka_unit_test(patches_of_a_node_come_back)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
