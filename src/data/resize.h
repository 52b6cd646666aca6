/* Antialiased resize of 8-bit images as Pillow does it: separable, support scaled by the reduction, fixed-point weights, rounding after
 * each pass. Equal to tests/golden/resize to within one level. */
#ifndef DATA_RESIZE_H
#define DATA_RESIZE_H
#include "data/image.h"

typedef enum ResizeFilter { RESIZE_BILINEAR = 2, RESIZE_BICUBIC = 3 } ResizeFilter;

/* The part [x, x + w) x [y, y + h) of `in` (real-valued box) to out (allocated by the caller with its size). Pixels around the box weigh
 * in at its rim, as with Pillow's `box`. */
Status resize_box(const Image *in, double x, double y, double w, double h, Image *out, ResizeFilter filter);
Status resize_image(const Image *in, Image *out, ResizeFilter filter); /* the whole */

/* The same with working memory that is kept between calls: zero it before the first, release it after the last. One thread at a time. */
typedef struct ResizeScratch {
  void *memory;
  size_t size;
} ResizeScratch;

Status resize_with(ResizeScratch *scratch, const Image *in, double x, double y, double w, double h, Image *out, ResizeFilter filter);
void resize_release(ResizeScratch *scratch);

#endif
