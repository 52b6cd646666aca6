/* K-means for one site's codebook: each group is clustered by itself. Lloyd's iterations on matrix products, k-means++ or random start,
 * empty clusters repaired (moved to the samples farthest from their centres), several restarts (the best kept), early stop. */
#ifndef VQ_KMEANS_H
#define VQ_KMEANS_H
#include "vq/codebook.h"

typedef enum KmeansStart { KMEANS_PLUS_PLUS, KMEANS_RANDOM } KmeansStart;
typedef struct KmeansOptions {
  KmeansStart start;
  int iterations; /* most Lloyd iterations (or mini-batch steps) per restart */
  int restarts;
  double tolerance;  /* stop when the distortion falls by less than this part */
  int64_t minibatch; /* samples per step; 0: full batch */
  uint64_t seed;
  void (*report)(void *context, int restart, int iteration, double distortion); /* may be NULL */
  void *context;
} KmeansOptions;
typedef struct KmeansResult {
  double distortion; /* sum over samples of the squared distance to the nearest centre, all groups together */
  int iterations;    /* of the best restart */
  int64_t repaired;  /* empty clusters moved, all groups and iterations of the best restart */
} KmeansResult;

void kmeans_defaults(KmeansOptions *options); /* ++, 50, 1, 1e-4, 0, 42 */

/* samples [count, W] (W = book->width) -> book. K larger than count is BAD_VALUE and says both numbers. */
Status kmeans_fit(Codebook *book, const real *samples, int64_t count, const KmeansOptions *options, KmeansResult *result);

#endif
