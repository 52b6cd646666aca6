/* K-means over streamed embeddings: see codebooks.h. A watcher on the plain model's forward pass keeps random rows of every
 * image or window of text, so that one pass over some of them fills the samples of all blocks at once. */
#include "train/codebooks.h"
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/text.h"
#include "train/ranks.h"
#include "train/session.h"
#include "vq/basis.h"
#include "vq/rans.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- How often each code is used ---- */

Status codebooks_frequencies(const Session *session, bool averaged, uint16_t *frequencies) {
  const Emulation *emulation = &session->emulation;
  int64_t entries = session->config->astra.codebook_size;
  double *counts = malloc((size_t)entries * sizeof *counts);
  Status status = counts ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory to count %lld codes", (long long)entries);
  for (int i = 0; i < emulate_all_sites(emulation); i++) {
    const EmulateSite *site = &emulation->all[i];
    for (int64_t group = 0; status == STATUS_OK && group < site->book.groups; group++, frequencies += entries) {
      for (int64_t k = 0; k < entries; k++) /* Laplace: a code that was not seen is not impossible */
        counts[k] = averaged ? (double)site->ema.sizes[group * entries + k] : (double)site->usage.counts[group * entries + k] + 1;
      status = code_frequencies_fit(counts, entries, frequencies);
    }
  }
  free(counts);
  return status;
}

/* ---- Codebooks to start with ---- */

enum { STREAM_SAMPLES = 16, ROWS_PER_SAMPLE = 64 };
enum { SAMPLES_PER_CODE = 16, SAMPLES_PER_INPUT = 16, FEW_PER_INPUT = 4 };

typedef struct Watcher {
  Exchange exchange;            /* its begin is called with each site's activations */
  real *samples;                /* [sites, limit, width] */
  real *known[CONFIG_RATES][2]; /* with predictions, of each rate [limit, P], as receivers know them (exchange.h): of the block before and
                                 * of that at work, which take turns; else NULL */
  int turn[CONFIG_RATES];       /* which one is of the block before: known_before */
  real *expected;               /* [limit, width]: what the block before tells of a site */
  int32_t *position; /* [limit] of images whose tokens are quantised less their mean at each (AstraConfig.position_mean); else NULL */
  real *whole;       /* with predictions of several bit rates [limit, width]: the rotated samples of the site at work; else NULL */
  int rate;          /* in use */
  int64_t limit, width, filled;
  int64_t per_sample;
  int64_t class_rows, sent_class_rows;     /* of a sample, in front of its tokens; of these, that others see: 1 of a single class token */
  int64_t *chosen;                         /* [samples of the batch x per_sample] rows of the batch's activations, the same for all sites */
  int64_t taken;                           /* of them: rows of this batch, as many as still fit */
  int block_sites, first_coded, end_coded; /* of a block; config_first_coded, config_end_coded */
} Watcher;

static real *known_before(const Watcher *watcher) { return watcher->known[watcher->rate][watcher->turn[watcher->rate]]; }
static real *known_after(const Watcher *watcher) { return watcher->known[watcher->rate][!watcher->turn[watcher->rate]]; }

static Status watch(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  const Watcher *watcher = (Watcher *)self;
  (void)layout, (void)part;
  for (int site = 0; block < watcher->end_coded && site < watcher->block_sites; site++) {
    const int64_t set = (block - watcher->first_coded) * watcher->block_sites + site;
    real *to = watcher->samples + (set * watcher->limit + watcher->filled) * watcher->width;
    for (int64_t i = 0; i < watcher->taken; i++)
      tensor_read(h[site], watcher->chosen[i] * watcher->width, watcher->width, to + i * watcher->width);
  }
  return tape_status(tape);
}

/* Rows of the first block that every device knows in full. */
static Status watch_known(Exchange *self, Tape *tape, const TokenLayout *layout, int part, Tensor *own, Tensor *remote) {
  const Watcher *watcher = (Watcher *)self;
  const int64_t width = tensor_width(own);
  (void)layout, (void)part, (void)remote;
  for (int64_t i = 0; i < watcher->taken; i++)
    tensor_read(own, watcher->chosen[i] * width, width, known_before(watcher) + (watcher->filled + i) * width);
  return tape_status(tape);
}

/* Which rows of each sample: a random choice without repetition among those that are quantised and not padding. tokens: scratch; the class
 * token is number -1. */
static void choose_rows(Watcher *watcher, Rng *rng, int32_t *tokens, const TaskBatch *batch) {
  const int64_t rows = watcher->class_rows + batch->tokens, ahead = watcher->sent_class_rows;
  watcher->taken = 0;
  for (int64_t sample = 0; sample < batch->count; sample++) {
    const int64_t length = ahead + (batch->lengths ? batch->lengths[sample] : batch->tokens);
    for (int64_t t = 0; t < length; t++) tokens[t] = (int32_t)(t - ahead);
    rng_shuffle(rng, tokens, length);
    for (int64_t i = 0; i < length && i < watcher->per_sample; i++) {
      const int64_t at = watcher->filled + watcher->taken;
      if (watcher->position && at < watcher->limit) watcher->position[at] = tokens[i];
      watcher->chosen[watcher->taken++] = sample * rows + watcher->class_rows + tokens[i];
    }
  }
  if (watcher->taken > watcher->limit - watcher->filled) watcher->taken = watcher->limit - watcher->filled;
}

static Status watch_batch(Session *session, TaskPart part, Watcher *watcher, Rng *rng) {
  TaskBatch batch;
  TRY(session->task->source->next(session, part, &batch));
  choose_rows(watcher, rng, session->order, &batch);
  TRY(task_lay_plain(session, batch.tokens));
  ModelInput input = task_input(session->tape, &batch, session->config);
  model_watch(session->model, &watcher->exchange);
  model_encode(session->model, session->tape, &input, &session->plain_layout, NULL,
               session->task->source->texts ? MODEL_ROWS_LAST : MODEL_ROWS_CLASS);
  model_watch(session->model, NULL);
  Status status = tape_status(session->tape);
  tape_clear(session->tape);
  watcher->filled += watcher->taken;
  return status;
}

static Status watch_all(Session *session, TaskPart part, Watcher *watcher) {
  Rng rng;
  rng_init(&rng, (uint64_t)session->options.seed, STREAM_SAMPLES);
  Progress progress;
  progress_start(&progress, "embeddings", watcher->limit, session->options.quiet);
  tape_record(session->tape, false);
  Status status = session->task->source->seek(session, part, 0, 0);
  while (status == STATUS_OK && watcher->filled < watcher->limit) {
    status = watch_batch(session, part, watcher, &rng);
    progress_update(&progress, watcher->filled, NULL);
  }
  progress_finish(&progress, watcher->filled, NULL);
  const size_t known = (size_t)(watcher->limit * config_known_width(session->config)) * sizeof(real);
  for (int rate = 0; watcher->first_coded > 0 && rate < session->emulation.rates; rate++) /* the same at all */
    if (rate != watcher->rate) memcpy(watcher->known[rate][0], known_before(watcher), known);
  return status;
}

/* Rows that a sample gives at most. */
static int64_t rows_per_sample(const Session *session) { return session->tokens < ROWS_PER_SAMPLE ? session->tokens : ROWS_PER_SAMPLE; }

/* Of a sample: a single class token is quantised for the other devices, as tokens are. */
static int64_t sent_class_rows(const Session *session) {
  return session->plain_layout.class_rows > 0 && session->config->astra.class_token == CLASS_SINGLE;
}

static Status watcher_open(Session *session, int64_t limit, Watcher *watcher) {
  *watcher = (Watcher){.exchange = {.begin = watch},
                       .limit = limit,
                       .width = config_site_width(session->config),
                       .per_sample = rows_per_sample(session),
                       .class_rows = session->plain_layout.class_rows,
                       .sent_class_rows = sent_class_rows(session),
                       .block_sites = session->emulation.block_sites,
                       .first_coded = session->emulation.first,
                       .end_coded = session->emulation.first + session->emulation.blocks};
  if (watcher->first_coded > 0) watcher->exchange.know = watch_known;
  const size_t sites = (size_t)config_codebooks(session->config), row = (size_t)watcher->width * sizeof(real);
  const size_t known = (size_t)(limit * config_known_width(session->config)) * sizeof(real);
  watcher->samples = malloc(sites * (size_t)limit * row);
  watcher->chosen = malloc((size_t)(session->options.batch * watcher->per_sample) * sizeof *watcher->chosen);
  const bool predicts = session->config->astra.prediction;
  const int rates = session->emulation.rates;
  bool memory = watcher->samples && watcher->chosen;
  for (int rate = 0; predicts && rate < rates; rate++)
    memory = memory && (watcher->known[rate][0] = malloc(known)) && (watcher->known[rate][1] = malloc(known));
  watcher->rate = config_rate(session->config);
  if (predicts) memory = memory && (watcher->expected = malloc((size_t)limit * row));
  if (session->config->astra.position_mean) memory = memory && (watcher->position = malloc((size_t)limit * sizeof *watcher->position));
  if (predicts && rates > 1) memory = memory && (watcher->whole = malloc((size_t)limit * row));
  if (memory) return STATUS_OK;
  return status_set(STATUS_NO_MEMORY, "no memory for %lld samples of %zu sites (%zu MiB); use a smaller --kmeans-samples", (long long)limit,
                    sites, sites * (size_t)limit * row >> 20);
}

static void watcher_close(Watcher *watcher) {
  free(watcher->samples);
  for (int rate = 0; rate < CONFIG_RATES; rate++) free(watcher->known[rate][0]), free(watcher->known[rate][1]);
  free(watcher->expected);
  free(watcher->whole);
  free(watcher->position);
  free(watcher->chosen);
}

/* ---------------------------------------------------------------- rotations and predictions */

static real *samples_of(const Watcher *watcher, int index) { return watcher->samples + index * watcher->limit * watcher->width; }

static int block_of(const Session *session, int index) { return session->emulation.first + index / session->emulation.block_sites; }

/* The block's tokens are predicted from `*inputs` numbers; 0: they are not. */
static bool is_predicted(const Session *session, const Watcher *watcher, int block, int64_t *inputs) {
  const bool is = known_before(watcher) != NULL && block > 0;
  *inputs = is ? config_prediction_inputs(session->config, block) : 0;
  return is;
}

/* What is quantised next, and what receivers know of it, is of this rate. */
static Status use_rate(Session *session, Watcher *watcher, int rate) {
  watcher->rate = rate;
  return session_use_rate(session, rate);
}

/* The samples' mean at each position, [T, n], less that of all, [n]; they are taken off the samples. A class token's position has none. */
typedef struct PositionMeans {
  double *each, *all;
  double *turned; /* [T, n]: each in the basis of the site */
  int64_t *counts, tokens;
} PositionMeans;

static Status take_means(const Watcher *watcher, real *samples, int64_t tokens, PositionMeans *means) {
  const int64_t n = watcher->width, count = watcher->limit, numbers = tokens * n;
  *means = (PositionMeans){
      .each = calloc((size_t)(2 * numbers + n), sizeof(double)), .counts = calloc((size_t)tokens, sizeof(int64_t)), .tokens = tokens};
  if (means->each == NULL || means->counts == NULL) return status_no_memory(NULL, "means of positions");
  means->turned = means->each + numbers, means->all = means->turned + numbers;
  for (int64_t row = 0; row < count; row++) {
    const int64_t at = watcher->position[row];
    for (int64_t i = 0; i < n; i++) means->all[i] += (double)samples[row * n + i] / (double)count;
    if (at < 0) continue;
    means->counts[at]++;
    for (int64_t i = 0; i < n; i++) means->each[at * n + i] += (double)samples[row * n + i];
  }
  for (int64_t i = 0; i < numbers; i++) {
    const int64_t seen = means->counts[i / n];
    means->each[i] = seen > 0 ? means->each[i] / (double)seen - means->all[i % n] : 0;
  }
  for (int64_t i = 0; i < count * n; i++) {
    const int64_t at = watcher->position[i / n];
    samples[i] -= (real)(means->all[i % n] + (at >= 0 ? means->each[at * n + i % n] : 0));
  }
  return STATUS_OK;
}

/* What is fitted to the samples of a site. */
typedef struct Basis {
  Rotation rotation;
  PositionMeans means; /* with means of positions */
  double *prediction;  /* [W, P], in that basis; with a prediction */
} Basis;

/* Fits the basis of a block's site to its samples, and rotates these. With a prediction x = B y^ + c + r, where y^ are the tokens of the
 * block before, and with means of positions that at the row's is taken off x first; the basis is that of r, y = T (x - c), T B y^ is
 * expected of y, and T r is left to quantise. room: n^2 + 2 n P + n doubles, the first n P of which become basis->prediction.
 */
static Status fit_basis(Session *session, const Watcher *watcher, int index, double *room, Basis *basis) {
  const int block = block_of(session, index), site = index % watcher->block_sites;
  int64_t inputs;
  const bool predicts = is_predicted(session, watcher, block, &inputs);
  const int64_t n = watcher->width, count = watcher->limit;
  double *product = room, *weight = product + n * inputs, *metric = weight + n * inputs, *offset = metric + n * n;
  real *samples = samples_of(watcher, index);
  Rotation *rotation = &basis->rotation;
  PositionMeans *means = &basis->means;
  TRY(model_rotation_metric(session->model, block, site, metric));
  if (watcher->position) TRY(take_means(watcher, samples, config_tokens(session->config), means));
  if (predicts) TRY(regression_fit(known_before(watcher), samples, count, inputs, n, weight, offset));
  TRY(rotation_fit(rotation, samples, count, n, metric, session->config->astra.groups));
  TRY(rotation_apply(rotation, samples, count));
  for (int64_t i = 0; predicts && i < n; i++) rotation->mean[i] += offset[i];
  if (watcher->position) { /* for the model, and for the samples' mean as the rotation has it */
    for (int64_t t = 0; t < means->tokens; t++)
      for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) means->turned[t * n + i] += rotation->to[i * n + j] * means->each[t * n + j];
    for (int64_t i = 0; i < n; i++) rotation->mean[i] += means->all[i];
  }
  if (!predicts) return STATUS_OK;
  matrix_multiply(n, inputs, rotation->to, weight, product);
  basis->prediction = product;
  return STATUS_OK;
}

/* The ranks of a job fit alike but for rounding, which depends on their threads, and a small difference may turn the whole basis: all go on
 * with rank 0's numbers, and with its samples, which lie in its basis. */
static void spread_numbers(double *numbers, int64_t count) { ranks_spread(0, numbers, (size_t)count * sizeof *numbers); }

static void spread_samples(const Watcher *watcher, int index) {
  ranks_spread(0, samples_of(watcher, index), (size_t)(watcher->limit * watcher->width) * sizeof(real));
}

static void spread_basis(const Session *session, const Watcher *watcher, int index, const Basis *basis) {
  const int64_t n = watcher->width;
  spread_numbers(basis->rotation.to, n * n);
  spread_numbers(basis->rotation.from, n * n);
  spread_numbers(basis->rotation.mean, n);
  if (watcher->position) spread_numbers(basis->means.turned, basis->means.tokens * n);
  if (basis->prediction) spread_numbers(basis->prediction, n * config_prediction_inputs(session->config, block_of(session, index)));
  spread_samples(watcher, index);
}

static Status set_basis(const Session *session, const Watcher *watcher, int index, const Basis *basis) {
  const int block = block_of(session, index), site = index % watcher->block_sites;
  const Rotation *rotation = &basis->rotation;
  if (watcher->position) model_set_position_mean(session->model, block, site, basis->means.turned);
  if (basis->prediction) model_set_prediction(session->model, block, site, basis->prediction, NULL);
  return model_set_rotation(session->model, block, site, rotation->to, rotation->from, rotation->mean);
}

/* Fails on all ranks or on none. */
static Status rotate_site(Session *session, const Watcher *watcher, int index) {
  const size_t n = (size_t)watcher->width, known = (size_t)config_known_width(session->config);
  Basis basis = {0};
  double *room = malloc((n * n + 2 * n * known + n) * sizeof *room);
  Status status = ranks_agree(room ? fit_basis(session, watcher, index, room, &basis) : status_no_memory(NULL, "a rotation"));
  if (status == STATUS_OK) {
    spread_basis(session, watcher, index, &basis);
    status = ranks_agree(set_basis(session, watcher, index, &basis));
  }
  rotation_release(&basis.rotation);
  free(basis.means.each);
  free(basis.means.counts);
  free(room);
  return status == STATUS_OK ? status : status_wrap(status, "block %d", block_of(session, index));
}

/* A further rate's prediction, in the basis that there is: y = A y^ + a + e, and e is left to quantise. Fails on all ranks or on none. */
static Status predict_site(Session *session, const Watcher *watcher, int index) {
  const int64_t n = watcher->width;
  const int block = block_of(session, index);
  int64_t inputs;
  memcpy(samples_of(watcher, index), watcher->whole, (size_t)(watcher->limit * n) * sizeof(real));
  if (!is_predicted(session, watcher, block, &inputs)) return STATUS_OK;
  double *weight = malloc((size_t)(n * inputs + n) * sizeof *weight), *offset = weight + n * inputs;
  Status status = weight ? regression_fit(known_before(watcher), samples_of(watcher, index), watcher->limit, inputs, n, weight, offset)
                         : status_no_memory(NULL, "a prediction");
  status = ranks_agree(status);
  if (status == STATUS_OK) {
    spread_numbers(weight, n * inputs + n);
    spread_samples(watcher, index);
    model_set_prediction(session->model, block, index % watcher->block_sites, weight, offset);
  }
  free(weight);
  return status == STATUS_OK ? status : status_wrap(status, "block %d", block);
}

/* What receivers expect of the tokens at a site. */
static void expect(const Session *session, const Watcher *watcher, int index) {
  int64_t inputs;
  if (is_predicted(session, watcher, block_of(session, index), &inputs))
    model_expect(session->model, block_of(session, index), index % watcher->block_sites, known_before(watcher), watcher->limit,
                 watcher->expected);
  else
    memset(watcher->expected, 0, (size_t)(watcher->limit * watcher->width) * sizeof *watcher->expected);
}

/* A site's samples, of which expect has been taken away, as receivers know them; with those of its block's last site the block becomes the
 * one before. */
static Status know(const Session *session, Watcher *watcher, int index) {
  const Codebook *book = &session->emulation.site[index].book;
  const int64_t count = watcher->limit, width = watcher->width, all = watcher->block_sites * width,
                at = index % watcher->block_sites * width;
  int32_t *codes = tape_alloc(session->tape, (size_t)(count * book->groups) * sizeof *codes);
  void *scratch = tape_alloc(session->tape, codebook_assign_scratch(book, count));
  if (codes == NULL || scratch == NULL) return tape_status(session->tape);
  codebook_assign(book, samples_of(watcher, index), count, codes, NULL, scratch);
  for (int64_t row = 0; row < count; row++) {
    real *to = known_after(watcher) + row * all + at;
    codebook_lookup(book, codes + row * book->groups, 1, to);
    for (int64_t i = 0; i < width; i++) to[i] += watcher->expected[row * width + i];
  }
  tape_clear(session->tape);
  if (at + width < all) return STATUS_OK;
  watcher->turn[watcher->rate] = !watcher->turn[watcher->rate];
  return STATUS_OK;
}

/* ---------------------------------------------------------------- fitting */

static KmeansOptions kmeans_options(const TrainOptions *options, int index) {
  KmeansOptions kmeans;
  kmeans_defaults(&kmeans);
  kmeans.start = (KmeansStart)options->kmeans_start;
  kmeans.iterations = (int)options->kmeans_iterations;
  kmeans.tolerance = options->kmeans_tolerance;
  kmeans.restarts = (int)options->kmeans_restarts;
  kmeans.minibatch = options->kmeans_minibatch;
  kmeans.seed = (uint64_t)options->seed + (uint64_t)index;
  return kmeans;
}

typedef struct FitBar {
  Progress *progress;
  int iterations; /* of a restart, at most */
  double rows;
} FitBar;

static void show_iteration(void *context, int restart, int iteration, double distortion) {
  const FitBar *bar = context;
  char note[64];
  snprintf(note, sizeof note, "distortion %.5g", distortion / bar->rows);
  progress_update(bar->progress, (int64_t)restart * bar->iterations + iteration, note);
}

static Status fit_site(Session *session, const Watcher *watcher, int index) {
  const TrainOptions *options = &session->options;
  KmeansOptions kmeans = kmeans_options(options, index);
  KmeansResult result;
  double started = clock_now();
  char title[48];
  Progress progress;
  const int of_rate = emulate_sites(&session->emulation), before = config_rate(session->config) * of_rate;
  snprintf(title, sizeof title, "k-means %d of %d", before + index + 1, emulate_all_sites(&session->emulation));
  progress_start(&progress, title, (int64_t)kmeans.iterations * kmeans.restarts, options->quiet);
  FitBar bar = {&progress, kmeans.iterations, (double)watcher->limit};
  if (progress.terminal) kmeans.report = show_iteration, kmeans.context = &bar;
  Status status = kmeans_fit(&session->emulation.site[index].book, samples_of(watcher, index), watcher->limit, &kmeans, &result);
  progress_wipe(&progress);
  if (status != STATUS_OK) return status_wrap(status, "block %d", block_of(session, index));
  char duration[16], place[EMULATE_PLACE], with[32] = "";
  if (session->emulation.rates > 1)
    snprintf(with, sizeof with, " with %d group%s", session->config->astra.groups, text_plural(session->config->astra.groups));
  if (!options->quiet)
    log_info("k-means of %s%s: distortion %.5g per token, %s after %d iteration%s, %lld empty cluster%s moved, %s",
             emulate_place(&session->emulation, index, place), with, result.distortion / (double)watcher->limit,
             result.converged ? "converged" : "stopped", result.iterations, text_plural(result.iterations), (long long)result.repaired,
             text_plural(result.repaired), progress_duration(clock_now() - started, duration));
  return STATUS_OK;
}

/* ---------------------------------------------------------------- judging */

/* What was taken off a site's tokens before they are quantised, which receivers know: what is expected of them, and the mean at their
 * position. Either may be NULL. */
typedef struct Known {
  const real *expected, *means; /* [limit, width], [positions, width] */
  const int32_t *position;      /* [limit]; -1: a class token, whose mean is the row before those of the positions (model_position_mean) */
  int64_t width;
} Known;

static Known known_of(const Session *session, const Watcher *watcher, int index) {
  const real *means =
      watcher->position ? model_position_mean(session->model, block_of(session, index), index % watcher->block_sites) : NULL;
  return (Known){watcher->expected, means, watcher->position, watcher->width};
}

static real known_number(const Known *known, int64_t i) {
  const real expected = known->expected != NULL ? known->expected[i] : 0;
  if (known->means == NULL) return expected;
  return expected + known->means[(int64_t)known->position[i / known->width] * known->width + i % known->width];
}

/* Mean squared distance of tokens from their mean: mean |y|^2 - |mean y|^2, in double. y is the token in the basis of the site: what is
 * left of it to quantise with what is known of it. sums: scratch [width]. */
static double variance_of(const real *rows, const Known *known, int64_t count, double *sums) {
  const int64_t width = known->width;
  double variance = 0;
  memset(sums, 0, (size_t)width * sizeof *sums);
  for (int64_t i = 0; i < count * width; i++) {
    const double y = (double)rows[i] + (double)known_number(known, i);
    sums[i % width] += y;
    variance += y * y / (double)count;
  }
  for (int64_t column = 0; column < width; column++) variance -= sums[column] / (double)count * (sums[column] / (double)count);
  return variance > 0 ? variance : 0;
}

static Status measure_moments(const Codebook *book, const real *rows, const Known *known, const int32_t *codes, int64_t count,
                              ResidualMoments *moments) {
  const int64_t numbers = known->expected != NULL || known->means != NULL ? count * known->width : 0;
  real *all = numbers > 0 ? malloc((size_t)numbers * sizeof *all) : NULL;
  if (numbers > 0 && all == NULL) return status_no_memory(NULL, "what is known of tokens");
  for (int64_t i = 0; i < numbers; i++) all[i] = known_number(known, i);
  const Status status = residual_moments(book, rows, all, codes, count, moments);
  free(all);
  return status;
}

/* With predictions, once expect has been called for the site. */
static Status check_site(Session *session, const Watcher *watcher, int index, bool moments, CodebookReport *report) {
  EmulateSite *site = &session->emulation.site[index];
  const real *rows = samples_of(watcher, index);
  int32_t *codes = tape_alloc(session->tape, (size_t)(watcher->limit * site->book.groups) * sizeof *codes);
  void *scratch = tape_alloc(session->tape, codebook_assign_scratch(&site->book, watcher->limit));
  double *sums = tape_alloc(session->tape, (size_t)watcher->width * sizeof *sums), distortion;
  const Known known = known_of(session, watcher, index);
  if (codes == NULL || scratch == NULL || sums == NULL) return tape_status(session->tape);
  codebook_assign(&site->book, rows, watcher->limit, codes, &distortion, scratch);
  usage_clear(&site->usage);
  usage_add(&site->usage, codes, watcher->limit, distortion);
  *report = (CodebookReport){
      .block = block_of(session, index), .usage = usage_summary(&site->usage), .variance = variance_of(rows, &known, watcher->limit, sums)};
  usage_clear(&site->usage);
  Status status = moments ? measure_moments(&site->book, rows, &known, codes, watcher->limit, &report->moments) : STATUS_OK;
  tape_clear(session->tape);
  return status;
}

/* ---------------------------------------------------------------- all blocks */

/* The ranks of a job share the codebooks out. A basis is that of the rate with the most groups, which is in use. */
static Status fit_alone(Session *session, Watcher *watcher, CodebookReport *reports) {
  const int sites = emulate_sites(&session->emulation);
  for (int index = 0; session->config->astra.rotation && index < sites; index++) TRY(rotate_site(session, watcher, index));
  for (int rate = 0; rate < session->emulation.rates; rate++) {
    TRY(session_use_rate(session, rate));
    for (int index = ranks_self(); index < sites; index += ranks_count()) {
      TRY(fit_site(session, watcher, index));
      if (reports != NULL) TRY(check_site(session, watcher, index, false, &reports[rate * sites + index]));
    }
  }
  return STATUS_OK;
}

static void spread(Session *session, int index) {
  Codebook *book = &session->emulation.site[index].book;
  ranks_spread(index % ranks_count(), book->codewords, (size_t)(book->entries * book->width) * sizeof(real));
  codebook_refresh(book);
}

/* The rates of a site, that with the most groups, which decides the basis, first. */
static Status fit_link(Session *session, Watcher *watcher, int index, CodebookReport *reports) {
  const int sites = emulate_sites(&session->emulation);
  const int64_t numbers = watcher->limit * watcher->width;
  for (int rate = session->emulation.rates - 1; rate >= 0; rate--) {
    const bool first = rate == session->emulation.rates - 1;
    TRY(use_rate(session, watcher, rate));
    TRY(first ? rotate_site(session, watcher, index) : predict_site(session, watcher, index));
    expect(session, watcher, index);
    Status status = STATUS_OK;
    if (index % ranks_count() == ranks_self()) {
      status = fit_site(session, watcher, index);
      if (status == STATUS_OK && reports != NULL) status = check_site(session, watcher, index, false, &reports[rate * sites + index]);
    }
    TRY(ranks_agree(status));
    spread(session, index);
    const real *samples = samples_of(watcher, index);
    for (int64_t i = 0; first && watcher->whole != NULL && i < numbers; i++) watcher->whole[i] = samples[i] + watcher->expected[i];
    TRY(know(session, watcher, index));
  }
  return STATUS_OK;
}

/* With predictions a block begins with the codes of the one before. */
static Status fit_chain(Session *session, Watcher *watcher, CodebookReport *reports) {
  const int sites = emulate_sites(&session->emulation);
  for (int index = 0; index < sites; index++) TRY(fit_link(session, watcher, index, reports));
  return STATUS_OK;
}

/* ---------------------------------------------------------------- what others call */

/* What all samples of a part give: of texts to classify, which have lengths of their own, fewer than rows_per_sample each. */
static int64_t rows_of_part(const Session *session, TaskPart part) {
  const TaskSource *source = session->task->source;
  return source->rows != NULL ? source->rows(session, part, rows_per_sample(session))
                              : session->data.count[part] * rows_per_sample(session);
}

/* Numbers of a sample that a basis and a prediction are fitted to, however few codewords there are; 0: none. With no more samples than that
 * a prediction matches each of them exactly, and K-means has residuals of about zero to cluster. */
static int64_t fitted_inputs(const Session *session) {
  const ModelConfig *config = session->config;
  int64_t max = config->astra.rotation ? config_site_width(config) : 0;
  for (int64_t block = 0; config->astra.prediction && block < config_end_coded(config); block++) {
    const int64_t inputs = config_prediction_inputs(config, block);
    if (inputs > max) max = inputs;
  }
  return max;
}

static int64_t sample_count(const Session *session) {
  const TrainOptions *options = &session->options;
  const int64_t by_code = SAMPLES_PER_CODE * options->entries, by_input = SAMPLES_PER_INPUT * fitted_inputs(session);
  int64_t wanted = options->kmeans_samples > 0 ? options->kmeans_samples : by_code > by_input ? by_code : by_input;
  const int64_t all = session->data.count[TASK_TRAIN],
                whole = session->data.steps * options->batch; /* an epoch's batches may leave some out */
  int64_t available = rows_of_part(session, TASK_TRAIN);
  if (whole < all) available = (int64_t)((double)available * (double)whole / (double)all);
  return wanted < available ? wanted : available;
}

/* ---------------------------------------------------------------- planning */

/* As watch_batch goes through the model, on a tape that plans. */
static Status plan_watched_batch(Session *session, CodebooksPlan *plan) {
  TaskBatch batch;
  size_t mark = arena_mark(session->arena);
  TRY(session->task->source->seek(session, TASK_TRAIN, 0, 0));
  TRY(session->task->source->next(session, TASK_TRAIN, &batch));
  TRY(task_lay_plain(session, batch.tokens));
  tape_record(session->tape, false);
  arena_watch(session->arena);
  if (session->block_arena != NULL) arena_watch(session->block_arena);
  matmul_reset_count();
  ModelInput input = task_input(session->tape, &batch, session->config);
  model_encode(session->model, session->tape, &input, &session->plain_layout, NULL,
               session->task->source->texts ? MODEL_ROWS_LAST : MODEL_ROWS_CLASS);
  plan->activations = (double)(arena_watched(session->arena) - mark);
  if (session->block_arena != NULL) plan->activations += (double)arena_watched(session->block_arena);
  plan->batch_flops = matmul_counted().flops;
  const double rows = (double)rows_of_part(session, TASK_TRAIN), of_samples = (double)session->data.count[TASK_TRAIN];
  plan->batches = ceil((double)plan->count * of_samples / ((double)batch.count * rows));
  Status status = tape_status(session->tape);
  tape_clear(session->tape);
  matmul_reset_count();
  return status;
}

Status codebooks_plan(Session *session, CodebooksPlan *plan) {
  const KmeansOptions kmeans = kmeans_options(&session->options, 0);
  const int sites = emulate_sites(&session->emulation), rates = session->emulation.rates;
  *plan = (CodebooksPlan){.count = sample_count(session)};
  const bool predicts = session->config->astra.prediction;
  const double width = (double)config_site_width(session->config);
  const double known = 2 * rates * (double)config_known_width(session->config) + width * (predicts + (predicts && rates > 1));
  plan->samples = (double)plan->count * (sites * width + known) * sizeof(real);
  for (int rate = 0; rate < rates; rate++) {
    const Codebook *book = &session->emulation.all[rate * sites].book;
    plan->work = fmax(plan->work, (double)kmeans_bytes(book, plan->count, &kmeans));
    plan->kmeans_flops += sites * kmeans_flops(book, plan->count, &kmeans);
  }
  tape_plan(session->tape, true);
  Status status = plan_watched_batch(session, plan);
  tape_plan(session->tape, false);
  return status;
}

/* Of a training batch, on the mean of an epoch: texts to classify are padded to the longest of their batch, not to that of all. The place
 * in the data is another afterwards. */
static Status rows_per_batch(Session *session, int64_t *rows) {
  const TaskSource *source = session->task->source;
  const int64_t steps = session->data.steps;
  *rows = session_batch(session) * (session->tokens + sent_class_rows(session));
  if (source->rows == NULL || source->rows(session, TASK_TRAIN, session->tokens) == session->data.count[TASK_TRAIN] * session->tokens)
    return STATUS_OK;
  int64_t all = 0;
  TRY(source->seek(session, TASK_TRAIN, 0, 0));
  for (int64_t step = 0; step < steps; step++) {
    TaskBatch batch;
    TRY(source->next(session, TASK_TRAIN, &batch));
    all += batch.whole * batch.tokens;
  }
  *rows = (all + steps / 2) / steps;
  return STATUS_OK;
}

/* Once there are codewords: what training moves them by starts with n = rows of a batch / K. */
static Status start_averages(Session *session) {
  int64_t rows;
  TRY(rows_per_batch(session, &rows));
  return emulate_start_ema(&session->emulation, rows);
}

Status codebooks_fit(Session *session, CodebookReport *reports) {
  Watcher watcher;
  CodebooksPlan plan;
  TRY(codebooks_plan(session, &plan));
  /* Before hours of a large model's embeddings end in a machine without memory. */
  double needed = plan.samples + plan.work + plan.activations, available = memory_available() / ranks_here();
  if (needed > available)
    return status_set(
        STATUS_NO_MEMORY, "K-means of %lld samples needs %.1f GiB more memory, but %.1f GiB are free: use fewer --kmeans-samples%s",
        (long long)plan.count, needed / 1073741824, available / 1073741824, plan.activations > plan.samples ? " or a smaller --batch" : "");
  Status status = watcher_open(session, sample_count(session), &watcher);
  if (status == STATUS_OK && watcher.limit < session->options.entries)
    status = status_set(STATUS_BAD_USAGE,
                        "--codebook-size %lld is more than the %lld sample embeddings; use more (--kmeans-samples) or a smaller codebook",
                        (long long)session->options.entries, (long long)watcher.limit);
  if (status == STATUS_OK && watcher.limit < FEW_PER_INPUT * fitted_inputs(session))
    log_warning(
        "%lld samples are few for a basis and predictions of %lld numbers: codes will lose far more of other data than of these; use "
        "more data or --kmeans-samples (%lld or more)",
        (long long)watcher.limit, (long long)fitted_inputs(session), (long long)(SAMPLES_PER_INPUT * fitted_inputs(session)));
  watcher.exchange.whole_rows = true; /* rows as they are before the rotation, which is fitted to them */
  if (status == STATUS_OK) status = watch_all(session, TASK_TRAIN, &watcher);
  const bool chain = session->config->astra.prediction;
  if (status == STATUS_OK) status = (chain ? fit_chain : fit_alone)(session, &watcher, reports);
  watcher_close(&watcher);
  if (!chain) status = ranks_agree(status);
  for (int rate = 0; !chain && status == STATUS_OK && rate < session->emulation.rates; rate++) {
    status = session_use_rate(session, rate);
    for (int index = 0; index < emulate_sites(&session->emulation); index++) spread(session, index);
  }
  if (status == STATUS_OK) status = session_use_rate(session, session->emulation.rates - 1);
  param_refresh_shadows(model_params(session->model), false);
  optimizer_start_average(&session->optimizer); /* else the basis and predictions would start from zeros in it */
  return status == STATUS_OK ? start_averages(session) : status;
}

/* Appends what two configurations disagree on; nothing where they agree. */
static void tell_difference(char *text, size_t size, const char *name, bool there, bool here) {
  const size_t used = strlen(text);
  if (there == here) return;
  snprintf(text + used, size - used, "%s%s (there %s, here %s)", used > 0 ? ", " : "", name, there ? "true" : "false",
           here ? "true" : "false");
}

/* The shapes of codebooks are the same in every basis, so that only the configuration beside them shows what they were made for. */
static Status compare_basis(const ModelConfig *mine, const ModelConfig *theirs, const char *path, const char *folder) {
  const AstraConfig *here = &mine->astra, *there = &theirs->astra;
  char difference[256] = "";
  if (there->groups == 0) return STATUS_OK; /* a plain model: it has no codebooks, which reading them says */
  if (theirs->blocks != mine->blocks)
    return status_set(STATUS_BAD_USAGE,
                      "the codebooks of %s are of a model of %lld block%s, and this one has %lld: give codebooks that were made for this "
                      "model, or make new ones (astra-train --groups, without --codebooks)",
                      path, (long long)theirs->blocks, text_plural(theirs->blocks), (long long)mine->blocks);
  if (config_end_coded(theirs) != config_end_coded(mine))
    return status_set(STATUS_BAD_USAGE,
                      "the codebooks of %s are of the first %d block%s, and this run exchanges codes in the first %d: give "
                      "--exchange-blocks %d, or make new ones (astra-train --groups, without --codebooks)",
                      path, config_end_coded(theirs), text_plural(config_end_coded(theirs)), config_end_coded(mine),
                      config_end_coded(theirs));
  tell_difference(difference, sizeof difference, "rotation", there->rotation, here->rotation);
  tell_difference(difference, sizeof difference, "prediction", there->prediction, here->prediction);
  tell_difference(difference, sizeof difference, "exact_first", there->exact_first, here->exact_first);
  tell_difference(difference, sizeof difference, "position_mean", there->position_mean, here->position_mean);
  if (difference[0] == '\0') return STATUS_OK;
  if (there->rotation) /* which is part of weights, so that there are some */
    return status_set(STATUS_BAD_USAGE,
                      "the codebooks of %s are of another basis than this run's: %s; give --model %s to start from that checkpoint, or "
                      "codebooks made for this model (astra-kmeans init)",
                      path, difference, folder);
  return status_set(STATUS_BAD_USAGE,
                    "the codebooks of %s are of another basis than this run's: %s; leave --codebooks out, or give some that were made for "
                    "this model",
                    path, difference);
}

/* The basis and predictions of the checkpoint in `folder`, in a model that has memory for nothing else. */
static Status read_fitted(const Session *session, const char *folder, Model **model) {
  TRY(model_new(model, session->config));
  ParamSet *params = model_params(*model);
  for (size_t i = 0; i < params->count; i++) params->list[i].frozen = !params->list[i].fitted;
  TRY(param_allocate(params, false));
  Rng rng;
  rng_init(&rng, 0, STREAM_SAMPLES);
  return checkpoint_load_params(*model, folder, &rng, NULL);
}

/* Of another checkpoint codewords may be of the same kind of basis and yet of another one: each is fitted to its own samples, and trained.
 */
static Status compare_fitted(const Session *session, const char *path, const char *folder) {
  Model *model = NULL;
  Status status = read_fitted(session, folder, &model);
  const ParamSet *mine = model_params(session->model);
  bool same = true;
  for (size_t i = 0; status == STATUS_OK && i < mine->count && same; i++) {
    const Param *here = &mine->list[i];
    if (!here->fitted || here->tensor.value == NULL) continue; /* adapters, which come last, are only here */
    same = memcmp(here->tensor.value, model_params(model)->list[i].tensor.value, (size_t)tensor_count(&here->tensor) * sizeof(real)) == 0;
  }
  model_free(model);
  if (status != STATUS_OK || same) return status;
  return status_set(STATUS_BAD_USAGE,
                    "the codebooks of %s are of another basis than this run's: both were fitted, to other samples or other weights (or "
                    "one is stored with another --dtype); give "
                    "--model %s to start from that checkpoint, or codebooks made for this model (astra-kmeans init)",
                    path, folder);
}

static Status check_basis(const Session *session, const char *path) {
  ModelConfig theirs;
  char *folder = files_folder(path), *config = folder ? files_join(folder, "config.json") : NULL;
  Status status = config ? STATUS_OK : status_no_memory(NULL, "a path");
  if (status == STATUS_OK && files_exists(config) && (status = config_load(&theirs, folder)) == STATUS_OK) {
    status = compare_basis(session->config, &theirs, path, folder);
    const bool fitted = theirs.astra.rotation && session->report.unfitted == 0 && session->use != SESSION_PLAN; /* a plan has no numbers */
    if (status == STATUS_OK && fitted && session->origin != NULL && !files_same(folder, session->origin))
      status = compare_fitted(session, path, folder);
    config_release(&theirs);
  }
  free(folder);
  free(config);
  return status;
}

static Status read_or_look(const Session *session, const char *path, real *codewords) {
  TRY(check_basis(session, path)); /* first: of other blocks the weights have none that fit, either */
  if (session->report.unfitted > 0)
    return status_set(STATUS_BAD_USAGE,
                      "the codebooks of %s cannot be used: rotations and predictions are fitted together with codebooks, and the initial "
                      "weights have none that fit this model; make new ones (astra-train --groups, without --codebooks), or start from a "
                      "checkpoint that has them for the same image size and site",
                      path);
  return checkpoint_load_codebooks(session->config, path, codewords);
}

Status codebooks_check(const Session *session, const char *path) { return read_or_look(session, path, NULL); }

Status codebooks_read(Session *session, const char *path) {
  TRY(read_or_look(session, path, session->emulation.codewords));
  if (session->use != SESSION_EVALUATE) return start_averages(session);
  for (int i = 0; i < emulate_all_sites(&session->emulation); i++) codebook_refresh(&session->emulation.all[i].book);
  return STATUS_OK;
}

void codebooks_constrain(Session *session, const uint16_t *frequencies, double weight) {
  for (int i = 0; i < emulate_all_sites(&session->emulation); i++) {
    Codebook *book = &session->emulation.all[i].book;
    codebook_refresh(book);
    codebook_constrain(book, frequencies, weight);
    frequencies += book->groups * book->entries;
  }
}

Status codebooks_constrain_as_counted(Session *session, const char *path) {
  real weight = 0;
  char *folder = files_folder(path);
  uint16_t *frequencies = malloc((size_t)checkpoint_frequencies(session->config) * sizeof *frequencies);
  Status status = folder && frequencies ? checkpoint_load_frequencies(session->config, folder, frequencies, &weight)
                                        : status_no_memory(path, "frequencies of codes");
  if (status == STATUS_NOT_FOUND) status = STATUS_OK;
  if (status == STATUS_OK && weight > 0) {
    codebooks_constrain(session, frequencies, (double)weight);
    if (!session->options.quiet)
      log_info(
          "codes are assigned with the entropy weight %g of %s's frequencies, as by devices that entropy-code (astra-infer --entropy on; "
          "auto where that saves 5%%); `astra-infer eval --entropy off` evaluates without it",
          (double)weight, folder);
  }
  free(frequencies);
  free(folder);
  return status;
}

/* Of the rate in use. What is known of the block before is begun anew by the first block. */
static Status evaluate_rate(Session *session, Watcher *watcher, bool moments, CodebookReport *reports) {
  const int64_t numbers = watcher->limit * watcher->width;
  for (int index = 0; index < emulate_sites(&session->emulation); index++) {
    real *rows = samples_of(watcher, index);
    if (known_before(watcher)) {
      if (watcher->whole) memcpy(watcher->whole, rows, (size_t)numbers * sizeof *rows); /* for the next rate */
      expect(session, watcher, index);
      for (int64_t i = 0; i < numbers; i++) rows[i] -= watcher->expected[i];
    }
    TRY(check_site(session, watcher, index, moments, &reports[index]));
    if (!known_before(watcher)) continue;
    TRY(know(session, watcher, index));
    if (watcher->whole) memcpy(rows, watcher->whole, (size_t)numbers * sizeof *rows);
  }
  return STATUS_OK;
}

Status codebooks_evaluate(Session *session, int64_t samples, bool moments, CodebookReport *reports) {
  const int64_t all = rows_of_part(session, TASK_TEST);
  const int64_t of_samples = samples > 0 ? samples * rows_per_sample(session) : all;
  Watcher watcher;
  Status status = watcher_open(session, of_samples < all ? of_samples : all, &watcher);
  if (status == STATUS_OK) status = watch_all(session, TASK_TEST, &watcher);
  for (int rate = 0; status == STATUS_OK && rate < session->emulation.rates; rate++) {
    status = use_rate(session, &watcher, rate);
    if (status == STATUS_OK) status = evaluate_rate(session, &watcher, moments, reports + rate * emulate_sites(&session->emulation));
  }
  watcher_close(&watcher);
  return status;
}
