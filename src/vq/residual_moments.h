/* What quantisation does to first and second moments, measured on samples: the quantised X^ and the residual R = X - X^.
 *
 * Codewords that are the means of their cells give E[R_g | code of g] = 0, so that R_g does not go with X^_g of the same group. Other
 * groups' codes say more about R_g: with G > 1, Cov(X^, R) has blocks off its diagonal that are as large as Cov(R) itself, where the groups
 * of X depend on each other. Then C_X is not C_X^ + C_R, and noise of covariance C_R does not bring X^ to the moments of X (docs/MATH.md).
 */
#ifndef VQ_RESIDUAL_MOMENTS_H
#define VQ_RESIDUAL_MOMENTS_H
#include "base/status.h"
#include "vq/codebook.h"
#include <stdint.h>

typedef struct ResidualMoments {
  double dependence; /* |Cov(X^, R)|_F / |Cov(R)|_F; 0 where there is no residual */
  double quantised;  /* squared 2-Wasserstein distance of the Gaussians with the moments of X and X^ */
  double noisy;      /* the same of X and X~ = X^ + xi, xi ~ N(mean, covariance of R in each group, as noise of --noise 1 is drawn) */
  double full;       /* with the whole covariance of R [W, W] in place of that */
  double restored;   /* with the positive part of C_X - C_X^: the nearest to what X^ lacks that noise can add */
} ResidualMoments;

/* Of x [rows, W] with its codes [rows, G]; rows >= 1. Allocates about 14 W^2 numbers and 2 rows of W for each row, and frees them. */
Status residual_moments(const Codebook *book, const real *x, const int32_t *codes, int64_t rows, ResidualMoments *moments);

#endif
