/* See patches.h. A line of a patch is contiguous in an image; one walk over lines serves packing and parsing. */
#include "infer/patches.h"
#include "data/loader.h"
#include "infer/wire.h"
#include <math.h>
#include <string.h>

void patches_levels(PatchLevels *levels, const ModelConfig *config) {
  LoaderOptions options = {.image = (int)config->image};
  memcpy(options.mean, config->image_mean, sizeof options.mean);
  memcpy(options.std, config->image_std, sizeof options.std);
  loader_levels(&options, levels->value);
}

/* ---- levels */

/* The level whose number has the same bits; -1: there is none. */
static int level_of(const float value[256], double mean, double std, float number) {
  double guess = ((double)number * std + mean) * 255;
  if (!(guess > -1 && guess < 256)) return -1;
  int middle = (int)lrint(guess);
  for (int level = middle > 0 ? middle - 1 : 0; level <= middle + 1 && level < 256; level++) {
    if (memcmp(&value[level], &number, sizeof number) == 0) return level;
  }
  return -1;
}

bool patches_find_levels(const PatchLevels *levels, const ModelConfig *config, const float *pixels, int64_t batch, uint8_t *out) {
  const int64_t plane = config->image * config->image;
  if (config->channels != 3) return false;
  for (int64_t i = 0; i < batch * 3; i++) {
    int channel = (int)(i % 3);
    for (int64_t j = i * plane; j < (i + 1) * plane; j++) {
      int level = level_of(levels->value[channel], config->image_mean[channel], config->image_std[channel], pixels[j]);
      if (level < 0) return false;
      out[j] = (uint8_t)level;
    }
  }
  return true;
}

/* ---- lines of patches */

size_t patches_bytes(const ModelConfig *config, int64_t batch, int64_t tokens, bool as_levels) {
  const int64_t numbers = config->channels * config->patch * config->patch; /* of a patch */
  return PATCHES_HEAD + (size_t)(batch * tokens * numbers) * (as_levels ? 1 : 4);
}

/* Called with the first number of each line in the image, its channel, and its place among all lines. */
typedef void TakeLine(void *context, int64_t pixel, int channel, int64_t line);

static void walk(const ModelConfig *config, const TokenLayout *layout, int64_t batch, TakeLine *take, void *context) {
  const int64_t side = config->image, patch = config->patch, across = side / patch;
  int64_t line = 0;
  for (int64_t b = 0; b < batch; b++) {
    for (int64_t row = 0; row < layout->rows; row++) {
      int64_t token = layout->row_token[row];
      if (token < 0) continue;
      int64_t corner = b * config->channels * side * side + token / across * patch * side + token % across * patch;
      for (int64_t i = 0; i < config->channels * patch; i++)
        take(context, corner + i / patch * side * side + i % patch * side, (int)(i / patch), line++);
    }
  }
}

typedef struct Packing {
  const float *pixels;
  const uint8_t *levels;
  uint8_t *out;
  size_t patch;
} Packing;

static void pack_levels(void *context, int64_t pixel, int channel, int64_t line) {
  const Packing *p = context;
  (void)channel;
  memcpy(p->out + (size_t)line * p->patch, p->levels + pixel, p->patch);
}

static void pack_floats(void *context, int64_t pixel, int channel, int64_t line) {
  const Packing *p = context;
  (void)channel;
  wire_pack_floats(p->pixels + pixel, p->patch, p->out + (size_t)line * p->patch * 4);
}

void patches_pack(const ModelConfig *config, const TokenLayout *layout, int64_t batch, const float *pixels, const uint8_t *levels,
                  uint8_t *out) {
  Packing packing = {.pixels = pixels, .levels = levels, .out = out + PATCHES_HEAD, .patch = (size_t)config->patch};
  memset(out, 0, PATCHES_HEAD);
  out[0] = levels ? PATCHES_LEVELS : PATCHES_FLOATS;
  walk(config, layout, batch, levels ? pack_levels : pack_floats, &packing);
}

typedef struct Parsing {
  PatchLevels levels;
  const uint8_t *bytes;
  real *pixels;
  size_t patch;
} Parsing;

static void parse_levels(void *context, int64_t pixel, int channel, int64_t line) {
  const Parsing *p = context;
  const uint8_t *from = p->bytes + (size_t)line * p->patch;
  for (size_t i = 0; i < p->patch; i++) p->pixels[pixel + (int64_t)i] = (real)p->levels.value[channel % 3][from[i]];
}

static void parse_floats(void *context, int64_t pixel, int channel, int64_t line) {
  const Parsing *p = context;
  (void)channel;
  wire_parse_reals(p->bytes + (size_t)line * p->patch * 4, p->patch, p->pixels + pixel);
}

Status patches_parse(const uint8_t *bytes, const ModelConfig *config, const TokenLayout *layout, int64_t batch, bool as_levels,
                     real *pixels) {
  const uint8_t head[PATCHES_HEAD] = {as_levels ? PATCHES_LEVELS : PATCHES_FLOATS};
  Parsing parsing = {.bytes = bytes + PATCHES_HEAD, .pixels = pixels, .patch = (size_t)config->patch};
  if (memcmp(bytes, head, PATCHES_HEAD) != 0) return status_set(STATUS_BAD_VALUE, "sent images in a form that its length does not fit");
  if (as_levels) patches_levels(&parsing.levels, config);
  walk(config, layout, batch, as_levels ? parse_levels : parse_floats, &parsing);
  return STATUS_OK;
}
