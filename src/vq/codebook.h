/* Grouped codebooks (paper section 2, Grouped VQ): a vector of width W is cut into G equal groups, each with its own K codewords.
 * One set per quantisation site of a model. */
#ifndef VQ_CODEBOOK_H
#define VQ_CODEBOOK_H
#include "autograd/narrow.h"
#include "autograd/real.h"
#include "base/rng.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CODEBOOK_MIN = 2, CODEBOOK_MAX = 65536 };

typedef struct Codebook {
  int64_t groups, entries, width; /* G, K, W; G divides W */
  real *codewords;                /* [G, K, W/G]; NULL where they are numbers of 16 bits, which are never changed: */
  const uint16_t *narrow;         /* [G, K, W/G], borrowed */
  NarrowKind kind;                /* of narrow */
  real *half_norms;               /* [G, K] |e|^2 / 2, kept by codebook_refresh */
  bool owns;                      /* codewords were allocated here */
} Codebook;

/* Allocates codewords (or borrows them when not NULL) and half norms. BAD_VALUE names what is out of range. */
Status codebook_init(Codebook *book, int64_t groups, int64_t entries, int64_t width, real *codewords);
/* Borrows codewords of 16 bits. Nearest codewords and what is looked up are those of the same numbers as reals, bit for bit (in groups
 * wider than NEAREST_MAX_WIDTH except ties within rounding). */
Status codebook_init_narrow(Codebook *book, int64_t groups, int64_t entries, int64_t width, NarrowKind kind, const uint16_t *codewords);
void codebook_release(Codebook *book);
void codebook_refresh(Codebook *book); /* after the codewords changed */

/* Entropy-constrained assignment (Chou, Lookabaugh and Gray, 1989): from now on, until codebook_refresh, the nearest codeword of x is that
 * with the least |x - e_k|^2 + weight m b_k, where b_k = 16 - log2 f_k bits are what code k costs by its group's frequencies f [G, K]
 * (rans.h), and m is the mean of |e_k|^2 by them. half_norms then has half of the cost besides. */
void codebook_constrain(Codebook *book, const uint16_t *frequencies, double weight);

/* Nearest codeword of each group: x [rows, W] -> codes [rows, G], as a matrix product over tiles; ties to the lowest index.
 * distortion (may be NULL) receives the sum over rows of |x - q|^2, computed from the differences, so it is never negative. Over the pool;
 * the result does not depend on the thread count. Many rows are searched in 8 bits where the processor supports it (nearest_packed.h): with
 * the same result for groups of up to NEAREST_MAX_WIDTH numbers, and but for near ties, within rounding, for wider ones. Allocates nothing:
 * `scratch` must hold codebook_assign_scratch(book, max_rows) bytes for calls of up to max_rows rows, asked for after threads_start, and be
 * aligned to 8 bytes. */
size_t codebook_assign_scratch(const Codebook *book, int64_t max_rows);
void codebook_assign(const Codebook *book, const real *x, int64_t rows, int32_t *codes, double *distortion, void *scratch);

/* Codewords [first, first + count) of all G K, as reals: out [count, W/G]. */
void codebook_words(const Codebook *book, int64_t first, int64_t count, real *out);

/* codes [rows, G] -> out [rows, W]. Codes must be in [0, K). */
void codebook_lookup(const Codebook *book, const int32_t *codes, int64_t rows, real *out);

/* How a codebook is used: counts of each code, and what follows from them. */

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
