/* Noise-augmented quantisation (paper section 3.3): in training X~ = X^ + lambda xi, xi ~ N(mu, Sigma), where mu and Sigma are the moving
 * mean and covariance of the residual X - X^. Sampling multiplies standard normal numbers with the Cholesky factor of Sigma (+ a small
 * ridge), refreshed every `refresh` updates. */
#ifndef VQ_NAVQ_H
#define VQ_NAVQ_H
#include "autograd/real.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum NoiseCovariance {
  NOISE_FULL,     /* of each group's numbers [W/G, W/G] (the paper's) */
  NOISE_DIAGONAL, /* variances alone */
  NOISE_JOINT,    /* of all numbers [W, W] */
  NOISE_RESTORED, /* Sigma = Cov X - Cov X^ [W, W], of which noise has the positive part: it brings Cov X~ as close to Cov X as noise can */
} NoiseCovariance;

/* Numbers of Sigma. */
int64_t noise_spread(int64_t groups, int64_t width, NoiseCovariance kind);

typedef struct Navq {
  int64_t groups, width; /* G, and 1 where Sigma is of all numbers; W */
  NoiseCovariance kind;
  double decay; /* of the moving moments */
  int refresh;  /* updates between two factorisations */
  int64_t updates;
  real *mean;       /* [G, W/G] mu */
  real *covariance; /* [G, W/G, W/G] Sigma, or [G, W/G] its diagonal */
  real *factor;     /* Cholesky factor (lower) of the same shape, or the deviations */
} Navq;

Status navq_init(Navq *navq, int64_t groups, int64_t width, NoiseCovariance kind);
void navq_release(Navq *navq);

/* Moments of the residual x - q, [rows, W] each. The first update sets them, later ones average; updates 1, 1 + refresh, 1 + 2 refresh, ...
 * factorise. scratch: navq_scratch bytes, aligned to 8. To resume bit for bit, store `updates`, mean, covariance and factor. */
size_t navq_scratch(const Navq *navq, int64_t rows);
void navq_update(Navq *navq, const real *x, const real *q, int64_t rows, void *scratch);

/* Draws rows of scale xi: each a function only of the seed, its number and the factor. Row r uses the counters from r ceil(W/4) on. Zero
 * before the first update. */
typedef struct NavqSampler {
  const Navq *navq;
  double scale;
  uint64_t seed;
  int64_t first;       /* row from which those drawn are counted */
  const real *columns; /* [G, W/G, W/G] the factors transposed, of narrow groups */
} NavqSampler;

/* scratch: navq_sampler_scratch bytes, aligned to 8, which must outlive the sampler. The moments must not change meanwhile. */
size_t navq_sampler_scratch(const Navq *navq);
void navq_sampler_init(NavqSampler *sampler, const Navq *navq, double scale, uint64_t seed, int64_t first, void *scratch);
/* noise [rows, W] of rows from `first` on behind the sampler's first, by one thread: the same numbers however rows are cut into calls,
 * except for roundings where `first` is not a multiple of NAVQ_ROWS. normal [rows, W] is scratch. */
enum { NAVQ_ROWS = 64 };
void navq_sampler_draw(const NavqSampler *sampler, int64_t first, int64_t rows, real *noise, real *normal);

/* Rows [first, first + rows), over the pool: the same numbers whatever the thread count. scratch as in navq_update. */
void navq_sample(const Navq *navq, double scale, uint64_t seed, int64_t first, int64_t rows, real *noise, void *scratch);

/* For planning: counts the products of navq_update (without the factorisation, which is not part of every step) and of navq_sample. */
void navq_count_update(const Navq *navq, int64_t rows);
void navq_count_sample(const Navq *navq, int64_t rows);

/* The noise moments of a batch that is shared out over several processes: sums about a common point p, which are added up and then move the
 * averages as navq_update does.
 *
 *   S1 = sum (x - q - p), S2_g = sum (x_g - q_g - p_g)(x_g - q_g - p_g)^T (or its diagonal),  p = navq->mean
 *   mean = p + S1 / n, covariance = S2 / n - (S1 / n)(S1 / n)^T
 *
 * p is the moving mean, close to that of the batch, so the subtraction loses little precision. NOISE_RESTORED, with the means m of the
 * batch:
 *
 *   S2 = sum (x - q - p) x^T + q (x - q - p)^T,  S3 = sum q,  Cov x - Cov q = S2 / n - (S1 / n) m_x^T - m_q (S1 / n)^T */

int64_t residual_sums_count(const Navq *navq); /* numbers of a share's sums: W + those of the covariance, + W for S3 */

/* sums [residual_sums_count] of x - q, [rows, W] each; zero for no rows. scratch: navq_scratch(navq, rows). */
void residual_sums_take(const Navq *navq, const real *x, const real *q, int64_t rows, real *sums, void *scratch);

/* One update of the moments from the sums over all `rows` rows of all shares; sums is overwritten. */
void residual_sums_apply(Navq *navq, real *sums, int64_t rows);

#endif
