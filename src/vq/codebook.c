/* Grouped codebooks: storage, nearest codeword, lookup, usage. kmeans.c and ema.c compute codewords.
 *
 * The nearest codeword minimises |e|^2 / 2 - x.e, so the work is a product of a tile of rows with the codewords. Many rows are searched in
 * bytes where the processor supports it; else narrow groups keep each row's best while they multiply, and for wide ones BLAS multiplies a
 * tile of codewords, whose scores stay in the second-level cache until the scan that follows. Tiles depend only on the number of rows,
 * never on the number of threads: the same products are done by whatever threads, and the result does not depend on the pool. */
#include "vq/codebook.h"
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include "autograd/kernels/nearest_packed.h"
#include "base/number.h"
#include "base/threads.h"
#include "vq/pack.h"
#include "vq/rans.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  TILE_ROWS = 128,
  TILE_ENTRIES = 512,  /* a tile of scores: 256 KiB of floats */
  MAX_SLOTS = 64,      /* pieces that the rows are cut into; each holds one partial distortion per group */
  GROUP_NUMBERS = 48,  /* of a row: three cache lines */
  PACKED_MIN = 256,    /* rows from which packing the codewords costs less than it saves */
  LINE = 64,           /* bytes that packs are aligned to */
  WIDTH_MAX = 1 << 24, /* keeps every size computation far from overflow */
  REFRESH_GRAIN = 64,  /* codewords */
  LOOKUP_GRAIN = 16,   /* rows */
};

static Status check_shape(int64_t groups, int64_t entries, int64_t width) {
  if (width < 1 || width > WIDTH_MAX)
    return status_set(STATUS_BAD_VALUE, "codebook: width %" PRId64 " is not in 1 to %d", width, WIDTH_MAX);
  if (groups < 1 || width % groups != 0)
    return status_set(STATUS_BAD_VALUE, "codebook: %" PRId64 " groups do not divide the width %" PRId64 "; take a divisor of it", groups,
                      width);
  if (entries < CODEBOOK_MIN || entries > CODEBOOK_MAX)
    return status_set(STATUS_BAD_VALUE, "codebook: %" PRId64 " entries are not in %d to %d", entries, CODEBOOK_MIN, CODEBOOK_MAX);
  return STATUS_OK;
}

Status codebook_init(Codebook *book, int64_t groups, int64_t entries, int64_t width, real *codewords) {
  memset(book, 0, sizeof *book);
  TRY(check_shape(groups, entries, width));
  *book = (Codebook){.groups = groups, .entries = entries, .width = width, .codewords = codewords, .owns = codewords == NULL};
  if (book->owns) book->codewords = calloc((size_t)(entries * width), sizeof(real));
  book->half_norms = calloc((size_t)(groups * entries), sizeof(real));
  if (!book->codewords || !book->half_norms) {
    codebook_release(book);
    return status_set(STATUS_NO_MEMORY, "codebook: no memory for %" PRId64 " groups of %" PRId64 " entries at width %" PRId64, groups,
                      entries, width);
  }
  if (!book->owns) codebook_refresh(book);
  return STATUS_OK;
}

Status codebook_init_narrow(Codebook *book, int64_t groups, int64_t entries, int64_t width, NarrowKind kind, const uint16_t *codewords) {
  memset(book, 0, sizeof *book);
  TRY(check_shape(groups, entries, width));
  *book = (Codebook){.groups = groups, .entries = entries, .width = width, .narrow = codewords, .kind = kind};
  int64_t d = width / groups;
  real *word = malloc((size_t)d * sizeof *word);
  book->half_norms = calloc((size_t)(groups * entries), sizeof(real));
  for (int64_t i = 0; word && book->half_norms && i < groups * entries; i++) { /* the sums of refresh_range */
    codebook_words(book, i, 1, word);
    book->half_norms[i] = (real)(0.5 * kernels()->sum_squares(d, word));
  }
  bool whole = word && book->half_norms;
  free(word);
  if (whole) return STATUS_OK;
  codebook_release(book);
  return status_set(STATUS_NO_MEMORY, "codebook: no memory for the norms of %" PRId64 " codewords", groups * entries);
}

void codebook_words(const Codebook *book, int64_t first, int64_t count, real *out) {
  int64_t d = book->width / book->groups;
  if (book->narrow)
    kernels()->widen(book->kind, count * d, book->narrow + first * d, out);
  else
    memcpy(out, book->codewords + first * d, (size_t)(count * d) * sizeof *out);
}

void codebook_release(Codebook *book) {
  if (book->owns) free(book->codewords);
  free(book->half_norms);
  memset(book, 0, sizeof *book);
}

static void refresh_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Codebook *book = context;
  int64_t d = book->width / book->groups;
  for (int64_t i = begin; i < end; i++) book->half_norms[i] = (real)(0.5 * kernels()->sum_squares(d, book->codewords + i * d));
}

void codebook_constrain(Codebook *book, const uint16_t *frequencies, double weight) {
  for (int64_t g = 0; g < book->groups; g++) {
    const uint16_t *of = frequencies + g * book->entries;
    real *half = book->half_norms + g * book->entries;
    double mean = 0;
    for (int64_t k = 0; k < book->entries; k++) mean += (double)of[k] / RANS_TOTAL * (double)half[k];
    for (int64_t k = 0; k < book->entries; k++) half[k] += (real)(weight * mean * (RANS_BITS - log2((double)of[k])));
  }
}

void codebook_refresh(Codebook *book) { threads_for(book->groups * book->entries, REFRESH_GRAIN, refresh_range, book); }

/* ---- nearest codeword ---- */

typedef struct AssignJob {
  const Codebook *book;
  const real *x; /* [rows, W] */
  int64_t rows;
  int32_t *codes;   /* [rows, G] */
  int64_t slots;    /* the rows are cut into */
  int64_t per_slot; /* rows of one */
  double *partial;  /* [G, slots] distortions, or NULL */
  real *scores;     /* [threads, TILE_ROWS x TILE_ENTRIES + TILE_ROWS + wide_numbers] */
  char *packs;      /* [G] of pack_bytes each, or NULL: not searched in bytes */
  size_t pack_bytes;
  char *memory; /* [threads] of search_bytes each */
  size_t search_bytes;
} AssignJob;

/* Numbers of 16-bit codewords as reals: of a group, or for wide groups of a tile. */
static size_t wide_numbers(const Codebook *book) {
  int64_t d = book->width / book->groups;
  if (!book->narrow) return 0;
  return (size_t)(d * (d <= NEAREST_MAX_WIDTH ? book->entries : number_lesser(TILE_ENTRIES, book->entries)));
}

static size_t scores_of_thread(const Codebook *book) { return TILE_ROWS * TILE_ENTRIES + TILE_ROWS + wide_numbers(book); }

/* Size of one group's pack: 0 where there are too few rows, or the codewords are not searched in bytes. */
static size_t pack_bytes(const Codebook *book, int64_t rows) {
  const NearestPacked *packed = kernels_native()->nearest_packed;
  return packed && !book->narrow && rows >= PACKED_MIN ? packed->pack_bytes(book->entries, book->width / book->groups) : 0;
}

size_t codebook_assign_scratch(const Codebook *book, int64_t max_rows) {
  size_t partial = (size_t)(MAX_SLOTS * book->groups) * sizeof(double), threads = (size_t)threads_count();
  size_t scores = threads * scores_of_thread(book) * sizeof(real), pack = pack_bytes(book, max_rows);
  if (pack == 0) return partial + scores;
  size_t packed = LINE + (size_t)book->groups * pack +
                  threads * kernels_native()->nearest_packed->search_bytes(book->entries, book->width / book->groups);
  return partial + (packed > scores ? packed : scores);
}

/* Codewords [from, from + count) of group g; those of 16 bits in `wide`, which holds a narrow group's already. */
static const real *words_at(const Codebook *book, int64_t g, int64_t from, int64_t count, real *wide) {
  int64_t d = book->width / book->groups;
  if (!book->narrow) return book->codewords + (g * book->entries + from) * d;
  if (d <= NEAREST_MAX_WIDTH) return wide + from * d;
  codebook_words(book, g * book->entries + from, count, wide);
  return wide;
}

static NearestPack *pack_of(const AssignJob *job, int64_t g) { return (NearestPack *)(void *)(job->packs + (size_t)g * job->pack_bytes); }

static void pack_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const AssignJob *job = context;
  const Codebook *book = job->book;
  int64_t d = book->width / book->groups, k = book->entries;
  for (int64_t g = begin; g < end; g++)
    kernels_native()->nearest_packed->pack(k, d, book->codewords + g * k * d, book->half_norms + g * k, pack_of(job, g));
}

/* Codes of rows [first, first + rows) in group g; rows <= TILE_ROWS. */
static void assign_tile(const AssignJob *job, int64_t g, int64_t first, int64_t rows, int thread, real *wide) {
  const Codebook *book = job->book;
  int64_t d = book->width / book->groups, k = book->entries;
  const real *x = job->x + first * book->width + g * d;
  int32_t *codes = job->codes + first * book->groups + g;
  if (job->packs) {
    const double begun = matmul_count_begin();
    kernels_native()->nearest_packed->search(pack_of(job, g), rows, x, book->width, codes, book->groups,
                                             job->memory + (size_t)thread * job->search_bytes);
    matmul_count_end(rows, k, d, begun);
    return;
  }
  if (d <= NEAREST_MAX_WIDTH) {
    const double begun = matmul_count_begin();
    kernels()->nearest_words(rows, k, d, x, book->width, words_at(book, g, 0, k, wide), book->half_norms + g * k, codes, book->groups);
    matmul_count_end(rows, k, d, begun);
    return;
  }
  real *scores = job->scores + (size_t)thread * scores_of_thread(book), *best = scores + TILE_ROWS * TILE_ENTRIES;
  for (int64_t from = 0; from < k; from += TILE_ENTRIES) {
    int64_t entries = number_lesser(TILE_ENTRIES, k - from);
    matmul_single(false, true, rows, entries, d, 1, x, book->width, words_at(book, g, from, entries, wide), d, 0, scores, entries);
    for (int64_t r = 0; r < rows; r++) {
      real value;
      int32_t found = kernels()->nearest(entries, book->half_norms + g * k + from, scores + r * entries, &value);
      if (from > 0 && !(value < best[r])) continue;
      best[r] = value;
      codes[r * book->groups] = (int32_t)from + found;
    }
  }
}

static double tile_distortion(const AssignJob *job, int64_t g, int64_t first, int64_t rows, real *wide) {
  const Codebook *book = job->book;
  int64_t d = book->width / book->groups;
  const real *x = job->x + first * book->width + g * d;
  const int32_t *codes = job->codes + first * book->groups + g;
  if (d <= NEAREST_MAX_WIDTH) {
    const WordList words = {rows, d, d, words_at(book, g, 0, book->entries, wide), 0, codes, book->groups};
    return kernels()->words_distance(&words, x, book->width);
  }
  double sum = 0;
  for (int64_t r = 0; r < rows; r++) {
    const WordList word = {1, d, d, words_at(book, g, codes[r * book->groups], 1, wide), 0, (const int32_t[]){0}, 0};
    sum += kernels()->words_distance(&word, x + r * book->width, 0);
  }
  return sum;
}

/* Items are [blocks of groups, slots, groups of a block]: a thread stays with a few groups' codewords as long as it can. A block holds
 * neighbouring groups whose numbers of a row share cache lines: a slot's rows are read once for all of them. */
static void assign_range(void *context, int64_t begin, int64_t end, int thread) {
  const AssignJob *job = context;
  const Codebook *book = job->book;
  const int64_t d = book->width / book->groups;
  const int64_t at_once = book->narrow /* each is widened */ || d >= GROUP_NUMBERS ? 1 : number_lesser(book->groups, GROUP_NUMBERS / d);
  real *wide = job->scores + (size_t)thread * scores_of_thread(book) + TILE_ROWS * TILE_ENTRIES + TILE_ROWS;
  int64_t widened = -1; /* whose codewords are in `wide` */
  for (int64_t item = begin; item < end; item++) {
    const int64_t block = item / (at_once * job->slots) * at_once, rest = item - block * job->slots;
    const int64_t groups = number_lesser(at_once, book->groups - block), slot = rest / groups, g = block + rest % groups;
    int64_t first = slot * job->per_slot, last = number_lesser(first + job->per_slot, job->rows);
    double sum = 0;
    if (book->narrow && d <= NEAREST_MAX_WIDTH && first < last && g != widened) {
      codebook_words(book, g * book->entries, book->entries, wide);
      widened = g;
    }
    for (; first < last; first += TILE_ROWS) {
      int64_t rows = number_lesser(TILE_ROWS, last - first);
      assign_tile(job, g, first, rows, thread, wide);
      if (job->partial) sum += tile_distortion(job, g, first, rows, wide);
    }
    if (job->partial) job->partial[g * job->slots + slot] = sum;
  }
}

void codebook_assign(const Codebook *book, const real *x, int64_t rows, int32_t *codes, double *distortion, void *scratch) {
  if (distortion) *distortion = 0;
  if (rows <= 0) return;
  double *partial = scratch;
  AssignJob job = {.book = book, .x = x, .rows = rows, .codes = codes, .partial = distortion ? partial : NULL};
  job.scores = (real *)(void *)(partial + MAX_SLOTS * book->groups);
  /* Few enough slots for the scratch, a multiple of four so that a few threads get equal shares, and whole groups of eight rows. */
  job.slots = number_lesser(MAX_SLOTS, ((rows + TILE_ROWS - 1) / TILE_ROWS + 3) / 4 * 4);
  job.per_slot = ((rows + job.slots - 1) / job.slots + 7) / 8 * 8;
  job.pack_bytes = pack_bytes(book, rows);
  if (job.pack_bytes > 0) {
    job.packs = (char *)(((uintptr_t)job.scores + LINE - 1) / LINE * LINE);
    job.memory = job.packs + (size_t)book->groups * job.pack_bytes;
    job.search_bytes = kernels_native()->nearest_packed->search_bytes(book->entries, book->width / book->groups);
    threads_for(book->groups, 1, pack_range, &job);
  }
  threads_for(book->groups * job.slots, 1, assign_range, &job);
  if (!distortion) return;
  for (int64_t i = 0; i < book->groups * job.slots; i++) *distortion += partial[i];
}

/* ---- lookup ---- */

typedef struct LookupJob {
  const Codebook *book;
  const int32_t *codes; /* [rows, G] */
  real *out;            /* [rows, W] */
} LookupJob;

static void lookup_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const LookupJob *job = context;
  const Codebook *book = job->book;
  int64_t d = book->width / book->groups;
  for (int64_t r = begin; r < end; r++) {
    const int32_t *codes = job->codes + r * book->groups;
    real *out = job->out + r * book->width;
    if (!book->narrow) kernels()->words_copy(&(WordList){book->groups, d, d, book->codewords, book->entries * d, codes, 1}, out, d);
    for (int64_t g = 0; book->narrow && g < book->groups; g++) codebook_words(book, g * book->entries + codes[g], 1, out + g * d);
  }
}

void codebook_lookup(const Codebook *book, const int32_t *codes, int64_t rows, real *out) {
  LookupJob job = {book, codes, out};
  threads_for(rows, LOOKUP_GRAIN, lookup_range, &job);
}

/* ---- usage ---- */

/* Counts are exact; the summary is computed on demand. */

Status usage_init(CodeUsage *usage, int64_t groups, int64_t entries) {
  *usage = (CodeUsage){.groups = groups, .entries = entries};
  usage->counts = calloc((size_t)(groups * entries), sizeof *usage->counts);
  if (!usage->counts) return status_set(STATUS_NO_MEMORY, "no memory to count %" PRId64 " x %" PRId64 " codes", groups, entries);
  return STATUS_OK;
}

void usage_clear(CodeUsage *usage) {
  memset(usage->counts, 0, (size_t)(usage->groups * usage->entries) * sizeof *usage->counts);
  usage->rows = 0;
  usage->distortion = 0;
}

void usage_release(CodeUsage *usage) {
  free(usage->counts);
  memset(usage, 0, sizeof *usage);
}

typedef struct AddJob {
  CodeUsage *usage;
  const int32_t *codes; /* [rows, G] */
  int64_t rows;
} AddJob;

static void add_groups(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const AddJob *job = context;
  const CodeUsage *usage = job->usage;
  for (int64_t r = 0; r < job->rows; r++)
    for (int64_t g = begin; g < end; g++) usage->counts[g * usage->entries + job->codes[r * usage->groups + g]]++;
}

void usage_add(CodeUsage *usage, const int32_t *codes, int64_t rows, double distortion) {
  threads_for(usage->groups, 1, add_groups, &(AddJob){usage, codes, rows});
  usage->rows += rows;
  usage->distortion += distortion;
}

/* Entropy of one group's codes in nats; adds the codes in use to *used. */
static double group_entropy(const int64_t *counts, int64_t entries, int64_t rows, int64_t *used) {
  double entropy = 0;
  for (int64_t k = 0; k < entries; k++) {
    if (counts[k] == 0) continue;
    double share = (double)counts[k] / (double)rows;
    entropy -= share * log(share);
    ++*used;
  }
  return entropy;
}

UsageSummary usage_summary(const CodeUsage *usage) {
  UsageSummary summary = {.dead = 1};
  if (usage->rows == 0) return summary;
  int64_t used = 0;
  for (int64_t g = 0; g < usage->groups; g++) {
    double entropy = group_entropy(usage->counts + g * usage->entries, usage->entries, usage->rows, &used);
    summary.perplexity += exp(entropy) / (double)usage->groups;
    summary.entropy_bits += entropy / log(2) / (double)usage->groups;
  }
  summary.used = (double)used / (double)(usage->groups * usage->entries);
  summary.dead = 1 - summary.used;
  summary.distortion = usage->distortion / (double)usage->rows;
  return summary;
}
