/* How a codebook is used: counts of each code, and what follows from them. */
#ifndef VQ_USAGE_H
#define VQ_USAGE_H
#include "base/status.h"
#include <stdint.h>

typedef struct CodeUsage {
  int64_t groups, entries;
  int64_t *counts; /* [G, K] */
  int64_t rows;
  double distortion; /* sum over rows of |x - q|^2 */
} CodeUsage;

typedef struct UsageSummary {
  double used;         /* share of codes used at least once, mean over groups */
  double dead;         /* 1 - used */
  double perplexity;   /* exp(entropy), mean over groups */
  double entropy_bits; /* mean bits per code */
  double distortion;   /* mean per row */
} UsageSummary;

Status usage_init(CodeUsage *usage, int64_t groups, int64_t entries);
void usage_clear(CodeUsage *usage);
void usage_release(CodeUsage *usage);
void usage_add(CodeUsage *usage, const int32_t *codes, int64_t rows, double distortion);
UsageSummary usage_summary(const CodeUsage *usage);

#endif
