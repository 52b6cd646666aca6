/* An image in memory: its size, names of files, turning, resizing. Leaves out: formats (image_formats.c).
 * Invariant: an Image is either empty (rgb NULL, 0 x 0) or has width * height * 3 bytes from malloc. */
#include "data/image.h"
#include "base/status.h"
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char extensions[] = "jpg, jpeg, jpe, jif, jfif, png, bmp, gif, tga, ppm, pgm, webp, tif, tiff";

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

/* ---- Turning ---- */

/* Row 0 of what is stored is, by orientation, the top (1), the top mirrored (2), the bottom (3, 4), the left (5, 8 from below) or the right
 * side (6, 7) of what was seen. */
Status image_turn(Image *image, int orientation) {
  if (orientation <= IMAGE_UPRIGHT || orientation > IMAGE_ORIENTATIONS) return STATUS_OK;
  const bool transposed = orientation >= 5;
  const bool right_to_left = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool bottom_to_top = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image upright = {0};
  TRY(image_reshape(&upright, transposed ? image->height : image->width, transposed ? image->width : image->height));
  for (int y = 0; y < upright.height; y++) {
    for (int x = 0; x < upright.width; x++) {
      int column = transposed ? y : x, row = transposed ? x : y;
      int from_x = right_to_left ? image->width - 1 - column : column, from_y = bottom_to_top ? image->height - 1 - row : row;
      memcpy(upright.rgb + 3 * ((size_t)y * upright.width + x), image->rgb + 3 * ((size_t)from_y * image->width + from_x), 3);
    }
  }
  image_release(image);
  *image = upright;
  return STATUS_OK;
}

/* ---- Resizing ---- */

/* Level for level as Pillow's ImagingResample on 8-bit channels. Leaves out: other filters, other pixel types, threads.
 *
 * A pass turns each output coordinate into a short run of taps: weights f((i + 0.5 - centre) / scale) around its centre, normalised to
 * sum 1, in fixed point with WEIGHT_BITS fraction bits. The horizontal pass runs first, on the rows only that the vertical one needs; both
 * round and clip to 8 bits. Working memory of a call, in one block:
 *
 *   | taps of x | taps of y | one tap run as doubles | rows [rows, out width, 3] bytes | */

enum { WEIGHT_BITS = 32 - 8 - 2, STRIP = 192 };

/* Taps of all output coordinates of one direction: input first[i] .. first[i] + count[i] with weights[i * width ...]. */
typedef struct Taps {
  int inputs, outputs, width;
  int32_t *first, *count, *weights;
} Taps;

static double bilinear(double x) {
  x = fabs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

static double bicubic(double x) {
  const double a = -0.5;
  x = fabs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

static double reach(ResizeFilter filter) { return filter == RESIZE_BICUBIC ? 2.0 : 1.0; }

static double stretch(double length, int outputs) {
  double scale = length / outputs;
  return scale < 1.0 ? 1.0 : scale;
}

/* Sets sizes and places the arrays at memory; returns the end. */
static int32_t *taps_place(Taps *taps, int32_t *memory, int inputs, double length, int outputs, ResizeFilter filter) {
  int width = (int)ceil(reach(filter) * stretch(length, outputs)) * 2 + 1;
  *taps = (Taps){inputs, outputs, width, memory, memory + outputs, memory + 2 * (size_t)outputs};
  return taps->weights + (size_t)width * outputs;
}

static size_t taps_bytes(double length, int outputs, ResizeFilter filter) {
  return (size_t)outputs * (2 + (size_t)ceil(reach(filter) * stretch(length, outputs)) * 2 + 1) * sizeof(int32_t);
}

/* run [width]: room for the weights of one output before they are normalised. */
static void taps_fill(Taps *taps, double from, double length, ResizeFilter filter, double *run) {
  double (*shape)(double) = filter == RESIZE_BICUBIC ? bicubic : bilinear;
  double scale = length / taps->outputs, wide = stretch(length, taps->outputs), support = reach(filter) * wide, narrow = 1.0 / wide;
  for (int i = 0; i < taps->outputs; i++) {
    double centre = from + (i + 0.5) * scale, sum = 0.0;
    int first = (int)(centre - support + 0.5), last = (int)(centre + support + 0.5);
    if (first < 0) first = 0;
    if (last > taps->inputs) last = taps->inputs;
    for (int t = 0; t < last - first; t++) sum += run[t] = shape((t + first - centre + 0.5) * narrow);
    for (int t = 0; t < last - first; t++) {
      double weight = sum != 0.0 ? run[t] / sum : run[t];
      taps->weights[(size_t)i * taps->width + t] = (int32_t)(weight * (1 << WEIGHT_BITS) + (weight < 0 ? -0.5 : 0.5));
    }
    taps->first[i] = first;
    taps->count[i] = last - first;
  }
}

static uint8_t clip(int32_t sum) {
  sum >>= WEIGHT_BITS;
  return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static void horizontal_row(const Taps *taps, const uint8_t *in /* [inputs, 3] */, uint8_t *out /* [outputs, 3] */) {
  const int32_t half = 1 << (WEIGHT_BITS - 1);
  for (int i = 0; i < taps->outputs; i++) {
    const int32_t *weights = taps->weights + (size_t)i * taps->width;
    const uint8_t *pixel = in + 3 * (size_t)taps->first[i];
    int32_t r = half, g = half, b = half;
    for (int t = 0; t < taps->count[i]; t++, pixel += 3) {
      r += pixel[0] * weights[t];
      g += pixel[1] * weights[t];
      b += pixel[2] * weights[t];
    }
    out[3 * i] = clip(r);
    out[3 * i + 1] = clip(g);
    out[3 * i + 2] = clip(b);
  }
}

/* One output row of `bytes` bytes from `count` input rows. Works in strips that stay in registers or the first cache. */
static void vertical_row(const int32_t *weights, int count, const uint8_t *in /* [count, bytes] */, size_t bytes, uint8_t *out) {
  for (size_t begin = 0; begin < bytes; begin += STRIP) {
    int32_t sums[STRIP];
    int length = (int)(bytes - begin < STRIP ? bytes - begin : STRIP);
    for (int i = 0; i < length; i++) sums[i] = 1 << (WEIGHT_BITS - 1);
    for (int t = 0; t < count; t++) {
      const uint8_t *row = in + (size_t)t * bytes + begin;
      for (int i = 0; i < length; i++) sums[i] += row[i] * weights[t];
    }
    for (int i = 0; i < length; i++) out[begin + i] = clip(sums[i]);
  }
}

void image_resize_release(ResizeScratch *scratch) {
  free(scratch->memory);
  *scratch = (ResizeScratch){0};
}

static size_t round_up(size_t size) { return (size + 63) / 64 * 64; }

Status image_resize(ResizeScratch *scratch, const Image *in, double x, double y, double w, double h, Image *out, ResizeFilter filter) {
  if (!in->rgb || !out->rgb) return status_set(STATUS_BAD_VALUE, "resize: an image without pixels");
  if (!(w > 0 && h > 0 && x >= 0 && y >= 0 && x + w <= in->width && y + h <= in->height))
    return status_set(STATUS_BAD_VALUE, "resize: the box %g,%g of %g x %g does not lie within the image of %d x %d", x, y, w, h, in->width,
                      in->height);
  bool across = out->width != in->width || x != 0 || w != in->width, down = out->height != in->height || y != 0 || h != in->height;
  size_t stride = (size_t)out->width * 3;
  size_t tap_bytes = round_up(taps_bytes(w, out->width, filter) + taps_bytes(h, out->height, filter));
  size_t run_bytes = round_up((2 * ceil(reach(filter) * fmax(stretch(w, out->width), stretch(h, out->height))) + 1) * sizeof(double));
  size_t size = tap_bytes + run_bytes + stride * in->height;
  if (scratch->size < size) {
    void *memory = realloc(scratch->memory, size);
    if (!memory) return status_set(STATUS_NO_MEMORY, "resize: no memory (%zu bytes)", size);
    *scratch = (ResizeScratch){memory, size};
  }

  Taps columns, rows;
  int32_t *end = taps_place(&columns, scratch->memory, in->width, w, out->width, filter);
  taps_place(&rows, end, in->height, h, out->height, filter);
  double *run = (double *)((char *)scratch->memory + tap_bytes);
  taps_fill(&columns, x, w, filter, run);
  taps_fill(&rows, y, h, filter, run);

  int first = down ? rows.first[0] : 0, last = down ? rows.first[rows.outputs - 1] + rows.count[rows.outputs - 1] : in->height;
  uint8_t *resized = (uint8_t *)run + run_bytes; /* rows first .. last, where they change across */
  for (int r = first; across && r < last; r++)
    horizontal_row(&columns, in->rgb + (size_t)r * in->width * 3, resized + (size_t)(r - first) * stride);
  const uint8_t *middle = across ? resized : in->rgb + (size_t)first * in->width * 3;
  if (!down) {
    memcpy(out->rgb, middle, stride * out->height);
    return STATUS_OK;
  }
  for (int i = 0; i < rows.outputs; i++) {
    vertical_row(rows.weights + (size_t)i * rows.width, rows.count[i], middle + (size_t)(rows.first[i] - first) * stride, stride,
                 out->rgb + (size_t)i * stride);
  }
  return STATUS_OK;
}
