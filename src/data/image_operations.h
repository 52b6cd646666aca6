/* The operations that TrivialAugment and RandAugment draw from, on 8-bit RGB pictures of any size, as Pillow and torchvision define them.
 * Integer arithmetic throughout: the same picture on every machine. Inside src/data and its tests only. */
#ifndef DATA_IMAGE_OPERATIONS_H
#define DATA_IMAGE_OPERATIONS_H
#include "data/image.h"

/* What `strength` means for each:
 *   IDENTITY, AUTOCONTRAST, EQUALIZE          nothing
 *   SHEAR_X, SHEAR_Y                          out(x, y) = in(x + s y, y), or in(x, y + s x), from the top left corner
 *   TRANSLATE_X, TRANSLATE_Y                  pixels: out(x, y) = in(x + s, y), or in(x, y + s); rounded
 *   ROTATE                                    degrees counterclockwise about the centre
 *   BRIGHTNESS, COLOUR, CONTRAST, SHARPNESS   factor f: o + f (v - o), where o is black, the pixel's grey, the picture's mean grey, the
 *                                             smoothed picture; 1 changes nothing
 *   POSTERIZE                                 bits that are kept of 8; rounded
 *   SOLARIZE                                  levels from this one up are inverted; rounded
 * Shears and rotations interpolate between the four nearest pixels; what lies outside is black. AUTOCONTRAST stretches each channel to
 * 0-255, EQUALIZE maps it through its cumulated histogram (ImageOps.equalize). Grey is (299 R + 587 G + 114 B) / 1000. */
typedef enum ImageOperation {
  OPERATION_IDENTITY,
  OPERATION_SHEAR_X,
  OPERATION_SHEAR_Y,
  OPERATION_TRANSLATE_X,
  OPERATION_TRANSLATE_Y,
  OPERATION_ROTATE,
  OPERATION_BRIGHTNESS,
  OPERATION_COLOUR,
  OPERATION_CONTRAST,
  OPERATION_SHARPNESS,
  OPERATION_POSTERIZE,
  OPERATION_SOLARIZE,
  OPERATION_AUTOCONTRAST,
  OPERATION_EQUALIZE,
  OPERATIONS
} ImageOperation;

/* Changes `image`. `spare` (zeroed or used) is scratch memory of the caller's: buffers are exchanged with it. */
Status image_operation_apply(ImageOperation operation, double strength, Image *image, Image *spare);

#endif
