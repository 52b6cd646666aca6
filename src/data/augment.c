/* Pixels into planes of numbers, with the random choices in training. Leaves out: resizing (resize.c), operations on colours and shapes
 * (augment_policy.c) and the order of pictures (loader_fill.c). Every draw comes from the Rng given: same state, same picture. */
#include "data/augment.h"
#include <math.h>
#include <string.h>

enum { CROP_TRIES = 10, ERASE_TRIES = 10, PAD_SHARE = 8 };
static const double least_aspect = 3.0 / 4.0, most_aspect = 4.0 / 3.0;
static const double erase_least = 0.02, erase_most = 0.33, erase_aspect = 0.3; /* areas; the least of width to height */

static CropBox centre_crop(int width, int height) {
  double aspect = (double)width / height;
  int w = width, h = height;
  if (aspect < least_aspect) h = (int)lround(w / least_aspect);
  if (aspect > most_aspect) w = (int)lround(h * most_aspect);
  return (CropBox){(width - w) / 2, (height - h) / 2, w, h};
}

CropBox augment_crop(Rng *rng, int width, int height, double least) {
  for (int i = 0; i < CROP_TRIES; i++) {
    double area = (double)width * height * (least + (1.0 - least) * rng_uniform(rng));
    double aspect = exp(log(least_aspect) + (log(most_aspect) - log(least_aspect)) * rng_uniform(rng));
    int w = (int)lround(sqrt(area * aspect)), h = (int)lround(sqrt(area / aspect));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    int x = (int)rng_below(rng, (uint64_t)(width - w) + 1), y = (int)rng_below(rng, (uint64_t)(height - h) + 1);
    return (CropBox){x, y, w, h};
  }
  return centre_crop(width, height);
}

void augment_shift(Rng *rng, int side, int *dx, int *dy) {
  int pad = side / PAD_SHARE;
  *dx = (int)rng_below(rng, 2 * (uint64_t)pad + 1) - pad;
  *dy = (int)rng_below(rng, 2 * (uint64_t)pad + 1) - pad;
}

bool augment_flip(Rng *rng) { return rng_next(rng) >> 63; }

void augment_table(PixelTable *table, const double mean[3], const double std[3]) {
  for (int c = 0; c < 3; c++) {
    for (int v = 0; v < 256; v++) table->values[c][v] = (float)((v / 255.0 - mean[c]) / std[c]);
  }
}

static void fill_black(const PixelTable *table, int begin, int end, int side, float *out /* a row of each plane */) {
  for (int c = 0; c < 3; c++) {
    for (int x = begin; x < end; x++) out[(size_t)c * side * side + x] = table->values[c][0];
  }
}

/* Output columns [begin, end) of one row from consecutive pixels, or from pixels right to left. */
static void fill_row(const PixelTable *table, const uint8_t *pixel, int step, int begin, int end, int side, float *out) {
  float *r = out, *g = out + (size_t)side * side, *b = g + (size_t)side * side;
  for (int x = begin; x < end; x++, pixel += step) {
    r[x] = table->values[0][pixel[0]];
    g[x] = table->values[1][pixel[1]];
    b[x] = table->values[2][pixel[2]];
  }
}

static int within(int value, int most) { return value < 0 ? 0 : value > most ? most : value; }

void augment_planes(const PixelTable *table, const Image *in, int dx, int dy, bool flip, int side, float *out) {
  int left = within(-dx, side), right = within(in->width - dx, side); /* columns of the window that lie on the picture */
  int begin = flip ? side - right : left, end = flip ? side - left : right;
  int start = flip ? right - 1 + dx : left + dx, step = flip ? -3 : 3;
  for (int y = 0; y < side; y++, out += side) {
    if (y + dy < 0 || y + dy >= in->height || begin >= end) {
      fill_black(table, 0, side, side, out);
      continue;
    }
    fill_black(table, 0, begin, side, out);
    fill_row(table, in->rgb + ((size_t)(y + dy) * in->width + start) * 3, step, begin, end, side, out);
    fill_black(table, end, side, side, out);
  }
}

Status augment_window(const Image *in, int dx, int dy, bool flip, int side, Image *out) {
  TRY(image_reshape(out, side, side));
  uint8_t *to = out->rgb;
  for (int y = 0; y < side; y++) {
    for (int x = 0; x < side; x++, to += 3) {
      int from = (flip ? side - 1 - x : x) + dx;
      bool inside = from >= 0 && from < in->width && y + dy >= 0 && y + dy < in->height;
      if (inside)
        memcpy(to, in->rgb + ((size_t)(y + dy) * in->width + from) * 3, 3);
      else
        memset(to, 0, 3);
    }
  }
  return STATUS_OK;
}

void augment_erase(Rng *rng, double probability, int side, float *planes) {
  if (!(rng_uniform(rng) < probability)) return;
  for (int i = 0; i < ERASE_TRIES; i++) {
    double area = (double)side * side * (erase_least + (erase_most - erase_least) * rng_uniform(rng));
    double aspect = exp(log(erase_aspect) * (1 - 2 * rng_uniform(rng)));
    int w = (int)lround(sqrt(area * aspect)), h = (int)lround(sqrt(area / aspect));
    if (w < 1 || h < 1 || w > side || h > side) continue;
    int x = (int)rng_below(rng, (uint64_t)(side - w) + 1), y = (int)rng_below(rng, (uint64_t)(side - h) + 1);
    for (int row = 0; row < 3 * h; row++) {
      float *plane = planes + (size_t)(row / h) * side * side;
      memset(plane + (size_t)(y + row % h) * side + x, 0, (size_t)w * sizeof *plane);
    }
    return;
  }
}
