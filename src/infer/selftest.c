/* Runs the samples through the nodes and compares. Reading them is selftest_samples.c's, the emulation with the sent codes replay.c's.
 * "Image" is said of texts, too. */
#include "infer/selftest.h"
#include "infer/cluster/leader.h"
#include "infer/replay.h"
#include "infer/selftest_samples.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double tie_relative = 1e-4;                      /* of the larger distance */
static const double tie_rounding = 1e-6;                      /* of |x|^2: what float products lose however small the distance is */
static const double logit_tolerance = 1e-4;                   /* absolute, and again relative */
static const double max_ties = 1e-3, max_rounded_ties = 5e-3; /* of all codes */
/* With weights of 8 or 4 bits a difference in a sum's last bit may move an activation by one step of 8 bits, 1/254 of its row's largest; in
 * bf16 by 1/256 of itself. */
static const double rounded_tolerance = 2e-2; /* in place of tie_relative and logit_tolerance */
static const double step_of_bf16 = 1.0 / 256; /* and so far may an x be off */
enum { CHUNK = 32 };

typedef struct Comparison {
  const Weights *weights;
  const SelftestSamples *samples;
  SelftestReport *report;
  const Partition *partition; /* of images, or */
  const TokenSplit *split;    /* of texts */
  bool rounded;               /* bf16, or weights of 8 or 4 bits: the file's codes and logits are those of others */
  int64_t first, batch;       /* the chunk of images */
  int64_t sent;               /* tokens whose codes were sent: all, or of a text those before the last node's */
  const int32_t *actual;      /* [sets][batch, T, G] */
  bool *differs;              /* [batch] some code of the image differs */
  bool *tied;                 /* [batch] an earlier block has had a difference */
  int32_t *nearest;           /* [batch * T, G] */
  void *scratch;
} Comparison;

static const int32_t *actual_set(const Comparison *c, int set) {
  return c->actual + (int64_t)set * c->batch * c->samples->tokens * c->samples->groups;
}
static const int32_t *expected_set(const Comparison *c, int set) {
  return c->samples->codes[set] + c->first * c->samples->tokens * c->samples->groups;
}

/* Of x [W/G] from a codeword of all G K. */
static double distance(const Codebook *book, const real *x, int64_t word) {
  int64_t n = book->width / book->groups;
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    real number = book->narrow ? (real)narrow_to_float(book->kind, book->narrow[word * n + i]) : book->codewords[word * n + i];
    sum += ((double)x[i] - (double)number) * ((double)x[i] - (double)number);
  }
  return sum;
}

/* Whether codewords a and b of group g are equally near to x [W] but for rounding. */
static bool equally_near(const Comparison *c, const Codebook *book, const real *x, int64_t g, int32_t a, int32_t b) {
  const double relative = c->rounded ? rounded_tolerance : tie_relative;
  int64_t n = book->width / book->groups;
  double from_a = distance(book, x + g * n, g * book->entries + a), from_b = distance(book, x + g * n, g * book->entries + b), norm = 0;
  for (int64_t i = g * n; i < (g + 1) * n; i++) norm += (double)x[i] * (double)x[i];
  double allowed = relative * fmax(from_a, from_b) + tie_rounding * norm;
  if (c->rounded) allowed += 2 * step_of_bf16 * sqrt(norm) * (sqrt(from_a) + sqrt(from_b)); /* |x - a|^2 - |x - b|^2 of an x so far off */
  return fabs(from_a - from_b) <= allowed;
}

/* One image's codes of one site. Against the emulation with the sent codes every one must be the nearest; against the file, the first
 * block that differs must differ by ties alone. */
static void check_image(Comparison *c, int set, int64_t b, const real *x) {
  const Codebook *book = &c->weights->books[set];
  int64_t tokens = c->samples->tokens, groups = book->groups, place = b * tokens * groups;
  const int32_t *actual = actual_set(c, set) + place, *expected = expected_set(c, set) + place, *nearest = c->nearest + place;
  bool any = false;
  for (int64_t i = 0; i < c->sent * groups; i++) {
    const real *row = x + (b * tokens + i / groups) * book->width;
    bool right = actual[i] == nearest[i] || equally_near(c, book, row, i % groups, actual[i], nearest[i]);
    bool same = c->rounded || actual[i] == expected[i];
    any |= !same;
    if (!right)
      c->report->wrong++;
    else if (c->rounded && actual[i] != nearest[i])
      c->report->ties++;
    else if (!same && c->tied[b])
      c->report->followed++;
    else if (!same && equally_near(c, book, row, i % groups, actual[i], expected[i]))
      c->report->ties++;
    else if (!same)
      c->report->wrong++;
  }
  c->tied[b] |= any;
}

static void check_site(void *context, int block, int site, const real *x) {
  Comparison *c = context;
  int set = block * config_sites(c->weights->config) + site;
  codebook_assign(&c->weights->books[set], x, c->batch * c->samples->tokens, c->nearest, NULL, c->scratch);
  for (int64_t b = 0; b < c->batch; b++) check_image(c, set, b, x);
}

/* In units of what is allowed; no number is as bad as can be. */
static double deviation(const real *actual, const real *expected, int64_t count, double tolerance, double *absolute) {
  double worst = 0;
  for (int64_t i = 0; i < count; i++) {
    double difference = fabs((double)actual[i] - (double)expected[i]);
    double part = difference / (tolerance + tolerance * fabs((double)expected[i]));
    if (!(part <= worst)) worst = isnan(part) ? INFINITY : part;
    if (absolute && !(difference <= *absolute)) *absolute = isnan(difference) ? INFINITY : difference;
  }
  return worst;
}

static bool find_differences(Comparison *c) {
  int64_t numbers = c->samples->tokens * c->samples->groups, sent = c->sent * c->samples->groups;
  bool any = false;
  for (int64_t b = 0; b < c->batch; b++) {
    c->differs[b] = c->rounded;
    c->tied[b] = false;
    for (int i = 0; i < c->samples->sets && c->actual; i++)
      c->differs[b] |= memcmp(actual_set(c, i) + b * numbers, expected_set(c, i) + b * numbers, (size_t)sent * sizeof(int32_t)) != 0;
    any |= c->differs[b];
  }
  return any;
}

static void compare_logits(Comparison *c, const real *logits, const real *replayed) {
  SelftestReport *report = c->report;
  int64_t classes = c->samples->classes;
  for (int64_t b = 0; b < c->batch; b++) {
    const real *row = logits + b * classes;
    if (c->differs[b]) {
      report->worst_replayed = fmax(
          report->worst_replayed, deviation(row, replayed + b * classes, classes, c->rounded ? rounded_tolerance : logit_tolerance, NULL));
    } else {
      double off = deviation(row, c->samples->logits + (c->first + b) * classes, classes, logit_tolerance, &report->worst_absolute);
      report->worst_same = fmax(report->worst_same, off);
      report->same_images++;
    }
  }
}

static Status compare_chunk(Comparison *c, const LeaderAnswer *answer, real *replayed) {
  const SelftestSamples *samples = c->samples;
  c->batch = answer->batch;
  c->actual = answer->codes;
  ReplayInput input = {.batch = c->batch, .tokens = samples->tokens, .partition = c->partition, .split = c->split};
  if (samples->ids) input.ids = samples->ids + c->first * samples->tokens;
  if (samples->pixel_values) input.pixels = samples->pixel_values + c->first * samples->pixels;
  if (find_differences(c)) TRY(replay_run(c->weights, &input, c->actual, check_site, c, replayed));
  compare_logits(c, answer->logits, replayed);
  c->report->images += c->batch;
  c->report->codes += c->actual ? c->batch * samples->sets * c->sent * samples->groups : 0;
  return STATUS_OK;
}

static void conclude(SelftestReport *report) {
  const char *reason = NULL;
  if (report->wrong)
    reason = "codes differ that are no ties";
  else if ((double)report->ties > report->ties_allowed * (double)report->codes)
    reason = "too many codes differ by ties";
  else if (!(report->worst_same <= 1))
    reason = "logits differ from the file's";
  else if (!(report->worst_replayed <= 1))
    reason = "logits differ from those that follow from the codes sent";
  else if (!(report->worst_loss <= 1))
    reason = "the loss differs from the file's";
  report->passed = !reason;
  snprintf(report->reason, sizeof report->reason, "%s", reason ? reason : "");
}

static int64_t chunk_at(const SelftestSamples *samples, int64_t first) {
  return samples->count - first < CHUNK ? samples->count - first : CHUNK;
}

static Status submit(Leader *leader, const SelftestSamples *samples, int64_t first) {
  int64_t batch = chunk_at(samples, first);
  const int32_t *ids = samples->ids ? samples->ids + first * samples->tokens : NULL;
  if (ids && leader_weights(leader)->config->classes > 0) return leader_text_classify(leader, ids, batch, samples->tokens);
  if (ids) return leader_text_last(leader, ids, batch, samples->tokens);
  return leader_submit(leader, samples->pixel_values + first * samples->pixels, batch);
}

/* Adds a chunk's loss. One that is no number is a result, too: infinity. */
static Status add_loss(Leader *leader, const SelftestSamples *samples, int64_t first, RequestScore *sum) {
  const int64_t at = first * samples->tokens, count = chunk_at(samples, first) * samples->tokens;
  LeaderAnswer answer;
  TRY(leader_text_score(leader, samples->ids + at, samples->labels + at, chunk_at(samples, first), samples->tokens));
  Status status = leader_collect(leader, &answer);
  for (int64_t i = at; i < at + count; i++) sum->counted += samples->labels[i] >= 0;
  if (status == STATUS_OK) sum->loss += answer.score.loss;
  if (status == STATUS_NUMERIC) sum->loss = INFINITY;
  return status == STATUS_NUMERIC ? STATUS_OK : status;
}

/* The mean of -ln p over the labels that count, where every code is the file's: a tie would move it. */
static Status compare_loss(Leader *leader, const SelftestSamples *samples, SelftestReport *report) {
  RequestScore sum = {.loss = 0};
  if (!samples->labels || report->same_images < report->images) return STATUS_OK;
  for (int64_t first = 0; first < samples->count; first += CHUNK) TRY(add_loss(leader, samples, first, &sum));
  double mean = sum.counted ? sum.loss / (double)sum.counted : 0, off = fabs(mean - samples->loss);
  report->worst_loss = isfinite(off) ? off / (logit_tolerance + logit_tolerance * fabs(samples->loss)) : INFINITY;
  report->losses = (int64_t)sum.counted;
  return STATUS_OK;
}

static Status run_chunks(Leader *leader, Comparison *c, real *replayed) {
  LeaderAnswer answer;
  for (c->first = 0; c->first < c->samples->count; c->first += CHUNK) {
    TRY(submit(leader, c->samples, c->first));
    TRY(leader_collect(leader, &answer));
    TRY(compare_chunk(c, &answer, replayed));
  }
  TRY(compare_loss(leader, c->samples, c->report));
  conclude(c->report);
  return STATUS_OK;
}

static Status compare(Leader *leader, Comparison *c) {
  const SelftestSamples *samples = c->samples;
  c->differs = calloc(CHUNK, sizeof(bool));
  c->tied = calloc(CHUNK, sizeof(bool));
  c->nearest = malloc((size_t)(CHUNK * samples->tokens * (samples->groups + 1)) * sizeof(int32_t));
  c->scratch = malloc(c->weights->books ? codebook_assign_scratch(&c->weights->books[0], CHUNK * samples->tokens) : 1);
  real *replayed = malloc((size_t)(CHUNK * samples->classes) * sizeof(real));
  bool memory = c->differs && c->tied && c->nearest && c->scratch && replayed;
  Status status = memory ? run_chunks(leader, c, replayed) : status_set(STATUS_NO_MEMORY, "no memory to compare codes");
  free(c->differs);
  free(c->tied);
  free(c->nearest);
  free(c->scratch);
  free(replayed);
  return status;
}

/* ---- on nodes ---- */

static Status run_images(Comparison *c, LeaderOptions *options, Leader **leader, Partition *partition) {
  const SelftestSamples *samples = c->samples;
  TRY(samples->device_of ? partition_map(partition, samples->tokens, samples->device_of) : partition_even(partition, samples->tokens, 1));
  c->partition = partition;
  c->sent = samples->tokens;
  c->report->nodes = partition->nodes;
  options->codes = partition->nodes > 1;
  TRY(leader_start(leader, c->weights, partition, options));
  return compare(*leader, c);
}

static Status run_texts(Comparison *c, LeaderOptions *options, Leader **leader, TokenSplit *split) {
  const SelftestSamples *samples = c->samples;
  int64_t counts[WIRE_NODES];
  TRY(samples->device_of ? token_split_map(split, samples->device_of, samples->tokens) : token_split_init(split, 1, NULL));
  token_split_counts(split, samples->tokens, counts);
  c->split = split;
  c->sent = samples->tokens - counts[split->nodes - 1];
  c->report->nodes = split->nodes;
  options->codes = split->nodes > 1;
  options->tokens_max = samples->tokens;
  TRY(leader_start_text(leader, c->weights, split, options));
  return compare(*leader, c);
}

static Status run_samples(const Weights *weights, const SelftestSamples *samples, const char *path, const LeaderOptions *given,
                          SelftestReport *report) {
  LeaderOptions options = *given;
  Comparison c = {.weights = weights, .samples = samples, .report = report};
  c.rounded = weights->bf16 || lowbit_weights_of(weights->model) != LOWBIT_NONE;
  report->ties_allowed = c.rounded ? max_rounded_ties : max_ties;
  if (c.rounded && !weights->books)
    return status_set(STATUS_UNSUPPORTED,
                      "%s: the logits of a plain model are those of its own weights in fp32, not of bf16 or of weights of 8 or 4 bits",
                      path);
  Partition partition = {0};
  TokenSplit split = {0};
  Leader *leader = NULL;
  options.batch_max = chunk_at(samples, 0);
  Status status = samples->ids ? run_texts(&c, &options, &leader, &split) : run_images(&c, &options, &leader, &partition);
  if (status != STATUS_OK && !leader) status = status_wrap(status, "%s", path);
  leader_stop(leader);
  partition_release(&partition);
  return status;
}

Status selftest_run(const Weights *weights, const char *directory, const char *path, const LeaderOptions *options, SelftestReport *report) {
  *report = (SelftestReport){0};
  SelftestSamples samples = {0};
  char *inside = files_join(directory, SELFTEST_FILE);
  if (!inside) return status_set(STATUS_NO_MEMORY, "no memory for a path");
  Status status = STATUS_OK;
  if (!path && !files_exists(inside))
    status = status_set(STATUS_NOT_FOUND, "%s: not found; astra-train writes it beside the checkpoint, --file names another one", inside);
  if (status == STATUS_OK) status = selftest_samples_read(&samples, weights, path ? path : inside);
  if (status == STATUS_OK) status = run_samples(weights, &samples, path ? path : inside, options, report);
  selftest_samples_release(&samples);
  free(inside);
  return status;
}
