/* Noise-augmented quantisation (paper section 3.3): in training X~ = X^ + lambda xi, xi ~ N(mu, Sigma), where mu and Sigma are the moving
 * mean and covariance of the residual X - X^, per group: full [W/G, W/G] or diagonal. Sampling multiplies standard normal numbers with the
 * Cholesky factor of Sigma (+ a small ridge), refreshed every `refresh` updates. */
#ifndef VQ_NAVQ_H
#define VQ_NAVQ_H
#include "autograd/real.h"
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum NoiseCovariance { NOISE_FULL, NOISE_DIAGONAL } NoiseCovariance;

typedef struct Navq {
  int64_t groups, width; /* G, W */
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

/* Moments of the residual x - q, [rows, W] each. The first update sets them, later ones average. scratch: navq_scratch bytes. */
size_t navq_scratch(const Navq *navq, int64_t rows);
void navq_update(Navq *navq, const real *x, const real *q, int64_t rows, void *scratch);

/* noise [rows, W] = scale xi; a function of (seed, counter) and the moments alone, whatever the thread count. Zero before the first update.
 */
void navq_sample(const Navq *navq, double scale, uint64_t seed, uint64_t counter, int64_t rows, real *noise, void *scratch);

void navq_factorise(Navq *navq); /* after loading moments */

#endif
