/* The noise moments of a batch of which several processes hold a share each: sums about a point that all of them have, which are added up
 * and then move the averages as navq_update does.
 *
 *   S1 = sum (x - q - p), S2_g = sum (x_g - q_g - p_g)(x_g - q_g - p_g)^T (or its diagonal),  p = navq->mean
 *   mean = p + S1 / n, covariance = S2 / n - (S1 / n)(S1 / n)^T
 *
 * p is the moving mean, near the batch's own: little is lost in the difference. */
#ifndef VQ_RESIDUAL_SUMS_H
#define VQ_RESIDUAL_SUMS_H
#include "vq/navq.h"

int64_t residual_sums_count(const Navq *navq); /* numbers of a share's sums: W + those of the covariance */

/* sums [residual_sums_count] of x - q, [rows, W] each; zero for no rows. scratch: navq_scratch(navq, rows). */
void residual_sums_take(const Navq *navq, const real *x, const real *q, int64_t rows, real *sums, void *scratch);

/* One update of the moments from the sums over all `rows` rows of all shares; sums is used up. */
void residual_sums_apply(Navq *navq, real *sums, int64_t rows);

#endif
