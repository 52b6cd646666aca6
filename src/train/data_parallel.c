/* See data_parallel.h. Leaves out: how sums travel (ranks.c). */
#include "train/data_parallel.h"
#include "base/threads.h"
#include "nn/safetensors.h"
#include "train/emulate.h"
#include "train/ranks.h"
#include "vq/navq.h"
#include <stdlib.h>
#include <string.h>

/* ---- Codebooks of all ranks ---- */

/* Codebooks and noise moments of a job of several ranks: each takes the sums of its share of a batch, these are added up beside the
 * backward pass, and all move codewords and moments by the same numbers: every rank keeps the same codebooks without sending any. What
 * emulate_update does in one process. */
typedef struct SharedCodebooks {
  Emulation *emulation;
  AllReduce *reduce;
  real *block;       /* for each site: counts [G, K], sums [G, K, W/G], residual sums; padded */
  int64_t site_size; /* numbers of a site there */
  CodebookEma batch; /* of one site: counts of its share; its sums are in the block */
  uint8_t *dead;     /* [G, K] of all sites */
} SharedCodebooks;

enum { PAD = 16 };

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

/* the emulation must not move */
static Status shared_codebooks_init(SharedCodebooks *shared, Emulation *emulation, int tag) {
  const EmulateSite *site = NULL;
  int64_t numbers = 0;
  for (int rate = 0; rate < emulation->rates; rate++) { /* room for any; the most codes are of the last */
    site = &emulation->all[rate * emulate_sites(emulation)];
    const int64_t moments = emulation->options.noise != 0 ? residual_sums_count(&site->navq) : 0;
    const int64_t of_rate = codes_of(&site->book) + words_of(&site->book) + moments;
    numbers = of_rate > numbers ? of_rate : numbers;
  }
  *shared = (SharedCodebooks){.emulation = emulation, .site_size = (numbers + PAD - 1) / PAD * PAD};
  int64_t total = shared->site_size * emulate_sites(emulation);
  TRY(ema_init(&shared->batch, &site->book, 0));
  free(shared->batch.sums);
  shared->batch.sums = NULL;
  shared->block = calloc((size_t)total, sizeof *shared->block);
  shared->dead = malloc((size_t)(codes_of(&site->book) * emulate_sites(emulation)));
  if (shared->block == NULL || shared->dead == NULL) return status_no_memory(NULL, "the sums of the codebooks over ranks");
  return all_reduce_new(&shared->reduce, shared->block, total, &(AllReduceOptions){.tag = tag});
}

/* ---------------------------------------------------------------- a share's sums */

/* Rows of a site in the whole batch; *first is where those of this rank begin. A sample has as many everywhere. */
static int64_t whole_rows(const Emulation *emulation, const EmulateSite *site, int64_t *first) {
  int64_t own = share_end(emulation->samples, (Share){ranks_self(), ranks_count()}) - emulation->first_sample, each = site->rows / own;
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

/* Before backward: the sums of this rank's share set out. Scratch comes from the tape. */
static Status shared_codebooks_begin(SharedCodebooks *shared, Tape *tape) {
  for (int index = 0; index < emulate_sites(shared->emulation); index++) {
    EmulateSite *site = &shared->emulation->site[index];
    SiteSums to = sums_of(shared, index);
    shared->batch.sums = to.sums;
    shared->batch.groups = site->book.groups; /* of several bit rates that with the most codes made the room */
    ema_sum_share(&shared->batch, &site->book, site->x, site->codes, site->rows);
    for (int64_t i = 0; i < codes_of(&site->book); i++) to.counts[i] = (real)shared->batch.counts[i];
    if (shared->emulation->options.noise != 0) TRY(take_residuals(shared->emulation, site, tape, to.residuals));
  }
  for (int64_t bucket = 0; bucket < all_reduce_buckets(shared->reduce); bucket++) all_reduce_ready(shared->reduce, bucket);
  return STATUS_OK;
}

/* ---------------------------------------------------------------- the sums of all */

static double mean_size(const Emulation *emulation, const EmulateSite *site) {
  int64_t first;
  return (double)whole_rows(emulation, site, &first) / (double)site->book.entries;
}

/* Which codewords are dead, in dead [G, K] of each site; how many. */
static int64_t find_dead(const SharedCodebooks *shared) {
  const Emulation *emulation = shared->emulation;
  int64_t codes = codes_of(&emulation->site[0].book), dead = 0;
  for (int index = 0; index < emulate_sites(emulation); index++)
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
  for (int64_t i = 0; i < emulate_sites(emulation) * codes; i++) {
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
  for (int64_t i = 0; i < emulate_sites(emulation) * codes; i++) {
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

/* After it: waits for them, moves all codebooks and numbers the step. rng: the same in all ranks. */
static Status shared_codebooks_finish(SharedCodebooks *shared, Tape *tape, Rng *rng) {
  Emulation *emulation = shared->emulation;
  all_reduce_finish(shared->reduce);
  for (int index = 0; index < emulate_sites(emulation); index++) {
    EmulateSite *site = &emulation->site[index];
    SiteSums from = sums_of(shared, index);
    int64_t begin, rows;
    own_moment_rows(emulation, site, &begin, &rows);
    if (emulation->options.noise != 0) residual_sums_apply(&site->navq, from.residuals, rows);
    for (int64_t i = 0; i < codes_of(&site->book); i++) site->ema.counts[i] = (int32_t)from.counts[i];
    ema_apply(&site->ema, &site->book, from.sums, &emulation->options.ema);
  }
  int64_t dead = find_dead(shared);
  if (dead > 0) TRY(revive(shared, tape, rng, dead));
  for (int index = 0; index < emulate_sites(emulation); index++) codebook_refresh(&emulation->site[index].book);
  emulation->step++;
  return STATUS_OK;
}

/* ---- Data parallel training ---- */

enum { TAG_GRADIENTS = 0, TAG_CODEBOOKS = 1 << 17 };

typedef struct Use {
  int64_t begin, end;      /* numbers of the block */
  int32_t expected, asked; /* uses in a backward pass: as planned, so far */
  int32_t planned;         /* in the pass that is being planned; of several, expected is the most */
  bool touched, final;
} Use;

struct DataParallel {
  Session *session;
  ParamSet *params;
  AllReduce *gradients;
  SharedCodebooks codebooks;
  TapeWatcher watcher;
  Use *use;         /* [params->count] */
  int32_t *pending; /* [buckets] parameters in it whose gradients are not final */
  size_t *touched;  /* [params->count] those that the operation under way has asked for */
  size_t touched_count;
  uint8_t *own;     /* [chunks] with a divided optimizer */
  int64_t *cuts;    /* [chunks] */
  bool leaving;     /* gradients set out in the backward pass under way */
  const char *late; /* a parameter that was asked for when its bucket had left */
};

static bool divided(const DataParallel *parallel) { return parallel->own != NULL; }

/* ---------------------------------------------------------------- when gradients are final */

static void asked(void *context, const Tensor *input) {
  DataParallel *parallel = context;
  uintptr_t at = (uintptr_t)input, list = (uintptr_t)parallel->params->list;
  size_t index = (size_t)(at - list) / sizeof(Param);
  if (at < list || index >= parallel->params->count) return;
  Use *use = &parallel->use[index];
  if (tape_planning(parallel->session->tape) && ++use->planned > use->expected) use->expected = use->planned;
  if (!parallel->leaving) return;
  if (use->final && parallel->late == NULL) parallel->late = parallel->params->list[index].name;
  use->asked++;
  if (!use->touched) parallel->touched[parallel->touched_count++] = index;
  use->touched = true;
}

void data_parallel_begin_plan(const Session *session) {
  DataParallel *parallel = session->parallel;
  for (size_t i = 0; parallel != NULL && i < parallel->params->count; i++) parallel->use[i].planned = 0;
}

static void mark_final(DataParallel *parallel, Use *use) {
  if (use->final || use->begin == use->end) return;
  use->final = true;
  for (int64_t bucket = 0; bucket < all_reduce_buckets(parallel->gradients); bucket++) {
    int64_t begin, end;
    all_reduce_bucket(parallel->gradients, bucket, &begin, &end);
    if (use->begin >= end || use->end <= begin) continue;
    if (--parallel->pending[bucket] == 0) all_reduce_ready(parallel->gradients, bucket);
  }
}

/* After each operation: what it asked for the last time has its gradient, and whatever is on its way moves on. */
static void ran(void *context) {
  DataParallel *parallel = context;
  if (!parallel->leaving) return;
  for (size_t i = 0; i < parallel->touched_count; i++) {
    Use *use = &parallel->use[parallel->touched[i]];
    use->touched = false;
    if (use->asked == use->expected) mark_final(parallel, use);
  }
  parallel->touched_count = 0;
  all_reduce_poll(parallel->gradients);
  if (parallel->codebooks.reduce != NULL) all_reduce_poll(parallel->codebooks.reduce);
}

static void begin_leaving(DataParallel *parallel) {
  memset(parallel->pending, 0, (size_t)all_reduce_buckets(parallel->gradients) * sizeof *parallel->pending);
  for (size_t i = 0; i < parallel->params->count; i++) {
    Use *use = &parallel->use[i];
    use->asked = 0;
    use->final = use->touched = false;
    for (int64_t bucket = 0; bucket < all_reduce_buckets(parallel->gradients); bucket++) {
      int64_t begin, end;
      all_reduce_bucket(parallel->gradients, bucket, &begin, &end);
      parallel->pending[bucket] += use->begin < end && use->end > begin;
    }
  }
  parallel->touched_count = 0;
  parallel->late = NULL;
  parallel->leaving = true;
}

/* ---------------------------------------------------------------- a step */

Status data_parallel_backward(Session *session, Tensor *loss, const TaskBatch *batch, bool exchange) {
  DataParallel *parallel = session->parallel;
  if (exchange) TRY(shared_codebooks_begin(&parallel->codebooks, session->tape));
  if (!session->more_batches) begin_leaving(parallel);
  Status status = tape_backward_from(session->tape, loss, (real)batch->count / (real)batch->whole);
  if (status == STATUS_OK && parallel->late != NULL)
    status = status_set(STATUS_BAD_VALUE, "the backward pass used %s more often than the plan of a step said: please report this",
                        parallel->late);
  TRY(status);
  if (!session->more_batches) { /* what was used less often than planned is final as well, now that the pass is over */
    parallel->leaving = false;
    for (size_t i = 0; i < parallel->params->count; i++) mark_final(parallel, &parallel->use[i]);
    all_reduce_finish(parallel->gradients);
  }
  return exchange ? shared_codebooks_finish(&parallel->codebooks, session->tape, &session->revive_rng) : STATUS_OK;
}

Status data_parallel_step(Session *session, double factor, double scale, double *norm) {
  DataParallel *parallel = session->parallel;
  Status status = optimizer_step(&session->optimizer, factor, scale, norm);
  if (parallel == NULL) return status;
  if (status == STATUS_OK && divided(parallel)) {
    all_reduce_gather(parallel->gradients, parallel->params->values, sizeof(real), false);
    param_refresh_shadows(parallel->params, false);
  }
  return ranks_common(status); /* of a norm that all ranks have */
}

/* ---------------------------------------------------------------- divided states */

void data_parallel_gather_average(Session *session) {
  DataParallel *parallel = session->parallel;
  if (parallel == NULL || !divided(parallel) || session->optimizer.average == NULL) return;
  all_reduce_gather(parallel->gradients, session->optimizer.average, sizeof(real), false);
}

/* Of moments in 8 bits; those of chunks that are not its own are zero in a rank. */
static void add_scales(const Optimizer *optimizer, float *scales) {
  double part[1024];
  int64_t max = sizeof part / sizeof *part;
  for (int64_t at = 0; scales != NULL && at < optimizer->scales; at += max) {
    int64_t count = optimizer->scales - at < max ? optimizer->scales - at : max;
    for (int64_t i = 0; i < count; i++) part[i] = (double)scales[at + i];
    ranks_sum(part, (int)count);
    for (int64_t i = 0; i < count; i++) scales[at + i] = (float)part[i];
  }
}

static void forget_scales(const Optimizer *optimizer, float *scales) {
  for (int64_t i = 0; scales != NULL && i < optimizer->chunks; i++) {
    int64_t begin = optimizer->chunk[i].scale, end = i + 1 < optimizer->chunks ? optimizer->chunk[i + 1].scale : optimizer->scales;
    if (!optimizer->own[i]) memset(scales + begin, 0, (size_t)(end - begin) * sizeof *scales);
  }
}

static void gather_states(Session *session) {
  DataParallel *parallel = session->parallel;
  Optimizer *optimizer = &session->optimizer;
  if (parallel == NULL || !divided(parallel)) return;
  const size_t bytes = optimizer_number_bytes((OptimizerMoments)optimizer->options.moments);
  all_reduce_gather(parallel->gradients, optimizer->first.numbers, bytes, true);
  all_reduce_gather(parallel->gradients, optimizer->second.numbers, bytes, true);
  add_scales(optimizer, optimizer->first.scales);
  add_scales(optimizer, optimizer->second.scales);
}

/* Gives back the memory of other ranks' states. */
static void scatter_states(Session *session) {
  DataParallel *parallel = session->parallel;
  Optimizer *optimizer = &session->optimizer;
  if (parallel == NULL || !divided(parallel)) return;
  const size_t bytes = optimizer_number_bytes((OptimizerMoments)optimizer->options.moments);
  all_reduce_forget(parallel->gradients, optimizer->first.numbers, bytes);
  all_reduce_forget(parallel->gradients, optimizer->second.numbers, bytes);
  forget_scales(optimizer, optimizer->first.scales);
  forget_scales(optimizer, optimizer->second.scales);
}

Status data_parallel_write(Session *session, Status (*write)(Session *session)) {
  data_parallel_gather_average(session);
  gather_states(session);
  const Status status = ranks_follow(ranks_self() == 0 ? write(session) : STATUS_OK);
  scatter_states(session);
  return status;
}

/* ---------------------------------------------------------------- looking at each other */

static uint64_t digest_of(const Session *session) {
  const ParamSet *params = model_params(session->model);
  const Emulation *emulation = &session->emulation;
  uint64_t part[2] = {safe_digest_of(params->values, (size_t)params->total * sizeof(real)), 0};
  for (int index = 0; session_astra(session) && index < emulate_all_sites(emulation); index++) {
    const EmulateSite *site = &emulation->all[index];
    size_t words = (size_t)(site->book.entries * site->book.width), sizes = (size_t)(site->book.entries * site->book.groups);
    size_t spread = (size_t)noise_spread(site->book.groups, site->book.width, site->navq.kind), width = (size_t)site->book.width;
    uint64_t all[6] = {part[1],
                       safe_digest_of(site->book.codewords, words * sizeof(real)),
                       safe_digest_of(site->ema.sums, words * sizeof(real)),
                       safe_digest_of(site->ema.sizes, sizes * sizeof(real)),
                       safe_digest_of(site->navq.mean, width * sizeof(real)),
                       safe_digest_of(site->navq.factor, spread * sizeof(real))};
    part[1] = safe_digest_of(all, sizeof all);
  }
  return safe_digest_of(part, sizeof part);
}

/* *other: the first rank whose number is not rank 0's; the number of ranks where all have the same. */
static Status find_other(uint64_t own, int *other) {
  const int ranks = ranks_count();
  uint64_t *all = calloc((size_t)ranks, sizeof *all);
  if (all == NULL) return status_set(STATUS_NO_MEMORY, "no memory for %d ranks", ranks);
  ranks_gather(&own, all, sizeof own);
  for (*other = 1; *other < ranks && all[*other] == all[0];) ++*other;
  free(all);
  return STATUS_OK;
}

/* Muon's directions are products cut over the pool, which every rank computes: with another number of threads they round differently,
 * and the ranks' weights would not stay the same. */
static Status compare_threads(const Session *session) {
  int other = 0;
  if (session->options.optimizer.kind != OPTIMIZER_MUON) return STATUS_OK;
  TRY(find_other((uint64_t)threads_count(), &other));
  if (other == ranks_count()) return STATUS_OK;
  return ranks_common(status_set(STATUS_BAD_USAGE,
                                 "rank %d has another number of threads than rank 0, and with --optimizer muon weights depend on it: give "
                                 "all ranks the same --threads",
                                 other));
}

Status data_parallel_compare(Session *session) {
  int other = 0;
  if (session->parallel == NULL) return STATUS_OK;
  TRY(find_other(digest_of(session), &other));
  if (other < ranks_count())
    return ranks_common(
        status_set(STATUS_PEER,
                   "at step %lld rank %d has other weights or codebooks than rank 0: the ranks must run the same program on the "
                   "same data and weights; the last checkpoint is kept",
                   (long long)session->step, other));
  TRY(find_other((uint64_t)session->options.precision, &other));
  if (other < ranks_count())
    return ranks_common(status_set(STATUS_BAD_USAGE,
                                   "rank %d computes in another precision than rank 0, since --precision auto measures each machine: give "
                                   "--precision fp32 or bf16",
                                   other));
  return compare_threads(session);
}

void data_parallel_add_usage(Session *session, EmulateSite *sites, int count) {
  for (int index = 0; session->parallel != NULL && session_astra(session) && index < count; index++) {
    CodeUsage *usage = &sites[index].usage;
    ranks_count_all(usage->counts, usage->groups * usage->entries);
    ranks_count_all(&usage->rows, 1);
    ranks_sum(&usage->distortion, 1);
  }
}

/* ---------------------------------------------------------------- opening */

static void sum_over_ranks(double *numbers, int64_t count) { ranks_sum(numbers, (int)count); }

static Status open_sums(DataParallel *parallel) {
  Session *session = parallel->session;
  ParamSet *params = parallel->params;
  const TrainOptions *options = &session->options;
  Optimizer *optimizer = &session->optimizer;
  if (options->shard_optimizer) { /* slices begin where chunks of the optimizer do, so that each chunk is one rank's */
    parallel->cuts = calloc((size_t)optimizer->chunks + 1, sizeof *parallel->cuts);
    parallel->own = calloc((size_t)optimizer->chunks + 1, sizeof *parallel->own);
    if (parallel->cuts == NULL || parallel->own == NULL) return status_no_memory(NULL, "dividing the optimizer's states");
    for (int64_t i = 0; i < optimizer->chunks; i++) parallel->cuts[i] = optimizer->chunk[i].offset;
  }
  AllReduceOptions reduce = {.wire = (Wire)options->wire,
                             .scatter_only = options->shard_optimizer,
                             .tag = TAG_GRADIENTS,
                             .cuts = parallel->cuts,
                             .cut_count = optimizer->chunks};
  TRY(all_reduce_new(&parallel->gradients, params->grads, params->total, &reduce));
  parallel->use = calloc(params->count, sizeof *parallel->use);
  parallel->touched = calloc(params->count, sizeof *parallel->touched);
  parallel->pending = calloc((size_t)all_reduce_buckets(parallel->gradients) + 1, sizeof *parallel->pending);
  if (parallel->use == NULL || parallel->touched == NULL || parallel->pending == NULL)
    return status_set(STATUS_NO_MEMORY, "no memory to follow the gradients of %zu parameters", params->count);
  for (size_t i = 0; i < params->count; i++) {
    if (params->list[i].frozen) continue;
    int64_t begin = params->list[i].tensor.value - params->values;
    parallel->use[i] = (Use){.begin = begin, .end = begin + tensor_count(&params->list[i].tensor)};
  }
  if (divided(parallel)) {
    for (int64_t i = 0; i < optimizer->chunks; i++) parallel->own[i] = all_reduce_owns(parallel->gradients, optimizer->chunk[i].offset);
    optimizer->own = parallel->own;
    optimizer->sum = sum_over_ranks;
    scatter_states(session);
  }
  return session_astra(session) ? shared_codebooks_init(&parallel->codebooks, &session->emulation, TAG_CODEBOOKS) : STATUS_OK;
}

Status data_parallel_check(const Session *session) {
  if (ranks_count() == 1 || session_batch(session) >= ranks_count()) return STATUS_OK;
  return ranks_common(status_set(STATUS_BAD_USAGE,
                                 "--batch %lld: each of %d ranks takes a share of every batch, so that at least as many %s are needed",
                                 (long long)session_batch(session), ranks_count(), session->task->source->name.samples));
}

Status data_parallel_open(Session *session) {
  if (ranks_count() == 1) return STATUS_OK;
  session->share = (Share){ranks_self(), ranks_count()};
  DataParallel *parallel = session->parallel = calloc(1, sizeof *parallel);
  if (parallel == NULL) return status_no_memory(NULL, "a job of ranks");
  *parallel = (DataParallel){.session = session, .params = model_params(session->model)};
  parallel->watcher = (TapeWatcher){asked, ran, parallel};
  Status status = open_sums(parallel);
  tape_watch(session->tape, &parallel->watcher);
  return status;
}

void data_parallel_close(Session *session) {
  DataParallel *parallel = session->parallel;
  if (parallel == NULL) return;
  tape_watch(session->tape, NULL);
  session->optimizer.own = NULL;
  all_reduce_free(parallel->gradients);
  all_reduce_free(parallel->codebooks.reduce);
  parallel->codebooks.batch.sums = NULL; /* in the block */
  ema_release(&parallel->codebooks.batch);
  free(parallel->codebooks.block);
  free(parallel->codebooks.dead);
  free(parallel->use);
  free(parallel->touched);
  free(parallel->pending);
  free(parallel->own);
  free(parallel->cuts);
  free(parallel);
  session->parallel = NULL;
}
