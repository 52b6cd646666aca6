/* Exponential moving averages of cluster sizes and sums (van den Oord et al., 2017, appendix A.1), which move the codewords:
 *   n <- g n + (1 - g) c;  m <- g m + (1 - g) sum x;  e = m / n~,  n~ = (n + s) / (sum n + K s) sum n   (Laplace smoothing)
 * Start: m = e n. A codeword whose n falls below `dead_below` is revived: set to a random sample of the batch, with n and m reset together.
 */
#ifndef VQ_EMA_H
#define VQ_EMA_H
#include "vq/codebook.h"

typedef struct CodebookEma {
  real *sizes; /* [G, K] n */
  real *sums;  /* [G, K, W/G] m */
  int64_t groups, entries, width;
} CodebookEma;

typedef struct EmaOptions {
  double decay;      /* gamma, 0.99 */
  double smoothing;  /* s, 1e-5 */
  double dead_below; /* 0: never revive. In units of the mean cluster size of a batch (rows / K) */
} EmaOptions;

Status ema_init(CodebookEma *ema, const Codebook *book, double start_size); /* n = start_size everywhere, m = e n */
void ema_release(CodebookEma *ema);

/* One batch x [rows, W] with its codes [rows, G]; updates ema, then book (and its half norms). Returns how many codewords were revived.
 * Over the pool (groups shared out); the result does not depend on the thread count. */
int64_t ema_update(CodebookEma *ema, Codebook *book, const real *x, const int32_t *codes, int64_t rows, const EmaOptions *options,
                   Rng *rng);

#endif
