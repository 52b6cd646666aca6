/* What happens to one image's pixels on the way into a batch: the operations and policies of --augment, random crops, mirroring,
 * normalisation, erasing. */
#ifndef DATA_AUGMENT_H
#define DATA_AUGMENT_H
#include "base/rng.h"
#include "data/image.h"
#include <stdbool.h>

/* The operations that TrivialAugment and RandAugment draw from, on 8-bit RGB images of any size, as Pillow and torchvision define them.
 * Integer arithmetic throughout: the same image on every machine. */

/* What `strength` means for each:
 *   IDENTITY, AUTOCONTRAST, EQUALIZE          nothing
 *   SHEAR_X, SHEAR_Y                          out(x, y) = in(x + s y, y), or in(x, y + s x), from the top left corner
 *   TRANSLATE_X, TRANSLATE_Y                  pixels: out(x, y) = in(x + s, y), or in(x, y + s); rounded
 *   ROTATE                                    degrees counterclockwise about the centre
 *   BRIGHTNESS, COLOUR, CONTRAST, SHARPNESS   factor f: o + f (v - o), where o is black, the pixel's grey, the image's mean grey, the
 *                                             smoothed image; 1 changes nothing
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

/* Which random changes a training image gets, by name: none; crop: a random crop and mirroring; trivial: these and one operation of
 * TrivialAugment, wide (Mueller and Hutter, 2021: one of 14, at one of 31 strengths); randaugment:N,M: these and N operations of
 * RandAugment (Cubuk et al., 2020), each of strength M of 30. */

typedef enum AugmentKind { AUGMENT_NONE, AUGMENT_CROP, AUGMENT_TRIVIAL, AUGMENT_RANDAUGMENT } AugmentKind;

typedef struct AugmentPolicy {
  AugmentKind kind;
  int operations, level; /* N and M of RandAugment; 0 of the others */
} AugmentPolicy;

/* "none", "crop", "trivial", "randaugment" (2 operations of strength 9) or "randaugment:N,M". BAD_VALUE names what is accepted. */
Status augment_policy_parse(AugmentPolicy *policy, const char *text);

/* The policy's operations on `image`, as drawn from rng; `spare` as image_operation_apply. Crops and mirroring are not done here. */
Status augment_policy_apply(const AugmentPolicy *policy, Rng *rng, Image *image, Image *spare);

typedef struct CropBox {
  int x, y, w, h;
} CropBox;

/* A random box within width x height: its area is uniform in [least, 1] of the whole, the logarithm of its aspect uniform between
 * 3/4 and 4/3; when ten draws do not fit, the largest centred box of an aspect in that range (as torchvision's RandomResizedCrop). */
CropBox augment_crop(Rng *rng, int width, int height, double min);

/* Where a side x side window starts on an image padded by side / 8 on all sides: each coordinate in [-side/8, side/8]. */
void augment_shift(Rng *rng, int side, int *dx, int *dy);
bool augment_flip(Rng *rng); /* true half of the time */

/* (v / 255 - mean) / std for each channel and level. */
typedef struct PixelTable {
  float values[3][256];
} PixelTable;

void augment_table(PixelTable *table, const double mean[3], const double std[3]);

/* out[c, y, x] = table of in's pixel (x + dx, y + dy), black outside of it; mirrored left to right with `flip`. */
void augment_planes(const PixelTable *table, const Image *in, int dx, int dy, bool flip, int side, float *out /* [3, side, side] */);

/* The same window as an image: what augment_planes puts through its table. */
Status augment_window(const Image *in, int dx, int dy, bool flip, int side, Image *out);

/* Random erasing (Zhong et al., 2020): with this probability a box, whose area is uniform between 2% and 33% of the image's and the
 * logarithm of whose aspect is uniform between 0.3 and 1 / 0.3, becomes 0 in all planes (the mean colour, after normalisation); when ten
 * draws do not fit, nothing does. */
void augment_erase(Rng *rng, double probability, int side, float *planes /* [3, side, side] */);

#endif
