/* Pictures in and out. Leaves out: resizing (resize.c), animation, colour profiles, EXIF orientation.
 * Invariant: an Image is either empty (rgb NULL, 0 x 0) or has width * height * 3 bytes from malloc. Bytes from files are hostile:
 * dimensions are checked against IMAGE_MOST_PIXELS and against what the compressed bytes can hold before memory is asked for. */
#include "data/image.h"
#include "base/files.h"
#include "data/image_guard.h"
#include <png.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wshadow"
#define STB_IMAGE_IMPLEMENTATION
#define STBI_NO_STDIO
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_ONLY_BMP
#define STBI_ONLY_GIF
#define STBI_ONLY_TGA
#define STBI_ONLY_PNM
#define STBI_MAX_DIMENSIONS (1 << 20)
/* Zeroed, because stb_image uses tables that a broken JPEG does not define. */
#define STBI_MALLOC(size)         calloc(1, size)
#define STBI_REALLOC(block, size) realloc(block, size)
#define STBI_FREE(block)          free(block)
#include <stb/stb_image.h>
#pragma GCC diagnostic pop

static const size_t most_file_bytes = (size_t)1 << 30;

/* Deflate packs at most 1032 bytes into one, a byte of a 1-bit PNG holds 8 pixels, and the other formats stay far below: more pixels than
 * this per byte is a lying header, refused before gigabytes are allocated for it. */
enum { MOST_PIXELS_PER_BYTE = 1 << 14 };

Status image_reshape(Image *image, int width, int height) {
  if (width < 1 || height < 1 || (int64_t)width * height > IMAGE_MOST_PIXELS) {
    return status_set(STATUS_BAD_VALUE, "a picture of %d x %d pixels: 1 x 1 to %d pixels in all are accepted", width, height,
                      IMAGE_MOST_PIXELS);
  }
  if (image->rgb && image->width == width && image->height == height) return STATUS_OK;
  uint8_t *rgb = realloc(image->rgb, (size_t)width * height * 3);
  if (!rgb) return status_set(STATUS_NO_MEMORY, "no memory for a picture of %d x %d pixels", width, height);
  *image = (Image){width, height, rgb};
  return STATUS_OK;
}

Status image_new(Image *image, int width, int height) {
  *image = (Image){0};
  TRY(image_reshape(image, width, height));
  memset(image->rgb, 0, (size_t)width * height * 3);
  return STATUS_OK;
}

void image_release(Image *image) {
  free(image->rgb);
  *image = (Image){0};
}

/* A picture's bytes as stb_image reads them. The decoders take the end of the bytes for zeros and carry on; `ran_out` tells. Reads of
 * READ_AHEAD bytes are stb_image's own buffering, which may get less. */
enum { READ_AHEAD = sizeof((stbi__context *)0)->buffer_start };

typedef struct Source {
  const uint8_t *bytes;
  size_t size, at;
  bool ran_out;
} Source;

static int source_read(void *user, char *to, int wanted) {
  Source *source = user;
  size_t left = source->size - source->at, taken = (size_t)wanted < left ? (size_t)wanted : left;
  if (taken == 0 || ((int)taken < wanted && wanted != READ_AHEAD)) source->ran_out = true;
  memcpy(to, source->bytes + source->at, taken);
  source->at += taken;
  return (int)taken;
}

static void source_skip(void *user, int count) {
  Source *source = user;
  size_t left = source->size - source->at;
  if (count < 0) count = 0;
  if ((size_t)count > left) source->ran_out = true;
  source->at += (size_t)count < left ? (size_t)count : left;
}

static int source_ended(void *user) {
  const Source *source = user;
  return source->at == source->size;
}

static const char *failure(void) {
  const char *reason = stbi_failure_reason();
  return reason ? reason : "unknown reason";
}

static Status check_header(const uint8_t *bytes, size_t size, const char *origin) {
  int width = 0, height = 0, channels = 0;
  if (size == 0) return status_set(STATUS_BAD_FILE, "%s: empty file instead of a picture", origin);
  if (size > most_file_bytes)
    return status_set(STATUS_BAD_FILE, "%s: %zu bytes; pictures up to %zu are accepted", origin, size, most_file_bytes);
  TRY(image_guard_check(bytes, size, origin));
  if (!stbi_info_from_memory(bytes, (int)size, &width, &height, &channels)) {
    return status_set(STATUS_BAD_FILE,
                      "%s: not a picture that can be read (%s); JPEG, PNG, BMP, GIF, TGA, PPM and PGM of up to %d pixels are accepted",
                      origin, failure(), IMAGE_MOST_PIXELS);
  }
  if (width < 1 || height < 1 || (int64_t)width * height > IMAGE_MOST_PIXELS) {
    return status_set(STATUS_BAD_FILE, "%s: %d x %d pixels; up to %d pixels are accepted", origin, width, height, IMAGE_MOST_PIXELS);
  }
  if ((int64_t)width * height / MOST_PIXELS_PER_BYTE > (int64_t)size) {
    return status_set(STATUS_BAD_FILE, "%s: %d x %d pixels cannot come from %zu bytes; the picture is truncated or its header lies", origin,
                      width, height, size);
  }
  return STATUS_OK;
}

/* Pixels of 1 (gray), 2 (gray, alpha), 3 or 4 (RGB, alpha) channels to RGB; takes `pixels` over. stb_image's own conversion reads
 * behind 16-bit pictures. */
static uint8_t *to_rgb(uint8_t *pixels, int channels, size_t count) {
  if (channels == 3 || !pixels) return pixels;
  uint8_t *rgb = malloc(count * 3);
  for (size_t i = 0; rgb && i < count; i++) {
    const uint8_t *from = pixels + i * channels;
    bool gray = channels < 3;
    rgb[3 * i] = from[0];
    rgb[3 * i + 1] = from[gray ? 0 : 1];
    rgb[3 * i + 2] = from[gray ? 0 : 2];
  }
  free(pixels);
  return rgb;
}

Status image_decode(Image *image, const uint8_t *bytes, size_t size, const char *origin) {
  *image = (Image){0};
  TRY(check_header(bytes, size, origin));
  static const stbi_io_callbacks callbacks = {source_read, source_skip, source_ended};
  Source source = {bytes, size, 0, false};
  int width = 0, height = 0, channels = 0;
  uint8_t *pixels = stbi_load_from_callbacks(&callbacks, &source, &width, &height, &channels, 0);
  if (!pixels || source.ran_out) {
    free(pixels);
    return status_set(STATUS_BAD_FILE, "%s: broken picture (%s)", origin, source.ran_out ? "it ends too early" : failure());
  }
  uint8_t *rgb = to_rgb(pixels, channels, (size_t)width * height);
  if (!rgb) return status_set(STATUS_NO_MEMORY, "%s: no memory for %d x %d pixels", origin, width, height);
  *image = (Image){width, height, rgb};
  return STATUS_OK;
}

Status image_load(Image *image, const char *path) {
  *image = (Image){0};
  char *bytes = NULL;
  size_t size = 0;
  TRY(files_read(path, most_file_bytes, &bytes, &size));
  Status status = image_decode(image, (const uint8_t *)bytes, size, path);
  free(bytes);
  return status;
}

static void png_failed(png_structp png, png_const_charp text) {
  status_set(STATUS_IO, "%s: cannot write the picture: %s", (const char *)png_get_error_ptr(png), text);
  longjmp(png_jmpbuf(png), 1);
}

static void png_warned(png_structp png, png_const_charp text) { (void)png, (void)text; }

/* Separate from its caller, which owns the file, so that no local variable lives across longjmp. */
static Status write_png(png_structp png, png_infop info, const Image *image, FILE *stream) {
  if (setjmp(png_jmpbuf(png))) return STATUS_IO;
  png_init_io(png, stream);
  png_set_IHDR(png, info, (png_uint_32)image->width, (png_uint_32)image->height, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  for (int y = 0; y < image->height; y++) png_write_row(png, image->rgb + (size_t)y * image->width * 3);
  png_write_end(png, NULL);
  return STATUS_OK;
}

Status image_save_png(const Image *image, const char *path) {
  if (!image->rgb) return status_set(STATUS_BAD_VALUE, "%s: there is no picture to write", path);
  FileWriter writer;
  TRY(files_create(&writer, path));
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, (void *)path, png_failed, png_warned);
  png_infop info = png ? png_create_info_struct(png) : NULL;
  Status status = info ? write_png(png, info, image, writer.stream) : status_set(STATUS_NO_MEMORY, "%s: no memory to write a PNG", path);
  png_destroy_write_struct(&png, &info);
  if (status == STATUS_OK) return files_commit(&writer);
  files_abort(&writer);
  return status;
}
