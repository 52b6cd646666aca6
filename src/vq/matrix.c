/* See matrix.h. */
#include "vq/matrix.h"
#include <string.h>

void matrix_multiply(int64_t n, int64_t m, const double *a, const double *b, double *c) {
  memset(c, 0, (size_t)(n * m) * sizeof *c);
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < n; k++)
      for (int64_t j = 0; j < m; j++) c[i * m + j] += a[i * n + k] * b[k * m + j];
}

void matrix_mean(const real *rows, int64_t count, int64_t n, double *mean) {
  memset(mean, 0, (size_t)n * sizeof *mean);
  for (int64_t row = 0; row < count; row++)
    for (int64_t i = 0; i < n; i++) mean[i] += (double)rows[row * n + i] / (double)count;
}

void matrix_centre(const real *rows, int64_t count, int64_t n, const double *mean, real *centred) {
  for (int64_t row = 0; row < count; row++)
    for (int64_t i = 0; i < n; i++) centred[row * n + i] = (real)((double)rows[row * n + i] - mean[i]);
}
