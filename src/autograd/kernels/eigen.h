/* Eigenvalues and eigenvectors of symmetric matrices, by LAPACK (which OpenBLAS contains). For what is done once per codebook, not in
 * steps. */
#ifndef AUTOGRAD_KERNELS_EIGEN_H
#define AUTOGRAD_KERNELS_EIGEN_H
#include "base/status.h"
#include <stdint.h>

/* a [n, n], symmetric -> values [n] in ascending order, and in the rows of a the eigenvectors that belong to them, of length 1 each and the
 * first of its largest numbers positive, so that they do not depend on the library's choice of sign. NUMERIC where a number is not finite
 * or none are found; UNSUPPORTED: n is above 32,766. */
Status eigen_symmetric(int64_t n, double *a, double *values);

/* to [n, n] += a [n, n], symmetric, without its negative eigenvalues: the nearest positive semidefinite matrix (Higham, 1988). a is
 * overwritten. Errors as above, and NO_MEMORY; `to` is as before then. */
Status eigen_add_positive_part(int64_t n, double *a, double *to);

#endif
