/* K-means starts: random samples, or k-means++ (Arthur and Vassilvitskii, 2007): each next centre is a sample drawn with probability
 * proportional to its squared distance to the nearest centre so far.
 *
 * k-means++ costs K passes over its samples, so it looks at a thinned set of them, kept as tiles [tile, W/G, LANES]: the distances of LANES
 * samples grow side by side in the first-level cache, read in one straight stream. Differences, not products: a sample equal to a centre is
 * at distance zero exactly and is not drawn again. Groups are shared out; a single group shares out its tiles. */
#include "vq/kmeans_start.h"
#include "base/threads.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
  LANES = 256,
  SAMPLES_LEAST = 16384,
  SAMPLES_MOST = 65536,
  NUMBERS_MOST = 1 << 22, /* 16 MiB of floats are read again for each centre */
  RANDOM_STREAM = 1000,
};

typedef struct StartJob {
  Codebook *book;
  const real *samples; /* [count, W] */
  int64_t count;
  uint64_t seed;
  int restart;
  int64_t thinned; /* samples that k-means++ looks at */
  int64_t tiles;   /* of LANES */
  real *columns;   /* [workers, tiles, W/G, LANES] */
  real *distances; /* [workers, tiles, LANES] to the nearest centre so far, squared; 0 in the padding */
  double *sums;    /* [workers, tiles] */
} StartJob;

/* What one worker holds for the group it is at. */
typedef struct Drawing {
  const real *centre; /* [W/G] the newest */
  int64_t d, tiles;
  real *columns, *distances;
  double *sums;
} Drawing;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

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

/* Distances of one tile with the newest centre taken in; sets the tile's sum. */
static void approach_tile(const Drawing *drawing, int64_t tile) {
  real found[LANES] = {0}, *distances = drawing->distances + tile * LANES;
  const real *columns = drawing->columns + tile * drawing->d * LANES;
  for (int64_t j = 0; j < drawing->d; j++) {
    real centre = drawing->centre[j];
    for (int i = 0; i < LANES; i++) {
      real difference = columns[j * LANES + i] - centre;
      found[i] += difference * difference;
    }
  }
  double lane[4] = {0, 0, 0, 0};
  for (int i = 0; i < LANES; i += 4)
    for (int l = 0; l < 4; l++) {
      distances[i + l] = found[i + l] < distances[i + l] ? found[i + l] : distances[i + l];
      lane[l] += (double)distances[i + l];
    }
  drawing->sums[tile] = (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

static void approach_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  for (int64_t tile = begin; tile < end; tile++) approach_tile(context, tile);
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

static void plus_plus_group(const StartJob *job, int64_t g, Drawing *drawing) {
  int64_t d = drawing->d;
  Rng rng;
  start_rng(job, g, &rng);
  thin(job, g, drawing, &rng);
  int64_t chosen = (int64_t)rng_below(&rng, (uint64_t)job->thinned);
  for (int64_t k = 0;; k++) {
    real *centre = job->book->codewords + (g * job->book->entries + k) * d;
    for (int64_t j = 0; j < d; j++) centre[j] = drawing->columns[(chosen / LANES * d + j) * LANES + chosen % LANES];
    if (k + 1 == job->book->entries) return;
    drawing->centre = centre;
    threads_for(drawing->tiles, 1, approach_range, drawing);
    chosen = draw_far(drawing, job->thinned, &rng);
  }
}

static void plus_plus_range(void *context, int64_t begin, int64_t end, int thread) {
  const StartJob *job = context;
  int64_t d = job->book->width / job->book->groups;
  Drawing drawing = {.d = d, .tiles = job->tiles};
  drawing.columns = job->columns + thread * job->tiles * d * LANES;
  drawing.distances = job->distances + thread * job->tiles * LANES;
  drawing.sums = job->sums + thread * job->tiles;
  for (int64_t g = begin; g < end; g++) plus_plus_group(job, g, &drawing);
}

/* 16 samples for each centre, but at least SAMPLES_LEAST; no more than NUMBERS_MOST allow, but 4 for each centre; at most SAMPLES_MOST in
 * either case, but one for each centre. */
static int64_t samples_looked_at(const StartJob *job) {
  int64_t entries = job->book->entries, d = job->book->width / job->book->groups;
  int64_t wanted = least(most(16 * entries, SAMPLES_LEAST), most(4 * entries, NUMBERS_MOST / d));
  return least(job->count, most(least(wanted, SAMPLES_MOST), entries));
}

static Status plus_plus(StartJob *job) {
  int64_t groups = job->book->groups;
  job->thinned = samples_looked_at(job);
  job->tiles = (job->thinned + LANES - 1) / LANES;
  int64_t lanes = job->tiles * LANES, workers = groups > 1 ? threads_count() : 1;
  job->columns = malloc((size_t)(workers * lanes * (job->book->width / groups)) * sizeof(real));
  job->distances = malloc((size_t)(workers * lanes) * sizeof(real));
  job->sums = malloc((size_t)(workers * job->tiles) * sizeof(double));
  Status status = STATUS_OK;
  if (!job->columns || !job->distances || !job->sums)
    status = status_set(STATUS_NO_MEMORY, "K-means: no memory for a start from %" PRId64 " samples", job->thinned);
  else if (workers > 1)
    threads_for(groups, 1, plus_plus_range, job);
  else
    plus_plus_range(job, 0, groups, 0);
  free(job->columns);
  free(job->distances);
  free(job->sums);
  return status;
}

Status kmeans_start(Codebook *book, const real *samples, int64_t count, KmeansStart how, uint64_t seed, int restart) {
  StartJob job = {.book = book, .samples = samples, .count = count, .seed = seed, .restart = restart};
  if (how == KMEANS_PLUS_PLUS)
    TRY(plus_plus(&job));
  else
    threads_for(book->groups, 1, random_range, &job);
  codebook_refresh(book);
  return STATUS_OK;
}
