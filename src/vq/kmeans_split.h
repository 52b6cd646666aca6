/* Where K-means' centres start, by splitting (Linde, Buzo and Gray, 1980): from the mean of all samples, the wider half of
 * the clusters get a second centre, both on a line through the old one and a random sample, and a few iterations settle them, until there
 * are K. In groups as wide as a token a centre that is a sample lies about sqrt 2 times as far from others as one that is a mean, so that
 * few samples ever choose it. docs/results/cifar100-recipe.md has how many codewords are unused after either start. */
#ifndef VQ_KMEANS_SPLIT_H
#define VQ_KMEANS_SPLIT_H
#include "vq/codebook.h"

/* samples [count, W] -> the book's codewords; call codebook_refresh then. A function of samples, seed and restart, not of the thread count.
 * Allocates kmeans_split_bytes and frees them; NO_MEMORY. */
Status kmeans_split(Codebook *book, const real *samples, int64_t count, uint64_t seed, int restart);

/* For a book's shape (codewords are not read): peak bytes, and the FLOPs of its matrix products. */
size_t kmeans_split_bytes(const Codebook *book, int64_t count);
double kmeans_split_flops(const Codebook *book, int64_t count);

#endif
