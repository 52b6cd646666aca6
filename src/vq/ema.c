/* Moving averages that move the codewords. codebook.c assigns codes; the caller decides the order within a step (assign, loss, EMA,
 * revive).
 *
 * Three passes: sums and counts (divided by group and slice of its width, every item walks the rows in order), codewords (divided by
 * codeword), revival (on the caller's thread, in order of index, so that the random numbers are drawn in the same order each time). */
#include "vq/ema.h"
#include "autograd/kernels/kernels.h"
#include "base/threads.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SLICE = 64, BLOCK_ROWS = 256, CODEWORD_GRAIN = 64 };

/* A cluster of this size counts as empty, long before its sums become slow denormal numbers. */
static const double FADED = 1e-30;

typedef struct EmaJob {
  CodebookEma *ema;
  Codebook *book;
  const real *x;        /* [rows, W] */
  const int32_t *codes; /* [rows, G] */
  int64_t rows;
  const EmaOptions *options;
} EmaJob;

Status ema_init(CodebookEma *ema, const Codebook *book, double start_size) {
  *ema = (CodebookEma){.groups = book->groups, .entries = book->entries, .width = book->width};
  size_t clusters = (size_t)(book->groups * book->entries), numbers = (size_t)(book->entries * book->width);
  ema->sizes = malloc(clusters * sizeof *ema->sizes);
  ema->sums = malloc(numbers * sizeof *ema->sums);
  ema->counts = calloc(clusters, sizeof *ema->counts);
  ema->totals = malloc((size_t)book->groups * sizeof *ema->totals);
  if (!ema->sizes || !ema->sums || !ema->counts || !ema->totals) {
    ema_release(ema);
    return status_set(STATUS_NO_MEMORY, "no memory for the moving averages of %" PRId64 " x %" PRId64 " codewords", book->groups,
                      book->entries);
  }
  for (size_t i = 0; i < clusters; i++) ema->sizes[i] = (real)start_size;
  for (size_t i = 0; i < numbers; i++) ema->sums[i] = book->codewords[i] * (real)start_size;
  for (int64_t g = 0; g < book->groups; g++) ema->totals[g] = start_size * (double)book->entries;
  return STATUS_OK;
}

void ema_release(CodebookEma *ema) {
  free(ema->sizes);
  free(ema->sums);
  free(ema->counts);
  free(ema->totals);
  memset(ema, 0, sizeof *ema);
}

/* ---- sums and counts ---- */

static int64_t slices_of(int64_t d) { return (d + SLICE - 1) / SLICE; }

/* Dimensions [from, from + width) of group g: m <- g m. */
static void decay_slice(const EmaJob *job, int64_t g, int64_t from, int64_t width) {
  int64_t d = job->book->width / job->book->groups, k = job->book->entries;
  for (int64_t i = g * k; i < (g + 1) * k; i++) {
    real *sums = job->ema->sums + i * d + from;
    real decay = (double)job->ema->sizes[i] < FADED ? 0 : (real)job->options->decay;
    for (int64_t j = 0; j < width; j++) sums[j] *= decay;
  }
}

/* c, and m <- g m + (1 - g) sum x. Every item processes a block of rows while it is in the cache: a cache line holds several small groups.
 */
static void sum_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const EmaJob *job = context;
  const Codebook *book = job->book;
  const int64_t groups = book->groups, k = book->entries, d = book->width / groups, slices = slices_of(d);
  const real gain = 1 - (real)job->options->decay; /* of the rounded one: else sums shrink or grow with each step */
  for (int64_t first = 0; first < job->rows; first += BLOCK_ROWS) {
    int64_t rows = job->rows - first < BLOCK_ROWS ? job->rows - first : BLOCK_ROWS;
    for (int64_t item = begin; item < end; item++) {
      int64_t g = item / slices, from = item % slices * SLICE, width = d - from < SLICE ? d - from : SLICE;
      int32_t *counts = job->ema->counts + g * k;
      const int32_t *codes = job->codes + first * groups + g;
      if (first == 0) decay_slice(job, g, from, width);
      if (first == 0 && from == 0) memset(counts, 0, (size_t)k * sizeof *counts);
      for (int64_t r = 0; from == 0 && r < rows; r++) counts[codes[r * groups]]++;
      const WordList words = {rows, width, d, NULL, 0, codes, groups};
      kernels()->words_add(&words, gain, job->x + first * book->width + g * d + from, book->width, job->ema->sums + g * k * d + from);
    }
  }
}

/* n <- g n + (1 - g) c, and its total of each group. */
static void update_sizes(const EmaJob *job) {
  CodebookEma *ema = job->ema;
  double decay = job->options->decay;
  for (int64_t g = 0; g < ema->groups; g++) {
    ema->totals[g] = 0;
    for (int64_t i = g * ema->entries; i < (g + 1) * ema->entries; i++) {
      double size = decay * (double)ema->sizes[i] + (1 - decay) * ema->counts[i];
      ema->sizes[i] = size < FADED ? 0 : (real)size;
      ema->totals[g] += (double)ema->sizes[i];
    }
  }
}

/* ---- codewords ---- */

static void codeword_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const EmaJob *job = context;
  const CodebookEma *ema = job->ema;
  int64_t d = ema->width / ema->groups;
  double s = job->options->smoothing;
  for (int64_t i = begin; i < end; i++) {
    double total = ema->totals[i / ema->entries];
    double smoothed = ((double)ema->sizes[i] + s) / (total + (double)ema->entries * s) * total;
    if (!(smoothed > 0))
      continue; /* no smoothing and an empty cluster: the codeword does not move. With it one ends at 0, unless revived */
    real factor = (real)(1 / smoothed);
    for (int64_t j = 0; j < d; j++) job->book->codewords[i * d + j] = ema->sums[i * d + j] * factor;
  }
}

bool ema_is_dead(const CodebookEma *ema, int64_t codeword, double mean_size, const EmaOptions *options) {
  return (double)ema->sizes[codeword] < options->dead_below * mean_size;
}

void ema_revive(CodebookEma *ema, Codebook *book, int64_t codeword, const real *sample, double mean_size) {
  int64_t d = ema->width / ema->groups;
  ema->sizes[codeword] = (real)mean_size;
  for (int64_t j = 0; j < d; j++) {
    book->codewords[codeword * d + j] = sample[j];
    ema->sums[codeword * d + j] = sample[j] * ema->sizes[codeword];
  }
}

int64_t ema_update(CodebookEma *ema, Codebook *book, const real *x, const int32_t *codes, int64_t rows, const EmaOptions *options,
                   Rng *rng) {
  if (rows <= 0) return 0;
  EmaJob job = {ema, book, x, codes, rows, options};
  threads_for(ema->groups * slices_of(ema->width / ema->groups), 1, sum_range, &job);
  update_sizes(&job);
  threads_for(ema->groups * ema->entries, CODEWORD_GRAIN, codeword_range, &job);
  int64_t revived = 0;
  const double mean_size = (double)rows / (double)ema->entries;
  for (int64_t i = 0; options->dead_below > 0 && i < ema->groups * ema->entries; i++) {
    if (!ema_is_dead(ema, i, mean_size, options)) continue;
    const int64_t row = (int64_t)rng_below(rng, (uint64_t)rows);
    ema_revive(ema, book, i, x + row * ema->width + i / ema->entries * (ema->width / ema->groups), mean_size);
    revived++;
  }
  codebook_refresh(book);
  return revived;
}

/* ---- the same in parts ---- */

void ema_sum_share(CodebookEma *batch, Codebook *book, const real *x, const int32_t *codes, int64_t rows) {
  EmaJob job = {batch, book, x, codes, rows, &(EmaOptions){.decay = 0}}; /* a gain of 1 */
  memset(batch->counts, 0, (size_t)(batch->groups * batch->entries) * sizeof *batch->counts);
  memset(batch->sums, 0, (size_t)(batch->entries * batch->width) * sizeof *batch->sums);
  threads_for(batch->groups * slices_of(batch->width / batch->groups), 1, sum_range, &job);
}

typedef struct BlendJob {
  CodebookEma *ema;
  const real *sums;
  real decay;
} BlendJob;

static void blend_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const BlendJob *job = context;
  int64_t d = job->ema->width / job->ema->groups;
  for (int64_t i = begin; i < end; i++) {
    real keep = (double)job->ema->sizes[i] < FADED ? 0 : job->decay;
    for (int64_t j = i * d; j < (i + 1) * d; j++) job->ema->sums[j] = keep * job->ema->sums[j] + (1 - job->decay) * job->sums[j];
  }
}

void ema_apply(CodebookEma *ema, Codebook *book, const real *sums, const EmaOptions *options) {
  EmaJob job = {.ema = ema, .book = book, .options = options};
  threads_for(ema->groups * ema->entries, CODEWORD_GRAIN, blend_range, &(BlendJob){ema, sums, (real)options->decay});
  update_sizes(&job);
  threads_for(ema->groups * ema->entries, CODEWORD_GRAIN, codeword_range, &job);
}
