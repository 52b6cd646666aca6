/* See kmeans_step.h. Each item (a group and a slice of its width) walks the rows in order. */
#include "vq/kmeans_step.h"
#include "autograd/kernels/kernels.h"
#include "base/threads.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_SLICE = 16, MAX_SLICE = 64, CENTRE_GRAIN = 64, DISTANCE_GRAIN = 256 };

typedef struct MoveJob {
  KmeansStep *step;
  const real *x;  /* [rows, W] */
  int32_t *codes; /* [rows, G] */
  int64_t rows;
  int64_t group; /* being repaired */
} MoveJob;

void kmeans_step_release(KmeansStep *step) {
  free(step->sizes);
  free(step->sums);
  free(step->candidates);
  memset(step, 0, sizeof *step);
}

Status kmeans_step_init(KmeansStep *step, Codebook *book, int64_t max_rows) {
  *step = (KmeansStep){.book = book};
  step->sizes = malloc((size_t)(book->groups * book->entries) * sizeof *step->sizes);
  step->sums = malloc((size_t)(book->entries * book->width) * sizeof *step->sums);
  step->candidates = malloc((size_t)max_rows * sizeof *step->candidates);
  if (step->sizes && step->sums && step->candidates) return STATUS_OK;
  kmeans_step_release(step);
  return status_set(STATUS_NO_MEMORY, "K-means: no memory for %" PRId64 " centres and %" PRId64 " samples", book->entries, max_rows);
}

void kmeans_step_clear(KmeansStep *step) {
  memset(step->sizes, 0, (size_t)(step->book->groups * step->book->entries) * sizeof *step->sizes);
  memset(step->sums, 0, (size_t)(step->book->entries * step->book->width) * sizeof *step->sums);
}

/* ---- sums */

/* Numbers of a slice of a group's width: for all threads to have one, and few enough for its sums to stay in the second-level cache. No sum
 * depends on it. */
static int64_t slice_of(const Codebook *book) {
  int64_t d = book->width / book->groups, share = (d / threads_count() + MIN_SLICE - 1) / MIN_SLICE * MIN_SLICE;
  if (book->groups >= threads_count() || share > MAX_SLICE) return MAX_SLICE;
  return share < MIN_SLICE ? MIN_SLICE : share;
}

static int64_t slices_of(const Codebook *book) { return (book->width / book->groups + slice_of(book) - 1) / slice_of(book); }

static void sum_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const MoveJob *job = context;
  const Codebook *book = job->step->book;
  int64_t d = book->width / book->groups, slices = slices_of(book), slice = slice_of(book);
  for (int64_t item = begin; item < end; item++) {
    int64_t g = item / slices, from = item % slices * slice, to = d - from < slice ? d : from + slice;
    const int32_t *codes = job->codes + g;
    int64_t *sizes = job->step->sizes + g * book->entries;
    const WordList words = {job->rows, to - from, d, NULL, 0, codes, book->groups};
    kernels()->words_sum(&words, job->x + g * d + from, book->width, job->step->sums + g * book->entries * d + from);
    for (int64_t r = 0; from == 0 && r < job->rows; r++) sizes[codes[r * book->groups]]++;
  }
}

static void centre_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const KmeansStep *step = context;
  int64_t d = step->book->width / step->book->groups;
  for (int64_t i = begin; i < end; i++) {
    if (step->sizes[i] == 0) continue;
    for (int64_t j = 0; j < d; j++) step->book->codewords[i * d + j] = (real)(step->sums[i * d + j] / (double)step->sizes[i]);
  }
}

/* ---- repair */

/* O(n) beside the O(n K) of the products that find the nearest codeword, so it needs no kernel of its own. */
double kmeans_distance(int64_t n, const real *a /* [n] */, const real *b /* [n] */) {
  double lane[4] = {0, 0, 0, 0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int j = 0; j < 4; j++) {
      double difference = (double)a[i + j] - (double)b[i + j];
      lane[j] += difference * difference;
    }
  for (; i < n; i++) {
    double difference = (double)a[i] - (double)b[i];
    lane[0] += difference * difference;
  }
  return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

static void distance_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const MoveJob *job = context;
  const Codebook *book = job->step->book;
  KmeansCandidate *candidates = job->step->candidates;
  int64_t d = book->width / book->groups, g = job->group;
  for (int64_t r = begin; r < end; r++) {
    const real *centre = book->codewords + (g * book->entries + job->codes[r * book->groups + g]) * d;
    candidates[r] = (KmeansCandidate){kmeans_distance(d, job->x + r * book->width + g * d, centre), r};
  }
}

static int farther_first(const void *a, const void *b) {
  const KmeansCandidate *left = a, *right = b;
  if (left->distance != right->distance) return left->distance > right->distance ? -1 : 1;
  return left->row < right->row ? -1 : left->row > right->row;
}

/* Takes one sample from its cluster and makes it the only one of the empty cluster `empty` (an index into [G, K]). */
static void hand_over(const MoveJob *job, int64_t row, int64_t empty) {
  KmeansStep *step = job->step;
  const Codebook *book = step->book;
  int64_t d = book->width / book->groups, g = job->group;
  int32_t *code = job->codes + row * book->groups + g;
  int64_t donor = g * book->entries + *code;
  const real *x = job->x + row * book->width + g * d;
  for (int64_t j = 0; j < d; j++) {
    step->sums[donor * d + j] -= (double)x[j];
    step->sums[empty * d + j] = (double)x[j];
  }
  step->sizes[donor]--;
  step->sizes[empty] = 1;
  *code = (int32_t)(empty - g * book->entries);
}

/* A sample that lies on its centre, or is the only one there, cannot help: if no others are left, empty centres do not move. */
static int64_t repair_group(const MoveJob *job) {
  KmeansStep *step = job->step;
  const Codebook *book = step->book;
  KmeansCandidate *candidates = step->candidates;
  int64_t g = job->group, next = 0, moved = 0, empty = g * book->entries;
  while (empty < (g + 1) * book->entries && step->sizes[empty] != 0) empty++;
  if (empty == (g + 1) * book->entries) return 0;
  threads_for(job->rows, DISTANCE_GRAIN, distance_range, (void *)job);
  qsort(candidates, (size_t)job->rows, sizeof *candidates, farther_first);
  for (int64_t i = empty; i < (g + 1) * book->entries; i++) {
    if (step->sizes[i] != 0) continue;
    while (next < job->rows && step->sizes[g * book->entries + job->codes[candidates[next].row * book->groups + g]] < 2) next++;
    if (next == job->rows || !(candidates[next].distance > 0)) break;
    hand_over(job, candidates[next++].row, i);
    moved++;
  }
  return moved;
}

int64_t kmeans_step_move(KmeansStep *step, const real *x, int32_t *codes, int64_t rows, bool repair) {
  Codebook *book = step->book;
  MoveJob job = {.step = step, .x = x, .codes = codes, .rows = rows};
  threads_for(book->groups * slices_of(book), 1, sum_range, &job);
  int64_t moved = 0;
  for (job.group = 0; repair && job.group < book->groups; job.group++) moved += repair_group(&job);
  threads_for(book->groups * book->entries, CENTRE_GRAIN, centre_range, step);
  codebook_refresh(book);
  return moved;
}
