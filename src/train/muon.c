/* Newton-Schulz iterations on the smaller side: with A = X X' (or X' X when there are fewer columns than rows),
 *   X <- a X + (b A + c A A) X,
 * whose coefficients bring singular values from (0, 1] to about 0.7-1.2 in five rounds: not to 1 exactly, which the step does not need. */
#include "train/muon.h"
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include <math.h>
#include <string.h>

static const real MOMENTUM = (real)0.95, STEP_SIZE = (real)0.2; /* 0.2: the root mean square of AdamW's steps */
static const real A = (real)3.4445, B = (real)-4.7750, C = (real)2.0315;
enum { ROUNDS = 5 };

bool muon_moves(const Param *param) { return param->hidden && !param->fitted && !param->frozen; }

size_t muon_scratch_bytes(const ParamSet *set) {
  int64_t max = 0;
  for (size_t p = 0; p < set->count; p++) {
    const int64_t *shape = set->list[p].tensor.shape;
    if (!muon_moves(&set->list[p])) continue;
    const int64_t side = shape[0] < shape[1] ? shape[0] : shape[1], numbers = 2 * side * side + shape[0] * shape[1];
    if (numbers > max) max = numbers;
  }
  return (size_t)max * sizeof(real);
}

/* x [rows, columns] in place; scratch holds two squares of the smaller side and a copy of x. */
static void orthogonalise(int64_t rows, int64_t columns, real *x, real *scratch) {
  const bool wide = rows <= columns;
  const int64_t side = wide ? rows : columns, other = wide ? columns : rows, numbers = rows * columns;
  real *gram = scratch, *polynomial = gram + side * side, *from = polynomial + side * side;
  for (int round = 0; round < ROUNDS; round++) {
    memcpy(from, x, (size_t)numbers * sizeof *x);
    matmul(!wide, wide, side, side, other, 1, from, columns, from, columns, 0, gram, side);
    memcpy(polynomial, gram, (size_t)(side * side) * sizeof *gram);
    matmul(false, false, side, side, side, C, gram, side, gram, side, B, polynomial, side);
    if (wide)
      matmul(false, false, rows, columns, side, 1, polynomial, side, from, columns, A, x, columns);
    else
      matmul(false, false, rows, columns, side, 1, from, columns, polynomial, side, A, x, columns);
  }
}

void muon_direction(const Param *param, real scale, real *m, real *direction, real *scratch) {
  const int64_t rows = param->tensor.shape[0], columns = param->tensor.shape[1], numbers = rows * columns;
  const real *grad = param->tensor.grad, fresh = (1 - MOMENTUM) * scale;
  for (int64_t i = 0; i < numbers; i++) {
    m[i] = MOMENTUM * m[i] + fresh * grad[i];
    direction[i] = MOMENTUM * m[i] + fresh * grad[i];
  }
  const real norm = (real)sqrt(kernels()->sum_squares(numbers, direction));
  if (norm == 0) return;
  for (int64_t i = 0; i < numbers; i++) direction[i] /= norm;
  orthogonalise(rows, columns, direction, scratch);
  const real size = STEP_SIZE * (real)sqrt((double)(rows > columns ? rows : columns));
  for (int64_t i = 0; i < numbers; i++) direction[i] *= size;
}
