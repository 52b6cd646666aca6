/* See kmeans_split.h. */
#include "vq/kmeans_split.h"
#include "base/threads.h"
#include "vq/kmeans_step.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
  SETTLING = 3, /* iterations after each split */
  SPLIT_STREAM = 3000,
};

/* How far the two halves of a centre are from it, as a share of the way to the sample that gives the direction: which side of it a sample
 * is nearer to does not depend on that, and both remain near enough not to lose their samples to others. */
static const double apart = 0.1;

/* What is known of a cluster. */
typedef struct Cluster {
  double spread; /* sum of its samples' squared distances to its centre */
  int64_t count;
  int64_t row;   /* one of its samples, each equally likely */
  int64_t index; /* of its centre */
} Cluster;

typedef struct SplitJob {
  const real *samples; /* [count, W] */
  int64_t count;
  uint64_t seed, stream;
  int32_t *codes;    /* [count, G] */
  Cluster *clusters; /* [G, K] */
  KmeansStep step;
  const Codebook *from;
  Codebook *to; /* of more entries */
} SplitJob;

static int wider_first(const void *a, const void *b) {
  const Cluster *left = a, *right = b;
  if (left->spread != right->spread) return left->spread > right->spread ? -1 : 1;
  return left->index < right->index ? -1 : left->index > right->index;
}

static const real *sample_of(const SplitJob *job, int64_t row, int64_t g) {
  const Codebook *book = job->from;
  return job->samples + row * book->width + g * (book->width / book->groups);
}

static void measure_clusters(const SplitJob *job, int64_t g, Cluster *clusters) {
  const Codebook *from = job->from;
  const int64_t d = from->width / from->groups;
  Rng rng;
  rng_init(&rng, job->seed, job->stream + (uint64_t)g);
  for (int64_t k = 0; k < from->entries; k++) clusters[k] = (Cluster){.index = k};
  for (int64_t r = 0; r < job->count; r++) {
    Cluster *cluster = &clusters[job->codes[r * from->groups + g]];
    if (rng_below(&rng, (uint64_t)++cluster->count) == 0) cluster->row = r;
    cluster->spread += kmeans_distance(d, sample_of(job, r, g), from->codewords + (g * from->entries + cluster->index) * d);
  }
}

/* The widest clusters, of as many centres as are wanted. One without samples, or all of them alike, gives a second centre at the first. */
static void split_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const SplitJob *job = context;
  const Codebook *from = job->from, *to = job->to;
  const int64_t d = from->width / from->groups, more = to->entries - from->entries;
  for (int64_t g = begin; g < end; g++) {
    Cluster *clusters = job->clusters + g * to->entries;
    const real *old = from->codewords + g * from->entries * d;
    real *centres = to->codewords + g * to->entries * d;
    measure_clusters(job, g, clusters);
    qsort(clusters, (size_t)from->entries, sizeof *clusters, wider_first);
    memcpy(centres, old, (size_t)(from->entries * d) * sizeof(real));
    for (int64_t i = 0; i < more; i++) {
      const int64_t at = clusters[i].index * d;
      const real *sample = sample_of(job, clusters[i].row, g);
      for (int64_t j = 0; j < d; j++) {
        const real offset = clusters[i].count > 0 ? (real)(apart * ((double)sample[j] - (double)old[at + j])) : 0;
        centres[at + j] = old[at + j] + offset;
        centres[(from->entries + i) * d + j] = old[at + j] - offset;
      }
    }
  }
}

static Status settle(SplitJob *job, Codebook *book) {
  void *scratch = malloc(codebook_assign_scratch(book, job->count));
  if (scratch == NULL) return status_set(STATUS_NO_MEMORY, "K-means: no memory to split %" PRId64 " centres", book->entries);
  job->step.book = book;
  codebook_refresh(book);
  for (int i = 0; i < SETTLING; i++) {
    codebook_assign(book, job->samples, job->count, job->codes, NULL, scratch);
    kmeans_step_clear(&job->step);
    kmeans_step_move(&job->step, job->samples, job->codes, job->count, false);
  }
  free(scratch);
  return STATUS_OK;
}

/* codes are zero: all samples are of one cluster. */
static void mean_of_all(const SplitJob *job, Codebook *one) {
  double *sums = job->step.sums;
  memset(sums, 0, (size_t)one->width * sizeof *sums);
  for (int64_t r = 0; r < job->count; r++)
    for (int64_t j = 0; j < one->width; j++) sums[j] += (double)job->samples[r * one->width + j];
  for (int64_t j = 0; j < one->width; j++) one->codewords[j] = (real)(sums[j] / (double)job->count);
}

/* From the mean `now` [W], half as many centres more each time, until they are the book's. */
static Status grow(SplitJob *job, Codebook now, Codebook *book, int restart) {
  const uint64_t levels = 64;
  mean_of_all(job, &now);
  for (uint64_t level = 0;; level++) {
    const int64_t grown = now.entries + (now.entries + 1) / 2, entries = grown < book->entries ? grown : book->entries;
    Codebook next;
    Status status = codebook_init(&next, book->groups, entries, book->width, entries == book->entries ? book->codewords : NULL);
    if (status == STATUS_OK) {
      job->from = &now, job->to = &next;
      job->stream = SPLIT_STREAM + ((uint64_t)restart * levels + level) * (uint64_t)book->groups;
      threads_for(book->groups, 1, split_range, job);
    }
    if (level > 0) codebook_release(&now); /* the mean is the caller's */
    if (status != STATUS_OK) return status;
    if (entries == book->entries) {
      codebook_release(&next);
      return STATUS_OK;
    }
    status = settle(job, &next);
    if (status != STATUS_OK) {
      codebook_release(&next);
      return status;
    }
    now = next;
  }
}

Status kmeans_split(Codebook *book, const real *samples, int64_t count, uint64_t seed, int restart) {
  SplitJob job = {.samples = samples,
                  .count = count,
                  .seed = seed,
                  .codes = calloc((size_t)(count * book->groups), sizeof *job.codes),
                  .clusters = malloc((size_t)(book->groups * book->entries) * sizeof *job.clusters)};
  real *mean = malloc((size_t)book->width * sizeof *mean);
  Status status = kmeans_step_init(&job.step, book, 1);
  if (status == STATUS_OK && (!job.codes || !job.clusters || !mean))
    status = status_set(STATUS_NO_MEMORY, "K-means: no memory to split centres of %" PRId64 " samples", count);
  if (status == STATUS_OK) {
    const Codebook one = {.groups = book->groups, .entries = 1, .width = book->width, .codewords = mean};
    status = grow(&job, one, book, restart);
  }
  kmeans_step_release(&job.step);
  free(job.codes), free(job.clusters), free(mean);
  return status;
}

size_t kmeans_split_bytes(const Codebook *book, int64_t count) {
  const size_t centres = (size_t)(book->groups * book->entries), numbers = (size_t)(book->entries * book->width);
  return centres * (sizeof(Cluster) + sizeof(int64_t)) + numbers * (sizeof(double) + sizeof(real)) +
         (size_t)(count * book->groups) * sizeof(int32_t) + codebook_assign_scratch(book, count);
}

/* The levels before the last have twice as many centres together as it has. */
double kmeans_split_flops(const Codebook *book, int64_t count) {
  return SETTLING * 2 * 2.0 * (double)count * (double)(book->entries * book->width);
}
