/* Images that are drawn instead of read: "synthetic:WIDTHxHEIGHT:CLASSES[:IMAGES]". An image is stripes in two colours under noise;
 * the class gives colours, direction and width, the image's number the phase and the noise. Classes can be told apart by a model that
 * learns anything at all, so that benchmarks, tests and demonstrations need no data. Invariant: an image is a function of its part,
 * number, size and class count alone. */
#include "base/rng.h"
#include "data/dataset_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_SIDE = 2, MAX_SIDE = 4096, MAX_CLASSES = 10000, MAX_IMAGES = 100000000, USUAL_IMAGES = 2048, TEST_SHARE = 4 };
enum { NOISE_LEVELS = 64 }; /* a power of two: noise is six bits of a random number */
static const uint64_t image_seed = 0x73796e7468657469, class_seed = 0x636c617373657321;

/* What a class looks like. */
typedef struct Stripes {
  double across, down;  /* turns over the whole image */
  double colours[2][3]; /* of crest and trough, 0-255 */
} Stripes;

/* sin(a + b) from the sines and cosines of a row and of a turned pair: two products a pixel, no call of the library. */
static void draw_row(const Stripes *stripes, int width, double phase, Rng *rng, uint8_t *rgb) {
  double step = 2 * acos(-1) * stripes->across / width, turn_cosine = cos(step), turn_sine = sin(step);
  double cosine = cos(phase), sine = sin(phase);
  for (int x = 0; x < width; x++, rgb += 3) {
    const double wave = 0.5 + 0.5 * sine;
    const uint64_t noise = rng_next(rng); /* bits enough for three channels */
    for (int c = 0; c < 3; c++) {
      double colour = stripes->colours[1][c] + wave * (stripes->colours[0][c] - stripes->colours[1][c]);
      double value = colour + (double)(noise >> (16 * c) & (NOISE_LEVELS - 1)) - NOISE_LEVELS / 2.0;
      rgb[c] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value + 0.5);
    }
    double next = sine * turn_cosine + cosine * turn_sine;
    cosine = cosine * turn_cosine - sine * turn_sine;
    sine = next;
  }
}

static int32_t label_of(const Dataset *set, int64_t index) { return (int32_t)(index % set->classes); }

static Status draw(Dataset *set, int64_t index, Image *image, int32_t *label) {
  const DatasetPart *part = set->state;
  *label = label_of(set, index);
  TRY(image_reshape(image, set->width, set->height));
  Rng rng;
  rng_init(&rng, class_seed, (uint64_t)*label);
  double angle = acos(-1) * rng_uniform(&rng), turns = 2 + 6 * rng_uniform(&rng);
  Stripes stripes = {.across = turns * cos(angle), .down = turns * sin(angle)};
  for (int i = 0; i < 6; i++) stripes.colours[i / 3][i % 3] = 24 + 208 * rng_uniform(&rng);
  rng_init(&rng, image_seed + (uint64_t)*part, (uint64_t)index);
  double phase = 2 * acos(-1) * rng_uniform(&rng);
  for (int y = 0; y < set->height; y++)
    draw_row(&stripes, set->width, phase + 2 * acos(-1) * stripes.down * y / set->height, &rng,
             image->rgb + (size_t)y * (size_t)set->width * 3);
  return STATUS_OK;
}

static void close_state(Dataset *set) { free(set->state); }

static Status read_name(const char *name, int sides[2], long long *classes, long long *images) {
  int used = 0, length = (int)strlen(name);
  *images = USUAL_IMAGES;
  bool good = sscanf(name, "synthetic:%5dx%5d:%9lld%n", &sides[0], &sides[1], classes, &used) == 3;
  if (good && used < length) good = sscanf(name + used, ":%9lld%n", images, &length) == 1 && name[used + length] == '\0';
  if (good && sides[0] >= MIN_SIDE && sides[1] >= MIN_SIDE && sides[0] <= MAX_SIDE && sides[1] <= MAX_SIDE && *classes >= 1 &&
      *classes <= MAX_CLASSES && *images >= TEST_SHARE && *images <= MAX_IMAGES)
    return STATUS_OK;
  return status_set(
      STATUS_BAD_USAGE,
      "data set \"%s\": synthetic:WIDTHxHEIGHT:CLASSES or synthetic:WIDTHxHEIGHT:CLASSES:IMAGES is accepted, with sides of %d "
      "to %d, 1 to %d classes and %d to %d images",
      name, MIN_SIDE, MAX_SIDE, MAX_CLASSES, TEST_SHARE, MAX_IMAGES);
}

static bool knows(const char *name) { return dataset_after_prefix(name, "synthetic:") != NULL; }

static Status open_synthetic(Dataset *set, const char *name, const char *data_dir, DatasetPart part) {
  (void)data_dir;
  int sides[2];
  long long classes, images;
  TRY(read_name(name, sides, &classes, &images));
  DatasetPart *state = malloc(sizeof *state);
  if (!state) return status_no_memory(NULL, "a data set");
  *state = part;
  set->state = state;
  set->read = draw;
  set->label = label_of;
  set->close = close_state;
  set->fixed_size = true;
  set->width = sides[0];
  set->height = sides[1];
  set->classes = classes;
  set->count = part == DATASET_TRAIN ? images : images / TEST_SHARE;
  set->labels = calloc((size_t)classes, sizeof *set->labels);
  if (!set->labels) return status_no_memory(NULL, "the labels");
  for (int64_t i = 0; i < classes; i++)
    if (asprintf(&set->labels[i], "stripes_%lld", (long long)i) < 0) {
      set->labels[i] = NULL;
      return status_no_memory(NULL, "the labels");
    }
  return dataset_set_description(set, "synthetic %s, %lld images of %dx%d, %lld classes", dataset_part_name(part), (long long)set->count,
                                 set->width, set->height, classes);
}

const DatasetSource dataset_synthetic = {knows, open_synthetic};
