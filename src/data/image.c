/* Pictures in: chooses the decoder by a file's first bytes, and is the one of stb_image (JPEG, BMP, GIF, TGA, PPM, PGM). Leaves out: the
 * other decoders (image_codec.h), resizing (resize.c), animation, colour profiles.
 * Invariant: an Image is either empty (rgb NULL, 0 x 0) or has width * height * 3 bytes from malloc. Bytes from files are hostile:
 * dimensions go through image_check_size before memory is asked for. */
#include "data/image.h"
#include "base/files.h"
#include "data/image_codec.h"
#include "data/image_guard.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wshadow"
#define STB_IMAGE_IMPLEMENTATION
#define STBI_NO_STDIO
#define STBI_ONLY_JPEG
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

static const char extensions[] = "jpg, jpeg, png, bmp, gif, tga, ppm, pgm, webp, tif, tiff";

#ifdef ASTRA_WEBP
#define WEBP_FORMAT ", WebP"
#else
#define WEBP_FORMAT ""
#endif
#ifdef ASTRA_TIFF
#define TIFF_FORMAT ", TIFF"
#else
#define TIFF_FORMAT ""
#endif

const char *image_formats(void) { return "JPEG, PNG, BMP, GIF, TGA, PPM, PGM" WEBP_FORMAT TIFF_FORMAT; }
const char *image_extensions(void) { return extensions; }

bool image_has_extension(const char *name) {
  const char *dot = strrchr(name, '.');
  for (const char *at = extensions; dot && *at; at += strspn(at, ", ")) {
    size_t length = strcspn(at, ",");
    if (strlen(dot + 1) == length && strncasecmp(dot + 1, at, length) == 0) return true;
    at += length;
  }
  return false;
}

Status image_reshape(Image *image, int width, int height) {
  if (width < 1 || height < 1 || (int64_t)width * height > IMAGE_MAX_PIXELS) {
    return status_set(STATUS_BAD_VALUE, "a picture of %d x %d pixels: 1 x 1 to %d pixels in all are accepted", width, height,
                      IMAGE_MAX_PIXELS);
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

Status image_check_size(int64_t width, int64_t height, size_t file_bytes, const char *origin) {
  const int64_t longest = 1 << 30; /* the product of two stays in range */
  if (width < 1 || height < 1 || width > longest || height > longest || width * height > IMAGE_MAX_PIXELS) {
    return status_set(STATUS_BAD_FILE, "%s: %lld x %lld pixels; 1 to %d pixels are accepted", origin, (long long)width, (long long)height,
                      IMAGE_MAX_PIXELS);
  }
  if (width * height > IMAGE_FREE_PIXELS && width * height / IMAGE_MAX_PIXELS_PER_BYTE > (int64_t)file_bytes) {
    return status_set(STATUS_BAD_FILE,
                      "%s: %lld x %lld pixels in %zu bytes: out of proportion (beyond %d pixels a file may hold %d for each of its bytes); "
                      "make the picture smaller",
                      origin, (long long)width, (long long)height, file_bytes, IMAGE_FREE_PIXELS, IMAGE_MAX_PIXELS_PER_BYTE);
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

static Status decode_with_stb(Image *image, const uint8_t *bytes, size_t size, const char *origin) {
  static const stbi_io_callbacks callbacks = {source_read, source_skip, source_ended};
  Source source = {bytes, size, 0, false};
  int width = 0, height = 0, channels = 0;
  TRY(image_guard_check(bytes, size, origin));
  if (!stbi_info_from_memory(bytes, (int)size, &width, &height, &channels)) {
    return status_set(STATUS_BAD_FILE, "%s: not a picture that can be read (%s); this build reads %s", origin, failure(), image_formats());
  }
  TRY(image_check_size(width, height, size, origin));
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

Status image_decode(Image *image, const uint8_t *bytes, size_t size, const char *origin) {
  *image = (Image){0};
  if (size == 0) return status_set(STATUS_BAD_FILE, "%s: empty file instead of a picture", origin);
  if (size > most_file_bytes)
    return status_set(STATUS_BAD_FILE, "%s: %zu bytes; pictures up to %zu are accepted", origin, size, most_file_bytes);
  if (image_tiff_is(bytes, size)) return image_tiff_decode(image, bytes, size, origin);
  if (image_png_is(bytes, size))
    TRY(image_png_decode(image, bytes, size, origin));
  else if (image_webp_is(bytes, size))
    TRY(image_webp_decode(image, bytes, size, origin));
  else
    TRY(decode_with_stb(image, bytes, size, origin));
  Status status = image_orientation_apply(image, image_orientation_find(bytes, size));
  if (status != STATUS_OK) image_release(image);
  return status;
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
