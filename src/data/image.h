/* Images: 8-bit RGB, rows from the top. PNG in and out through libpng, JPEG, BMP, GIF, TGA, PPM and PGM through stb_image, WebP and TIFF
 * through libwebp and libtiff where the build found them. */
#ifndef DATA_IMAGE_H
#define DATA_IMAGE_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Image {
  int width, height;
  uint8_t *rgb; /* [height, width, 3], owned */
} Image;

/* How large an image may be. What a file of few bytes claims to hold is bounded, so that no small file takes seconds and gigabytes: beyond
 * IMAGE_FREE_PIXELS at most IMAGE_MAX_PIXELS_PER_BYTE for each byte of the file (photographs have 2 to 20). A side is bounded, to what a
 * JPEG can have, since the memory of image_resize grows with the height of the image times the width of its result. */
enum { IMAGE_MAX_SIDE = 65535, IMAGE_MAX_PIXELS = 1 << 27, IMAGE_FREE_PIXELS = 1 << 24, IMAGE_MAX_PIXELS_PER_BYTE = 32 };

/* A file name's extension, in any case, is that of an image, whether or not this build reads its format. */
bool image_has_extension(const char *name);
const char *image_extensions(void); /* those, for messages: "jpg, jpeg, ..." */

/* These four fill an image whatever it held before (nothing is freed): release a used one first. On failure it is left empty. */
Status image_load(Image *image, const char *path); /* errors name the file */
/* `origin` names the image in messages. Grayscale is spread over R, G, B; alpha is dropped (not blended), as Pillow's convert("RGB")
 * does; of 16 bits the upper 8 are kept (of TIFF, rounded); CMYK and YCCK JPEG with Adobe's marker become RGB; of a GIF or TIFF the first
 * frame or page is taken; the EXIF orientation is applied (JPEG, PNG, WebP, TIFF). An image that ends early or, of PNG, has a wrong
 * checksum is an error. Besides the image itself decoding takes at most about 4 bytes a pixel (a progressive JPEG 9) and the file.
 * Fuzzed. */
Status image_decode(Image *image, const uint8_t *bytes, size_t size, const char *origin);
/* The same of at most so many pixels, up to IMAGE_MAX_PIXELS: where others send them, and several are decoded at a time. */
Status image_decode_up_to(Image *image, const uint8_t *bytes, size_t size, int pixels_max, const char *origin);
Status image_new(Image *image, int width, int height); /* black */

/* Gives a used (or zeroed) image another size, its contents undefined; keeps the buffer when the size is the same. */
Status image_reshape(Image *image, int width, int height);
/* Atomic. BAD_VALUE: there is no image; IO: with the path and the cause. */
Status image_save_png(const Image *image, const char *path);
void image_release(Image *image); /* leaves it zeroed */

/* Turns and mirrors stored rows and columns so that they stand as EXIF orientation 1 (upright) to 8 says; 5 to 8 exchange width and height.
 * What is no orientation changes nothing. */
enum { IMAGE_UPRIGHT = 1, IMAGE_ORIENTATIONS = 8 };
Status image_turn(Image *image, int orientation);

/* Antialiased resize of 8-bit images as Pillow does it: separable, support scaled by the reduction, fixed-point weights, rounding after
 * each pass. Equal to tests/golden/resize to within one level. */
typedef enum ResizeFilter { RESIZE_BILINEAR = 2, RESIZE_BICUBIC = 3 } ResizeFilter;

/* Working memory that is kept between calls: zero it before the first, release it after the last. One thread at a time. */
typedef struct ResizeScratch {
  void *memory;
  size_t size;
} ResizeScratch;

/* The part [x, x + w) x [y, y + h) of `in` (real-valued box) to out (allocated by the caller with its size). Pixels around the box weigh
 * in at its rim, as with Pillow's `box`. */
Status image_resize(ResizeScratch *scratch, const Image *in, double x, double y, double w, double h, Image *out, ResizeFilter filter);
void image_resize_release(ResizeScratch *scratch);

#endif
