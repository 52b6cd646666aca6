/* Positions: the table of rotary embeddings, and learnt position embeddings that are resized to another grid. */
#ifndef NN_POSITIONS_H
#define NN_POSITIONS_H
#include "autograd/real.h"
#include "base/status.h"
#include "nn/config.h"
#include <stdint.h>

/* Cosines and sines of rotary positions (Su et al., 2021), computed once for a model, as Hugging Face lays them out for its half rotation.
 *
 *   frequency of pair i of a head of d numbers:  f_i = theta^(-2 i / d),  its wavelength in tokens:  w_i = 2 pi / f_i
 *
 * With rope_type "llama3" (Llama 3.1) low frequencies are slowed down so that a context `factor` times as long fits:
 *
 *   w_i < original / high_factor:  f_i as it is
 *   w_i > original / low_factor:   f_i / factor
 *   between:  (1 - s) f_i / factor + s f_i  with  s = (original / w_i - low_factor) / (high_factor - low_factor) */

typedef struct RopeTable {
  real *cosine, *sine; /* [count, d / 2], in one block of memory */
  int64_t count;       /* positions: the model's context */
} RopeTable;

/* frequency [d / 2], radians a token */
void rope_table_frequencies(const RopeConfig *rope, int64_t head_width, double *frequency);

Status rope_table_init(RopeTable *table, const ModelConfig *config);
void rope_table_release(RopeTable *table); /* accepts a zeroed one */

/* The side of the grid behind `rows` position embeddings (one for the class token and side^2); 0 when there is no such square. */
int64_t positions_side(int64_t rows);

/* from [1 + from_side^2, width] -> to [1 + to_side^2, width]: the class token's row is copied, the grid is interpolated as PyTorch's
 * interpolate(mode="bicubic", align_corners=False) does (a = -0.75, borders repeated), which is what Hugging Face uses. */
void positions_resize(const real *from, int64_t from_side, real *to, int64_t to_side, int64_t width);

#endif
