/* PNG of every kind against pixels worked out here, damage in every byte, and files that claim more than they hold. */
#include "data/image.h"
#include "data_testing.h"
#include <png.h>
#include <zlib.h>

typedef struct Kind {
  int colour, depth;
  bool interlaced, transparent; /* transparent: with a tRNS chunk */
} Kind;

enum { WIDTH = 13, HEIGHT = 11, PALETTE = 16 };

typedef struct Bytes {
  uint8_t data[1 << 14];
  size_t size;
} Bytes;

static void collect(png_structp png, png_bytep data, size_t size) {
  Bytes *bytes = png_get_io_ptr(png);
  assert_true(bytes->size + size <= sizeof bytes->data);
  memcpy(bytes->data + bytes->size, data, size);
  bytes->size += size;
}

static void collected(png_structp png) { (void)png; }

/* Sample c of pixel x, y: any numbers, of `depth` bits. */
static unsigned sample(int x, int y, int c, int depth) { return (unsigned)(x * 40503 + y * 9973 + c * 31337 + 77) & ((1u << depth) - 1); }

static uint8_t palette_level(unsigned index, int c) { return (uint8_t)(index * 37 + (unsigned)c * 101 + 5); }

static int channels_of(int colour) {
  return colour == PNG_COLOR_TYPE_RGB ? 3 : colour == PNG_COLOR_TYPE_RGBA ? 4 : colour == PNG_COLOR_TYPE_GRAY_ALPHA ? 2 : 1;
}

static void put_sample(uint8_t *row, int at, int depth, unsigned value) {
  if (depth == 16) {
    row[2 * at] = (uint8_t)(value >> 8);
    row[2 * at + 1] = (uint8_t)value;
  } else {
    row[at * depth / 8] |= (uint8_t)(value << (8 - depth - at * depth % 8));
  }
}

static Bytes write_kind(Kind kind) {
  Bytes bytes = {.size = 0};
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
  png_infop info = png_create_info_struct(png);
  png_color colours[PALETTE];
  png_color_16 key = {.gray = 1, .red = 1, .green = 2, .blue = 3};
  uint8_t alphas[PALETTE] = {0, 128, 7}, rows[HEIGHT][WIDTH * 8] = {{0}}, *pointers[HEIGHT];
  int channels = channels_of(kind.colour);
  for (unsigned i = 0; i < PALETTE; i++) colours[i] = (png_color){palette_level(i, 0), palette_level(i, 1), palette_level(i, 2)};
  for (int y = 0; y < HEIGHT; y++) {
    pointers[y] = rows[y];
    for (int x = 0; x < WIDTH; x++) {
      for (int c = 0; c < channels; c++) {
        unsigned value = sample(x, y, c, kind.depth);
        put_sample(rows[y], x * channels + c, kind.depth, kind.colour == PNG_COLOR_TYPE_PALETTE ? value % PALETTE : value);
      }
    }
  }
  png_set_write_fn(png, &bytes, collect, collected);
  png_set_IHDR(png, info, WIDTH, HEIGHT, kind.depth, kind.colour, kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (kind.colour == PNG_COLOR_TYPE_PALETTE) png_set_PLTE(png, info, colours, kind.depth < 4 ? 1 << kind.depth : PALETTE);
  if (kind.transparent) png_set_tRNS(png, info, alphas, kind.depth < 2 ? 2 : 3, &key);
  png_set_gAMA(png, info, 0.3); /* to be ignored */
  png_write_info(png, info);
  png_write_image(png, pointers);
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

/* The rules of image.h, for one level of one pixel. */
static uint8_t expected_level(Kind kind, int x, int y, int c) {
  bool gray = kind.colour == PNG_COLOR_TYPE_GRAY || kind.colour == PNG_COLOR_TYPE_GRAY_ALPHA;
  if (kind.colour == PNG_COLOR_TYPE_PALETTE) return palette_level(sample(x, y, 0, kind.depth) % PALETTE, c);
  unsigned value = sample(x, y, gray ? 0 : c, kind.depth);
  return (uint8_t)(kind.depth == 16 ? value >> 8 : value * 255 / ((1u << kind.depth) - 1));
}

static const Kind kinds[] = {
    {PNG_COLOR_TYPE_GRAY, 1, false, false},        {PNG_COLOR_TYPE_GRAY, 2, true, false},     {PNG_COLOR_TYPE_GRAY, 4, false, true},
    {PNG_COLOR_TYPE_GRAY, 8, true, true},          {PNG_COLOR_TYPE_GRAY, 16, false, true},    {PNG_COLOR_TYPE_GRAY_ALPHA, 8, true, false},
    {PNG_COLOR_TYPE_GRAY_ALPHA, 16, false, false}, {PNG_COLOR_TYPE_PALETTE, 1, false, false}, {PNG_COLOR_TYPE_PALETTE, 2, true, true},
    {PNG_COLOR_TYPE_PALETTE, 4, false, true},      {PNG_COLOR_TYPE_PALETTE, 8, true, true},   {PNG_COLOR_TYPE_RGB, 8, false, true},
    {PNG_COLOR_TYPE_RGB, 8, true, false},          {PNG_COLOR_TYPE_RGB, 16, true, true},      {PNG_COLOR_TYPE_RGBA, 8, false, false},
    {PNG_COLOR_TYPE_RGBA, 16, true, false},
};

static void assert_pixels(const Image *image, Kind kind) {
  assert_int_equal(image->width, WIDTH);
  assert_int_equal(image->height, HEIGHT);
  for (int i = 0; i < WIDTH * HEIGHT * 3; i++) {
    int x = i / 3 % WIDTH, y = i / 3 / WIDTH, want = expected_level(kind, x, y, i % 3);
    if (image->rgb[i] != want)
      fail_msg("colour type %d, %d bits: level %d of %d,%d is %d, not %d", kind.colour, kind.depth, i % 3, x, y, image->rgb[i], want);
  }
}

static void test_every_kind(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    Bytes bytes = write_kind(kinds[i]);
    Image image;
    assert_ok(image_decode(&image, bytes.data, bytes.size, "kind.png"));
    assert_pixels(&image, kinds[i]);
    image_release(&image);
  }
}

/* Three changes of each byte of each kind: refused, or the same pixels. */
static void test_damage_is_never_accepted_with_other_pixels(void **state) {
  (void)state;
  int refused = 0, accepted = 0;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    Bytes bytes = write_kind(kinds[i]);
    for (size_t at = 0; at < bytes.size; at++) {
      static const uint8_t changes[] = {0x01, 0x20, 0xff};
      for (size_t k = 0; k < sizeof changes; k++) {
        Image image;
        bytes.data[at] ^= changes[k];
        if (image_decode(&image, bytes.data, bytes.size, "damaged.png") == STATUS_OK) {
          assert_pixels(&image, kinds[i]);
          accepted++;
        } else {
          assert_non_null(strstr(status_message(), "damaged.png"));
          assert_null(image.rgb);
          refused++;
        }
        image_release(&image);
        bytes.data[at] ^= changes[k];
      }
    }
  }
  print_message("%d damaged files refused, %d accepted with the right pixels\n", refused, accepted);
  assert_true(refused > 3000);
  assert_int_equal(accepted, 0); /* every byte of a PNG is under a checksum or is one */
}

/* A whole PNG whose pixels are zeros, by hand: stored blocks would be large, so one deflate stream comes from libpng. */
static Bytes write_zeros(int width, int height) {
  static uint8_t row[1 << 16];
  Bytes bytes = {.size = 0};
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(png, &bytes, collect, collected);
  png_set_compression_level(png, 9);
  png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, 1, PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  for (int y = 0; y < height; y++) png_write_row(png, row);
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

static void test_size_out_of_proportion(void **state) {
  (void)state;
  Image image;
  Bytes large = write_zeros(4096, 4097), free_size = write_zeros(4096, 2048);
  assert_true(large.size < 4096 * 4097 / IMAGE_MAX_PIXELS_PER_BYTE);
  assert_fails(image_decode(&image, large.data, large.size, "zeros.png"), STATUS_BAD_FILE, "zeros.png: 4096 x 4097 pixels in");
  assert_non_null(strstr(status_message(), "out of proportion"));
  assert_null(image.rgb);
  assert_ok(image_decode(&image, free_size.data, free_size.size, "zeros.png"));
  image_release(&image);
}

/* Of who decodes what others send, whatever the format. */
static void test_limits_of_a_caller(void **state) {
  (void)state;
  Image image;
  static const char pgm[] = "P5\n3 2\n255\n123456";
  Bytes zeros = write_zeros(300, 200);
  assert_fails(image_decode_up_to(&image, zeros.data, zeros.size, 300 * 200 - 1, "zeros.png"), STATUS_BAD_FILE,
               "zeros.png: 300 x 200 pixels; 1 to 65535 per side and up to 59999 in all are accepted; make the image smaller");
  assert_null(image.rgb);
  assert_ok(image_decode_up_to(&image, zeros.data, zeros.size, 300 * 200, "zeros.png"));
  image_release(&image);
  assert_fails(image_decode_up_to(&image, (const uint8_t *)pgm, sizeof pgm - 1, 5, "six.pgm"), STATUS_BAD_FILE, "up to 5 in all");
  assert_ok(image_decode_up_to(&image, (const uint8_t *)pgm, sizeof pgm - 1, 6, "six.pgm"));
  image_release(&image);
}

/* Resizing it to a square would take memory in proportion to its height. */
static void test_side_out_of_proportion(void **state) {
  (void)state;
  Image image;
  Bytes long_side = write_zeros(1, IMAGE_MAX_SIDE + 1), longest = write_zeros(1, IMAGE_MAX_SIDE);
  assert_fails(image_decode(&image, long_side.data, long_side.size, "line.png"), STATUS_BAD_FILE, "line.png: 1 x 65536 pixels; 1 to 65535");
  assert_null(image.rgb);
  assert_ok(image_decode(&image, longest.data, longest.size, "line.png"));
  image_release(&image);
}

/* Long texts, and a colour profile that is none, as many programs write them: of no concern to the pixels, as long as the checksum is
 * right. */
static void test_ancillary_chunks(void **state) {
  (void)state;
  enum { HEAD = 33 /* signature and IHDR */, LENGTH = 9000000, WHOLE = LENGTH + 12 };
  static const char *const types[] = {"tEXt", "iCCP", "zTXt", "iTXt", "eXIf", "vpAg"};
  Bytes bytes = write_kind(kinds[11]);
  uint8_t *all = malloc(bytes.size + WHOLE);
  memcpy(all, bytes.data, HEAD);
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    Image image;
    uint8_t *chunk = all + HEAD;
    png_save_uint_32(chunk, LENGTH);
    memcpy(chunk + 4, types[i], 4);
    memset(chunk + 8, 'x', LENGTH);
    png_save_uint_32(chunk + 8 + LENGTH, (png_uint_32)crc32(0, chunk + 4, LENGTH + 4));
    memcpy(chunk + WHOLE, bytes.data + HEAD, bytes.size - HEAD);
    assert_ok(image_decode(&image, all, bytes.size + WHOLE, types[i]));
    assert_pixels(&image, kinds[11]);
    image_release(&image);
    chunk[WHOLE / 2] ^= 1;
    assert_fails(image_decode(&image, all, bytes.size + WHOLE, types[i]), STATUS_BAD_FILE, "CRC");
  }
  free(all);
}

static void test_missing_end(void **state) {
  (void)state;
  Bytes bytes = write_kind(kinds[11]);
  for (size_t length = 8; length < bytes.size; length++) {
    Image image;
    uint8_t *part = malloc(length); /* on its own, for the address sanitizer */
    memcpy(part, bytes.data, length);
    assert_fails(image_decode(&image, part, length, "short.png"), STATUS_BAD_FILE, "short.png: broken image (");
    free(part);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_kind),
      cmocka_unit_test(test_damage_is_never_accepted_with_other_pixels),
      cmocka_unit_test(test_size_out_of_proportion),
      cmocka_unit_test(test_limits_of_a_caller),
      cmocka_unit_test(test_side_out_of_proportion),
      cmocka_unit_test(test_ancillary_chunks),
      cmocka_unit_test(test_missing_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
