/* See shared_codebooks.h. Leaves out: how sums travel (all_reduce.c). */
#include "train/shared_codebooks.h"
#include "vq/residual_sums.h"
#include <stdlib.h>
#include <string.h>

enum { PAD = 16 };

static int site_count(const Emulation *emulation) { return emulation->blocks * emulation->sites; }
static int64_t codes_of(const Codebook *book) { return book->groups * book->entries; }
static int64_t words_of(const Codebook *book) { return book->entries * book->width; }

typedef struct SiteSums {
  real *counts, *sums, *residuals;
} SiteSums;

static SiteSums sums_of(const SharedCodebooks *shared, int index) {
  const Codebook *book = &shared->emulation->site[index].book;
  real *at = shared->block + index * shared->site_size;
  return (SiteSums){at, at + codes_of(book), at + codes_of(book) + words_of(book)};
}

Status shared_codebooks_init(SharedCodebooks *shared, Emulation *emulation, int tag) {
  const EmulateSite *site = &emulation->site[0];
  int64_t numbers = codes_of(&site->book) + words_of(&site->book) + residual_sums_count(&site->navq);
  *shared = (SharedCodebooks){.emulation = emulation, .site_size = (numbers + PAD - 1) / PAD * PAD};
  int64_t total = shared->site_size * site_count(emulation);
  TRY(ema_init(&shared->batch, &site->book, 0));
  free(shared->batch.sums);
  shared->batch.sums = NULL;
  shared->block = calloc((size_t)total, sizeof *shared->block);
  shared->dead = malloc((size_t)(codes_of(&site->book) * site_count(emulation)));
  if (shared->block == NULL || shared->dead == NULL)
    return status_set(STATUS_NO_MEMORY, "no memory for the sums of the codebooks over ranks");
  return all_reduce_new(&shared->reduce, shared->block, total, &(AllReduceOptions){.tag = tag});
}

void shared_codebooks_release(SharedCodebooks *shared) {
  all_reduce_free(shared->reduce);
  shared->batch.sums = NULL; /* in the block */
  ema_release(&shared->batch);
  free(shared->block);
  free(shared->dead);
  *shared = (SharedCodebooks){0};
}

/* ---------------------------------------------------------------- a share's sums */

/* Rows of a site in the whole batch; *first is where those of this rank begin. A sample has as many everywhere. */
static int64_t whole_rows(const Emulation *emulation, const EmulateSite *site, int64_t *first) {
  int64_t own = ranks_begin(emulation->samples, ranks_self() + 1) - emulation->first_sample, each = site->rows / own;
  *first = emulation->first_sample * each;
  return emulation->samples * each;
}

/* Those of this rank among the rows that the moments are taken of: how many, from *begin on. */
static int64_t own_moment_rows(const Emulation *emulation, const EmulateSite *site, int64_t *begin, int64_t *of_all) {
  int64_t first, from, rows = whole_rows(emulation, site, &first);
  *of_all = emulate_moment_rows(emulation, site, rows, &from);
  int64_t low = from > first ? from : first, high = from + *of_all < first + site->rows ? from + *of_all : first + site->rows;
  *begin = low - first;
  return high > low ? high - low : 0;
}

static Status take_residuals(const Emulation *emulation, const EmulateSite *site, Tape *tape, real *sums) {
  int64_t begin, all, rows = own_moment_rows(emulation, site, &begin, &all), width = site->book.width;
  size_t mark = tape_scratch_begin(tape);
  real *q = tape_alloc(tape, (size_t)(rows * width + 1) * sizeof(real));
  void *scratch = tape_alloc(tape, navq_scratch(&site->navq, rows) + sizeof(real));
  if (q == NULL || scratch == NULL) return tape_status(tape);
  if (rows > 0) codebook_lookup(&site->book, site->codes + begin * site->book.groups, rows, q);
  residual_sums_take(&site->navq, site->x + begin * width, q, rows, sums, scratch);
  tape_scratch_end(tape, mark);
  return STATUS_OK;
}

static Status take_sums(SharedCodebooks *shared, Tape *tape, int index) {
  EmulateSite *site = &shared->emulation->site[index];
  SiteSums to = sums_of(shared, index);
  shared->batch.sums = to.sums;
  ema_sum_share(&shared->batch, &site->book, site->x, site->codes, site->rows);
  for (int64_t i = 0; i < codes_of(&site->book); i++) to.counts[i] = (real)shared->batch.counts[i];
  return shared->emulation->options.noise != 0 ? take_residuals(shared->emulation, site, tape, to.residuals) : STATUS_OK;
}

Status shared_codebooks_begin(SharedCodebooks *shared, Tape *tape) {
  for (int index = 0; index < site_count(shared->emulation); index++) TRY(take_sums(shared, tape, index));
  for (int64_t bucket = 0; bucket < all_reduce_buckets(shared->reduce); bucket++) all_reduce_ready(shared->reduce, bucket);
  return STATUS_OK;
}

/* ---------------------------------------------------------------- the sums of all */

static void apply_sums(SharedCodebooks *shared, int index) {
  Emulation *emulation = shared->emulation;
  EmulateSite *site = &emulation->site[index];
  SiteSums from = sums_of(shared, index);
  int64_t begin, rows;
  own_moment_rows(emulation, site, &begin, &rows);
  if (emulation->options.noise != 0) residual_sums_apply(&site->navq, from.residuals, rows);
  for (int64_t i = 0; i < codes_of(&site->book); i++) site->ema.counts[i] = (int32_t)from.counts[i];
  ema_apply(&site->ema, &site->book, from.sums, &emulation->options.ema);
}

static double mean_size(const Emulation *emulation, const EmulateSite *site) {
  int64_t first;
  return (double)whole_rows(emulation, site, &first) / (double)site->book.entries;
}

/* Which codewords are dead, in dead [G, K] of each site; how many. */
static int64_t find_dead(const SharedCodebooks *shared) {
  const Emulation *emulation = shared->emulation;
  int64_t codes = codes_of(&emulation->site[0].book), dead = 0;
  for (int index = 0; index < site_count(emulation); index++)
    for (int64_t i = 0; i < codes; i++) {
      const EmulateSite *site = &emulation->site[index];
      shared->dead[index * codes + i] =
          emulation->options.ema.dead_below > 0 && ema_is_dead(&site->ema, i, mean_size(emulation, site), &emulation->options.ema);
      dead += shared->dead[index * codes + i];
    }
  return dead;
}

/* Samples [dead, W/G] of the whole batch: of those in other ranks' shares this one gives zeros, and the sums are the samples. */
static void draw_samples(const SharedCodebooks *shared, Rng *rng, double *samples) {
  const Emulation *emulation = shared->emulation;
  int64_t codes = codes_of(&emulation->site[0].book), d = emulation->site[0].book.width / emulation->site[0].book.groups, at = 0;
  for (int64_t i = 0; i < site_count(emulation) * codes; i++) {
    if (!shared->dead[i]) continue;
    const EmulateSite *site = &emulation->site[i / codes];
    int64_t first, rows = whole_rows(emulation, site, &first), row = (int64_t)rng_below(rng, (uint64_t)rows) - first;
    const real *x = row >= 0 && row < site->rows ? site->x + row * site->book.width + i % codes / site->book.entries * d : NULL;
    for (int64_t j = 0; j < d; j++) samples[at + j] = x != NULL ? (double)x[j] : 0;
    at += d;
  }
}

static Status revive(SharedCodebooks *shared, Tape *tape, Rng *rng, int64_t dead) {
  Emulation *emulation = shared->emulation;
  int64_t codes = codes_of(&emulation->site[0].book), d = emulation->site[0].book.width / emulation->site[0].book.groups, at = 0;
  size_t mark = tape_scratch_begin(tape);
  double *samples = tape_alloc(tape, (size_t)(dead * d) * sizeof *samples);
  real *sample = tape_alloc(tape, (size_t)d * sizeof *sample);
  if (samples == NULL || sample == NULL) return tape_status(tape);
  draw_samples(shared, rng, samples);
  ranks_sum(samples, (int)(dead * d));
  for (int64_t i = 0; i < site_count(emulation) * codes; i++) {
    if (!shared->dead[i]) continue;
    EmulateSite *site = &emulation->site[i / codes];
    for (int64_t j = 0; j < d; j++) sample[j] = (real)samples[at + j];
    ema_revive(&site->ema, &site->book, i % codes, sample, mean_size(emulation, site));
    at += d;
  }
  emulation->revived += dead;
  tape_scratch_end(tape, mark);
  return STATUS_OK;
}

Status shared_codebooks_finish(SharedCodebooks *shared, Tape *tape, Rng *rng) {
  Emulation *emulation = shared->emulation;
  all_reduce_finish(shared->reduce);
  for (int index = 0; index < site_count(emulation); index++) apply_sums(shared, index);
  int64_t dead = find_dead(shared);
  if (dead > 0) TRY(revive(shared, tape, rng, dead));
  for (int index = 0; index < site_count(emulation); index++) codebook_refresh(&emulation->site[index].book);
  emulation->step++;
  return STATUS_OK;
}
