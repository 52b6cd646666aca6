/* Resize against Pillow's own results, and what must hold for any image. */
#include "data/image.h"
#include "data_testing.h"

static Status resize_box(const Image *in, double x, double y, double w, double h, Image *out, ResizeFilter filter) {
  ResizeScratch scratch = {0};
  Status status = image_resize(&scratch, in, x, y, w, h, out, filter);
  image_resize_release(&scratch);
  return status;
}

static Status resize_image(const Image *in, Image *out, ResizeFilter filter) {
  return resize_box(in, 0, 0, in->width, in->height, out, filter);
}

static void compare(const char *in_name, const char *want_name, ResizeFilter filter) {
  Image in, want, out;
  char path[128];
  snprintf(path, sizeof path, "tests/golden/resize/%s.png", in_name);
  assert_ok(image_load(&in, path));
  snprintf(path, sizeof path, "tests/golden/resize/%s.png", want_name);
  assert_ok(image_load(&want, path));
  assert_ok(image_new(&out, want.width, want.height));
  assert_ok(resize_image(&in, &out, filter));
  int worst = 0;
  for (int i = 0; i < 3 * out.width * out.height; i++) {
    int off = abs(out.rgb[i] - want.rgb[i]);
    if (off > worst) worst = off;
  }
  printf("%s: worst deviation %d levels\n", want_name, worst);
  assert_int_equal(worst, 0); /* one level would be allowed */
  image_release(&in);
  image_release(&want);
  image_release(&out);
}

static void test_golden(void **state) {
  (void)state;
  compare("in0", "in0_bilinear_224", RESIZE_BILINEAR);
  compare("in0", "in0_bicubic_224", RESIZE_BICUBIC);
  compare("in1", "in1_bilinear_224", RESIZE_BILINEAR);
  compare("in1", "in1_bicubic_224", RESIZE_BICUBIC);
  compare("in2", "in2_bilinear_224", RESIZE_BILINEAR);
  compare("in2", "in2_bicubic_224", RESIZE_BICUBIC);
}

static Image noise(int width, int height) {
  Image image;
  uint32_t state = 1;
  assert_ok(image_new(&image, width, height));
  for (int i = 0; i < 3 * width * height; i++) image.rgb[i] = (uint8_t)((state = state * 1664525 + 1013904223) >> 24);
  return image;
}

static void test_same_size_copies(void **state) {
  (void)state;
  Image in = noise(31, 17), out;
  assert_ok(image_new(&out, 31, 17));
  assert_ok(resize_image(&in, &out, RESIZE_BICUBIC));
  assert_memory_equal(in.rgb, out.rgb, 31 * 17 * 3);
  image_release(&in);
  image_release(&out);
}

/* A box of the output's size on whole pixels is a plain crop. */
static void test_crop(void **state) {
  (void)state;
  Image in = noise(40, 30), out;
  assert_ok(image_new(&out, 9, 11));
  assert_ok(resize_box(&in, 13, 5, 9, 11, &out, RESIZE_BILINEAR));
  for (int y = 0; y < 11; y++) assert_memory_equal(out.rgb + y * 27, in.rgb + ((5 + y) * 40 + 13) * 3, 27);
  assert_ok(resize_box(&in, 0, 19, 9, 11, &out, RESIZE_BICUBIC));
  for (int y = 0; y < 11; y++) assert_memory_equal(out.rgb + y * 27, in.rgb + (19 + y) * 120, 27);
  image_release(&in);
  image_release(&out);
}

/* Halving by bilinear weighs four pixels 1 3 3 1 (in eighths) in each direction, but for the rim. */
static void test_halving_by_hand(void **state) {
  (void)state;
  Image in, out;
  assert_ok(image_new(&in, 8, 1));
  assert_ok(image_new(&out, 4, 1));
  const int levels[8] = {0, 16, 80, 200, 8, 255, 40, 120};
  for (int i = 0; i < 24; i++) in.rgb[i] = (uint8_t)levels[i / 3];
  assert_ok(resize_image(&in, &out, RESIZE_BILINEAR));
  assert_int_equal(out.rgb[3], (16 + 3 * 80 + 3 * 200 + 8 + 4) / 8);
  assert_int_equal(out.rgb[6], (200 + 3 * 8 + 3 * 255 + 40 + 4) / 8);
  assert_int_equal(out.rgb[0], (2 * (3 * 0 + 3 * 16 + 80) + 7) / 14); /* rim: 3 3 1 in sevenths */
  image_release(&in);
  image_release(&out);
}

/* One colour stays that colour, to any size and from any box: the weights sum to 1. */
static void test_flat(void **state) {
  (void)state;
  Image in, out;
  assert_ok(image_new(&in, 53, 71));
  for (int i = 0; i < 3 * 53 * 71; i++) in.rgb[i] = (uint8_t)(i % 3 == 0 ? 255 : i % 3 == 1 ? 1 : 127);
  for (int size = 1; size < 200; size += 13) {
    assert_ok(image_new(&out, size, 200 - size));
    assert_ok(resize_box(&in, 0.37 * size / 20, 1.5, 40.25, 60.75, &out, size % 2 ? RESIZE_BICUBIC : RESIZE_BILINEAR));
    for (int i = 0; i < 3 * out.width * out.height; i++) assert_int_equal(out.rgb[i], in.rgb[i % 3]);
    image_release(&out);
  }
  image_release(&in);
}

/* Working memory that other calls left behind changes nothing. */
static void test_scratch_is_reused(void **state) {
  (void)state;
  Image big = noise(300, 200), small = noise(20, 30), once, again;
  ResizeScratch scratch = {0};
  assert_ok(image_new(&once, 64, 48));
  assert_ok(image_new(&again, 64, 48));
  assert_ok(image_resize(&scratch, &big, 0, 0, 300, 200, &again, RESIZE_BICUBIC));
  void *memory = scratch.memory;
  assert_ok(image_resize(&scratch, &small, 2, 3, 11, 17, &again, RESIZE_BILINEAR));
  assert_ptr_equal(scratch.memory, memory);
  assert_ok(resize_box(&small, 2, 3, 11, 17, &once, RESIZE_BILINEAR));
  assert_memory_equal(once.rgb, again.rgb, 64 * 48 * 3);
  image_resize_release(&scratch);
  image_release(&big);
  image_release(&small);
  image_release(&once);
  image_release(&again);
}

static void test_refused(void **state) {
  (void)state;
  Image in = noise(10, 10), out, empty = {0};
  assert_ok(image_new(&out, 4, 4));
  assert_fails(resize_box(&in, 5, 0, 6, 5, &out, RESIZE_BILINEAR), STATUS_BAD_VALUE, "10 x 10");
  assert_fails(resize_box(&in, -1, 0, 5, 5, &out, RESIZE_BILINEAR), STATUS_BAD_VALUE, "box");
  assert_fails(resize_box(&in, 0, 0, 0, 5, &out, RESIZE_BILINEAR), STATUS_BAD_VALUE, "box");
  assert_fails(resize_box(&in, 0, 0, 5, 0.0 / 0.0, &out, RESIZE_BILINEAR), STATUS_BAD_VALUE, "box");
  assert_fails(resize_image(&empty, &out, RESIZE_BILINEAR), STATUS_BAD_VALUE, "without pixels");
  image_release(&in);
  image_release(&out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_golden),  cmocka_unit_test(test_same_size_copies),
      cmocka_unit_test(test_crop),    cmocka_unit_test(test_halving_by_hand),
      cmocka_unit_test(test_flat),    cmocka_unit_test(test_scratch_is_reused),
      cmocka_unit_test(test_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
