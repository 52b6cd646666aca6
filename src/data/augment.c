/* Image augmentation: the operations and the policies that draw them. Leaves out: crops, mirroring, erasing and the order of images
 * (loader.c). Every draw comes from the Rng given: same state, same image. */
#include "data/augment.h"
#include "base/rng.h"
#include "data/image.h"
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ---- Operations on 8-bit images ---- */

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

/* Coordinates and factors are fixed-point numbers with 16 bits behind the point, weights of neighbouring pixels have 8. */

enum { POINT = 16, ONE = 1 << POINT, HALF = ONE / 2 };

static uint8_t clamp(int64_t level) { return (uint8_t)(level < 0 ? 0 : level > 255 ? 255 : level); }
static int64_t fixed(double value) { return llround(value * ONE); }
static size_t numbers(const Image *image) { return 3 * (size_t)image->width * (size_t)image->height; }

static void exchange(Image *a, Image *b) {
  Image kept = *a;
  *a = *b;
  *b = kept;
}

/* ---------------------------------------------------------------- moving pixels */

/* out(x, y) = in(ax x + ay y + a0, bx x + by y + b0), all between pixel centres. */
typedef struct Affine {
  int64_t ax, ay, a0, bx, by, b0; /* fixed */
} Affine;

/* Adds weight (of 65,536) times a pixel, which may lie outside. */
static void add_tap(const Image *in, int64_t x, int64_t y, int weight, int sum[3]) {
  if (x < 0 || y < 0 || x >= in->width || y >= in->height) return;
  const uint8_t *rgb = in->rgb + 3 * ((size_t)y * (size_t)in->width + (size_t)x);
  for (int c = 0; c < 3; c++) sum[c] += weight * rgb[c];
}

static void sample(const Image *in, int64_t u, int64_t v, uint8_t *rgb) {
  int64_t x = u >> POINT, y = v >> POINT;
  int right = (int)(u >> 8 & 255), below = (int)(v >> 8 & 255), left = 256 - right, above = 256 - below;
  int sum[3] = {HALF, HALF, HALF};
  add_tap(in, x, y, left * above, sum);
  if (right) add_tap(in, x + 1, y, right * above, sum);
  if (below) add_tap(in, x, y + 1, left * below, sum);
  if (right && below) add_tap(in, x + 1, y + 1, right * below, sum);
  for (int c = 0; c < 3; c++) rgb[c] = (uint8_t)(sum[c] >> POINT);
}

static Status move(Image *image, Image *spare, const Affine *map) {
  TRY(image_reshape(spare, image->width, image->height));
  uint8_t *rgb = spare->rgb;
  for (int y = 0; y < image->height; y++) {
    int64_t u = map->ay * y + map->a0, v = map->by * y + map->b0;
    for (int x = 0; x < image->width; x++, u += map->ax, v += map->bx, rgb += 3) sample(image, u, v, rgb);
  }
  exchange(image, spare);
  return STATUS_OK;
}

/* Pixel centres lie half a pixel from the corner that stays. */
static Status shear_x(Image *image, Image *spare, double s) {
  return move(image, spare, &(Affine){ONE, fixed(s), fixed(s / 2), 0, ONE, 0});
}
static Status shear_y(Image *image, Image *spare, double s) {
  return move(image, spare, &(Affine){ONE, 0, 0, fixed(s), ONE, fixed(s / 2)});
}

static Status translate_x(Image *image, Image *spare, double s) {
  return move(image, spare, &(Affine){ONE, 0, llround(s) * ONE, 0, ONE, 0});
}

static Status translate_y(Image *image, Image *spare, double s) {
  return move(image, spare, &(Affine){ONE, 0, 0, 0, ONE, llround(s) * ONE});
}

static Status rotate(Image *image, Image *spare, double degrees) {
  double angle = degrees * acos(-1) / 180, cosine = cos(angle), sine = sin(angle);
  double x = (image->width - 1) / 2.0, y = (image->height - 1) / 2.0;
  return move(image, spare,
              &(Affine){fixed(cosine), -fixed(sine), fixed(x - cosine * x + sine * y), fixed(sine), fixed(cosine),
                        fixed(y - sine * x - cosine * y)});
}

/* ---------------------------------------------------------------- blending with another image */

static uint8_t blend(int level, int other, int64_t factor) {
  return clamp((((int64_t)other << POINT) + factor * (level - other) + HALF) >> POINT);
}

static int grey(const uint8_t *rgb) { return (299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2] + 500) / 1000; }

static void map_levels(Image *image, const uint8_t levels[256]) {
  for (size_t i = 0; i < numbers(image); i++) image->rgb[i] = levels[image->rgb[i]];
}

static void blend_with_level(Image *image, int other, double factor) {
  uint8_t levels[256];
  for (int v = 0; v < 256; v++) levels[v] = blend(v, other, fixed(factor));
  map_levels(image, levels);
}

static Status brightness(Image *image, Image *spare, double factor) {
  (void)spare;
  blend_with_level(image, 0, factor);
  return STATUS_OK;
}

static Status contrast(Image *image, Image *spare, double factor) {
  int64_t sum = 0, pixels = (int64_t)image->width * image->height;
  (void)spare;
  for (int64_t i = 0; i < pixels; i++) sum += grey(image->rgb + 3 * i);
  if (pixels > 0) blend_with_level(image, (int)((sum + pixels / 2) / pixels), factor);
  return STATUS_OK;
}

static Status colour(Image *image, Image *spare, double factor) {
  int64_t by = fixed(factor);
  (void)spare;
  for (size_t i = 0; i < numbers(image); i += 3) {
    int other = grey(image->rgb + i);
    for (int c = 0; c < 3; c++) image->rgb[i + c] = blend(image->rgb[i + c], other, by);
  }
  return STATUS_OK;
}

/* The mean over 3 x 3 pixels, the middle one counted five times. `stride`: bytes of a row. */
static int smooth(const uint8_t *at, ptrdiff_t stride) {
  int sum = 4 * at[0];
  for (ptrdiff_t row = -stride; row <= stride; row += stride) sum += at[row - 3] + at[row] + at[row + 3];
  return (sum + 6) / 13;
}

/* The border has no eight neighbours and stays. */
static Status sharpness(Image *image, Image *spare, double factor) {
  ptrdiff_t stride = 3 * (ptrdiff_t)image->width;
  int64_t by = fixed(factor);
  TRY(image_reshape(spare, image->width, image->height));
  memcpy(spare->rgb, image->rgb, numbers(image));
  for (int y = 1; y < image->height - 1; y++) {
    for (ptrdiff_t i = y * stride + 3; i < (y + 1) * stride - 3; i++)
      image->rgb[i] = blend(spare->rgb[i], smooth(spare->rgb + i, stride), by);
  }
  return STATUS_OK;
}

/* ---------------------------------------------------------------- levels by levels */

static Status posterize(Image *image, Image *spare, double bits) {
  int kept = (int)lround(bits);
  uint8_t mask = kept >= 8 ? 255 : kept <= 0 ? 0 : (uint8_t)(255 << (8 - kept));
  (void)spare;
  for (size_t i = 0; i < numbers(image); i++) image->rgb[i] &= mask;
  return STATUS_OK;
}

static Status solarize(Image *image, Image *spare, double threshold) {
  int from = (int)lround(threshold);
  (void)spare;
  for (size_t i = 0; i < numbers(image); i++)
    if (image->rgb[i] >= from) image->rgb[i] = (uint8_t)(255 - image->rgb[i]);
  return STATUS_OK;
}

/* Fills levels[256] from the histogram of one channel. */
typedef void Remap(const int64_t histogram[256], int first, int last, uint8_t levels[256]);

static void remap_channels(Image *image, Remap *remap) {
  for (int c = 0; c < 3; c++) {
    int64_t histogram[256] = {0};
    uint8_t levels[256];
    int first = 0, last = 255;
    for (size_t i = (size_t)c; i < numbers(image); i += 3) histogram[image->rgb[i]]++;
    while (first < 255 && histogram[first] == 0) first++;
    while (last > 0 && histogram[last] == 0) last--;
    if (first >= last) continue; /* one level: nothing to stretch */
    remap(histogram, first, last, levels);
    for (size_t i = (size_t)c; i < numbers(image); i += 3) image->rgb[i] = levels[image->rgb[i]];
  }
}

static void stretch(const int64_t histogram[256], int first, int last, uint8_t levels[256]) {
  int range = last - first;
  (void)histogram;
  for (int v = 0; v < 256; v++) levels[v] = clamp(v < first ? 0 : (255 * (v - first) + range / 2) / range);
}

/* The step is the count of all but the last level's pixels, in 255 parts; with less than a pixel to a part nothing changes. */
static void spread_evenly(const int64_t histogram[256], int first, int last, uint8_t levels[256]) {
  int64_t sum = 0;
  for (int v = first; v < last; v++) sum += histogram[v];
  int64_t step = sum / 255, below = step / 2;
  for (int v = 0; v < 256; below += histogram[v++]) levels[v] = step > 0 ? clamp(below / step) : (uint8_t)v;
}

static Status autocontrast(Image *image, Image *spare, double unused) {
  (void)spare, (void)unused;
  remap_channels(image, stretch);
  return STATUS_OK;
}

static Status equalize(Image *image, Image *spare, double unused) {
  (void)spare, (void)unused;
  remap_channels(image, spread_evenly);
  return STATUS_OK;
}

static Status identity(Image *image, Image *spare, double unused) {
  (void)image, (void)spare, (void)unused;
  return STATUS_OK;
}

/* Changes `image`. `spare` (zeroed or used) is scratch memory of the caller's: buffers are exchanged with it. */
static Status image_operation_apply(ImageOperation operation, double strength, Image *image, Image *spare) {
  typedef Status Apply(Image * image, Image * spare, double strength);
  static Apply *const apply[OPERATIONS] = {
      [OPERATION_IDENTITY] = identity,         [OPERATION_SHEAR_X] = shear_x,         [OPERATION_SHEAR_Y] = shear_y,
      [OPERATION_TRANSLATE_X] = translate_x,   [OPERATION_TRANSLATE_Y] = translate_y, [OPERATION_ROTATE] = rotate,
      [OPERATION_BRIGHTNESS] = brightness,     [OPERATION_COLOUR] = colour,           [OPERATION_CONTRAST] = contrast,
      [OPERATION_SHARPNESS] = sharpness,       [OPERATION_POSTERIZE] = posterize,     [OPERATION_SOLARIZE] = solarize,
      [OPERATION_AUTOCONTRAST] = autocontrast, [OPERATION_EQUALIZE] = equalize};
  return apply[operation](image, spare, strength);
}

/* ---- Policies ---- */

enum { AUGMENT_LEVELS = 30, AUGMENT_OPERATIONS_MAX = 14 }; /* the largest M and N */

enum { USUAL_OPERATIONS = 2, USUAL_LEVEL = 9 };

/* Strength of level l: low + (high - low) l / 30, its sign drawn where `sign` says so, added to `about`. Of translations RandAugment's is a
 * part of the image's side, TrivialAugment's a number of pixels whatever the image's size. */
typedef struct Range {
  double low, high;
} Range;

typedef struct OperationRanges {
  Range trivial, rand;
  bool sign;
  double about;
} OperationRanges;

static const OperationRanges ranges[OPERATIONS] = {
    [OPERATION_SHEAR_X] = {{0, 0.99}, {0, 0.3}, true, 0},
    [OPERATION_SHEAR_Y] = {{0, 0.99}, {0, 0.3}, true, 0},
    [OPERATION_TRANSLATE_X] = {{0, 32}, {0, 150.0 / 331}, true, 0},
    [OPERATION_TRANSLATE_Y] = {{0, 32}, {0, 150.0 / 331}, true, 0},
    [OPERATION_ROTATE] = {{0, 135}, {0, 30}, true, 0},
    [OPERATION_BRIGHTNESS] = {{0, 0.99}, {0, 0.9}, true, 1},
    [OPERATION_COLOUR] = {{0, 0.99}, {0, 0.9}, true, 1},
    [OPERATION_CONTRAST] = {{0, 0.99}, {0, 0.9}, true, 1},
    [OPERATION_SHARPNESS] = {{0, 0.99}, {0, 0.9}, true, 1},
    [OPERATION_POSTERIZE] = {{8, 2}, {8, 4}, false, 0},
    [OPERATION_SOLARIZE] = {{255, 0}, {255, 0}, false, 0},
};

static Status refuse(const char *text) {
  return status_set(STATUS_BAD_VALUE,
                    "\"%s\": none, crop, trivial, randaugment or randaugment:N,M is accepted, with N from 1 to %d operations of strength M "
                    "from 0 to %d",
                    text, AUGMENT_OPERATIONS_MAX, AUGMENT_LEVELS);
}

Status augment_policy_parse(AugmentPolicy *policy, const char *text) {
  static const char *const names[] = {"none", "crop", "trivial", "randaugment"};
  size_t length = strcspn(text, ":");
  *policy = (AugmentPolicy){AUGMENT_NONE, 0, 0};
  int kind = 0, used = 0;
  while (kind < 4 && (strlen(names[kind]) != length || memcmp(names[kind], text, length) != 0)) kind++;
  if (kind == 4 || (text[length] == ':' && kind != AUGMENT_RANDAUGMENT)) return refuse(text);
  policy->kind = (AugmentKind)kind;
  if (kind != AUGMENT_RANDAUGMENT) return STATUS_OK;
  policy->operations = USUAL_OPERATIONS;
  policy->level = USUAL_LEVEL;
  if (text[length] == '\0') return STATUS_OK;
  bool digits = text[length + 1] >= '0' && text[length + 1] <= '9';
  if (!digits || sscanf(text + length, ":%4d,%4d%n", &policy->operations, &policy->level, &used) != 2 ||
      text[length + (size_t)used] != '\0' || policy->operations < 1 || policy->operations > AUGMENT_OPERATIONS_MAX || policy->level < 0 ||
      policy->level > AUGMENT_LEVELS)
    return refuse(text);
  return STATUS_OK;
}

static double strength_of(const AugmentPolicy *policy, Rng *rng, ImageOperation operation, const Image *image) {
  const OperationRanges *row = &ranges[operation];
  bool trivial = policy->kind == AUGMENT_TRIVIAL;
  int level = trivial ? (int)rng_below(rng, AUGMENT_LEVELS + 1) : policy->level;
  Range range = trivial ? row->trivial : row->rand;
  double strength = range.low + (range.high - range.low) * level / AUGMENT_LEVELS;
  if (!trivial && operation == OPERATION_TRANSLATE_X) strength *= image->width;
  if (!trivial && operation == OPERATION_TRANSLATE_Y) strength *= image->height;
  if (row->sign && rng_next(rng) >> 63) strength = -strength;
  return row->about + strength;
}

Status augment_policy_apply(const AugmentPolicy *policy, Rng *rng, Image *image, Image *spare) {
  int count = policy->kind == AUGMENT_TRIVIAL ? 1 : policy->kind == AUGMENT_RANDAUGMENT ? policy->operations : 0;
  for (int i = 0; i < count; i++) {
    ImageOperation operation = (ImageOperation)rng_below(rng, OPERATIONS);
    double strength = strength_of(policy, rng, operation, image);
    TRY(image_operation_apply(operation, strength, image, spare));
  }
  return STATUS_OK;
}
