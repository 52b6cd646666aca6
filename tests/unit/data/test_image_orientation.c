/* The eight EXIF orientations, in JPEG, PNG, WebP and TIFF, and EXIF blocks that make no sense. */
#include "data/image.h"
#include "data_testing.h"

#define SEEDS "tests/fuzz/seeds/image/"
enum { BLOCK = 26 };

static Image mirrored(const Image *from) {
  Image to;
  assert_ok(image_new(&to, from->width, from->height));
  for (int y = 0; y < to.height; y++) {
    for (int x = 0; x < to.width; x++) memcpy(to.rgb + 3 * (y * to.width + x), from->rgb + 3 * (y * from->width + from->width - 1 - x), 3);
  }
  return to;
}

static Image turned_clockwise(const Image *from) {
  Image to;
  assert_ok(image_new(&to, from->height, from->width));
  for (int y = 0; y < to.height; y++) {
    for (int x = 0; x < to.width; x++)
      memcpy(to.rgb + 3 * (y * to.width + x), from->rgb + 3 * ((from->height - 1 - x) * from->width + y), 3);
  }
  return to;
}

/* As the standard's list says it: mirror horizontally or not, then so many quarter turns clockwise. */
static Image expected(const Image *stored, int orientation) {
  static const struct {
    bool mirror;
    int turns;
  } list[] = {{0}, {false, 0}, {true, 0}, {false, 2}, {true, 2}, {true, 3}, {false, 1}, {true, 1}, {false, 3}};
  Image image = mirrored(stored);
  if (!list[orientation].mirror) {
    Image back = mirrored(&image);
    image_release(&image);
    image = back;
  }
  for (int i = 0; i < list[orientation].turns; i++) {
    Image next = turned_clockwise(&image);
    image_release(&image);
    image = next;
  }
  return image;
}

static void assert_same(const Image *image, const Image *want) {
  assert_int_equal(image->width, want->width);
  assert_int_equal(image->height, want->height);
  assert_memory_equal(image->rgb, want->rgb, (size_t)want->width * want->height * 3);
}

static void test_turning(void **state) {
  (void)state;
  for (int orientation = 1; orientation <= 8; orientation++) {
    Image stored;
    assert_ok(image_new(&stored, 5, 3));
    for (int i = 0; i < 5 * 3 * 3; i++) stored.rgb[i] = (uint8_t)(i * 5);
    Image want = expected(&stored, orientation);
    assert_ok(image_turn(&stored, orientation));
    assert_same(&stored, &want);
    image_release(&stored);
    image_release(&want);
  }
}

/* One directory of one entry. */
static void make_block(uint8_t block[BLOCK], bool little, uint16_t orientation, uint16_t format) {
  static const uint8_t big[BLOCK] = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 0, 0, 0, 0, 1};
  static const uint8_t small[BLOCK] = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 0, 0, 1, 0, 0, 0};
  memcpy(block, little ? small : big, BLOCK);
  block[12 + !little] = (uint8_t)format;
  block[18 + !little] = (uint8_t)orientation;
  block[18 + little] = (uint8_t)(orientation >> 8);
}

/* A JPEG with an EXIF segment behind its first two bytes; caller frees. */
static uint8_t *with_exif(const char *jpeg, size_t size, const uint8_t *block, size_t length, size_t *total) {
  uint8_t *bytes = malloc(size + 10 + length);
  size_t segment = 2 + 6 + length;
  memcpy(bytes, jpeg, 2);
  memcpy(bytes + 2, (uint8_t[]){0xff, 0xe1, (uint8_t)(segment >> 8), (uint8_t)segment}, 4);
  memcpy(bytes + 6, "Exif\0", 6);
  memcpy(bytes + 12, block, length);
  memcpy(bytes + 12 + length, jpeg + 2, size - 2);
  *total = size + 10 + length;
  return bytes;
}

/* Whether orientation 6 in a JPEG changes what is read. */
static bool reads_exif(void) {
  char *jpeg;
  size_t size, total;
  uint8_t block[BLOCK];
  Image stored, turned;
  assert_ok(files_read(SEEDS "gradient.jpg", 1 << 20, &jpeg, &size));
  make_block(block, false, 6, 3);
  uint8_t *bytes = with_exif(jpeg, size, block, BLOCK, &total);
  assert_ok(image_decode(&stored, (const uint8_t *)jpeg, size, "stored.jpg"));
  assert_ok(image_decode(&turned, bytes, total, "turned.jpg"));
  bool reads = stored.width != turned.width || memcmp(stored.rgb, turned.rgb, (size_t)stored.width * stored.height * 3) != 0;
  image_release(&stored);
  image_release(&turned);
  free(jpeg);
  free(bytes);
  if (!reads) printf("skipped: this build has no libexif\n");
  return reads;
}

static void test_jpeg(void **state) {
  (void)state;
  char *jpeg;
  size_t size;
  Image stored, image;
  if (!reads_exif()) skip();
  assert_ok(files_read(SEEDS "gradient.jpg", 1 << 20, &jpeg, &size));
  assert_ok(image_decode(&stored, (const uint8_t *)jpeg, size, "stored.jpg"));
  for (uint16_t orientation = 1; orientation <= 8; orientation++) {
    uint8_t block[BLOCK];
    size_t total;
    make_block(block, orientation % 2 == 0, orientation, 3);
    uint8_t *bytes = with_exif(jpeg, size, block, BLOCK, &total);
    Image want = expected(&stored, orientation);
    assert_ok(image_decode(&image, bytes, total, "turned.jpg"));
    assert_same(&image, &want);
    image_release(&image);
    image_release(&want);
    free(bytes);
  }
  image_release(&stored);
  free(jpeg);
}

/* Orientations 0 and 9, one that is no short, a block cut anywhere: as stored, never an error. */
static void test_senseless_blocks(void **state) {
  (void)state;
  char *jpeg;
  size_t size, total;
  Image stored, image;
  uint8_t block[BLOCK];
  assert_ok(files_read(SEEDS "gradient.jpg", 1 << 20, &jpeg, &size));
  assert_ok(image_decode(&stored, (const uint8_t *)jpeg, size, "stored.jpg"));
  for (int i = 0; i < 3 + BLOCK; i++) {
    make_block(block, false, i == 0 ? 0 : i == 1 ? 9 : 6, i == 2 ? 2 : 3);
    uint8_t *bytes = with_exif(jpeg, size, block, i < 3 ? BLOCK : (size_t)(i - 3) / 2, &total);
    assert_ok(image_decode(&image, bytes, total, "senseless.jpg"));
    assert_same(&image, &stored);
    image_release(&image);
    free(bytes);
  }
  image_release(&stored);
  free(jpeg);
}

/* 3 x 2, all 200 60 30 but the last stored pixel, which orientation 6 brings to the lower left. */
static void assert_turned(const char *path) {
  Image image;
  assert_ok(image_load(&image, path));
  assert_int_equal(image.width, 2);
  assert_int_equal(image.height, 3);
  assert_memory_equal(image.rgb + 3 * 4, ((uint8_t[]){9, 99, 199}), 3);
  assert_memory_equal(image.rgb, ((uint8_t[]){200, 60, 30}), 3);
  image_release(&image);
}

static void test_png(void **state) {
  (void)state;
  if (!reads_exif()) skip();
  assert_turned(SEEDS "turned.png");
}

static void test_webp(void **state) {
  (void)state;
  if (!testing_reads_image("WebP") || !reads_exif()) {
    printf("skipped: this build has no libwebp\n");
    skip();
  }
  assert_turned(SEEDS "turned.webp");
}

static void test_tiff(void **state) {
  (void)state;
  if (!testing_reads_image("TIFF")) {
    printf("skipped: this build has no libtiff\n");
    skip();
  }
  assert_turned(SEEDS "turned.tiff");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_turning), cmocka_unit_test(test_jpeg), cmocka_unit_test(test_senseless_blocks),
      cmocka_unit_test(test_png),     cmocka_unit_test(test_webp), cmocka_unit_test(test_tiff),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
