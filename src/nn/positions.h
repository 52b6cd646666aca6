/* Position embeddings of one grid of patches to those of another. */
#ifndef NN_POSITIONS_H
#define NN_POSITIONS_H
#include "autograd/real.h"
#include <stdint.h>

/* The side of the grid behind `rows` position embeddings (one for the class token and side^2); 0 when there is no such square. */
int64_t positions_side(int64_t rows);

/* from [1 + from_side^2, width] -> to [1 + to_side^2, width]: the class token's row is copied, the grid is interpolated as PyTorch's
 * interpolate(mode="bicubic", align_corners=False) does (a = -0.75, borders repeated), which is what Hugging Face uses. */
void positions_resize(const real *from, int64_t from_side, real *to, int64_t to_side, int64_t width);

#endif
