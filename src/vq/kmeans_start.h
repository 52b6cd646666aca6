/* Where K-means starts from: K centres in each group, drawn from the samples. */
#ifndef VQ_KMEANS_START_H
#define VQ_KMEANS_START_H
#include "vq/kmeans.h"

/* samples [count, W] -> book (and its half norms); count >= K. A function of (seed, restart) whatever the thread count. */
Status kmeans_start(Codebook *book, const real *samples, int64_t count, KmeansStart how, uint64_t seed, int restart);

size_t kmeans_start_bytes(const Codebook *book, int64_t count, KmeansStart how); /* of memory that it takes while it runs */
double kmeans_start_flops(const Codebook *book, int64_t count, KmeansStart how); /* of distances, which are no matrix product */

#endif
