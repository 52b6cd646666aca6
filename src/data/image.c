/* An image in memory: its size, names of files, the orientation that cameras store beside the pixels. Leaves out: formats (image_load.c,
 * image_formats.c), resizing (resize.c).
 * Invariant: an Image is either empty (rgb NULL, 0 x 0) or has width * height * 3 bytes from malloc. */
#include "data/image.h"
#include "base/status.h"
#include "data/image_internal.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char extensions[] = "jpg, jpeg, png, bmp, gif, tga, ppm, pgm, webp, tif, tiff";

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
    return status_set(STATUS_BAD_VALUE, "an image of %d x %d pixels: 1 x 1 to %d pixels in all are accepted", width, height,
                      IMAGE_MAX_PIXELS);
  }
  if (image->rgb && image->width == width && image->height == height) return STATUS_OK;
  uint8_t *rgb = realloc(image->rgb, (size_t)width * height * 3);
  if (!rgb) return status_set(STATUS_NO_MEMORY, "no memory for an image of %d x %d pixels", width, height);
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

Status image_check_size(int64_t width, int64_t height, size_t file_bytes, const char *origin) {
  const int64_t longest = 1 << 30; /* the product of two stays in range */
  if (width < 1 || height < 1 || width > longest || height > longest || width * height > IMAGE_MAX_PIXELS) {
    return status_set(STATUS_BAD_FILE, "%s: %lld x %lld pixels; 1 to %d pixels are accepted", origin, (long long)width, (long long)height,
                      IMAGE_MAX_PIXELS);
  }
  if (width * height > IMAGE_FREE_PIXELS && width * height / IMAGE_MAX_PIXELS_PER_BYTE > (int64_t)file_bytes) {
    return status_set(STATUS_BAD_FILE,
                      "%s: %lld x %lld pixels in %zu bytes: out of proportion (beyond %d pixels a file may hold %d for each of its bytes); "
                      "make the image smaller",
                      origin, (long long)width, (long long)height, file_bytes, IMAGE_FREE_PIXELS, IMAGE_MAX_PIXELS_PER_BYTE);
  }
  return STATUS_OK;
}

/* ---- Orientation ---- */

enum { UPRIGHT = 1, LAST_ORIENTATION = 8 };

/* Row 0 of what is stored is, by orientation, the top (1), the top mirrored (2), the bottom (3, 4), the left (5, 8 from below) or the right
 * side (6, 7) of what was seen. Pixel (x, y) of the upright image comes from: */
static void stored_place(int orientation, int width, int height, int x, int y, int *from_x, int *from_y) {
  bool transposed = orientation >= 5;
  bool right_to_left = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  bool bottom_to_top = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  int column = transposed ? y : x, row = transposed ? x : y;
  *from_x = right_to_left ? width - 1 - column : column;
  *from_y = bottom_to_top ? height - 1 - row : row;
}

Status image_orientation_apply(Image *image, int orientation) {
  if (orientation <= UPRIGHT || orientation > LAST_ORIENTATION) return STATUS_OK;
  bool transposed = orientation >= 5;
  Image upright = {0};
  TRY(image_reshape(&upright, transposed ? image->height : image->width, transposed ? image->width : image->height));
  for (int y = 0; y < upright.height; y++) {
    for (int x = 0; x < upright.width; x++) {
      int from_x, from_y;
      stored_place(orientation, image->width, image->height, x, y, &from_x, &from_y);
      memcpy(upright.rgb + 3 * ((size_t)y * upright.width + x), image->rgb + 3 * ((size_t)from_y * image->width + from_x), 3);
    }
  }
  image_release(image);
  *image = upright;
  return STATUS_OK;
}
