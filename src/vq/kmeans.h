/* K-means for the codebook of one site; each group is clustered independently. Lloyd iterations on matrix products, initialised with
 * k-means++, random samples or splitting (kmeans_split.h); empty clusters are repaired (moved to the samples farthest from their centres);
 * of several restarts the best is kept for each group; iteration stops when the distortion no longer falls. The result is a function of
 * samples, options and seed, not of the thread count.
 *
 * Mini-batch (Sculley, 2010): a step assigns `minibatch` random samples and moves each centre to the mean of all samples ever assigned to
 * it, which is a learning rate of 1 / n per centre. It stops when the mean distortion over ten steps has failed to fall twice in a row.
 * Greedy k-means++ ends 1 to 3% lower than plain k-means++ on embeddings, at K = 1,024, like scikit-learn's KMeans; trainings and
 * astra-kmeans begin with splitting unless told otherwise. Both kinds of k-means++ draw from about 16 K samples (at least 16,384, at most
 * 65,536; fewer, down to 4 K, where the groups are so wide that these would leave the cache), one from each of equally long stretches of
 * the data. With fewer than K distinct samples the spare centres do not move. */
#ifndef VQ_KMEANS_H
#define VQ_KMEANS_H
#include "vq/codebook.h"

typedef enum KmeansStart { KMEANS_GREEDY, KMEANS_PLUS_PLUS, KMEANS_RANDOM, KMEANS_SPLIT } KmeansStart;
typedef struct KmeansOptions {
  KmeansStart start;
  int iterations; /* maximum number of Lloyd iterations (or mini-batch steps) per restart */
  int restarts;
  double tolerance;  /* converged when an iteration lowers the distortion by no more than this fraction; 0: when it does not lower it */
  int64_t minibatch; /* samples per step; 0: full batch */
  uint64_t seed;
  /* May be NULL. Called after each iteration, from 1; iteration 0 is the initialisation (full batch). Mini-batch: distortion of that batch,
   * scaled to all samples. */
  void (*report)(void *context, int restart, int iteration, double distortion);
  void *context;
} KmeansOptions;
typedef struct KmeansResult {
  double distortion; /* sum over samples of the squared distance to the nearest centre, all groups together */
  int iterations;    /* of the restart with the lowest distortion of all groups together */
  bool converged;    /* that restart ended by the tolerance, not by the number of iterations */
  int64_t repaired;  /* empty clusters moved in that restart, all groups and iterations */
} KmeansResult;

void kmeans_defaults(KmeansOptions *options); /* greedy, 50, 1, 0, 0, 42; not those of the programs (train/session.c) */

/* samples [count, W] (W = book->width) -> book. K larger than count is BAD_VALUE and says both numbers; a sample that is
 * not finite is NUMERIC. Allocates its workspace (mainly codes [count, G]) and frees it. */
Status kmeans_fit(Codebook *book, const real *samples, int64_t count, const KmeansOptions *options, KmeansResult *result);

/* For a book's shape (codewords are not read): peak bytes of that workspace, and the FLOPs of matrix products that take about as long when
 * all iterations run. */
size_t kmeans_bytes(const Codebook *book, int64_t count, const KmeansOptions *options);
double kmeans_flops(const Codebook *book, int64_t count, const KmeansOptions *options);

#endif
