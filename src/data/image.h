/* Pictures: 8-bit RGB, rows from the top. Decoding through stb_image (JPEG, PNG and its others), PNG out through libpng. */
#ifndef DATA_IMAGE_H
#define DATA_IMAGE_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct Image {
  int width, height;
  uint8_t *rgb; /* [height, width, 3], owned */
} Image;

enum { IMAGE_MOST_PIXELS = 1 << 28 };

Status image_load(Image *image, const char *path);                                        /* errors name the file */
Status image_decode(Image *image, const uint8_t *bytes, size_t size, const char *origin); /* grayscale, alpha and CMYK become RGB; fuzzed */
Status image_save_png(const Image *image, const char *path);                              /* atomic */
Status image_new(Image *image, int width, int height);                                    /* black */
void image_release(Image *image);

#endif
