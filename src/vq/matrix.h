/* Small matrices and rows of samples, as fits of bases and predictions need them; sums are in double. */
#ifndef VQ_MATRIX_H
#define VQ_MATRIX_H
#include "autograd/real.h"
#include <stdint.h>

/* c = a b; a [n, n], b and c [n, m], c apart from both. */
void matrix_multiply(int64_t n, int64_t m, const double *a, const double *b, double *c);

/* rows [count, n] -> mean [n] */
void matrix_mean(const real *rows, int64_t count, int64_t n, double *mean);

/* centred = rows - mean; rows and centred [count, n], which may be the same. */
void matrix_centre(const real *rows, int64_t count, int64_t n, const double *mean, real *centred);

#endif
