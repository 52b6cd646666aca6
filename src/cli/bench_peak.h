/* What this machine does at best, measured in the same run as whatever is compared with it: the rate of matrix products of the sizes that a
 * vision transformer has, and the rate of memory beyond the caches. */
#ifndef CLI_BENCH_PEAK_H
#define CLI_BENCH_PEAK_H
#include "base/status.h"
#include <jansson.h>

typedef enum PeakNumbers { PEAK_F32, PEAK_BF16, PEAK_INT8, PEAK_NUMBERS } PeakNumbers;

typedef struct PeakRate {
  double one, all; /* on the calling thread alone; on the whole pool */
} PeakRate;

typedef struct BenchPeak {
  PeakRate products[PEAK_NUMBERS]; /* FLOP/s, a multiply-add counts as two; 0: there are no such products here */
  PeakRate read, copy;             /* bytes/s; a copied byte counts twice, as it is read and written */
} BenchPeak;

/* Raises the rates of products to the best of some runs: measure before and after a benchmark, as a shared machine changes its speed. */
Status bench_peak_measure(BenchPeak *peak);
/* Likewise of memory, for which 256 MiB are touched and given back; memory_peak (base/memory.h) starts anew, so call it first. */
Status bench_peak_memory(BenchPeak *peak);

/* The larger of `one` and `all`; that of float where there are no such products, since they run as float then. */
double bench_peak_products(const BenchPeak *peak, PeakNumbers numbers);
const char *bench_peak_numbers_name(PeakNumbers numbers); /* "fp32" */

/* The head of a table: threads, kernels, peak rates; two lines that begin with "machine:" and "memory:". */
void bench_peak_print(const BenchPeak *peak);
/* The same as members of a JSON object: threads, kernels, blas, peak_gflops... */
void bench_peak_json(const BenchPeak *peak, json_t *object);

#endif
