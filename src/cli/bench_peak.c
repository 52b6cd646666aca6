/* The best of some matrix products: see bench_peak.h. */
#include "cli/bench_peak.h"
#include "autograd/kernels/matmul.h"
#include "base/clock.h"
#include "base/threads.h"
#include <stdlib.h>

enum { MOST_NUMBERS = 1576 * 3072, RUNS = 2 };

/* A cube, and both products of the MLP of vit-base on 8 pictures. */
static const int64_t sizes[][3] = {{1024, 1024, 1024}, {1576, 3072, 768}, {1576, 768, 3072}};

static double rate(bool all, const int64_t *size, const real *a, const real *b, real *c) {
  int64_t m = size[0], n = size[1], k = size[2];
  double begun = clock_now();
  if (all)
    matmul(false, true, m, n, k, 1, a, k, b, k, 0, c, n);
  else
    matmul_single(false, true, m, n, k, 1, a, k, b, k, 0, c, n);
  return 2.0 * (double)m * (double)n * (double)k / (clock_now() - begun);
}

static void raise(double *best, double value) {
  if (value > *best) *best = value;
}

Status bench_peak_measure(BenchPeak *peak) {
  real *numbers = calloc((size_t)3 * MOST_NUMBERS, sizeof *numbers);
  if (numbers == NULL) return status_set(STATUS_NO_MEMORY, "no memory to measure matrix products");
  real *a = numbers, *b = a + MOST_NUMBERS, *c = b + MOST_NUMBERS;
  for (int64_t i = 0; i < MOST_NUMBERS; i++) a[i] = b[i] = (real)(i % 7 - 3);
  for (int run = 0; run < RUNS; run++)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
      raise(&peak->one, rate(false, sizes[s], a, b, c));
      raise(&peak->all, threads_count() > 1 ? rate(true, sizes[s], a, b, c) : peak->one);
    }
  free(numbers);
  return STATUS_OK;
}
