/* One movement of K-means' centres to the means of their samples: the half of an iteration that follows codebook_assign. */
#ifndef VQ_KMEANS_STEP_H
#define VQ_KMEANS_STEP_H
#include "vq/codebook.h"

typedef struct KmeansCandidate {
  double distance; /* of a sample to its centre, squared */
  int64_t row;
} KmeansCandidate;

typedef struct KmeansStep {
  Codebook *book;              /* borrowed; may be changed to one of fewer entries */
  int64_t *sizes;              /* [G, K] samples of each centre */
  double *sums;                /* [G, K, W/G] their sums */
  KmeansCandidate *candidates; /* [max_rows] room to sort samples by distance */
} KmeansStep;

/* Allocates for steps of up to max_rows rows; NO_MEMORY leaves nothing behind. Release it. */
Status kmeans_step_init(KmeansStep *step, Codebook *book, int64_t max_rows);
void kmeans_step_release(KmeansStep *step);

void kmeans_step_clear(KmeansStep *step); /* sizes and sums are zero: before each iteration of Lloyd */

/* Adds x [rows, W] with codes [rows, G] to sizes and sums, moves empty centres, if `repair`, to the samples farthest from theirs (changing
 * those codes), and sets every centre that has samples to their mean, summed in double. Returns how many were moved. The result does not
 * depend on the thread count. */
int64_t kmeans_step_move(KmeansStep *step, const real *x, int32_t *codes, int64_t rows, bool repair);

/* Squared distance of two short vectors, summed in double: for distortions, where |x|^2 - 2 x.e + |e|^2 would cancel. */
double kmeans_distance(int64_t n, const real *a /* [n] */, const real *b /* [n] */);

#endif
