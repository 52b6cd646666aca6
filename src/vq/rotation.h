/* A basis in which a token is quantised: optimised product quantisation (Ge et al., 2013, the parametric solution) in the metric of what
 * the codes are used for. With samples x of mean m and covariance C, and an error e of a quantised token counted as e^T M e:
 *
 *   M = V diag(v) V^T,  R = V diag(v)^1/2 V^T         errors of R x are counted as they are
 *   R C R = U diag(l) U^T                             principal components
 *   y = s U^T R (x - m),  x = R^-1 U y / s + m
 *
 * Columns of U are dealt out to the G groups so that the products of their l are alike: groups are independent and equally hard, and
 * correlated numbers share a codeword. Eigenvalues v are at least a thousandth of the largest, so that R can be inverted. s makes the
 * variances of y sum to those of x, so that distortions and the weight of the commitment loss keep their scale. */
#ifndef VQ_ROTATION_H
#define VQ_ROTATION_H
#include "autograd/real.h"
#include "base/status.h"
#include <stdint.h>

typedef struct Rotation {
  int64_t width; /* W */
  double *to;    /* [W, W] y = to (x - mean), a row for each number of y */
  double *from;  /* [W, W] x = from y + mean */
  double *mean;  /* [W] */
} Rotation;

/* samples [count, W], metric M [W, W]; groups divides W. NUMERIC where numbers are not finite. Release *rotation whatever comes back. */
Status rotation_fit(Rotation *rotation, const real *samples, int64_t count, int64_t width, const double *metric, int64_t groups);
void rotation_release(Rotation *rotation); /* accepts a zeroed one */

/* rows [count, W], in place: x -> y. NO_MEMORY. */
Status rotation_apply(const Rotation *rotation, real *rows, int64_t count);

#endif
