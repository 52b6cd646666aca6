/* K-means over all groups of a codebook at once: an iteration is one codebook_assign and one kmeans_step_move. Starts are in
 * kmeans_start.c; here are the movement of the centres, the iterations, when they end, and the choice among restarts. */
#include "vq/kmeans.h"
#include "autograd/kernels/kernels.h"
#include "base/threads.h"
#include "vq/codebook.h"
#include "vq/distance.h"
#include "vq/kmeans_internal.h"
#include "vq/kmeans_start.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- One iteration ---- */

/* One movement of all centres: the half of a K-means iteration that follows the assignment. */
/* Centres to the means of their samples. Sums are kept in double; each item (a group and a slice of its width) walks the rows in order. */

enum { MIN_SLICE = 16, MAX_SLICE = 64, CENTRE_GRAIN = 64, DISTANCE_GRAIN = 256 };

typedef struct Candidate {
  double distance; /* to its centre, squared */
  int64_t row;
} Candidate;

typedef struct MoveJob {
  KmeansStep *step;
  const real *x;  /* [rows, W] */
  int32_t *codes; /* [rows, G] */
  int64_t rows;
  int64_t group; /* being repaired */
} MoveJob;

Status kmeans_step_init(KmeansStep *step, Codebook *book, int64_t max_rows) {
  *step = (KmeansStep){.book = book, .max_rows = max_rows};
  step->sizes = malloc((size_t)(book->groups * book->entries) * sizeof *step->sizes);
  step->sums = malloc((size_t)(book->entries * book->width) * sizeof *step->sums);
  step->candidates = malloc((size_t)max_rows * sizeof(Candidate));
  if (step->sizes && step->sums && step->candidates) return STATUS_OK;
  kmeans_step_release(step);
  return status_set(STATUS_NO_MEMORY, "K-means: no memory for %" PRId64 " centres and %" PRId64 " samples", book->entries, max_rows);
}

/* that kmeans_step_init takes */
static size_t kmeans_step_bytes(const Codebook *book, int64_t max_rows) {
  return (size_t)(book->groups * book->entries) * sizeof(int64_t) + (size_t)(book->entries * book->width) * sizeof(double) +
         (size_t)max_rows * sizeof(Candidate);
}

void kmeans_step_release(KmeansStep *step) {
  free(step->sizes);
  free(step->sums);
  free(step->candidates);
  memset(step, 0, sizeof *step);
}

void kmeans_step_clear(KmeansStep *step) {
  memset(step->sizes, 0, (size_t)(step->book->groups * step->book->entries) * sizeof *step->sizes);
  memset(step->sums, 0, (size_t)(step->book->entries * step->book->width) * sizeof *step->sums);
}

/* ---- sums ---- */

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

/* ---- repair ---- */

static void distance_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const MoveJob *job = context;
  const Codebook *book = job->step->book;
  Candidate *candidates = job->step->candidates;
  int64_t d = book->width / book->groups, g = job->group;
  for (int64_t r = begin; r < end; r++) {
    const real *centre = book->codewords + (g * book->entries + job->codes[r * book->groups + g]) * d;
    candidates[r] = (Candidate){distance_squared(d, job->x + r * book->width + g * d, centre), r};
  }
}

static int farther_first(const void *a, const void *b) {
  const Candidate *left = a, *right = b;
  if (left->distance != right->distance) return left->distance > right->distance ? -1 : 1;
  return left->row < right->row ? -1 : left->row > right->row;
}

static bool has_empty(const KmeansStep *step, int64_t g) {
  for (int64_t i = g * step->book->entries; i < (g + 1) * step->book->entries; i++)
    if (step->sizes[i] == 0) return true;
  return false;
}

/* Takes one sample from its cluster and makes it all that the empty cluster `empty` (an index into [G, K]) has. */
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

/* A sample that lies on its centre, or is alone there, cannot help: where only such are left, empty centres stay where they are. */
static int64_t repair_group(const MoveJob *job) {
  KmeansStep *step = job->step;
  const Codebook *book = step->book;
  Candidate *candidates = step->candidates;
  int64_t g = job->group, next = 0, moved = 0;
  threads_for(job->rows, DISTANCE_GRAIN, distance_range, (void *)job);
  qsort(candidates, (size_t)job->rows, sizeof *candidates, farther_first);
  for (int64_t i = g * book->entries; i < (g + 1) * book->entries; i++) {
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
  for (job.group = 0; repair && job.group < book->groups; job.group++)
    if (has_empty(step, job.group)) moved += repair_group(&job);
  threads_for(book->groups * book->entries, CENTRE_GRAIN, centre_range, step);
  codebook_refresh(book);
  return moved;
}

/* ---- K-means ---- */

enum {
  WINDOW = 10,         /* mini-batch steps whose distortions are averaged before they are compared */
  PATIENCE = 2,        /* windows without a fall */
  REPAIR_AFTER = 10,   /* mini-batch samples per centre until a centre without any counts as empty */
  BATCH_STREAM = 2000, /* random numbers that choose mini-batches */
};

typedef struct Fit {
  Codebook *book;
  const real *samples; /* [count, W] */
  int64_t count;
  const KmeansOptions *options;
  KmeansStep step;
  int32_t *codes;   /* [count, G] */
  real *batch;      /* [minibatch, W], or NULL */
  void *scratch;    /* of codebook_assign */
  double *now;      /* [G] distortions of this restart */
  double *best;     /* [G] the lowest so far */
  real *best_words; /* [G, K, W/G] */
} Fit;

typedef struct Run {
  int iterations;
  bool converged;
  int64_t repaired;
} Run;

void kmeans_defaults(KmeansOptions *options) {
  *options = (KmeansOptions){.start = KMEANS_GREEDY, .iterations = 50, .restarts = 1, .tolerance = 0, .seed = 42};
}

/* ---- what is accepted ---- */

static Status check_options(const KmeansOptions *options) {
  if (options->iterations < 1) return status_set(STATUS_BAD_VALUE, "K-means: %d iterations; at least 1 is needed", options->iterations);
  if (options->restarts < 1) return status_set(STATUS_BAD_VALUE, "K-means: %d restarts; at least 1 is needed", options->restarts);
  if (!(options->tolerance >= 0)) return status_set(STATUS_BAD_VALUE, "K-means: tolerance %g is not 0 or more", options->tolerance);
  if (options->minibatch < 0)
    return status_set(STATUS_BAD_VALUE, "K-means: a mini-batch of %" PRId64 "; 0 means all samples", options->minibatch);
  if (options->start != KMEANS_GREEDY && options->start != KMEANS_PLUS_PLUS && options->start != KMEANS_RANDOM)
    return status_set(STATUS_BAD_VALUE, "K-means: start %d is neither greedy k-means++ nor k-means++ nor random", (int)options->start);
  return STATUS_OK;
}

static Status check_samples(const Codebook *book, const real *samples, int64_t count) {
  if (count < book->entries)
    return status_set(STATUS_BAD_VALUE,
                      "K-means: %" PRId64 " codewords cannot be found from %" PRId64 " samples; take more samples or a smaller codebook",
                      book->entries, count);
  for (int64_t i = 0; i < count * book->width; i++)
    if (!isfinite(samples[i]))
      return status_set(STATUS_NUMERIC, "K-means: sample %" PRId64 " holds %g at position %" PRId64, i / book->width, (double)samples[i],
                        i % book->width);
  return STATUS_OK;
}

/* ---- one restart ---- */

static void report(const Fit *fit, int restart, int iteration, double distortion) {
  if (fit->options->report) fit->options->report(fit->options->context, restart, iteration, distortion);
}

/* Lloyd: ends with codes of the present centres. */
static Run run_full(Fit *fit, int restart) {
  const KmeansOptions *options = fit->options;
  Run run = {0};
  double distortion;
  codebook_assign(fit->book, fit->samples, fit->count, fit->codes, &distortion, fit->scratch);
  report(fit, restart, 0, distortion);
  while (!run.converged && run.iterations < options->iterations) {
    double before = distortion;
    kmeans_step_clear(&fit->step);
    int64_t moved = kmeans_step_move(&fit->step, fit->samples, fit->codes, fit->count, true);
    codebook_assign(fit->book, fit->samples, fit->count, fit->codes, &distortion, fit->scratch);
    run.repaired += moved;
    report(fit, restart, ++run.iterations, distortion);
    run.converged = moved == 0 && before - distortion <= options->tolerance * before;
  }
  return run;
}

typedef struct Patience {
  double sum, best;
  int steps, misses;
} Patience;

/* Takes in one step's distortion; true when it is time to stop. */
static bool out_of_patience(Patience *patience, double distortion, double tolerance) {
  patience->sum += distortion;
  if (++patience->steps % WINDOW != 0) return false;
  double mean = patience->sum / WINDOW;
  bool fell = patience->steps == WINDOW || mean < patience->best * (1 - tolerance);
  patience->sum = 0;
  patience->misses = fell ? 0 : patience->misses + 1;
  if (fell) patience->best = mean;
  return patience->misses == PATIENCE;
}

static void draw_batch(Fit *fit, int64_t size, Rng *rng) {
  int64_t width = fit->book->width;
  for (int64_t i = 0; i < size; i++) {
    int64_t row = (int64_t)rng_below(rng, (uint64_t)fit->count);
    memcpy(fit->batch + i * width, fit->samples + row * width, (size_t)width * sizeof(real));
  }
}

/* Mini-batch: sizes and sums run through all steps, so that a centre is the mean of all that it was given. */
static Run run_minibatch(Fit *fit, int restart) {
  const KmeansOptions *options = fit->options;
  int64_t size = options->minibatch;
  Run run = {0};
  Patience patience = {0};
  Rng rng;
  rng_init(&rng, options->seed, BATCH_STREAM + (uint64_t)restart);
  kmeans_step_clear(&fit->step);
  while (!run.converged && run.iterations < options->iterations) {
    double distortion;
    draw_batch(fit, size, &rng);
    codebook_assign(fit->book, fit->batch, size, fit->codes, &distortion, fit->scratch);
    distortion *= (double)fit->count / (double)size;
    report(fit, restart, ++run.iterations, distortion);
    bool repair = run.iterations * size >= REPAIR_AFTER * fit->book->entries;
    run.repaired += kmeans_step_move(&fit->step, fit->batch, fit->codes, size, repair);
    run.converged = out_of_patience(&patience, distortion, options->tolerance);
  }
  codebook_assign(fit->book, fit->samples, fit->count, fit->codes, NULL, fit->scratch);
  return run;
}

/* ---- choice among restarts ---- */

static void measure_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Fit *fit = context;
  const Codebook *book = fit->book;
  int64_t d = book->width / book->groups;
  for (int64_t g = begin; g < end; g++) {
    fit->now[g] = 0;
    for (int64_t r = 0; r < fit->count; r++) {
      const real *centre = book->codewords + (g * book->entries + fit->codes[r * book->groups + g]) * d;
      fit->now[g] += distance_squared(d, fit->samples + r * book->width + g * d, centre);
    }
  }
}

/* Keeps the groups that are better than ever. Returns the distortion of this restart, all groups together. */
static double keep_best(Fit *fit) {
  const Codebook *book = fit->book;
  int64_t numbers = book->entries * book->width / book->groups; /* of one group */
  double sum = 0;
  threads_for(book->groups, 1, measure_range, fit);
  for (int64_t g = 0; g < book->groups; g++) {
    sum += fit->now[g];
    if (!(fit->now[g] < fit->best[g])) continue;
    fit->best[g] = fit->now[g];
    memcpy(fit->best_words + g * numbers, book->codewords + g * numbers, (size_t)numbers * sizeof(real));
  }
  return sum;
}

static Status run_restarts(Fit *fit, KmeansResult *result) {
  const KmeansOptions *options = fit->options;
  double lowest = INFINITY;
  *result = (KmeansResult){0};
  for (int restart = 0; restart < options->restarts; restart++) {
    TRY(kmeans_start(fit->book, fit->samples, fit->count, options->start, options->seed, restart));
    Run run = fit->batch ? run_minibatch(fit, restart) : run_full(fit, restart);
    double sum = keep_best(fit);
    if (!(sum < lowest) && restart > 0) continue;
    lowest = sum;
    result->iterations = run.iterations;
    result->converged = run.converged;
    result->repaired = run.repaired;
  }
  memcpy(fit->book->codewords, fit->best_words, (size_t)(fit->book->entries * fit->book->width) * sizeof(real));
  codebook_refresh(fit->book);
  for (int64_t g = 0; g < fit->book->groups; g++) result->distortion += fit->best[g];
  return STATUS_OK;
}

/* ---- workspace ---- */

static bool is_full_batch(const KmeansOptions *options, int64_t count) { return options->minibatch == 0 || options->minibatch >= count; }

/* The start's memory has gone when the iterations touch theirs. */
size_t kmeans_bytes(const Codebook *book, int64_t count, const KmeansOptions *options) {
  bool full = is_full_batch(options, count);
  size_t words = (size_t)(book->entries * book->width) * sizeof(real), start = kmeans_start_bytes(book, count, options->start);
  size_t iterations = kmeans_step_bytes(book, full ? count : options->minibatch) + (size_t)(count * book->groups) * sizeof(int32_t) +
                      codebook_assign_scratch(book, count) + (full ? 0 : (size_t)(options->minibatch * book->width) * sizeof(real));
  return words + (start > iterations ? start : iterations);
}

/* The loop over distances of the start runs at about a quarter of a product's rate. */
double kmeans_flops(const Codebook *book, int64_t count, const KmeansOptions *options) {
  double rows = (double)(is_full_batch(options, count) ? count : options->minibatch);
  double iterations = 2 * rows * (double)(book->entries * book->width) * options->iterations;
  return options->restarts * (4 * kmeans_start_flops(book, count, options->start) + iterations);
}

static Status reserve(Fit *fit) {
  const Codebook *book = fit->book;
  bool full = is_full_batch(fit->options, fit->count);
  TRY(kmeans_step_init(&fit->step, fit->book, full ? fit->count : fit->options->minibatch));
  fit->codes = malloc((size_t)(fit->count * book->groups) * sizeof *fit->codes);
  fit->scratch = malloc(codebook_assign_scratch(book, fit->count));
  fit->now = malloc((size_t)book->groups * sizeof *fit->now);
  fit->best = malloc((size_t)book->groups * sizeof *fit->best);
  fit->best_words = malloc((size_t)(book->entries * book->width) * sizeof *fit->best_words);
  if (!full) fit->batch = malloc((size_t)(fit->options->minibatch * book->width) * sizeof *fit->batch);
  if (!fit->codes || !fit->scratch || !fit->now || !fit->best || !fit->best_words || (!full && !fit->batch))
    return status_set(STATUS_NO_MEMORY, "K-means: no memory to work on %" PRId64 " samples of width %" PRId64, fit->count, book->width);
  for (int64_t g = 0; g < book->groups; g++) fit->best[g] = INFINITY;
  memcpy(fit->best_words, book->codewords, (size_t)(book->entries * book->width) * sizeof *fit->best_words);
  return STATUS_OK;
}

static void release(Fit *fit) {
  kmeans_step_release(&fit->step);
  free(fit->codes);
  free(fit->scratch);
  free(fit->now);
  free(fit->best);
  free(fit->best_words);
  free(fit->batch);
}

Status kmeans_fit(Codebook *book, const real *samples, int64_t count, const KmeansOptions *options, KmeansResult *result) {
  TRY(check_options(options));
  TRY(check_samples(book, samples, count));
  Fit fit = {.book = book, .samples = samples, .count = count, .options = options};
  Status status = reserve(&fit);
  if (status == STATUS_OK) status = run_restarts(&fit, result);
  release(&fit);
  return status;
}
