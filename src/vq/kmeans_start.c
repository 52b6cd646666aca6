/* K-means starts: random samples, or k-means++ (Arthur and Vassilvitskii, 2007): each next centre is a sample drawn with probability
 * proportional to its squared distance to the nearest centre so far. Greedy k-means++ (the same paper, section 6; what scikit-learn does)
 * draws 2 + ln K candidates for each centre and keeps the one that leaves the smallest sum of squared distances.
 *
 * k-means++ costs K passes over its samples, so it looks at a thinned set of them, kept as tiles [tile, W/G, LANES], each of which meets
 * all candidates while it is in the cache. kernels()->nearer takes differences, not products: a sample equal to a centre is at distance
 * zero exactly and is not drawn again. Groups are shared out; a single group shares out its tiles. */
#include "vq/kmeans_start.h"
#include "autograd/kernels/kernels.h"
#include "base/threads.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
  int64_t thinned;          /* samples that it looks at */
  int64_t tiles;            /* of LANES */
  struct Drawing *drawings; /* [workers] */
} StartJob;

/* What one worker holds for the group it is at. Distances are squared, and 0 in the padding of the last tile. */
typedef struct Drawing {
  int64_t d, tiles, candidates;
  int64_t tried;   /* of the candidates, in this round */
  real *columns;   /* [tiles, d, LANES] */
  real *distances; /* [tiles, LANES] to the nearest centre so far */
  double *sums;    /* [tiles] of them */
  real *points;    /* [candidates, d] */
  real *nearer;    /* [candidates, tiles, LANES] distances with that candidate taken in */
  double *lower;   /* [tiles, candidates] their sums */
} Drawing;

static int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

static void start_rng(const StartJob *job, int64_t g, Rng *rng) {
  rng_init(rng, job->seed, RANDOM_STREAM + (uint64_t)job->restart * (uint64_t)job->book->groups + (uint64_t)g);
}

/* A random sample of the i-th of the equal stretches that k-means++ looks at: distinct for each i. */
static int64_t draw_stretch(const StartJob *job, int64_t i, Rng *rng) {
  int64_t from = i * job->count / job->thinned, to = (i + 1) * job->count / job->thinned;
  return from + (int64_t)rng_below(rng, (uint64_t)(to - from));
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

/* ---- k-means++ ---- */

static void thin(const StartJob *job, int64_t g, const Drawing *drawing, Rng *rng) {
  int64_t d = drawing->d, width = job->book->width;
  memset(drawing->columns, 0, (size_t)(drawing->tiles * d * LANES) * sizeof(real));
  for (int64_t i = 0; i < drawing->tiles * LANES; i++) drawing->distances[i] = 0;
  for (int64_t i = 0; i < job->thinned; i++) {
    const real *sample = job->samples + draw_stretch(job, i, rng) * width + g * d;
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

/* The candidate that leaves the smallest sum of distances; the first among equals. */
static int64_t best_candidate(const Drawing *drawing) {
  int64_t best = 0;
  double min = INFINITY;
  for (int64_t c = 0; c < drawing->tried; c++) {
    double sum = 0;
    for (int64_t tile = 0; tile < drawing->tiles; tile++) sum += drawing->lower[tile * drawing->candidates + c];
    if (sum < min) min = sum, best = c;
  }
  return best;
}

/* The first centre is any sample; each later one the best of the candidates drawn. */
static void plus_plus_group(const StartJob *job, int64_t g, Drawing *drawing) {
  int64_t d = drawing->d, lanes = drawing->tiles * LANES;
  Rng rng;
  start_rng(job, g, &rng);
  thin(job, g, drawing, &rng);
  drawing->tried = 1;
  copy_sample(drawing, (int64_t)rng_below(&rng, (uint64_t)job->thinned), drawing->points);
  for (int64_t k = 0;; k++) {
    threads_for(drawing->tiles, 1, approach_range, drawing);
    int64_t best = best_candidate(drawing);
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

/* 16 samples for each centre, but at least SAMPLES_MIN; no more than NUMBERS_MAX allow, but 4 for each centre; at most SAMPLES_MAX in
 * either case, but one for each centre. */
static int64_t samples_looked_at(const StartJob *job) {
  int64_t entries = job->book->entries, d = job->book->width / job->book->groups;
  int64_t wanted = min(max(16 * entries, SAMPLES_MIN), max(4 * entries, NUMBERS_MAX / d));
  return min(job->count, max(min(wanted, SAMPLES_MAX), entries));
}

static int64_t workers_for(const Codebook *book) { return book->groups > 1 ? threads_count() : 1; }

static int64_t candidates_of(const Codebook *book, KmeansStart how) {
  return how == KMEANS_GREEDY ? 2 + (int64_t)log((double)book->entries) : 1;
}

/* Of a Drawing for each worker. */
size_t kmeans_start_bytes(const Codebook *book, int64_t count, KmeansStart how) {
  if (how == KMEANS_RANDOM) return 0;
  StartJob job = {.book = (Codebook *)book, .count = count}; /* looked at alone */
  int64_t tiles = (samples_looked_at(&job) + LANES - 1) / LANES, candidates = candidates_of(book, how), width = book->width / book->groups;
  size_t numbers = (size_t)(tiles * LANES * (width + 1 + candidates) + candidates * width), sums = (size_t)(tiles * (1 + candidates));
  return (size_t)workers_for(book) * (numbers * sizeof(real) + sums * sizeof(double));
}

double kmeans_start_flops(const Codebook *book, int64_t count, KmeansStart how) {
  if (how == KMEANS_RANDOM) return 0;
  StartJob job = {.book = (Codebook *)book, .count = count};
  return 3.0 * (double)(book->entries * candidates_of(book, how)) * (double)(samples_looked_at(&job) * book->width);
}

static void drawing_release(Drawing *drawing) {
  free(drawing->columns);
  free(drawing->distances);
  free(drawing->sums);
  free(drawing->points);
  free(drawing->nearer);
  free(drawing->lower);
}

static bool drawing_init(Drawing *drawing, const StartJob *job) {
  int64_t d = job->book->width / job->book->groups, lanes = job->tiles * LANES;
  *drawing = (Drawing){.d = d, .tiles = job->tiles, .candidates = job->candidates};
  drawing->columns = malloc((size_t)(lanes * d) * sizeof(real));
  drawing->distances = malloc((size_t)lanes * sizeof(real));
  drawing->sums = malloc((size_t)job->tiles * sizeof(double));
  drawing->points = malloc((size_t)(job->candidates * d) * sizeof(real));
  drawing->nearer = malloc((size_t)(job->candidates * lanes) * sizeof(real));
  drawing->lower = malloc((size_t)(job->tiles * job->candidates) * sizeof(double));
  return drawing->columns && drawing->distances && drawing->sums && drawing->points && drawing->nearer && drawing->lower;
}

static Status plus_plus(StartJob *job) {
  int64_t groups = job->book->groups, workers = workers_for(job->book);
  job->thinned = samples_looked_at(job);
  job->tiles = (job->thinned + LANES - 1) / LANES;
  job->drawings = calloc((size_t)workers, sizeof *job->drawings);
  bool whole = job->drawings != NULL;
  for (int64_t i = 0; whole && i < workers; i++) whole = drawing_init(&job->drawings[i], job);
  if (whole && workers > 1) threads_for(groups, 1, plus_plus_range, job);
  if (whole && workers == 1) plus_plus_range(job, 0, groups, 0); /* its tiles are shared out */
  for (int64_t i = 0; job->drawings && i < workers; i++) drawing_release(&job->drawings[i]);
  free(job->drawings);
  if (whole) return STATUS_OK;
  return status_set(STATUS_NO_MEMORY, "K-means: no memory for a start from %" PRId64 " samples", job->thinned);
}

Status kmeans_start(Codebook *book, const real *samples, int64_t count, KmeansStart how, uint64_t seed, int restart) {
  StartJob job = {.book = book, .samples = samples, .count = count, .seed = seed, .restart = restart};
  job.candidates = candidates_of(book, how);
  if (how == KMEANS_RANDOM)
    threads_for(book->groups, 1, random_range, &job);
  else
    TRY(plus_plus(&job));
  codebook_refresh(book);
  return STATUS_OK;
}
