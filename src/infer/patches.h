/* Images as requests carry them: of each node's own content tokens the patches [B, n, C, P, P] in the order of its rows, as float32 or,
 * where every number is one that an image of 8 bits gives, as levels, from which the same bits are made again. */
#ifndef INFER_PATCHES_H
#define INFER_PATCHES_H
#include "nn/config.h"
#include "nn/layout.h"
#include <stdbool.h>

enum { PATCHES_HEAD = 4, PATCHES_FLOATS = 0, PATCHES_LEVELS = 1 }; /* a byte that says which, three zeroes */

/* (v / 255 - mean) / std for each channel and level of a model's images, as the loader computes them. */
typedef struct PatchLevels {
  bool known; /* filled at the first use; begin with a zeroed one */
  float value[3][256];
} PatchLevels;

/* pixels [B, C, H, W] -> out [B, C, H, W] levels; false: some number is none, out is worth nothing. */
bool patches_find_levels(PatchLevels *levels, const ModelConfig *config, const float *pixels, int64_t batch, uint8_t *out);

/* Bytes of a request for a node with `tokens` tokens. */
size_t patches_bytes(const ModelConfig *config, int64_t batch, int64_t tokens, bool as_levels);

/* Cuts out what the rows of a layout need of whole images: pixels [B, C, H, W], or levels where that is not NULL. */
void patches_pack(const ModelConfig *config, const TokenLayout *layout, int64_t batch, const float *pixels, const uint8_t *levels,
                  uint8_t *out);

/* The reverse, into pixels [B, C, H, W], of which only those patches are written. BAD_VALUE: another form than was announced. */
Status patches_parse(const uint8_t *bytes, const ModelConfig *config, const TokenLayout *layout, int64_t batch, bool as_levels,
                     real *pixels);

#endif
