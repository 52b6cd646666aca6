/* Exponential moving averages of cluster sizes and sums (van den Oord et al., 2017, appendix A.1), which move the codewords:
 *   n <- g n + (1 - g) c;  m <- g m + (1 - g) sum x;  e = m / n~,  n~ = (n + s) / (sum n + K s) sum n   (Laplace smoothing)
 * Initially m = e n. A codeword whose n falls below dead_below rows / K is revived: e becomes a random sample of the batch, n the mean
 * cluster size of the batch (rows / K), and m = e n. */
#ifndef VQ_EMA_H
#define VQ_EMA_H
#include "vq/codebook.h"
#include <stdbool.h>

typedef struct CodebookEma {
  real *sizes; /* [G, K] n */
  real *sums;  /* [G, K, W/G] m */
  int64_t groups, entries, width;
  int32_t *counts; /* [G, K] c of the last batch */
  double *totals;  /* [G] sum of n, as of the last update */
} CodebookEma;

typedef struct EmaOptions {
  double decay;      /* gamma, 0.99 */
  double smoothing;  /* s, 1e-5 */
  double dead_below; /* 0: never revive. In units of the mean cluster size of a batch (rows / K) */
} EmaOptions;

Status ema_init(CodebookEma *ema, const Codebook *book, double start_size); /* n = start_size everywhere, m = e n */
void ema_release(CodebookEma *ema);

/* One batch x [rows, W] with its codes [rows, G]; updates ema, then book (and its half norms). Returns the number of revived codewords.
 * Runs on the pool (over groups and slices of their width); the result does not depend on the thread count; allocates nothing. rng may
 * be NULL where dead_below is 0. */
int64_t ema_update(CodebookEma *ema, Codebook *book, const real *x, const int32_t *codes, int64_t rows, const EmaOptions *options,
                   Rng *rng);

/* The same in steps, for a batch that is shared out over several processes; their sums are added up in between.
 *   1. sums of this share: overwrites batch->counts and batch->sums; zero for no rows
 *   2. with the counts of the whole batch in ema->counts: sizes, sums and codewords move; sums [G, K, W/G] of the whole batch
 *   3. dead codewords, for the mean cluster size of the whole batch (rows / K), each from a sample [W/G]; then codebook_refresh */
void ema_sum_share(CodebookEma *batch, Codebook *book, const real *x, const int32_t *codes, int64_t rows);
void ema_apply(CodebookEma *ema, Codebook *book, const real *sums, const EmaOptions *options);
bool ema_is_dead(const CodebookEma *ema, int64_t codeword, double mean_size, const EmaOptions *options);
void ema_revive(CodebookEma *ema, Codebook *book, int64_t codeword, const real *sample, double mean_size);

#endif
