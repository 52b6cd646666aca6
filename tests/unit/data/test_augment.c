/* Random crops within their bounds, shifts, mirroring and normalisation, pixel by pixel. */
#include "data/augment.h"
#include "data_testing.h"
#include <math.h>

static const double mean[3] = {0.1, 0.2, 0.3}, deviation[3] = {0.5, 0.25, 0.125};

static void test_crop_bounds(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 7, 0);
  double least_area = 1, most_area = 0;
  for (int i = 0; i < 20000; i++) {
    CropBox box = augment_crop(&rng, 200, 150, 0.25);
    double area = box.w * box.h / 30000.0, aspect = (double)box.w / box.h;
    assert_true(box.x >= 0 && box.y >= 0 && box.x + box.w <= 200 && box.y + box.h <= 150);
    assert_true(area > 0.245 && area <= 1.0);
    assert_true(aspect > 0.735 && aspect < 1.36);
    least_area = fmin(least_area, area);
    most_area = fmax(most_area, area);
  }
  assert_true(least_area < 0.26 && most_area > 0.95);
}

/* No box of an accepted aspect fits the area: the largest centred one is taken. */
static void test_crop_of_a_strip(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 7, 0);
  CropBox wide = augment_crop(&rng, 300, 30, 0.9), high = augment_crop(&rng, 30, 300, 0.9);
  assert_int_equal(wide.w, 40);
  assert_int_equal(wide.h, 30);
  assert_int_equal(wide.x, 130);
  assert_int_equal(high.w, 30);
  assert_int_equal(high.h, 40);
  assert_int_equal(high.y, 130);
  CropBox dot = augment_crop(&rng, 1, 1, 0.08);
  assert_true(dot.x == 0 && dot.y == 0 && dot.w == 1 && dot.h == 1);
}

static void test_shift_and_flip(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 7, 0);
  int seen[2][9] = {{0}}, flips = 0;
  for (int i = 0; i < 9000; i++) {
    int dx, dy;
    augment_shift(&rng, 32, &dx, &dy);
    assert_true(dx >= -4 && dx <= 4 && dy >= -4 && dy <= 4);
    seen[0][dx + 4]++;
    seen[1][dy + 4]++;
    flips += augment_flip(&rng);
  }
  for (int i = 0; i < 9; i++) {
    assert_in_range(seen[0][i], 850, 1150);
    assert_in_range(seen[1][i], 850, 1150);
  }
  assert_in_range(flips, 4300, 4700);
}

static void test_normalisation(void **state) {
  (void)state;
  PixelTable table;
  augment_table(&table, mean, deviation);
  for (int c = 0; c < 3; c++) {
    for (int v = 0; v < 256; v++) assert_float_equal(table.values[c][v], (v / 255.0 - mean[c]) / deviation[c], 1e-6);
  }
}

/* Every shift, plain and mirrored, against the definition. */
static void test_planes(void **state) {
  (void)state;
  enum { SIDE = 8 };
  PixelTable table;
  Image in;
  float out[3 * SIDE * SIDE];
  augment_table(&table, mean, deviation);
  assert_ok(image_new(&in, SIDE, SIDE));
  for (int i = 0; i < 3 * SIDE * SIDE; i++) in.rgb[i] = (uint8_t)(i + 1);
  for (int dx = -SIDE - 1; dx <= SIDE + 1; dx++) {
    for (int dy = -3; dy <= 3; dy++) {
      for (int flip = 0; flip < 2; flip++) {
        augment_planes(&table, &in, dx, dy, flip, SIDE, out);
        for (int i = 0; i < 3 * SIDE * SIDE; i++) {
          int c = i / (SIDE * SIDE), x = i % SIDE, sy = i / SIDE % SIDE + dy, sx = (flip ? SIDE - 1 - x : x) + dx;
          bool inside = sx >= 0 && sx < SIDE && sy >= 0 && sy < SIDE;
          assert_true(out[i] == table.values[c][inside ? in.rgb[(sy * SIDE + sx) * 3 + c] : 0]);
        }
      }
    }
  }
  image_release(&in);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_crop_bounds),   cmocka_unit_test(test_crop_of_a_strip), cmocka_unit_test(test_shift_and_flip),
      cmocka_unit_test(test_normalisation), cmocka_unit_test(test_planes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
