/* Points for the tests of src/vq: random ones, clustered ones, and the public clustering sets where they are at hand. */
#ifndef TESTS_VQ_POINTS_H
#define TESTS_VQ_POINTS_H
#include "autograd/real.h"
#include "base/rng.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static inline real *points_normal(int64_t count, uint64_t stream) {
  real *x = malloc((size_t)count * sizeof *x);
  Rng rng;
  rng_init(&rng, 7, stream);
  for (int64_t i = 0; i < count; i++) x[i] = (real)rng_normal(&rng);
  return x;
}

/* [rows, width]: clusters of deviation 0.1 around `centres` points of deviation 1. */
static inline real *points_clustered(int64_t rows, int64_t width, int64_t centres, uint64_t stream) {
  real *means = points_normal(centres * width, stream), *x = points_normal(rows * width, stream + 1);
  Rng rng;
  rng_init(&rng, 8, stream);
  for (int64_t r = 0; r < rows; r++) {
    int64_t at = (int64_t)rng_below(&rng, (uint64_t)centres);
    for (int64_t j = 0; j < width; j++) x[r * width + j] = means[at * width + j] + (real)0.1 * x[r * width + j];
  }
  free(means);
  return x;
}

/* A clustering set: first line "N D 0", then a point a line. NULL, with a line that says why, where it is absent. */
static inline real *points_load(const char *name, int64_t *rows, int64_t *width) {
  const char *shared = getenv("ASTRA_SHARED");
  char path[512];
  snprintf(path, sizeof path, "%s/data/clustering/%s.txt", shared ? shared : "../shared", name);
  FILE *file = fopen(path, "r");
  if (!file) {
    printf("skipped: %s is not there (set ASTRA_SHARED to the folder that holds data/)\n", path);
    return NULL;
  }
  long long n = 0, d = 0, zero = 0;
  if (fscanf(file, "%lld %lld %lld", &n, &d, &zero) != 3 || n < 1 || d < 1 || n * d >= 10000000) fail_msg("%s: no N D 0 at its head", path);
  real *x = malloc((size_t)(n * d) * sizeof *x);
  assert_non_null(x);
  for (long long i = 0; i < n * d; i++) {
    double value;
    if (fscanf(file, "%lf", &value) != 1) fail_msg("%s: ends after %lld of %lld numbers", path, i, n * d);
    x[i] = (real)value;
  }
  fclose(file);
  *rows = n;
  *width = d;
  return x;
}

#endif
