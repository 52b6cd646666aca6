/* Pictures: 8-bit RGB, rows from the top. Decoding through stb_image (JPEG, PNG, BMP, GIF, TGA, PPM, PGM), PNG out through libpng. */
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

/* These three fill an image whatever it held before (nothing is freed): release a used one first. On failure it is left empty. */
Status image_load(Image *image, const char *path); /* errors name the file */
/* `origin` names the picture in messages. Grayscale is spread over R, G, B; alpha is dropped (not blended), as Pillow's convert("RGB")
 * does; of 16 bits the upper 8 are kept; CMYK and YCCK JPEG with Adobe's marker become RGB; of an animation the first frame is taken. The
 * EXIF orientation is ignored. A picture that ends early is an error. Fuzzed. */
Status image_decode(Image *image, const uint8_t *bytes, size_t size, const char *origin);
Status image_new(Image *image, int width, int height); /* black */

/* Gives a used (or zeroed) image another size, its contents undefined; keeps the buffer when the size is the same. */
Status image_reshape(Image *image, int width, int height);
Status image_save_png(const Image *image, const char *path); /* atomic */
void image_release(Image *image);                            /* leaves it zeroed */

#endif
