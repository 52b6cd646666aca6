/* K-means for one site's codebook: each group is clustered by itself. Lloyd's iterations on matrix products, k-means++ or random start,
 * empty clusters repaired (moved to the samples farthest from their centres), several restarts (the best kept, of each group by itself),
 * an end when nothing falls any more. The result is a function of samples, options and seed, not of the thread count.
 *
 * Mini-batch (Sculley, 2010): a step assigns `minibatch` random samples and moves each centre to the mean of all samples it was ever given,
 * which is the learning rate 1 / n of each centre. It stops when the mean distortion of ten steps does not fall for twice in a row.
 * Greedy k-means++ (by default) ends 1 to 3% lower than plain k-means++ on embeddings, at K = 1,024, and where scikit-learn's KMeans
 * does. Both draw from about 16 K samples (at least 16,384, at most 65,536; fewer, down to 4 K, where the groups are so wide that these
 * would leave the cache), one of each equal stretch of the whole.
 * Samples with fewer than K distinct values leave the spare centres where they are. */
#ifndef VQ_KMEANS_H
#define VQ_KMEANS_H
#include "vq/codebook.h"

typedef enum KmeansStart { KMEANS_GREEDY, KMEANS_PLUS_PLUS, KMEANS_RANDOM } KmeansStart;
typedef struct KmeansOptions {
  KmeansStart start;
  int iterations; /* most Lloyd iterations (or mini-batch steps) per restart */
  int restarts;
  double tolerance;  /* converged when an iteration takes no more than this part off the distortion; 0: when it takes off nothing */
  int64_t minibatch; /* samples per step; 0: full batch */
  uint64_t seed;
  /* May be NULL. After each iteration, from 1; iteration 0 tells of the start (full batch). Mini-batch: of that batch, scaled to all. */
  void (*report)(void *context, int restart, int iteration, double distortion);
  void *context;
} KmeansOptions;
typedef struct KmeansResult {
  double distortion; /* sum over samples of the squared distance to the nearest centre, all groups together */
  int iterations;    /* of the restart with the lowest distortion of all groups together */
  bool converged;    /* that restart: ended by the tolerance, not by the number of iterations */
  int64_t repaired;  /* empty clusters moved in that restart, all groups and iterations */
} KmeansResult;

void kmeans_defaults(KmeansOptions *options); /* greedy, 50, 1, 0, 0, 42 */

/* samples [count, W] (W = book->width) -> book. K larger than count is BAD_VALUE and says both numbers; a sample that is
 * not finite is NUMERIC. Allocates its workspace (mainly codes [count, G]) and frees it. */
Status kmeans_fit(Codebook *book, const real *samples, int64_t count, const KmeansOptions *options, KmeansResult *result);

/* Of a book's shape (codewords are not read): bytes of that workspace at its largest, and the FLOPs of matrix products that take about as
 * long, if no iteration is saved. */
size_t kmeans_bytes(const Codebook *book, int64_t count, const KmeansOptions *options);
double kmeans_flops(const Codebook *book, int64_t count, const KmeansOptions *options);

#endif
