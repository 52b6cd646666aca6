/* Random crops within their bounds, shifts, mirroring and normalisation, pixel by pixel. */
#include "data/loader.c" /* they are inside of it */
#include "data_testing.h"
#include "unit/float_equal.h"
#include <math.h>

static const double mean[3] = {0.1, 0.2, 0.3}, deviation[3] = {0.5, 0.25, 0.125};

static void test_crop_bounds(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 7, 0);
  double min_area = 1, max_area = 0;
  for (int i = 0; i < 20000; i++) {
    CropBox box = random_crop(&rng, 200, 150, 0.25);
    double area = box.w * box.h / 30000.0, aspect = (double)box.w / box.h;
    assert_true(box.x >= 0 && box.y >= 0 && box.x + box.w <= 200 && box.y + box.h <= 150);
    assert_true(area > 0.245 && area <= 1.0);
    assert_true(aspect > 0.735 && aspect < 1.36);
    min_area = fmin(min_area, area);
    max_area = fmax(max_area, area);
  }
  assert_true(min_area < 0.26 && max_area > 0.95);
}

/* No box of an accepted aspect fits the area: the largest centred one is taken. */
static void test_crop_of_a_strip(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 7, 0);
  CropBox wide = random_crop(&rng, 300, 30, 0.9), high = random_crop(&rng, 30, 300, 0.9);
  assert_int_equal(wide.w, 40);
  assert_int_equal(wide.h, 30);
  assert_int_equal(wide.x, 130);
  assert_int_equal(high.w, 30);
  assert_int_equal(high.h, 40);
  assert_int_equal(high.y, 130);
  CropBox dot = random_crop(&rng, 1, 1, 0.08);
  assert_true(dot.x == 0 && dot.y == 0 && dot.w == 1 && dot.h == 1);
}

static void test_shift_and_flip(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 7, 0);
  int seen[2][9] = {{0}}, flips = 0;
  for (int i = 0; i < 9000; i++) {
    int dx, dy;
    random_shift(&rng, 32, &dx, &dy);
    assert_true(dx >= -4 && dx <= 4 && dy >= -4 && dy <= 4);
    seen[0][dx + 4]++;
    seen[1][dy + 4]++;
    flips += random_flip(&rng);
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
  make_table(&table, mean, deviation);
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
  make_table(&table, mean, deviation);
  assert_ok(image_new(&in, SIDE, SIDE));
  for (int i = 0; i < 3 * SIDE * SIDE; i++) in.rgb[i] = (uint8_t)(i + 1);
  for (int dx = -SIDE - 1; dx <= SIDE + 1; dx++) {
    for (int dy = -3; dy <= 3; dy++) {
      for (int flip = 0; flip < 2; flip++) {
        put_planes(&table, &in, dx, dy, flip, SIDE, out);
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

/* A window put through the table is what put_planes makes of the image. */
static void test_window(void **state) {
  (void)state;
  enum { SIDE = 8 };
  PixelTable table;
  Image in, window = {0};
  float expected[3 * SIDE * SIDE], out[3 * SIDE * SIDE];
  make_table(&table, mean, deviation);
  assert_ok(image_new(&in, SIDE, SIDE));
  for (int i = 0; i < 3 * SIDE * SIDE; i++) in.rgb[i] = (uint8_t)(i + 1);
  for (int d = -SIDE - 1; d <= SIDE + 1; d++) {
    for (int flip = 0; flip < 2; flip++) {
      assert_ok(cut_window(&in, d, d / 2, flip, SIDE, &window));
      put_planes(&table, &window, 0, 0, false, SIDE, out);
      put_planes(&table, &in, d, d / 2, flip, SIDE, expected);
      assert_memory_equal(out, expected, sizeof out);
    }
  }
  image_release(&in);
  image_release(&window);
}

/* A box of zeros, the same in all planes, of 2% to 33% of the area and an aspect in the range; as often as asked. */
static void test_erasing(void **state) {
  (void)state;
  enum { SIDE = 40, AREA = SIDE * SIDE, DRAWS = 4000 };
  Rng rng;
  int erased = 0;
  double min = 1, max = 0;
  rng_init(&rng, 7, 0);
  for (int draw = 0; draw < DRAWS; draw++) {
    static float planes[3 * AREA];
    int count = 0, left = SIDE, right = -1, top = SIDE, bottom = -1;
    for (int i = 0; i < 3 * AREA; i++) planes[i] = 1;
    random_erase(&rng, 0.25, SIDE, planes);
    for (int i = 0; i < AREA; i++) {
      assert_true(planes[i] == planes[AREA + i] && planes[i] == planes[2 * AREA + i]);
      if (planes[i] != 0) continue;
      int x = i % SIDE, y = i / SIDE;
      count++;
      left = x < left ? x : left, right = x > right ? x : right, top = y < top ? y : top, bottom = y > bottom ? y : bottom;
    }
    if (count == 0) continue;
    int w = right - left + 1, h = bottom - top + 1;
    assert_int_equal(count, w * h);
    assert_true((double)w / h > 0.24 && (double)w / h < 4.2); /* sides are rounded */
    min = fmin(min, (double)count / AREA), max = fmax(max, (double)count / AREA);
    erased++;
  }
  assert_in_range(erased, DRAWS / 4 - 120, DRAWS / 4 + 120);
  assert_true(min > 0.015 && min < 0.03 && max > 0.31 && max < 0.345);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_crop_bounds),   cmocka_unit_test(test_crop_of_a_strip), cmocka_unit_test(test_shift_and_flip),
      cmocka_unit_test(test_normalisation), cmocka_unit_test(test_planes),          cmocka_unit_test(test_window),
      cmocka_unit_test(test_erasing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
