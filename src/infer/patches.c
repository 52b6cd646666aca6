/* See patches.h. A line of a patch is contiguous in an image; one loop over lines serves packing and parsing. */
#include "infer/patches.h"
#include "data/loader.h"
#include "infer/wire.h"
#include <math.h>
#include <string.h>

static void find_values(PatchLevels *levels, const ModelConfig *config) {
  LoaderOptions options = {.image = (int)config->image};
  memcpy(options.mean, config->image_mean, sizeof options.mean);
  memcpy(options.std, config->image_std, sizeof options.std);
  loader_levels(&options, levels->value);
  levels->known = true;
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

bool patches_find_levels(PatchLevels *levels, const ModelConfig *config, const float *pixels, int64_t batch, uint8_t *out) {
  const int64_t plane = config->image * config->image;
  if (config->channels != 3) return false;
  if (!levels->known) find_values(levels, config);
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

/* The lines of patches in a message, as levels or as floats; packed from pixels or levels of whole images, or parsed into pixels. */
typedef struct Lines {
  bool parses, levels;
  uint8_t *bytes;             /* of the message, behind its head */
  const float *pixels;        /* of images: packed, */
  const uint8_t *levels_from; /* or packed as levels */
  real *parsed;
  PatchLevels values; /* of levels that are parsed */
} Lines;

static void copy_lines(const ModelConfig *config, const TokenLayout *layout, int64_t batch, const Lines *l) {
  const int64_t side = config->image, patch = config->patch, across = side / patch;
  uint8_t *at = l->bytes;
  for (int64_t b = 0; b < batch; b++) {
    for (int64_t row = 0; row < layout->rows; row++) {
      int64_t token = layout->row_token[row];
      if (token < 0) continue;
      int64_t corner = b * config->channels * side * side + token / across * patch * side + token % across * patch;
      for (int64_t i = 0; i < config->channels * patch; i++, at += (size_t)patch * (l->levels ? 1 : 4)) {
        const int64_t pixel = corner + i / patch * side * side + i % patch * side;
        if (!l->parses && l->levels)
          memcpy(at, l->levels_from + pixel, (size_t)patch);
        else if (!l->parses)
          wire_pack_floats(l->pixels + pixel, (size_t)patch, at);
        else if (l->levels)
          for (int64_t j = 0; j < patch; j++) l->parsed[pixel + j] = (real)l->values.value[i / patch % 3][at[j]];
        else
          wire_parse_reals(at, (size_t)patch, l->parsed + pixel);
      }
    }
  }
}

void patches_pack(const ModelConfig *config, const TokenLayout *layout, int64_t batch, const float *pixels, const uint8_t *levels,
                  uint8_t *out) {
  memset(out, 0, PATCHES_HEAD);
  out[0] = levels ? PATCHES_LEVELS : PATCHES_FLOATS;
  copy_lines(config, layout, batch,
             &(Lines){.levels = levels != NULL, .bytes = out + PATCHES_HEAD, .pixels = pixels, .levels_from = levels});
}

Status patches_parse(const uint8_t *bytes, const ModelConfig *config, const TokenLayout *layout, int64_t batch, bool as_levels,
                     real *pixels) {
  const uint8_t head[PATCHES_HEAD] = {as_levels ? PATCHES_LEVELS : PATCHES_FLOATS};
  Lines lines = {.parses = true, .levels = as_levels, .bytes = (uint8_t *)bytes + PATCHES_HEAD, .parsed = pixels};
  if (memcmp(bytes, head, PATCHES_HEAD) != 0) return status_set(STATUS_BAD_VALUE, "sent images in a form that its length does not fit");
  if (as_levels) find_values(&lines.values, config);
  copy_lines(config, layout, batch, &lines);
  return STATUS_OK;
}
