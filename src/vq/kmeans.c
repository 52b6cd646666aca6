/* K-means over all groups of a codebook at once, in the order of a run: where the centres start, the iterations (each one codebook_assign
 * and one kmeans_step_move) and when they end, and the choice among restarts. */
#include "vq/kmeans.h"
#include "autograd/kernels/kernels.h"
#include "base/number.h"
#include "base/threads.h"
#include "vq/codebook.h"
#include "vq/kmeans_split.h"
#include "vq/kmeans_step.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Initial centres ---- */

/* Random samples, or k-means++ (Arthur and Vassilvitskii, 2007): each next centre is a sample drawn with probability proportional to its
 * squared distance to the nearest centre so far. Greedy k-means++ (the same paper, section 6; what scikit-learn does) draws 2 + ln K
 * candidates for each centre and keeps the one that leaves the smallest sum of squared distances.
 *
 * k-means++ costs K passes over its samples, so it uses a thinned set of them, kept as tiles [tile, W/G, LANES], each of which is compared
 * with all candidates while it is in the cache. kernels()->nearer takes differences, not products: a sample equal to a centre is at
 * distance zero exactly and is not drawn again. The pool divides the groups; if there is one group, its tiles. */

enum {
  LANES = NEARER_LANES,
  SAMPLES_MIN = 16384,
  SAMPLES_MAX = 65536,
  NUMBERS_MAX = 1 << 22, /* 16 MiB of floats are read again for each centre */
  RANDOM_STREAM = 1000,
};

typedef struct StartJob {
  Codebook *book;
  const real *samples; /* [count, W] */
  int64_t count;
  uint64_t seed;
  int restart;
  int64_t candidates;       /* tried for each centre of k-means++ */
  int64_t thinned;          /* samples that it uses */
  int64_t tiles;            /* of LANES */
  struct Drawing *drawings; /* [workers] */
} StartJob;

/* What one worker holds for the group it is at. Distances are squared, and 0 in the padding of the last tile. */
typedef struct Drawing {
  int64_t d, tiles, candidates;
  int64_t tried;   /* candidates of this round */
  real *columns;   /* [tiles, d, LANES] */
  real *distances; /* [tiles, LANES] to the nearest centre so far */
  double *sums;    /* [tiles] of them */
  real *points;    /* [candidates, d] */
  real *nearer;    /* [candidates, tiles, LANES] distances if that candidate is taken */
  double *lower;   /* [tiles, candidates] their sums */
} Drawing;

static void start_rng(const StartJob *job, int64_t g, Rng *rng) {
  rng_init(rng, job->seed, RANDOM_STREAM + (uint64_t)job->restart * (uint64_t)job->book->groups + (uint64_t)g);
}

static void random_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const StartJob *job = context;
  const Codebook *book = job->book;
  int64_t d = book->width / book->groups;
  for (int64_t g = begin; g < end; g++) {
    Rng rng;
    start_rng(job, g, &rng);
    int64_t chosen = 0;
    for (int64_t row = 0; chosen < book->entries; row++) { /* selection sampling (Knuth, 3.4.2): distinct, every set equally likely */
      if (rng_uniform(&rng) * (double)(job->count - row) >= (double)(book->entries - chosen)) continue;
      memcpy(book->codewords + (g * book->entries + chosen++) * d, job->samples + row * book->width + g * d, (size_t)d * sizeof(real));
    }
  }
}

/* ---- k-means++ */

/* One random sample of each of `thinned` equal stretches. */
static void thin(const StartJob *job, int64_t g, const Drawing *drawing, Rng *rng) {
  int64_t d = drawing->d, width = job->book->width;
  memset(drawing->columns, 0, (size_t)(drawing->tiles * d * LANES) * sizeof(real));
  for (int64_t i = 0; i < drawing->tiles * LANES; i++) drawing->distances[i] = 0;
  for (int64_t i = 0; i < job->thinned; i++) {
    const int64_t from = i * job->count / job->thinned, to = (i + 1) * job->count / job->thinned;
    const real *sample = job->samples + (from + (int64_t)rng_below(rng, (uint64_t)(to - from))) * width + g * d;
    real *column = drawing->columns + i / LANES * d * LANES + i % LANES;
    for (int64_t j = 0; j < d; j++) column[j * LANES] = sample[j];
    drawing->distances[i] = (real)1e30;
  }
}

static void approach_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Drawing *drawing = context;
  for (int64_t tile = begin; tile < end; tile++)
    kernels()->nearer(LANES, drawing->d, drawing->columns + tile * drawing->d * LANES, drawing->tried, drawing->points,
                      drawing->distances + tile * LANES, drawing->nearer + tile * LANES, drawing->tiles * LANES,
                      drawing->lower + tile * drawing->candidates);
}

/* An index drawn by squared distance. Rounding may carry the target past the end: then the last one that has a distance. */
static int64_t draw_far(const Drawing *drawing, int64_t thinned, Rng *rng) {
  double total = 0;
  for (int64_t t = 0; t < drawing->tiles; t++) total += drawing->sums[t];
  if (!(total > 0)) return (int64_t)rng_below(rng, (uint64_t)thinned); /* every sample is a centre already */
  double target = rng_uniform(rng) * total;
  int64_t tile = 0, index = 0;
  for (int64_t t = 0; t < drawing->tiles; t++) {
    if (!(drawing->sums[t] > 0)) continue;
    tile = t;
    if (target < drawing->sums[t]) break;
    target -= drawing->sums[t];
  }
  for (int64_t i = tile * LANES; i < (tile + 1) * LANES; i++) {
    double distance = (double)drawing->distances[i];
    if (!(distance > 0)) continue;
    index = i;
    if (target < distance) break;
    target -= distance;
  }
  return index;
}

static void copy_sample(const Drawing *drawing, int64_t index, real *to /* [d] */) {
  const real *column = drawing->columns + index / LANES * drawing->d * LANES + index % LANES;
  for (int64_t j = 0; j < drawing->d; j++) to[j] = column[j * LANES];
}

/* The first centre is any sample; each later one is the candidate that leaves the smallest sum of distances, the first among equals. */
static void plus_plus_group(const StartJob *job, int64_t g, Drawing *drawing) {
  int64_t d = drawing->d, lanes = drawing->tiles * LANES;
  Rng rng;
  start_rng(job, g, &rng);
  thin(job, g, drawing, &rng);
  drawing->tried = 1;
  copy_sample(drawing, (int64_t)rng_below(&rng, (uint64_t)job->thinned), drawing->points);
  for (int64_t k = 0;; k++) {
    threads_for(drawing->tiles, 1, approach_range, drawing);
    int64_t best = 0;
    double lowest = INFINITY;
    for (int64_t c = 0; c < drawing->tried; c++) {
      double sum = 0;
      for (int64_t tile = 0; tile < drawing->tiles; tile++) sum += drawing->lower[tile * drawing->candidates + c];
      if (sum < lowest) lowest = sum, best = c;
    }
    memcpy(job->book->codewords + (g * job->book->entries + k) * d, drawing->points + best * d, (size_t)d * sizeof(real));
    if (k + 1 == job->book->entries) return;
    memcpy(drawing->distances, drawing->nearer + best * lanes, (size_t)lanes * sizeof(real));
    for (int64_t tile = 0; tile < drawing->tiles; tile++) drawing->sums[tile] = drawing->lower[tile * drawing->candidates + best];
    drawing->tried = drawing->candidates;
    for (int64_t c = 0; c < drawing->tried; c++) copy_sample(drawing, draw_far(drawing, job->thinned, &rng), drawing->points + c * d);
  }
}

static void plus_plus_range(void *context, int64_t begin, int64_t end, int thread) {
  const StartJob *job = context;
  for (int64_t g = begin; g < end; g++) plus_plus_group(job, g, &job->drawings[thread]);
}

/* How many samples k-means++ uses: 16 for each centre, but at least SAMPLES_MIN; no more than NUMBERS_MAX allow, but 4 for each centre; at
 * most SAMPLES_MAX in either case, but one for each centre. */
static int64_t thinned_count(const Codebook *book, int64_t count) {
  int64_t entries = book->entries, d = book->width / book->groups;
  int64_t wanted = number_lesser(number_greater(16 * entries, SAMPLES_MIN), number_greater(4 * entries, NUMBERS_MAX / d));
  return number_lesser(count, number_greater(number_lesser(wanted, SAMPLES_MAX), entries));
}

static int64_t workers_for(const Codebook *book) { return book->groups > 1 ? threads_count() : 1; }

static int64_t candidates_of(const Codebook *book, KmeansStart how) {
  return how == KMEANS_GREEDY ? 2 + (int64_t)log((double)book->entries) : 1;
}

static Status plus_plus(StartJob *job) {
  int64_t groups = job->book->groups, d = job->book->width / groups, workers = workers_for(job->book);
  job->thinned = thinned_count(job->book, job->count);
  job->tiles = (job->thinned + LANES - 1) / LANES;
  job->drawings = calloc((size_t)workers, sizeof *job->drawings);
  bool whole = job->drawings != NULL;
  for (int64_t i = 0; whole && i < workers; i++) {
    const size_t lanes = (size_t)job->tiles * LANES, candidates = (size_t)job->candidates;
    Drawing *drawing = &job->drawings[i];
    *drawing = (Drawing){.d = d,
                         .tiles = job->tiles,
                         .candidates = job->candidates,
                         .columns = malloc(lanes * (size_t)d * sizeof(real)),
                         .distances = malloc(lanes * sizeof(real)),
                         .sums = malloc((size_t)job->tiles * sizeof(double)),
                         .points = malloc(candidates * (size_t)d * sizeof(real)),
                         .nearer = malloc(candidates * lanes * sizeof(real)),
                         .lower = malloc((size_t)job->tiles * candidates * sizeof(double))};
    whole = drawing->columns && drawing->distances && drawing->sums && drawing->points && drawing->nearer && drawing->lower;
  }
  if (whole && workers > 1) threads_for(groups, 1, plus_plus_range, job);
  if (whole && workers == 1) plus_plus_range(job, 0, groups, 0); /* the pool divides its tiles */
  for (int64_t i = 0; job->drawings && i < workers; i++) {
    const Drawing *drawing = &job->drawings[i];
    free(drawing->columns), free(drawing->distances), free(drawing->sums);
    free(drawing->points), free(drawing->nearer), free(drawing->lower);
  }
  free(job->drawings);
  if (whole) return STATUS_OK;
  return status_set(STATUS_NO_MEMORY, "K-means: no memory for a start from %" PRId64 " samples", job->thinned);
}

static Status start_centres(Codebook *book, const real *samples, int64_t count, KmeansStart how, uint64_t seed, int restart) {
  StartJob job = {.book = book, .samples = samples, .count = count, .seed = seed, .restart = restart};
  job.candidates = candidates_of(book, how);
  if (how == KMEANS_SPLIT)
    TRY(kmeans_split(book, samples, count, seed, restart));
  else if (how == KMEANS_RANDOM)
    threads_for(book->groups, 1, random_range, &job);
  else
    TRY(plus_plus(&job));
  codebook_refresh(book);
  return STATUS_OK;
}

/* ---- K-means ---- */

enum {
  WINDOW = 10,         /* mini-batch steps whose distortions are averaged before they are compared */
  MAX_MISSES = 2,      /* windows without a fall */
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

static Status check(const Codebook *book, const real *samples, int64_t count, const KmeansOptions *options) {
  if (options->iterations < 1) return status_set(STATUS_BAD_VALUE, "K-means: %d iterations; at least 1 is needed", options->iterations);
  if (options->restarts < 1) return status_set(STATUS_BAD_VALUE, "K-means: %d restarts; at least 1 is needed", options->restarts);
  if (!(options->tolerance >= 0)) return status_set(STATUS_BAD_VALUE, "K-means: tolerance %g is not 0 or more", options->tolerance);
  if (options->minibatch < 0)
    return status_set(STATUS_BAD_VALUE, "K-means: a mini-batch of %" PRId64 "; 0 means all samples", options->minibatch);
  if ((int)options->start < 0 || options->start > KMEANS_SPLIT)
    return status_set(STATUS_BAD_VALUE, "K-means: start %d is none of greedy k-means++, k-means++, random and split", (int)options->start);
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

/* Mini-batch: sizes and sums run through all steps, so that a centre is the mean of all samples that it was given. Ends when the mean
 * distortion of a window did not fall MAX_MISSES times in a row. */
static Run run_minibatch(Fit *fit, int restart) {
  const KmeansOptions *options = fit->options;
  const int64_t size = options->minibatch, width = fit->book->width;
  Run run = {0};
  double sum = 0, best = INFINITY; /* of the present window, and the lowest mean of one */
  int misses = 0;
  Rng rng;
  rng_init(&rng, options->seed, BATCH_STREAM + (uint64_t)restart);
  kmeans_step_clear(&fit->step);
  while (!run.converged && run.iterations < options->iterations) {
    double distortion;
    for (int64_t i = 0; i < size; i++) {
      const int64_t row = (int64_t)rng_below(&rng, (uint64_t)fit->count);
      memcpy(fit->batch + i * width, fit->samples + row * width, (size_t)width * sizeof(real));
    }
    codebook_assign(fit->book, fit->batch, size, fit->codes, &distortion, fit->scratch);
    distortion *= (double)fit->count / (double)size;
    report(fit, restart, ++run.iterations, distortion);
    bool repair = run.iterations * size >= REPAIR_AFTER * fit->book->entries;
    run.repaired += kmeans_step_move(&fit->step, fit->batch, fit->codes, size, repair);
    sum += distortion;
    if (run.iterations % WINDOW != 0) continue;
    const double mean = sum / WINDOW;
    const bool fell = run.iterations == WINDOW || mean < best * (1 - options->tolerance);
    misses = fell ? 0 : misses + 1;
    if (fell) best = mean;
    sum = 0;
    run.converged = misses == MAX_MISSES;
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
      fit->now[g] += kmeans_distance(d, fit->samples + r * book->width + g * d, centre);
    }
  }
}

/* Keeps the groups whose distortion is the lowest so far. Returns the distortion of this restart, all groups together. */
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
    TRY(start_centres(fit->book, fit->samples, fit->count, options->start, options->seed, restart));
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

/* The memory of the start (a Drawing for each worker) is freed before that of the iterations is touched, but of a further start not. */
size_t kmeans_bytes(const Codebook *book, int64_t count, const KmeansOptions *options) {
  const bool full = is_full_batch(options, count);
  const int64_t tiles = (thinned_count(book, count) + LANES - 1) / LANES, candidates = candidates_of(book, options->start);
  const int64_t d = book->width / book->groups, rows = full ? count : options->minibatch;
  const size_t words = (size_t)(book->entries * book->width);
  size_t numbers = (size_t)(tiles * LANES * (d + 1 + candidates) + candidates * d), sums = (size_t)(tiles * (1 + candidates));
  size_t start = (size_t)workers_for(book) * (numbers * sizeof(real) + sums * sizeof(double));
  size_t step = (size_t)(book->groups * book->entries) * sizeof(int64_t) + words * sizeof(double) + (size_t)rows * sizeof(KmeansCandidate);
  size_t iterations = step + (size_t)(count * book->groups) * sizeof(int32_t) + codebook_assign_scratch(book, count) +
                      (full ? 0 : (size_t)(options->minibatch * book->width) * sizeof(real));
  if (options->start == KMEANS_RANDOM) start = 0;
  if (options->start == KMEANS_SPLIT) start = kmeans_split_bytes(book, count);
  const size_t larger = start > iterations ? start : iterations;
  return words * sizeof(real) + (options->restarts > 1 ? start + iterations : larger);
}

/* The loop over distances of k-means++ runs at about a quarter of a product's rate. */
static double start_flops(const Codebook *book, int64_t count, KmeansStart how) {
  if (how == KMEANS_RANDOM) return 0;
  if (how == KMEANS_SPLIT) return kmeans_split_flops(book, count);
  return 4 * 3.0 * (double)(book->entries * candidates_of(book, how)) * (double)(thinned_count(book, count) * book->width);
}

double kmeans_flops(const Codebook *book, int64_t count, const KmeansOptions *options) {
  double rows = (double)(is_full_batch(options, count) ? count : options->minibatch);
  double iterations = 2 * rows * (double)(book->entries * book->width) * options->iterations;
  return options->restarts * (start_flops(book, count, options->start) + iterations);
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

Status kmeans_fit(Codebook *book, const real *samples, int64_t count, const KmeansOptions *options, KmeansResult *result) {
  TRY(check(book, samples, count, options));
  Fit fit = {.book = book, .samples = samples, .count = count, .options = options};
  Status status = reserve(&fit);
  if (status == STATUS_OK) status = run_restarts(&fit, result);
  kmeans_step_release(&fit.step);
  free(fit.codes), free(fit.scratch), free(fit.batch);
  free(fit.now), free(fit.best), free(fit.best_words);
  return status;
}
