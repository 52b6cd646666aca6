/* The squared 2-Wasserstein distance of two Gaussians (Dowson and Landau, 1982):
 *   W2^2 = |m1 - m2|^2 + tr(C1 + C2 - 2 (C2^1/2 C1 C2^1/2)^1/2)
 * The last trace is the sum of the square roots of the eigenvalues of L^T C1 L, with C2 = L L^T. All in double. */
#ifndef VQ_GAUSSIAN_DISTANCE_H
#define VQ_GAUSSIAN_DISTANCE_H
#include "base/status.h"
#include <stdint.h>

/* means [n], covariances [n, n], symmetric and positive semidefinite but for rounding; singular ones are fine. Allocates 3 n^2 numbers and
 * frees them; O(n^3), about a second for n = 768. NO_MEMORY; NUMERIC when an eigenvalue is not found (numbers that are not finite). */
Status gaussian_distance(int64_t n, const double *mean1, const double *covariance1, const double *mean2, const double *covariance2,
                         double *squared);

/* Eigenvalues of a symmetric matrix [n, n], which is overwritten, in no order. scratch [n]. NUMERIC as above. */
Status gaussian_eigenvalues(int64_t n, double *matrix, double *values, double *scratch);

#endif
