/* What is computed once from samples of a site, when its codebook is made: the basis in which tokens are quantised, what the block before
 * tells of them, and what quantisation leaves of their moments. */
#ifndef VQ_BASIS_H
#define VQ_BASIS_H
#include "autograd/real.h"
#include "base/status.h"
#include "vq/codebook.h"
#include <stdint.h>

/* c = a b; a [n, n], b and c [n, m], c apart from both. */
void matrix_multiply(int64_t n, int64_t m, const double *a, const double *b, double *c);

/* ---- Rotation ---- */

/* The basis: optimised product quantisation (Ge et al., 2013, the parametric solution) in the metric of what the codes are used for. With
 * samples x of mean m and covariance C, and an error e of a quantised token counted as e^T M e:
 *
 *   M = V diag(v) V^T,  R = V diag(v)^1/2 V^T         errors of R x are counted as they are
 *   R C R = U diag(l) U^T                             principal components
 *   y = s U^T R (x - m),  x = R^-1 U y / s + m
 *
 * Columns of U are dealt out to the G groups so that the products of their l are alike: groups are independent and equally hard, and
 * correlated numbers share a codeword. Eigenvalues v are at least a thousandth of the largest, so that R can be inverted. s makes the
 * variances of y sum to those of x, so that distortions and the weight of the commitment loss keep their scale. */
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

/* ---- Prediction ---- */

/* The weight B and bias b that minimise sum |y - B x - b|^2 + ridge |B|^2, ridge a ten-thousandth of the mean variance of x's numbers per
 * row; y becomes y - B x - b. x [count, inputs], y [count, outputs], weight [outputs, inputs] (a row for each number of y), bias [outputs].
 * NO_MEMORY; NUMERIC where numbers are not finite. */
Status regression_fit(const real *x, real *y, int64_t count, int64_t inputs, int64_t outputs, double *weight, double *bias);

/* ---- Moments of the residual ---- */

/* What quantisation does to first and second moments, measured on samples: the quantised X^ and the residual R = X - X^.
 *
 * Codewords that are the means of their cells give E[R_g | code of g] = 0, so that R_g does not go with X^_g of the same group. Other
 * groups' codes say more about R_g: with G > 1, Cov(X^, R) has blocks off its diagonal that are as large as Cov(R) itself, where the groups
 * of X depend on each other. Then C_X is not C_X^ + C_R, and noise of covariance C_R does not bring X^ to the moments of X (docs/MATH.md).
 */
typedef struct ResidualMoments {
  double dependence; /* |Cov(X^, R)|_F / |Cov(R)|_F; 0 where there is no residual */
  double quantised;  /* squared 2-Wasserstein distance of the Gaussians with the moments of X and X^ */
  double noisy;      /* the same of X and X~ = X^ + xi, xi ~ N(mean, covariance of R in each group, as noise of --noise 1 is drawn) */
  double full;       /* with the whole covariance of R [W, W] in place of that */
  double restored;   /* with the positive part of C_X - C_X^: the nearest to what X^ lacks that noise can add */
} ResidualMoments;

/* Of x [rows, W] with its codes [rows, G]; rows >= 1. known [rows, W]: what receivers know of the rows without codes, as a prediction: X is
 * x + known, and X^ the codewords + known, whose residual is the codewords' own; NULL: nothing. Allocates about 14 W^2 numbers and 2 rows
 * of W for each row, and frees them. */
Status residual_moments(const Codebook *book, const real *x, const real *known, const int32_t *codes, int64_t rows,
                        ResidualMoments *moments);

#endif
