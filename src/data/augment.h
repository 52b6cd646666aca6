/* What happens to one picture's pixels on the way into a batch: random crops, mirroring, normalisation, erasing. Inside of src/data and its
 * tests only. */
#ifndef DATA_AUGMENT_H
#define DATA_AUGMENT_H
#include "base/rng.h"
#include "data/image.h"
#include <stdbool.h>

typedef struct CropBox {
  int x, y, w, h;
} CropBox;

/* A random box within width x height: its area is uniform in [least, 1] of the whole, the logarithm of its aspect uniform between
 * 3/4 and 4/3; when ten draws do not fit, the largest centred box of an aspect in that range (as torchvision's RandomResizedCrop). */
CropBox augment_crop(Rng *rng, int width, int height, double least);

/* Where a side x side window starts on a picture padded by side / 8 on all sides: each coordinate in [-side/8, side/8]. */
void augment_shift(Rng *rng, int side, int *dx, int *dy);
bool augment_flip(Rng *rng); /* true half of the time */

/* (v / 255 - mean) / std for each channel and level. */
typedef struct PixelTable {
  float values[3][256];
} PixelTable;

void augment_table(PixelTable *table, const double mean[3], const double std[3]);

/* out[c, y, x] = table of in's pixel (x + dx, y + dy), black outside of it; mirrored left to right with `flip`. */
void augment_planes(const PixelTable *table, const Image *in, int dx, int dy, bool flip, int side, float *out /* [3, side, side] */);

/* The same window as a picture: what augment_planes puts through its table. */
Status augment_window(const Image *in, int dx, int dy, bool flip, int side, Image *out);

/* Random erasing (Zhong et al., 2020): with this probability a box, whose area is uniform between 2% and 33% of the picture's and the
 * logarithm of whose aspect is uniform between 0.3 and 1 / 0.3, becomes 0 in all planes (the mean colour, after normalisation); when ten
 * draws do not fit, nothing does. */
void augment_erase(Rng *rng, double probability, int side, float *planes /* [3, side, side] */);

#endif
