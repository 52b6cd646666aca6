/* Reads the samples, runs them, compares. */
#include "infer/selftest.h"
#include "infer/replay.h"
#include "nn/safetensors.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double tie_relative = 1e-4;    /* of the larger distance */
static const double tie_rounding = 1e-6;    /* of |x|^2: what float products lose however small the distance is */
static const double logit_tolerance = 1e-4; /* absolute, and again relative */
static const double most_ties = 1e-3;       /* of all codes */
enum { CHUNK = 32 };

typedef struct Samples {
  int64_t count, tokens, classes, pixels;
  int sets; /* of codes: blocks * sites; 0 for one node */
  int64_t groups;
  float *pixel_values; /* [count, pixels] */
  real *logits;        /* [count, classes] */
  int32_t *device_of;  /* [tokens] or NULL */
  int32_t **codes;     /* [sets] -> [count, tokens, groups] */
} Samples;

/* ---- the file ---- */

static Status find(const SafeFile *file, const char *name, int dims, const int64_t *shape, const SafeTensor **tensor) {
  *tensor = safetensors_find(file, name);
  if (!*tensor) return status_set(STATUS_BAD_FILE, "%s: there is no tensor %s", file->path, name);
  bool same = (*tensor)->dims == dims;
  for (int i = 0; same && i < dims; i++) same = (*tensor)->shape[i] == shape[i];
  if (same) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: the shape of %s does not fit this model", file->path, name);
}

static Status read_reals(const SafeFile *file, const char *name, int dims, const int64_t *shape, real **out) {
  const SafeTensor *tensor;
  TRY(find(file, name, dims, shape, &tensor));
  *out = malloc((size_t)tensor->count * sizeof(real));
  if (!*out) return status_set(STATUS_NO_MEMORY, "no memory for %s", name);
  return safetensors_to_real(tensor, *out);
}

static Status read_integers(const SafeFile *file, const char *name, int dims, const int64_t *shape, int32_t **out) {
  const SafeTensor *tensor;
  TRY(find(file, name, dims, shape, &tensor));
  *out = malloc((size_t)tensor->count * sizeof(int32_t));
  if (!*out) return status_set(STATUS_NO_MEMORY, "no memory for %s", name);
  return safetensors_to_int32(tensor, *out);
}

static void code_name(const Weights *weights, int set, char *name, size_t room) {
  static const char *const kv[2] = {"k", "v"};
  int sites = config_sites(weights->config);
  snprintf(name, room, "codes.astra.layers.%d.%s", set / sites, sites == 1 ? "x" : kv[set % sites]);
}

static Status read_pixels(const SafeFile *file, const ModelConfig *config, Samples *samples) {
  const SafeTensor *pixels = safetensors_find(file, "pixel_values");
  if (!pixels || pixels->dims != 4 || pixels->shape[0] < 1)
    return status_set(STATUS_BAD_FILE, "%s: there is no tensor pixel_values [B, C, H, W]", file->path);
  const int64_t shape[4] = {samples->count = pixels->shape[0], config->channels, config->image, config->image};
  real *values = NULL;
  samples->pixels = shape[1] * shape[2] * shape[3];
  Status status = read_reals(file, "pixel_values", 4, shape, &values);
  if (status == STATUS_OK && !(samples->pixel_values = malloc((size_t)pixels->count * sizeof(float))))
    status = status_set(STATUS_NO_MEMORY, "no memory for the sample pictures");
  for (int64_t i = 0; status == STATUS_OK && i < pixels->count; i++) samples->pixel_values[i] = (float)values[i];
  free(values);
  return status;
}

static Status read_codes(const SafeFile *file, const Weights *weights, Samples *samples) {
  int64_t shape[3] = {samples->count, samples->tokens, weights->config->astra.groups};
  char name[64];
  TRY(read_integers(file, "device_of", 1, &samples->tokens, &samples->device_of));
  samples->sets = weights->book_count;
  samples->groups = shape[2];
  samples->codes = calloc((size_t)samples->sets, sizeof(int32_t *));
  if (!samples->codes) return status_set(STATUS_NO_MEMORY, "no memory for the sample codes");
  for (int i = 0; i < samples->sets; i++) {
    code_name(weights, i, name, sizeof name);
    TRY(read_integers(file, name, 3, shape, &samples->codes[i]));
    for (int64_t j = 0; j < shape[0] * shape[1] * shape[2]; j++) {
      if (samples->codes[i][j] < 0 || samples->codes[i][j] >= weights->config->astra.codebook_size)
        return status_set(STATUS_BAD_FILE, "%s: %s holds code %d, the codebook has %d", file->path, name, (int)samples->codes[i][j],
                          weights->config->astra.codebook_size);
    }
  }
  return STATUS_OK;
}

static Status read_samples(const SafeFile *file, const Weights *weights, Samples *samples) {
  samples->tokens = config_tokens(weights->config);
  samples->classes = weights->config->classes;
  TRY(read_pixels(file, weights->config, samples));
  const int64_t shape[2] = {samples->count, samples->classes};
  TRY(read_reals(file, "logits", 2, shape, &samples->logits));
  return weights->books ? read_codes(file, weights, samples) : STATUS_OK;
}

static void release_samples(Samples *samples) {
  for (int i = 0; samples->codes && i < samples->sets; i++) free(samples->codes[i]);
  free(samples->codes);
  free(samples->pixel_values);
  free(samples->logits);
  free(samples->device_of);
}

/* ---- comparing ---- */

typedef struct Comparison {
  const Weights *weights;
  const Samples *samples;
  SelftestReport *report;
  int64_t first, batch;  /* the chunk of pictures */
  const int32_t *actual; /* [sets][batch, T, G] */
  bool *differs;         /* [batch] some code of the picture differs */
  bool *tied;            /* [batch] an earlier block has had a difference */
  int32_t *nearest;      /* [batch * T, G] */
  void *scratch;
} Comparison;

static const int32_t *actual_set(const Comparison *c, int set) {
  return c->actual + (int64_t)set * c->batch * c->samples->tokens * c->samples->groups;
}
static const int32_t *expected_set(const Comparison *c, int set) {
  return c->samples->codes[set] + c->first * c->samples->tokens * c->samples->groups;
}

static double distance(const real *x, const real *e, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += ((double)x[i] - (double)e[i]) * ((double)x[i] - (double)e[i]);
  return sum;
}

/* Whether codewords a and b of group g are equally near to x [W] but for rounding. */
static bool equally_near(const Codebook *book, const real *x, int64_t g, int32_t a, int32_t b) {
  int64_t n = book->width / book->groups;
  const real *words = book->codewords + g * book->entries * n;
  double from_a = distance(x + g * n, words + a * n, n), from_b = distance(x + g * n, words + b * n, n), norm = 0;
  for (int64_t i = g * n; i < (g + 1) * n; i++) norm += (double)x[i] * (double)x[i];
  return fabs(from_a - from_b) <= tie_relative * fmax(from_a, from_b) + tie_rounding * norm;
}

/* One picture's codes of one site. Against the emulation with the sent codes every one must be the nearest; against the file, the first
 * block that differs must differ by ties alone. */
static void judge_picture(Comparison *c, int set, int64_t b, const real *x) {
  const Codebook *book = &c->weights->books[set];
  int64_t tokens = c->samples->tokens, groups = book->groups, place = b * tokens * groups;
  const int32_t *actual = actual_set(c, set) + place, *expected = expected_set(c, set) + place, *nearest = c->nearest + place;
  bool any = false;
  for (int64_t i = 0; i < tokens * groups; i++) {
    const real *row = x + (b * tokens + i / groups) * book->width;
    bool right = actual[i] == nearest[i] || equally_near(book, row, i % groups, actual[i], nearest[i]);
    bool same = actual[i] == expected[i];
    any |= !same;
    if (!right)
      c->report->wrong++;
    else if (!same && c->tied[b])
      c->report->followed++;
    else if (!same && equally_near(book, row, i % groups, actual[i], expected[i]))
      c->report->ties++;
    else if (!same)
      c->report->wrong++;
  }
  c->tied[b] |= any;
}

static void judge_site(void *context, int block, int site, const real *x) {
  Comparison *c = context;
  int set = block * config_sites(c->weights->config) + site;
  codebook_assign(&c->weights->books[set], x, c->batch * c->samples->tokens, c->nearest, NULL, c->scratch);
  for (int64_t b = 0; b < c->batch; b++) judge_picture(c, set, b, x);
}

/* In units of what is allowed; no number is as bad as can be. */
static double deviation(const real *actual, const real *expected, int64_t count, double *absolute) {
  double worst = 0;
  for (int64_t i = 0; i < count; i++) {
    double difference = fabs((double)actual[i] - (double)expected[i]);
    double part = difference / (logit_tolerance + logit_tolerance * fabs((double)expected[i]));
    if (!(part <= worst)) worst = isnan(part) ? INFINITY : part;
    if (absolute && !(difference <= *absolute)) *absolute = isnan(difference) ? INFINITY : difference;
  }
  return worst;
}

static bool find_differences(Comparison *c) {
  int64_t numbers = c->samples->tokens * c->samples->groups;
  bool any = false;
  for (int64_t b = 0; b < c->batch; b++) {
    c->differs[b] = c->tied[b] = false;
    for (int i = 0; i < c->samples->sets && c->actual; i++)
      c->differs[b] |= memcmp(actual_set(c, i) + b * numbers, expected_set(c, i) + b * numbers, (size_t)numbers * sizeof(int32_t)) != 0;
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
      report->worst_replayed = fmax(report->worst_replayed, deviation(row, replayed + b * classes, classes, NULL));
    } else {
      double off = deviation(row, c->samples->logits + (c->first + b) * classes, classes, &report->worst_absolute);
      report->worst_same = fmax(report->worst_same, off);
      report->same_pictures++;
    }
  }
}

static Status compare_chunk(Comparison *c, const Partition *partition, const LeaderAnswer *answer, real *replayed) {
  const Samples *samples = c->samples;
  c->batch = answer->batch;
  c->actual = answer->codes;
  if (find_differences(c))
    TRY(replay_run(c->weights, partition, samples->pixel_values + c->first * samples->pixels, c->batch, c->actual, judge_site, c,
                   replayed));
  compare_logits(c, answer->logits, replayed);
  c->report->pictures += c->batch;
  c->report->codes += c->actual ? c->batch * samples->sets * samples->tokens * samples->groups : 0;
  return STATUS_OK;
}

static void conclude(SelftestReport *report) {
  const char *reason = NULL;
  if (report->wrong)
    reason = "codes differ that are no ties";
  else if ((double)report->ties > most_ties * (double)report->codes)
    reason = "too many codes differ by ties (0.1% are allowed)";
  else if (!(report->worst_same <= 1))
    reason = "logits differ from the file's";
  else if (!(report->worst_replayed <= 1))
    reason = "logits differ from those that follow from the codes sent";
  report->passed = !reason;
  snprintf(report->reason, sizeof report->reason, "%s", reason ? reason : "");
}

static Status run_chunks(Leader *leader, Comparison *c, real *replayed) {
  const Samples *samples = c->samples;
  LeaderAnswer answer;
  for (c->first = 0; c->first < samples->count; c->first += CHUNK) {
    int64_t batch = samples->count - c->first < CHUNK ? samples->count - c->first : CHUNK;
    TRY(leader_submit(leader, samples->pixel_values + c->first * samples->pixels, batch));
    TRY(leader_collect(leader, &answer));
    TRY(compare_chunk(c, leader_partition(leader), &answer, replayed));
  }
  conclude(c->report);
  return STATUS_OK;
}

static Status compare(Leader *leader, const Samples *samples, SelftestReport *report) {
  const Weights *weights = leader_weights(leader);
  Comparison c = {.weights = weights,
                  .samples = samples,
                  .report = report,
                  .differs = calloc(CHUNK, sizeof(bool)),
                  .tied = calloc(CHUNK, sizeof(bool)),
                  .nearest = malloc((size_t)(CHUNK * samples->tokens * (samples->groups + 1)) * sizeof(int32_t)),
                  .scratch = malloc(weights->books ? codebook_assign_scratch(&weights->books[0]) : 1)};
  real *replayed = malloc((size_t)(CHUNK * samples->classes) * sizeof(real));
  bool memory = c.differs && c.tied && c.nearest && c.scratch && replayed;
  Status status = memory ? run_chunks(leader, &c, replayed) : status_set(STATUS_NO_MEMORY, "no memory to compare codes");
  free(c.differs);
  free(c.tied);
  free(c.nearest);
  free(c.scratch);
  free(replayed);
  return status;
}

static Status run_samples(const Weights *weights, const Samples *samples, const char *path, const LeaderOptions *given,
                          SelftestReport *report) {
  LeaderOptions options = *given;
  Partition partition = {0};
  Leader *leader = NULL;
  Status status =
      samples->device_of ? partition_map(&partition, samples->tokens, samples->device_of) : partition_even(&partition, samples->tokens, 1);
  if (status != STATUS_OK) status = status_wrap(status, "%s", path);
  options.batch_most = samples->count < CHUNK ? samples->count : CHUNK;
  options.codes = partition.nodes > 1;
  report->nodes = partition.nodes;
  if (status == STATUS_OK) status = leader_start(&leader, weights, &partition, &options);
  if (status == STATUS_OK) status = compare(leader, samples, report);
  leader_stop(leader);
  partition_release(&partition);
  return status;
}

Status selftest_run(const Weights *weights, const char *directory, const char *path, const LeaderOptions *options, SelftestReport *report) {
  *report = (SelftestReport){0};
  SafeFile file = {0};
  Samples samples = {0};
  char *inside = files_join(directory, SELFTEST_FILE);
  if (!inside) return status_set(STATUS_NO_MEMORY, "no memory for a path");
  Status status = STATUS_OK;
  if (!path && !files_exists(inside))
    status = status_set(STATUS_NOT_FOUND, "%s: not found; astra-train writes it beside the checkpoint, --file names another one", inside);
  if (status == STATUS_OK) status = safetensors_open(&file, path ? path : inside);
  if (status == STATUS_OK) {
    status = read_samples(&file, weights, &samples);
    safetensors_close(&file);
  }
  if (status == STATUS_OK) status = run_samples(weights, &samples, path ? path : inside, options, report);
  release_samples(&samples);
  free(inside);
  return status;
}
