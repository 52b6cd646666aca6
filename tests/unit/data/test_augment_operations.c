/* Each operation of TrivialAugment and RandAugment against values worked out by hand or a plain definition in double. */
#include "base/rng.h"
#include "data/augment.c" /* they are inside of it */
#include "data_testing.h"
#include "unit/float_equal.h"
#include <math.h>

static Image image, spare;

static int release(void **state) {
  (void)state;
  image_release(&image);
  image_release(&spare);
  return 0;
}

/* Noise, so that no two pixels agree by design. */
static void make_noise(int width, int height) {
  Rng rng;
  rng_init(&rng, 5, 0);
  assert_ok(image_reshape(&image, width, height));
  for (int i = 0; i < 3 * width * height; i++) image.rgb[i] = (uint8_t)rng_below(&rng, 256);
}

static void make(int width, int height, const uint8_t *rgb) {
  assert_ok(image_reshape(&image, width, height));
  memcpy(image.rgb, rgb, 3 * (size_t)width * (size_t)height);
}

/* An image whose three channels are equal. */
static void make_grey(int width, int height, const uint8_t *levels) {
  assert_ok(image_reshape(&image, width, height));
  for (int i = 0; i < 3 * width * height; i++) image.rgb[i] = levels[i / 3];
}

static void apply(ImageOperation operation, double strength) { assert_ok(image_operation_apply(operation, strength, &image, &spare)); }

static void expect_grey(const uint8_t *levels, int count) {
  for (int i = 0; i < 3 * count; i++)
    if (image.rgb[i] != levels[i / 3]) fail_msg("number %d is %d, not %d", i, image.rgb[i], levels[i / 3]);
}

#define EXPECT_GREY(...) expect_grey((const uint8_t[]){__VA_ARGS__}, (int)sizeof((const uint8_t[]){__VA_ARGS__}))

/* ---------------------------------------------------------------- what changes nothing */

static void strengths_that_change_nothing(void **state) {
  (void)state;
  static const struct {
    ImageOperation operation;
    double strength;
  } still[] = {{OPERATION_IDENTITY, 0.7},  {OPERATION_SHEAR_X, 0},   {OPERATION_SHEAR_Y, 0},    {OPERATION_TRANSLATE_X, 0},
               {OPERATION_TRANSLATE_Y, 0}, {OPERATION_ROTATE, 0},    {OPERATION_BRIGHTNESS, 1}, {OPERATION_COLOUR, 1},
               {OPERATION_CONTRAST, 1},    {OPERATION_SHARPNESS, 1}, {OPERATION_POSTERIZE, 8},  {OPERATION_SOLARIZE, 256}};
  static const int sizes[][2] = {{1, 1}, {7, 5}, {32, 32}};
  for (size_t s = 0; s < 3; s++) {
    for (size_t i = 0; i < sizeof still / sizeof *still; i++) {
      uint8_t before[32 * 32 * 3];
      make_noise(sizes[s][0], sizes[s][1]);
      memcpy(before, image.rgb, 3 * (size_t)sizes[s][0] * (size_t)sizes[s][1]);
      apply(still[i].operation, still[i].strength);
      assert_memory_equal(before, image.rgb, 3 * (size_t)sizes[s][0] * (size_t)sizes[s][1]);
    }
  }
}

/* No operation at any strength leaves the image's memory (under the address sanitizer), nor changes its size. */
static void all_operations_on_all_sizes(void **state) {
  (void)state;
  static const int sizes[][2] = {{1, 1}, {1, 9}, {9, 1}, {2, 2}, {13, 6}};
  static const double strengths[] = {-135, -32, -0.99, 0, 0.01, 1.99, 2, 7, 32, 135, 255};
  for (int operation = 0; operation < OPERATIONS; operation++) {
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
      for (size_t i = 0; i < sizeof strengths / sizeof *strengths; i++) {
        make_noise(sizes[s][0], sizes[s][1]);
        apply((ImageOperation)operation, strengths[i]);
        assert_int_equal(image.width, sizes[s][0]);
        assert_int_equal(image.height, sizes[s][1]);
      }
    }
  }
}

/* ---------------------------------------------------------------- moving pixels */

static void translations_move_whole_pixels(void **state) {
  (void)state;
  static const uint8_t levels[] = {1, 2, 3, 4, 5, 6};
  make_grey(3, 2, levels);
  apply(OPERATION_TRANSLATE_X, 1);
  EXPECT_GREY(2, 3, 0, 5, 6, 0);
  make_grey(3, 2, levels);
  apply(OPERATION_TRANSLATE_X, -2);
  EXPECT_GREY(0, 0, 1, 0, 0, 4);
  make_grey(3, 2, levels);
  apply(OPERATION_TRANSLATE_Y, 1);
  EXPECT_GREY(4, 5, 6, 0, 0, 0);
  make_grey(3, 2, levels);
  apply(OPERATION_TRANSLATE_Y, -1);
  EXPECT_GREY(0, 0, 0, 1, 2, 3);
}

/* A quarter turn counterclockwise takes the right column to the top. */
static void quarter_turns_are_exact(void **state) {
  (void)state;
  make_grey(3, 3, (const uint8_t[]){1, 2, 3, 4, 5, 6, 7, 8, 9});
  apply(OPERATION_ROTATE, 90);
  EXPECT_GREY(3, 6, 9, 2, 5, 8, 1, 4, 7);
  apply(OPERATION_ROTATE, -90);
  EXPECT_GREY(1, 2, 3, 4, 5, 6, 7, 8, 9);
  make_grey(2, 2, (const uint8_t[]){1, 2, 3, 4}); /* the centre lies between pixels */
  apply(OPERATION_ROTATE, 90);
  EXPECT_GREY(2, 4, 1, 3);
}

/* Bilinear interpolation with black outside, at the place where a corner-based map of pixel centres leads. */
static double sampled(const Image *in, double x, double y, int channel) {
  double sum = 0;
  for (int row = (int)floor(y); row <= (int)floor(y) + 1; row++) {
    for (int column = (int)floor(x); column <= (int)floor(x) + 1; column++) {
      if (row < 0 || column < 0 || row >= in->height || column >= in->width) continue;
      sum += (1 - fabs(x - column)) * (1 - fabs(y - row)) * in->rgb[3 * (row * in->width + column) + channel];
    }
  }
  return sum;
}

static void compare_with_map(ImageOperation operation, double strength, const double map[6] /* about corners */) {
  Image before;
  make_noise(11, 8);
  assert_ok(image_new(&before, 11, 8));
  memcpy(before.rgb, image.rgb, 3 * 11 * 8);
  apply(operation, strength);
  for (int y = 0; y < 8; y++) {
    for (int x = 0; x < 11; x++) {
      double u = map[0] * (x + 0.5) + map[1] * (y + 0.5) + map[2] - 0.5, v = map[3] * (x + 0.5) + map[4] * (y + 0.5) + map[5] - 0.5;
      for (int c = 0; c < 3; c++)
        assert_float_equal(image.rgb[3 * (y * 11 + x) + c], sampled(&before, u, v, c), 2.6); /* weights of 8 bits */
    }
  }
  image_release(&before);
}

static void shears_and_turns_interpolate(void **state) {
  (void)state;
  for (double s = -0.99; s < 1; s += 0.33) {
    compare_with_map(OPERATION_SHEAR_X, s, (const double[]){1, s, 0, 0, 1, 0});
    compare_with_map(OPERATION_SHEAR_Y, s, (const double[]){1, 0, 0, s, 1, 0});
  }
  for (double degrees = -135; degrees <= 135; degrees += 27) {
    double angle = degrees * acos(-1) / 180, a = cos(angle), b = sin(angle);
    compare_with_map(OPERATION_ROTATE, degrees, (const double[]){a, -b, 5.5 - a * 5.5 + b * 4, b, a, 4 - b * 5.5 - a * 4});
  }
}

/* ---------------------------------------------------------------- colours */

static void brightness_scales(void **state) {
  (void)state;
  make_grey(3, 1, (const uint8_t[]){0, 100, 201});
  apply(OPERATION_BRIGHTNESS, 0.5);
  EXPECT_GREY(0, 50, 101);
  make_grey(3, 1, (const uint8_t[]){3, 100, 201});
  apply(OPERATION_BRIGHTNESS, 1.5);
  EXPECT_GREY(5, 150, 255);
}

/* Pure red is the grey level 76 (0.299 of 255), pure green 150, pure blue 29. */
static void colour_goes_to_grey_and_beyond(void **state) {
  (void)state;
  static const uint8_t pure[] = {255, 0, 0, 0, 255, 0, 0, 0, 255}, grey[] = {76, 76, 76, 150, 150, 150, 29, 29, 29};
  make(3, 1, pure);
  apply(OPERATION_COLOUR, 0);
  assert_memory_equal(image.rgb, grey, 9);
  make(1, 1, (const uint8_t[]){100, 50, 50}); /* grey: 64.95 */
  apply(OPERATION_COLOUR, 2);
  assert_memory_equal(image.rgb, ((const uint8_t[]){135, 35, 35}), 3);
}

static void contrast_goes_about_the_mean_grey(void **state) {
  (void)state;
  make_grey(2, 2, (const uint8_t[]){10, 20, 30, 60}); /* mean 30 */
  apply(OPERATION_CONTRAST, 0.5);
  EXPECT_GREY(20, 25, 30, 45);
  make_grey(2, 2, (const uint8_t[]){10, 20, 30, 60});
  apply(OPERATION_CONTRAST, 2);
  EXPECT_GREY(0, 10, 30, 90);
}

/* A single bright pixel: (5 130) / 13 = 50 of it stays, and its neighbour inside the border takes 130 / 13 = 10. */
static void sharpness_smooths_and_sharpens(void **state) {
  (void)state;
  static const uint8_t dot[] = {0, 0, 0, 0, 0, 0, 130, 0, 0, 0, 0, 0};
  make_grey(4, 3, dot);
  apply(OPERATION_SHARPNESS, 0);
  EXPECT_GREY(0, 0, 0, 0, 0, 10, 50, 0, 0, 0, 0, 0);
  make_grey(3, 4, (const uint8_t[]){7, 7, 7, 7, 130, 7, 7, 7, 7, 7, 7, 7});
  apply(OPERATION_SHARPNESS, 0);
  EXPECT_GREY(7, 7, 7, 7, 54, 7, 7, 16, 7, 7, 7, 7); /* (5 130 + 8 7) / 13 = 54.3; (130 + 12 7) / 13 = 16.5, the dot's column */
  make_grey(4, 3, dot);
  apply(OPERATION_SHARPNESS, 1.5); /* 50 + 1.5 (130 - 50) = 170; 10 + 1.5 (0 - 10) is below black */
  EXPECT_GREY(0, 0, 0, 0, 0, 0, 170, 0, 0, 0, 0, 0);
}

static void posterize_keeps_the_high_bits(void **state) {
  (void)state;
  make_grey(4, 1, (const uint8_t[]){255, 127, 64, 63});
  apply(OPERATION_POSTERIZE, 2);
  EXPECT_GREY(192, 64, 64, 0);
  make_grey(4, 1, (const uint8_t[]){255, 127, 64, 63});
  apply(OPERATION_POSTERIZE, 5);
  EXPECT_GREY(248, 120, 64, 56);
}

static void solarize_inverts_from_the_threshold(void **state) {
  (void)state;
  make_grey(4, 1, (const uint8_t[]){0, 127, 128, 255});
  apply(OPERATION_SOLARIZE, 128);
  EXPECT_GREY(0, 127, 127, 0);
  make_grey(4, 1, (const uint8_t[]){0, 127, 128, 255});
  apply(OPERATION_SOLARIZE, 0);
  EXPECT_GREY(255, 128, 127, 0);
}

/* Each channel by itself: 100-150 becomes 0-255, a flat one stays. */
static void autocontrast_stretches_each_channel(void **state) {
  (void)state;
  make(3, 1, (const uint8_t[]){100, 9, 0, 125, 9, 128, 150, 9, 255});
  apply(OPERATION_AUTOCONTRAST, 0);
  assert_memory_equal(image.rgb, ((const uint8_t[]){0, 9, 0, 128, 9, 128, 255, 9, 255}), 9);
}

/* 32 x 32 pixels of four levels, 256 each: (1024 - 256) / 255 = 3 pixels a step, so that the levels become (1 + 256 i) / 3. */
static void equalize_follows_the_histogram(void **state) {
  (void)state;
  uint8_t levels[1024];
  for (int i = 0; i < 1024; i++) levels[i] = (uint8_t[]){10, 11, 12, 200}[i % 4];
  make_grey(32, 32, levels);
  apply(OPERATION_EQUALIZE, 0);
  for (int i = 0; i < 1024; i++) levels[i] = (uint8_t[]){0, 85, 171, 255}[i % 4];
  expect_grey(levels, 1024);
  static const uint8_t few[] = {1, 2, 3}; /* less than a pixel a step */
  make_grey(3, 1, few);
  apply(OPERATION_EQUALIZE, 0);
  expect_grey(few, 3);
}

/* From nothing at level 0 to the published most at level 30 (RandAugment's as torchvision has them, TrivialAugment's wide ones), to either
 * side where there are two. */
static void strengths_are_the_published_ones(void **state) {
  (void)state;
  enum { WIDE = 662, HIGH = 331, DRAWS = 2000 };
  static const struct {
    ImageOperation operation;
    double none, rand, trivial; /* at level 0, and at level 30 of either policy */
    bool sides;
  } rows[] = {
      {OPERATION_SHEAR_X, 0, 0.3, 0.99, true},   {OPERATION_SHEAR_Y, 0, 0.3, 0.99, true},  {OPERATION_TRANSLATE_X, 0, 300, 32, true},
      {OPERATION_TRANSLATE_Y, 0, 150, 32, true}, {OPERATION_ROTATE, 0, 30, 135, true},     {OPERATION_BRIGHTNESS, 1, 1.9, 1.99, true},
      {OPERATION_COLOUR, 1, 1.9, 1.99, true},    {OPERATION_CONTRAST, 1, 1.9, 1.99, true}, {OPERATION_SHARPNESS, 1, 1.9, 1.99, true},
      {OPERATION_POSTERIZE, 8, 4, 2, false},     {OPERATION_SOLARIZE, 255, 0, 0, false}};
  Rng rng;
  rng_init(&rng, 5, 0);
  make_noise(WIDE, HIGH);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const double none = rows[i].none, step = (rows[i].rand - none) / AUGMENT_LEVELS, width = rows[i].trivial - none;
    int other_side = 0;
    for (int level = 0; level <= AUGMENT_LEVELS; level++) {
      const double found = strength_of(&(AugmentPolicy){AUGMENT_RANDAUGMENT, 2, level}, &rng, rows[i].operation, &image) - none;
      other_side += level > 0 && found * step < 0;
      assert_float_equal(rows[i].sides ? fabs(found) : found, level * step, 1e-9);
    }
    assert_true(rows[i].sides ? other_side > 5 && other_side < 25 : other_side == 0);
    int levels[AUGMENT_LEVELS + 1] = {0};
    for (int draw = 0; draw < DRAWS; draw++) {
      const double share = (strength_of(&(AugmentPolicy){AUGMENT_TRIVIAL, 0, 0}, &rng, rows[i].operation, &image) - none) / width;
      const double level = AUGMENT_LEVELS * (rows[i].sides ? fabs(share) : share);
      assert_true(level > -1e-9 && fabs(level - round(level)) < 1e-9);
      levels[(int)round(level)]++;
    }
    for (int level = 0; level <= AUGMENT_LEVELS; level++) assert_in_range(levels[level], 30, 110); /* 64.5 each */
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(strengths_that_change_nothing),       cmocka_unit_test(all_operations_on_all_sizes),
      cmocka_unit_test(translations_move_whole_pixels),      cmocka_unit_test(quarter_turns_are_exact),
      cmocka_unit_test(shears_and_turns_interpolate),        cmocka_unit_test(brightness_scales),
      cmocka_unit_test(colour_goes_to_grey_and_beyond),      cmocka_unit_test(contrast_goes_about_the_mean_grey),
      cmocka_unit_test(sharpness_smooths_and_sharpens),      cmocka_unit_test(posterize_keeps_the_high_bits),
      cmocka_unit_test(solarize_inverts_from_the_threshold), cmocka_unit_test(autocontrast_stretches_each_channel),
      cmocka_unit_test(equalize_follows_the_histogram),      cmocka_unit_test(strengths_are_the_published_ones),
  };
  return cmocka_run_group_tests(tests, NULL, release);
}
