/* Inside of src/data only: the decoders behind image_decode, one file per library, and the orientation that cameras store beside the
 * pixels. Each decoder fills an empty image, leaves it empty on failure, and names `origin` in its errors. Bytes are hostile. */
#ifndef DATA_IMAGE_INTERNAL_H
#define DATA_IMAGE_INTERNAL_H
#include "data/image.h"
#include <stdbool.h>

/* How large an image may be. What a file of few bytes claims to hold is bounded, so that no small file takes seconds and gigabytes: beyond
 * IMAGE_FREE_PIXELS at most IMAGE_MAX_PIXELS_PER_BYTE for each byte of the file (photographs have 2 to 20). */
enum { IMAGE_MAX_PIXELS = 1 << 27, IMAGE_FREE_PIXELS = 1 << 24, IMAGE_MAX_PIXELS_PER_BYTE = 32 };

/* The formats that image_decode reads in this build, for messages: "JPEG, PNG, ...". */
const char *image_formats(void);

/* Refuses an image of more than IMAGE_MAX_PIXELS, or of more than IMAGE_FREE_PIXELS and IMAGE_MAX_PIXELS_PER_BYTE for each byte of its
 * file. Decoders ask before they allocate anything that depends on the size. */
Status image_check_size(int64_t width, int64_t height, size_t file_bytes, const char *origin);

/* libpng. Every checksum (CRC of each chunk, Adler-32 of the pixels) must be right and the file complete up to IEND. */
bool image_png_is(const uint8_t *bytes, size_t size);
Status image_png_decode(Image *image, const uint8_t *bytes, size_t size, const char *origin);

/* libwebp and libtiff: UNSUPPORTED, with the package to install, in a build that has not found them. */
bool image_webp_is(const uint8_t *bytes, size_t size);
Status image_webp_decode(Image *image, const uint8_t *bytes, size_t size, const char *origin);
bool image_tiff_is(const uint8_t *bytes, size_t size);
Status image_tiff_decode(Image *image, const uint8_t *bytes, size_t size, const char *origin); /* turned upright already */

/* The EXIF orientation of a JPEG, PNG or WebP: 1 (upright) to 8; 1 where there is none or it makes no sense. */
int image_orientation_find(const uint8_t *bytes, size_t size);

/* Turns and mirrors stored rows and columns so that they stand as EXIF orientation 1 to 8 says; 5 to 8 exchange width and height. */
Status image_orientation_apply(Image *image, int orientation);

#endif
