/* Cholesky factor of a covariance matrix, in place and without allocation. */
#ifndef VQ_CHOLESKY_H
#define VQ_CHOLESKY_H
#include "autograd/real.h"
#include <stdbool.h>
#include <stdint.h>

/* The lower triangle of a [n, n] becomes L with L L^T = a; what was above the diagonal becomes zero. False (and a spoilt) when a is not
 * positive definite. On the calling thread. Blocked: the small triangles in double, the rest as matrix products. */
bool cholesky_factor(int64_t n, real *a);

#endif
