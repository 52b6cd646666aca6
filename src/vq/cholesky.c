/* Right-looking blocked Cholesky factorisation of a row-major matrix.
 *
 *        [ L11          ]   L11 from A11 in double (at most BLOCK wide), its inverse beside it
 *   L =  [ L21   A22'   ]   L21 = A21 L11^-T,  A22' = A22 - L21 L21^T, then the same with A22'
 *
 * A product must not write what it reads, so L21^T is first put into the unused upper triangle (the place of A12). */
#include "vq/cholesky.h"
#include "autograd/kernels/matmul.h"
#include <math.h>
#include <string.h>

enum { BLOCK = 48 };

/* a [n, n] at stride: its lower triangle in place, and the inverse [n, n] of the factor (lower, zero above). */
static bool factor_block(int64_t n, real *a, int64_t stride, real *inverse) {
  double l[BLOCK][BLOCK], v[BLOCK][BLOCK];
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j <= i; j++) {
      double sum = (double)a[i * stride + j];
      for (int64_t k = 0; k < j; k++) sum -= l[i][k] * l[j][k];
      if (i == j && !(sum > 0 && isfinite(sum))) return false;
      l[i][j] = i == j ? sqrt(sum) : sum / l[j][j];
      a[i * stride + j] = (real)l[i][j];
    }
  memset(inverse, 0, (size_t)(n * n) * sizeof(real));
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = j; i < n; i++) {
      double sum = i == j ? 1 : 0;
      for (int64_t k = j; k < i; k++) sum -= l[i][k] * v[k][j];
      v[i][j] = sum / l[i][i];
      inverse[i * n + j] = (real)v[i][j];
    }
  return true;
}

/* The columns below a factored block: L21, and A22 less its share. `corner` is A11's place; `rest` rows follow it. */
static void eliminate(int64_t block, int64_t rest, int64_t n, real *corner, const real *inverse) {
  real *above = corner + block, *below = corner + block * n, *trailing = below + block;
  matmul_single(false, true, block, rest, block, 1, inverse, block, below, n, 0, above, n);
  matmul_single(true, false, rest, rest, block, -1, above, n, above, n, 1, trailing, n);
  for (int64_t i = 0; i < rest; i++)
    for (int64_t j = 0; j < block; j++) below[i * n + j] = above[j * n + i];
}

bool cholesky_factor(int64_t n, real *a) {
  real inverse[BLOCK * BLOCK];
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t block = n - at < BLOCK ? n - at : BLOCK, rest = n - at - block;
    real *corner = a + at * n + at;
    if (!factor_block(block, corner, n, inverse)) return false;
    if (rest > 0) eliminate(block, rest, n, corner, inverse);
  }
  for (int64_t i = 0; i < n; i++) memset(a + i * n + i + 1, 0, (size_t)(n - i - 1) * sizeof(real));
  return true;
}
