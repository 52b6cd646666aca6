/* Inside of K-means, its tests and its benchmark only: one iteration. */
#ifndef VQ_KMEANS_INTERNAL_H
#define VQ_KMEANS_INTERNAL_H
#include "vq/kmeans.h"

typedef struct KmeansStep {
  Codebook *book;
  int64_t *sizes;   /* [G, K] samples of each centre */
  double *sums;     /* [G, K, W/G] their sums */
  void *candidates; /* room to sort max_rows samples by distance */
  int64_t max_rows;
} KmeansStep;

Status kmeans_step_init(KmeansStep *step, Codebook *book, int64_t max_rows);
void kmeans_step_release(KmeansStep *step);
void kmeans_step_clear(KmeansStep *step); /* forgets sizes and sums */

/* Adds x [rows, W] with codes [rows, G] to sizes and sums (so clear first for a Lloyd iteration), moves empty centres, if `repair`, to
 * the samples farthest from theirs (changing those codes), and sets every centre that has samples to their mean. Returns how many were
 * moved. The result does not depend on the thread count. */
int64_t kmeans_step_move(KmeansStep *step, const real *x, int32_t *codes, int64_t rows, bool repair);

#endif
