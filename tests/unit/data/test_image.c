/* Images in all formats and kinds, broken ones, and PNG out. The images are the seeds of the fuzz target. */
#include "data/image.h"
#include "data_testing.h"
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

#define SEEDS "tests/fuzz/seeds/image/"

static void assert_near(const Image *image, int x, int y, int r, int g, int b, int tolerance) {
  const uint8_t *pixel = image->rgb + 3 * ((size_t)y * image->width + x);
  int want[3] = {r, g, b};
  for (int c = 0; c < 3; c++) {
    if (abs(pixel[c] - want[c]) > tolerance) fail_msg("pixel %d,%d is %d %d %d, not %d %d %d", x, y, pixel[0], pixel[1], pixel[2], r, g, b);
  }
}

typedef struct Expected {
  const char *name;
  int width, height, x, y, r, g, b, tolerance;
} Expected;

static void test_formats(void **state) {
  (void)state;
  static const Expected list[] = {
      {"gray.png", 2, 2, 1, 0, 200, 200, 200, 0},
      {"gray.png", 2, 2, 1, 1, 10, 10, 10, 0},
      {"grayalpha.png", 2, 1, 0, 0, 90, 90, 90, 0},
      {"grayalpha.png", 2, 1, 1, 0, 12, 12, 12, 0},
      {"rgba.png", 2, 1, 0, 0, 200, 100, 50, 0},
      {"rgba.png", 2, 1, 1, 0, 1, 2, 3, 0}, /* fully transparent: alpha is dropped */
      {"rgb16.png", 2, 1, 0, 0, 0x12, 0x80, 255, 0},
      {"rgb16.png", 2, 1, 1, 0, 0, 0x34, 0xfe, 0},
      {"palette.png", 8, 1, 0, 0, 0, 0, 255, 0},
      {"palette.png", 8, 1, 1, 0, 255, 0, 0, 0},
      {"rgb.jpg", 16, 8, 15, 7, 200, 60, 30, 3},
      {"gray.jpg", 8, 8, 3, 3, 128, 128, 128, 1},
      {"progressive.jpg", 24, 24, 0, 0, 0, 40, 80, 24},
      /* Stored inverted, as Adobe does: 220 90 40 times 230 / 255. */
      {"cmyk.jpg", 8, 8, 4, 4, 198, 81, 36, 3},
      {"ycck.jpg", 8, 8, 4, 4, 198, 81, 36, 4},
      {"rgb.bmp", 3, 2, 2, 1, 9, 99, 199, 0},
      {"rgb.gif", 3, 2, 2, 1, 9, 99, 199, 0},
      {"transparent.gif", 2, 1, 0, 0, 200, 100, 50, 0},
      {"transparent.gif", 2, 1, 1, 0, 1, 2, 3, 0}, /* of PNG likewise */
      {"transparent_local.gif", 2, 1, 0, 0, 200, 100, 50, 0},
      {"transparent_local.gif", 2, 1, 1, 0, 1, 2, 3, 0}, /* in a colour table of its own, behind two extensions for one image */
      {"rgb.tga", 3, 2, 2, 1, 9, 99, 199, 0},
      {"rgb.ppm", 3, 2, 2, 1, 9, 99, 199, 0},
      {"gray.pgm", 3, 2, 2, 1, 77, 77, 77, 0},
  };
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    const Expected *expected = &list[i];
    char path[128];
    Image image;
    snprintf(path, sizeof path, SEEDS "%s", expected->name);
    assert_ok(image_load(&image, path));
    assert_int_equal(image.width, expected->width);
    assert_int_equal(image.height, expected->height);
    assert_near(&image, expected->x, expected->y, expected->r, expected->g, expected->b, expected->tolerance);
    image_release(&image);
    assert_null(image.rgb);
  }
}

/* Its rows stand from the top where the height is negative. */
static void test_bmp_from_the_top(void **state) {
  (void)state;
  enum { PIXELS_AT = 10, HEIGHT_AT = 22, ROW = 12 }; /* three pixels, padded to four bytes */
  char *bytes;
  size_t size;
  int32_t height;
  uint32_t at;
  uint8_t row[ROW];
  Image upwards, downwards;
  assert_ok(files_read(SEEDS "rgb.bmp", 1 << 20, &bytes, &size));
  assert_ok(image_decode(&upwards, (const uint8_t *)bytes, size, "up.bmp"));
  memcpy(&height, bytes + HEIGHT_AT, sizeof height);
  memcpy(&at, bytes + PIXELS_AT, sizeof at);
  assert_true(height == 2 && at + 2 * ROW <= size);
  memcpy(bytes + HEIGHT_AT, &(int32_t){-height}, sizeof height);
  memcpy(row, bytes + at, ROW);
  memmove(bytes + at, bytes + at + ROW, ROW);
  memcpy(bytes + at + ROW, row, ROW);
  assert_ok(image_decode(&downwards, (const uint8_t *)bytes, size, "down.bmp"));
  assert_int_equal(downwards.width, 3);
  assert_int_equal(downwards.height, 2);
  assert_memory_equal(downwards.rgb, upwards.rgb, 3 * 2 * 3);
  image_release(&downwards);
  memcpy(bytes + HEIGHT_AT, &(int32_t){INT32_MIN}, sizeof height);
  assert_int_equal(image_decode(&downwards, (const uint8_t *)bytes, size, "least.bmp"), STATUS_BAD_FILE);
  image_release(&upwards);
  free(bytes);
}

/* PPM and PGM say how many levels they have; higher ones than the last are white. */
static void test_few_levels(void **state) {
  (void)state;
  static const struct {
    const char *bytes;
    size_t size;
    uint8_t level;
  } cases[] = {{"P5 1 1 100\n\144", 12, 255}, {"P5 1 1 100\n\062", 12, 128}, {"P5 1 1 100\n\310", 12, 255}, {"P5 1 1 15\n\7", 11, 119},
               {"P5 1 1 1\n\0", 10, 0},       {"P5 1 1 1\n\1", 10, 255},     {"P5 1 1 254\n\1", 12, 1},     {"P5 1 1 255\n\375", 12, 253}};
  Image image;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_ok(image_decode(&image, (const uint8_t *)cases[i].bytes, cases[i].size, "few.pgm"));
    assert_near(&image, 0, 0, cases[i].level, cases[i].level, cases[i].level, 0);
    image_release(&image);
  }
  assert_ok(image_decode(&image, (const uint8_t *)"P6 2 1 3\n\0\1\2\3\3\0", 15, "few.ppm"));
  assert_near(&image, 0, 0, 0, 85, 170, 0);
  assert_near(&image, 1, 0, 255, 255, 0, 0);
  image_release(&image);
  assert_fails(image_decode(&image, (const uint8_t *)"P5 1 1 0\n\0", 10, "none.pgm"), STATUS_BAD_FILE,
               "none.pgm: broken image (its header has no level of white)");
}

/* In a build without the library the refusal names the package. */
static void test_optional_formats(void **state) {
  (void)state;
  static const Expected list[] = {
      {"lossless.webp", 3, 2, 2, 1, 9, 99, 199, 0},     {"lossy.webp", 16, 16, 7, 7, 200, 60, 30, 4},
      {"alpha.webp", 3, 2, 2, 1, 9, 99, 199, 0},                                                  /* alpha 10 to 210: dropped */
      {"rgb.tiff", 3, 2, 2, 1, 9, 99, 199, 0},          {"rgba.tiff", 3, 2, 2, 1, 9, 99, 199, 0}, /* likewise */
      {"gray16.tiff", 2, 2, 1, 0, 0xfe, 0xfe, 0xfe, 0}, {"fax.tiff", 32, 16, 0, 0, 0, 0, 0, 0},
      {"fax.tiff", 32, 16, 4, 3, 255, 255, 255, 0},     {"jpeg.tiff", 16, 16, 9, 9, 200, 60, 30, 4},
  };
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    const Expected *expected = &list[i];
    bool webp = strstr(expected->name, ".webp") != NULL;
    char path[128];
    Image image;
    snprintf(path, sizeof path, SEEDS "%s", expected->name);
    if (!testing_reads_image(webp ? "WebP" : "TIFF")) {
      assert_fails(image_load(&image, path), STATUS_UNSUPPORTED, webp ? "libwebp-dev" : "libtiff-dev");
      continue;
    }
    assert_ok(image_load(&image, path));
    assert_int_equal(image.width, expected->width);
    assert_int_equal(image.height, expected->height);
    assert_near(&image, expected->x, expected->y, expected->r, expected->g, expected->b, expected->tolerance);
    image_release(&image);
  }
}

/* Any one byte of a WebP or TIFF changed, and any shorter version: refused, or an image; the sanitizers see the rest. */
static void test_damaged_optional_formats(void **state) {
  (void)state;
  static const char *const names[] = {"lossless.webp", "lossy.webp",  "alpha.webp", "turned.webp", "rgb.tiff",
                                      "rgba.tiff",     "turned.tiff", "jpeg.tiff",  "fax.tiff"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[128], *bytes;
    size_t size;
    snprintf(path, sizeof path, SEEDS "%s", names[i]);
    assert_ok(files_read(path, 1 << 20, &bytes, &size));
    for (size_t at = 0; at < 2 * size; at++) {
      size_t length = at < size ? size : at - size;
      uint8_t *part = malloc(length + 1); /* on its own, for the address sanitizer */
      Image image;
      memcpy(part, bytes, length);
      if (at < size) part[at] ^= 0xff;
      if (image_decode(&image, part, length, path) != STATUS_OK) {
        assert_non_null(strstr(status_message(), names[i]));
        assert_null(image.rgb);
      }
      image_release(&image);
      free(part);
    }
    free(bytes);
  }
}

/* 80 empty scans of a progressive JPEG: each would make the decoder walk over the whole image. */
static void test_many_scans(void **state) {
  (void)state;
  char *bytes;
  size_t size, scan = 0;
  Image image;
  assert_ok(files_read(SEEDS "progressive.jpg", 1 << 20, &bytes, &size));
  while (scan + 2 < size && memcmp(bytes + scan, "\xff\xda", 2) != 0) scan++;
  uint8_t *many = malloc(size + 80 * 14);
  memcpy(many, bytes, scan);
  for (int i = 0; i < 80; i++) memcpy(many + scan + 10 * i, "\xff\xda\0\x08\1\1\0\1\77", 10);
  memcpy(many + scan + 800, bytes + scan, size - scan);
  assert_fails(image_decode(&image, many, size + 800, "scans.jpg"), STATUS_BAD_FILE, "scans.jpg: a JPEG of 90 scans");
  free(many);
  free(bytes);
}

static void test_formats_are_named(void **state) {
  (void)state;
  Image image;
  assert_fails(image_decode(&image, (const uint8_t *)"%PDF-1.7 and so on", 18, "paper.pdf"), STATUS_BAD_FILE,
               "this build reads JPEG, PNG, BMP, GIF, TGA, PPM, PGM");
  assert_true(image_has_extension("A.JPEG") && image_has_extension("b.tif") && image_has_extension("c.WebP"));
  assert_false(image_has_extension("jpg") || image_has_extension("a.jp") || image_has_extension("a.jpgx") || image_has_extension("a."));
}

static void test_refused(void **state) {
  (void)state;
  Image image;
  assert_fails(image_load(&image, SEEDS "none.png"), STATUS_NOT_FOUND, "none.png");
  assert_fails(image_load(&image, "tests/fuzz/seeds"), STATUS_BAD_FILE, "seeds");
  assert_fails(image_load(&image, SEEDS "bomb.png"), STATUS_BAD_FILE, "bomb.png: 60000 x 60000 pixels");
  assert_fails(image_load(&image, SEEDS "lie.png"), STATUS_BAD_FILE, "lie.png: 16000 x 16000");
  assert_fails(image_load(&image, SEEDS "empty_data.png"), STATUS_BAD_FILE, "empty_data.png: broken image (");
  assert_fails(image_load(&image, SEEDS "long_data.png"), STATUS_BAD_FILE, "long_data.png: broken image (");
  assert_fails(image_load(&image, SEEDS "cmyk_bare.jpg"), STATUS_BAD_FILE, "Adobe");
  assert_fails(image_decode(&image, (const uint8_t *)"", 0, "nothing.jpg"), STATUS_BAD_FILE, "nothing.jpg: empty");
  assert_fails(image_decode(&image, (const uint8_t *)"not an image at all", 20, "text.jpg"), STATUS_BAD_FILE, "text.jpg: not an image");
  assert_fails(image_decode(&image, (const uint8_t *)"P5\n1 1\n65535\n\1\2", 15, "deep.pgm"), STATUS_BAD_FILE,
               "deep.pgm: levels up to 65535");
  assert_fails(image_decode(&image, (const uint8_t *)"P5 1 99999999999 255\n1", 22, "long.pgm"), STATUS_BAD_FILE, "long.pgm");
  assert_null(image.rgb);
}

/* A Huffman table of 16 x 255 codes would be written far behind stb_image's. */
static void test_oversized_huffman_table(void **state) {
  (void)state;
  uint8_t bytes[64] = {0xff, 0xd8, 0xff, 0xc4, 0x00, 0x13, 0x00};
  Image image;
  memset(bytes + 7, 255, 16);
  assert_fails(image_decode(&image, bytes, sizeof bytes, "huffman.jpg"), STATUS_BAD_FILE, "huffman.jpg: broken image (a Huffman table");
}

static void check_cuts(const uint8_t *bytes, size_t size, const char *name) {
  Image image;
  assert_ok(image_decode(&image, bytes, size, name));
  image_release(&image);
  for (size_t length = 0; length < size; length++) {
    uint8_t *part = malloc(length + 1); /* on its own, for the address sanitizer */
    memcpy(part, bytes, length);
    if (image_decode(&image, part, length, name) != STATUS_BAD_FILE)
      fail_msg("%s cut to %zu of %zu bytes was accepted", name, length, size);
    assert_non_null(strstr(status_message(), name));
    assert_null(image.rgb);
    free(part);
  }
}

/* Every shorter version of a file is an error, whatever the format. */
static void test_truncated(void **state) {
  (void)state;
  static const char *const names[] = {"gradient.jpg", "progressive.jpg", "ycck.jpg", "rgb16.png", "rgb.bmp", "rgb.tga", "rgb.ppm"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[128], *bytes;
    size_t size;
    snprintf(path, sizeof path, SEEDS "%s", names[i]);
    assert_ok(files_read(path, 1 << 20, &bytes, &size));
    check_cuts((const uint8_t *)bytes, size, path);
    free(bytes);
  }
}

/* Where a row, or the rest of a file, is as long as what stb_image reads ahead. */
static void test_truncated_to_what_is_read_ahead(void **state) {
  (void)state;
  uint8_t tga[18 + 4 * 128] = {[2] = 2, [12] = 32, [14] = 4, [16] = 32, [17] = 0x28}, pgm[256] = "P5 243 1 255\n";
  check_cuts(tga, sizeof tga, "row.tga");
  assert_int_equal(strlen("P5 243 1 255\n") + 243, sizeof pgm);
  check_cuts(pgm, sizeof pgm, "rest.pgm");
}

static void test_png_round_trip(void **state) {
  (void)state;
  Image image, again;
  assert_ok(image_new(&image, 37, 19));
  for (int i = 0; i < 37 * 19 * 3; i++) {
    assert_int_equal(image.rgb[i], 0);
    image.rgb[i] = (uint8_t)(i * 73 + i / 11);
  }
  assert_ok(image_save_png(&image, testing_path("round.png")));
  assert_ok(image_load(&again, testing_path("round.png")));
  assert_int_equal(again.width, 37);
  assert_int_equal(again.height, 19);
  assert_memory_equal(image.rgb, again.rgb, 37 * 19 * 3);
  image_release(&image);
  image_release(&again);
}

static void test_save_fails(void **state) {
  (void)state;
  Image image, empty = {0};
  assert_ok(image_new(&image, 2, 2));
  assert_int_not_equal(image_save_png(&image, testing_path("no/such/folder/a.png")), STATUS_OK);
  assert_non_null(strstr(status_message(), "no/such/folder/a.png"));
  assert_fails(image_save_png(&empty, testing_path("empty.png")), STATUS_BAD_VALUE, "empty.png");
  assert_false(files_exists(testing_path("empty.png")));
  if (files_exists("/dev/full")) assert_int_not_equal(image_save_png(&image, "/dev/full/a.png"), STATUS_OK);
  image_release(&image);
}

static void test_save_says_why(void **state) {
  (void)state;
  Image image;
  assert_ok(image_new(&image, 100, 100));
  uint32_t noise = 1; /* larger than the limit when compressed, too */
  for (int i = 0; i < 100 * 100 * 3; i++) image.rgb[i] = (uint8_t)((noise = noise * 1664525 + 1013904223) >> 24);
  struct rlimit old, low = {8192, 8192};
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
  low.rlim_max = old.rlim_max;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
  Status status = image_save_png(&image, testing_path("large.png"));
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
  assert_int_equal(status, STATUS_IO);
  assert_non_null(strstr(status_message(), "large.png"));
  assert_non_null(strstr(status_message(), strerror(EFBIG)));
  assert_false(files_exists(testing_path("large.png")));
  image_release(&image);
}

static void test_reshape(void **state) {
  (void)state;
  Image image = {0};
  assert_ok(image_reshape(&image, 4, 3));
  uint8_t *before = image.rgb;
  assert_ok(image_reshape(&image, 4, 3));
  assert_ptr_equal(image.rgb, before);
  assert_ok(image_reshape(&image, 8, 6));
  memset(image.rgb, 1, 8 * 6 * 3);
  assert_fails(image_reshape(&image, 0, 6), STATUS_BAD_VALUE, "0 x 6");
  assert_fails(image_reshape(&image, 1 << 20, 1 << 20), STATUS_BAD_VALUE, "pixels");
  assert_int_equal(image.width, 8);
  image_release(&image);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_formats),
      cmocka_unit_test(test_bmp_from_the_top),
      cmocka_unit_test(test_optional_formats),
      cmocka_unit_test(test_damaged_optional_formats),
      cmocka_unit_test(test_few_levels),
      cmocka_unit_test(test_many_scans),
      cmocka_unit_test(test_formats_are_named),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_oversized_huffman_table),
      cmocka_unit_test(test_truncated),
      cmocka_unit_test(test_truncated_to_what_is_read_ahead),
      cmocka_unit_test(test_png_round_trip),
      cmocka_unit_test(test_save_fails),
      cmocka_unit_test(test_save_says_why),
      cmocka_unit_test(test_reshape),
  };
  return cmocka_run_group_tests(tests, testing_make_folder, testing_remove_folder);
}
