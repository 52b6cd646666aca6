/* astra-kmeans: codebooks. init makes them from a pretrained model's embeddings, eval evaluates them on the test part, frequencies counts
 * their codes, show describes them. `astra-train --codebooks DIR` starts from what init leaves; with predictions that is a full
 * checkpoint. */
#include "autograd/kernels/matmul.h"
#include "autograd/real.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/status.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/train_options.h"
#include "cli/train_out.h"
#include "nn/config.h"
#include "nn/json_build.h"
#include "train/codebooks.h"
#include "train/emulate.h"
#include "train/session.h"
#include "train/task.h"
#include "train/trainer.h"
#include "vq/rans.h"
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Facts of a codebook ---- */

/* What can be said of a codebook without data: the lengths of its codewords, and how many say the same. */

typedef struct CodebookFacts {
  double norm_min, norm_mean, norm_max; /* |e| over all groups' codewords */
  int64_t duplicates;                   /* codewords equal to another one of their group that was counted before */
} CodebookFacts;

/* A codeword to be sorted; the width travels with it because qsort's comparison has no context. */
typedef struct Word {
  const real *numbers;
  int64_t width;
} Word;

static int by_numbers(const void *a, const void *b) {
  const Word *x = a, *y = b;
  for (int64_t i = 0; i < x->width; i++)
    if (x->numbers[i] != y->numbers[i]) return x->numbers[i] < y->numbers[i] ? -1 : 1;
  return 0;
}

static Status codebook_facts(const real *codewords, int64_t groups, int64_t entries, int64_t width, CodebookFacts *facts) {
  *facts = (CodebookFacts){.norm_min = INFINITY};
  Word *words = calloc((size_t)entries, sizeof *words);
  if (words == NULL) return status_set(STATUS_NO_MEMORY, "no memory to sort %lld codewords", (long long)entries);
  for (int64_t g = 0; g < groups; g++) {
    for (int64_t i = 0; i < entries; i++) {
      words[i] = (Word){codewords + (g * entries + i) * width, width};
      double square = 0;
      for (int64_t w = 0; w < width; w++) square += (double)words[i].numbers[w] * (double)words[i].numbers[w];
      double norm = sqrt(square);
      facts->norm_mean += norm / (double)(groups * entries);
      if (norm < facts->norm_min) facts->norm_min = norm;
      if (norm > facts->norm_max) facts->norm_max = norm;
    }
    qsort(words, (size_t)entries, sizeof *words, by_numbers);
    for (int64_t i = 1; i < entries; i++) facts->duplicates += by_numbers(&words[i - 1], &words[i]) == 0;
  }
  free(words);
  return STATUS_OK;
}

/* ---- Report ---- */

enum { PLACE = 24 };

/* "3", or "3.k" and "3.v" where a block has two codebooks. */
static const char *place_of(const ModelConfig *config, int64_t index, char text[PLACE]) {
  const int sites = config_sites(config);
  snprintf(text, PLACE, "%lld%s%s", (long long)(config_first_coded(config) + index / sites), sites == 1 ? "" : ".",
           sites == 1 ? "" : config_site_name(sites, index));
  return text;
}

static json_t *shape_json(const ModelConfig *config, const char *directory) {
  return json_pack("{s:o, s:i, s:i, s:I, s:i, s:I, s:f, s:f, s:f, s:i}", "codebooks", json_build_string(directory), "groups",
                   config->astra.groups, "codebook_size", config->astra.codebook_size, "blocks", (json_int_t)config->blocks,
                   "exchange_blocks", config_end_coded(config), "width", (json_int_t)config_site_width(config), "bits_per_token",
                   config_bits_per_token(config), "compression", config_compression(config, 32), "compression_16bit",
                   config_compression(config, 16), "paper_number_bits", config_paper_bits(config));
}

static void print_shape(const ModelConfig *config, const char *directory) {
  printf("%s: %lld codebook%s of %d group%s x %d codewords x %lld numbers\n", printable(directory), (long long)config_codebooks(config),
         text_plural(config_codebooks(config)), config->astra.groups, text_plural(config->astra.groups), config->astra.codebook_size,
         (long long)config_site_width(config) / config->astra.groups);
  char compression[CONFIG_COMPRESSION];
  char blocks[48] = "";
  if (config_end_coded(config) < config->blocks) snprintf(blocks, sizeof blocks, "the first %d of ", config_end_coded(config));
  printf("%.0f bits per token over %s%lld block%s, %s\n", config_bits_per_token(config), blocks, (long long)config->blocks,
         text_plural(config->blocks), config_compression_text(config, compression));
}

/* ---------------------------------------------------------------- on embeddings */

/* The share of the embeddings' variance that quantisation loses. */
static double relative(const CodebookReport *report) { return report->variance > 0 ? report->usage.distortion / report->variance : 0; }

static CodebookReport mean_of(const CodebookReport *reports, int64_t count) {
  CodebookReport mean = {0};
  for (int64_t i = 0; i < count; i++) {
    mean.usage.used += reports[i].usage.used / (double)count;
    mean.usage.dead += reports[i].usage.dead / (double)count;
    mean.usage.perplexity += reports[i].usage.perplexity / (double)count;
    mean.usage.entropy_bits += reports[i].usage.entropy_bits / (double)count;
    mean.usage.distortion += reports[i].usage.distortion / (double)count;
    mean.variance += reports[i].variance / (double)count;
    mean.moments.dependence += reports[i].moments.dependence / (double)count;
    mean.moments.quantised += reports[i].moments.quantised / (double)count;
    mean.moments.noisy += reports[i].moments.noisy / (double)count;
    mean.moments.full += reports[i].moments.full / (double)count;
    mean.moments.restored += reports[i].moments.restored / (double)count;
  }
  return mean;
}

static json_t *evaluated_json(const CodebookReport *report, const char *place, bool moments) {
  json_t *object = json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "block", place, "distortion", report->usage.distortion, "variance",
                             report->variance, "relative_distortion", relative(report), "perplexity", report->usage.perplexity,
                             "entropy_bits", report->usage.entropy_bits, "used", report->usage.used, "dead", report->usage.dead);
  if (object && moments) {
    const ResidualMoments *m = &report->moments;
    json_object_set_new(object, "covariance_quantised_residual", json_real(m->dependence));
    json_object_set_new(object, "wasserstein_quantised", json_real(m->quantised));
    json_object_set_new(object, "wasserstein_noisy", json_real(m->noisy));
    json_object_set_new(object, "wasserstein_full", json_real(m->full));
    json_object_set_new(object, "wasserstein_restored", json_real(m->restored));
  }
  return object;
}

static void print_moments(const CodebookReport *report, const char *place) {
  const ResidualMoments *m = &report->moments;
  printf("%-6s %24.4g %12.4g %12.4g %12.4g %12.4g\n", place, m->dependence, m->quantised, m->noisy, m->full, m->restored);
}

static void print_evaluated(const CodebookReport *report, const char *place) {
  printf("%-6s %12.4f %12.4f %12.1f %9.1f%% %7.1f%%\n", place, report->usage.distortion, relative(report), report->usage.perplexity,
         100 * report->usage.used, 100 * report->usage.dead);
}

typedef struct Evaluated {
  const CodebookReport *reports; /* [rates][blocks * sites] */
  bool moments;                  /* with those of each report */
} Evaluated;

/* Of the rate in use: a table, or an object. */
static Status report_rate(const ModelConfig *config, const char *directory, const void *context, json_t **json) {
  const Evaluated *evaluated = context;
  const bool moments = evaluated->moments;
  int64_t count = config_codebooks(config);
  const CodebookReport *reports = evaluated->reports + config_rate(config) * count, mean = mean_of(reports, count);
  char place[PLACE];
  if (json) {
    json_t *object = *json = shape_json(config, directory), *list = json_array();
    for (int64_t i = 0; i < count; i++) json_array_append_new(list, evaluated_json(&reports[i], place_of(config, i, place), moments));
    json_object_set_new(object, "sites", list);
    json_object_set_new(object, "mean", evaluated_json(&mean, "all", moments));
    return STATUS_OK;
  }
  print_shape(config, directory);
  printf("%-6s %12s %12s %12s %10s %8s\n", "block", "distortion", "/ variance", "perplexity", "used", "dead");
  for (int64_t i = 0; i < count; i++) print_evaluated(&reports[i], place_of(config, i, place));
  print_evaluated(&mean, "mean");
  if (!moments) return STATUS_OK;
  printf("\n%31s %s\n", "", "W2^2 of X and X^ + noise, by the noise's covariance");
  printf("%-6s %24s %12s %12s %12s %12s\n", "block", "|Cov(X^,R)| / |Cov(R)|", "none", "per group", "full", "restored");
  for (int64_t i = 0; i < count; i++) print_moments(&reports[i], place_of(config, i, place));
  print_moments(&mean, "mean");
  return STATUS_OK;
}

/* One report for each bit rate: tables, or one JSON object on one line, which of several rates has the objects of all as "rates".
 * directory: where the codebooks lie. */
static Status report_rates(const ModelConfig *config, const char *directory, const void *context, bool json,
                           Status (*report)(const ModelConfig *, const char *, const void *, json_t **)) {
  ModelConfig at_rate = *config; /* shares the labels */
  const int rates = config_rates(config);
  json_t *all = json_object(), *list = json_array(), *object = NULL;
  Status status = all && list ? STATUS_OK : status_no_memory(NULL, "a report");
  for (int rate = 0; rate < rates && status == STATUS_OK; rate++) {
    if (!json && rate > 0) putchar('\n');
    object = NULL;
    at_rate.astra.groups = config_rate_groups(config, rate);
    status = report(&at_rate, directory, context, json ? &object : NULL);
    if (json && rates > 1) json_array_append_new(list, object);
  }
  json_object_set(all, "rates", list);
  if (json && status == STATUS_OK) status = json_build_print(rates > 1 ? json_incref(all) : object);
  json_decref(list);
  json_decref(all);
  return status;
}

static Status report_evaluated(const ModelConfig *config, const char *directory, const CodebookReport *reports, bool moments, bool json) {
  return report_rates(config, directory, &(Evaluated){reports, moments}, json, report_rate);
}

/* ---------------------------------------------------------------- by themselves */

/* context: codewords [rates][blocks * sites][G, K, W/G]. */
static Status report_shown(const ModelConfig *config, const char *directory, const void *context, json_t **json) {
  int64_t groups = config->astra.groups, entries = config->astra.codebook_size, width = config_site_width(config) / groups;
  const real *codewords = (const real *)context + config_rate(config) * config_codebooks(config) * entries * config_site_width(config);
  json_t *list = json_array(); /* the text is printed line by line, without it */
  char place[PLACE];
  Status status = STATUS_OK;
  if (!json) {
    print_shape(config, directory);
    printf("%-6s %12s %12s %12s %12s\n", "block", "min norm", "mean norm", "max norm", "duplicates");
  }
  for (int64_t i = 0; i < config_codebooks(config) && status == STATUS_OK; i++) {
    CodebookFacts facts;
    status = codebook_facts(codewords + i * groups * entries * width, groups, entries, width, &facts);
    if (status != STATUS_OK) break;
    place_of(config, i, place);
    if (json)
      json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:f, s:I}", "block", place, "norm_min", facts.norm_min, "norm_mean",
                                            facts.norm_mean, "norm_max", facts.norm_max, "duplicates", (json_int_t)facts.duplicates));
    else
      printf("%-6s %12.4f %12.4f %12.4f %12lld\n", place, facts.norm_min, facts.norm_mean, facts.norm_max, (long long)facts.duplicates);
  }
  if (status == STATUS_OK && json) {
    json_t *object = shape_json(config, directory);
    json_object_set(object, "sites", list);
    *json = object;
  }
  json_decref(list);
  return status;
}

/* ---------------------------------------------------------------- how often codes come */

/* context: bits [rates] of a token over all blocks, entropy-coded; beside what packed codes take. */
static Status report_counted(const ModelConfig *config, const char *directory, const void *context, json_t **json) {
  const double packed = (double)config_codebooks(config) * config_code_bits(config), /* of its codes */
      bits = ((const double *)context)[config_rate(config)];
  if (json) {
    *json = shape_json(config, directory);
    json_object_set_new(*json, "packed_bits_per_token", json_real(packed));
    json_object_set_new(*json, "coded_bits_per_token", json_real(bits));
    return STATUS_OK;
  }
  print_shape(config, directory);
  printf("frequencies of codes added to %s: a token of the test part takes %.1f bits where packed codes take %.0f (%+.1f%%)\n",
         printable(directory), bits, packed, 100 * (bits / packed - 1));
  return STATUS_OK;
}

/* ---- The commands ---- */

enum {
  FOR_INIT = 1,
  FOR_EVAL = 2,
  FOR_SHOW = 4,
  FOR_COUNT = 8,
  FOR_ALL = 15,
  MAX_OPTIONS = 40,
  USUAL_GROUPS = 32,
  USUAL_SAMPLES = 256,
  USUAL_ROUNDS = 3
};

typedef struct Kmeans {
  TrainCommand shared;
  Option table[TRAIN_OPTIONS_MAX];
  Option options[MAX_OPTIONS]; /* the command's own part of it */
  bool covariance;             /* of eval */
  double entropy_weight;       /* of frequencies */
  int64_t rounds;              /* of frequencies, where there is such a weight */
} Kmeans;

typedef struct Part {
  int commands;
  const char *title; /* a heading, or */
  const char *name;  /* an option of the training table, with */
  const char *help;  /* another help text, or NULL */
  const char *alias; /* another name, or NULL */
} Part;

static const Part PARTS[] = {
    {FOR_ALL, "Codebooks", NULL, NULL, NULL},
    {FOR_INIT, NULL, "groups", "groups per codebook, 1 or more; 1,2,4,8: codebooks of each", NULL},
    {FOR_INIT, NULL, "codebook-size", NULL, NULL},
    {FOR_INIT, NULL, "site", NULL, NULL},
    {FOR_INIT, NULL, "rotation", "quantise in a basis of independent, equally hard groups; write a full checkpoint", NULL},
    {FOR_INIT, NULL, "prediction", "quantise what the previous block does not predict; write a full checkpoint", NULL},
    {FOR_INIT, NULL, "exchange-blocks", "images: of the first N blocks alone; 0: all; auto: as --model", NULL},
    {FOR_INIT, NULL, "out", "output directory (default: runs/codebooks-MODEL-DATASET-gG)", NULL},
    {FOR_INIT, NULL, "overwrite", "replace existing codebooks in --out", NULL},
    {FOR_INIT, NULL, "dtype", "data type of the codewords", NULL},
    {FOR_EVAL | FOR_SHOW, NULL, "codebooks", "directory written by init, or a checkpoint (required)", NULL},
    {FOR_COUNT, NULL, "codebooks", "directory of the model; the frequencies are added to it (required)", "checkpoint"},
    {FOR_INIT | FOR_EVAL, "Embeddings", NULL, NULL, NULL},
    {FOR_COUNT, "Data", NULL, NULL, NULL},
    {FOR_INIT | FOR_EVAL, NULL, "model", NULL, NULL},
    {FOR_INIT | FOR_EVAL | FOR_COUNT, NULL, "dataset", NULL, NULL},
    {FOR_INIT | FOR_EVAL | FOR_COUNT, NULL, "validation-part", NULL, NULL},
    {FOR_INIT | FOR_COUNT, NULL, "train-part", NULL, NULL},
    {FOR_INIT | FOR_EVAL | FOR_COUNT, NULL, "tokenizer", NULL, NULL},
    {FOR_INIT | FOR_EVAL | FOR_COUNT, NULL, "context", NULL, NULL},
    {FOR_INIT | FOR_EVAL | FOR_COUNT, NULL, "data-dir", NULL, NULL},
    {FOR_INIT | FOR_EVAL, NULL, "init", NULL, NULL},
    {FOR_INIT | FOR_EVAL | FOR_COUNT, NULL, "image-size", NULL, NULL},
    {FOR_INIT | FOR_EVAL | FOR_COUNT, NULL, "batch", "samples per forward pass; 0: 64 images, 8 windows of text", NULL},
    {FOR_EVAL, NULL, "eval-samples", "number of test images or windows of text, up to 64 tokens of each; 0: all", NULL},
    {FOR_COUNT, NULL, "eval-samples", "images or windows per part: counted in training, measured in test; 0: all", NULL},
    {FOR_INIT, "K-means", NULL, NULL, NULL},
    {FOR_INIT, NULL, "kmeans-samples", NULL, NULL},
    {FOR_INIT, NULL, "kmeans-iterations", NULL, NULL},
    {FOR_INIT, NULL, "kmeans-tolerance", NULL, NULL},
    {FOR_INIT, NULL, "kmeans-restarts", NULL, NULL},
    {FOR_INIT, NULL, "kmeans-start", NULL, NULL},
    {FOR_INIT, NULL, "kmeans-minibatch", NULL, NULL},
    {FOR_ALL, "Running", NULL, NULL, NULL},
    {FOR_INIT | FOR_EVAL | FOR_COUNT, NULL, "seed", NULL, NULL},
    {FOR_INIT | FOR_EVAL | FOR_COUNT, NULL, "threads", NULL, NULL},
    {FOR_INIT | FOR_EVAL | FOR_COUNT, NULL, "workers", NULL, NULL},
    {FOR_INIT | FOR_EVAL | FOR_COUNT, NULL, "verbose", "also log the data search paths", NULL},
    {FOR_INIT | FOR_EVAL | FOR_COUNT, NULL, "quiet", NULL, NULL},
    {FOR_ALL, NULL, "json", NULL, NULL},
};

static void select_options(Kmeans *kmeans, int command) {
  TrainOptions *train = &kmeans->shared.train;
  train_options_table(&kmeans->shared, kmeans->table);
  kmeans->covariance = false;
  kmeans->entropy_weight = 0;
  kmeans->rounds = USUAL_ROUNDS;
  train->groups = USUAL_GROUPS;
  train->eval_samples = USUAL_SAMPLES;
  Option *to = kmeans->options;
  for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++) {
    if (!(PARTS[i].commands & command)) continue;
    if (PARTS[i].title)
      *to = (Option){OPTION_GROUP, .help = PARTS[i].title};
    else
      train_options_select(kmeans->table, (const char *[]){PARTS[i].name, NULL}, to);
    if (PARTS[i].help) to->help = PARTS[i].help;
    if (PARTS[i].alias) to->name = PARTS[i].alias;
    to++;
  }
  if (command == FOR_EVAL)
    *to++ = (Option){OPTION_FLAG, "covariance", 0, &kmeans->covariance,
                     .help = "also report covariances of quantised tokens and residuals, and Gaussian distances"};
  if (command == FOR_COUNT) {
    *to++ = (Option){OPTION_GROUP, .help = "Entropy coding"};
    *to++ = (Option){OPTION_REAL, "entropy-weight", 0, &kmeans->entropy_weight, "W", .min = 0, .max = CHECKPOINT_ENTROPY_WEIGHT_MAX};
    to[-1].help = "minimise error + W x mean squared norm x bits of the code; 0: nearest codeword";
    *to++ = (Option){OPTION_INT, "rounds", 0, &kmeans->rounds, "N", .min = 1, .max = 1000};
    to[-1].help = "with --entropy-weight: passes of assigning and counting codes";
  }
  *to = (Option){.kind = OPTION_GROUP};
}

typedef struct Usage {
  int command;
  const char *usage, *about;
} Usage;

static const Usage INIT = {FOR_INIT, "astra-kmeans init --model NAME --dataset NAME [--groups G] [options]",
                           "Clusters the embeddings of a pretrained model into a codebook for each block."};
static const Usage EVAL = {
    FOR_EVAL, "astra-kmeans eval --codebooks DIR --dataset NAME [--model NAME] [options]",
    "Evaluates codebooks on the embeddings of the test part. The model is that of DIR, or --model where DIR has codebooks alone."};
static const Usage COUNT = {FOR_COUNT, "astra-kmeans frequencies --checkpoint DIR --dataset NAME [options]",
                            "Counts how often each code is sent, for entropy coding between devices."};
static const Usage SHOW = {FOR_SHOW, "astra-kmeans show --codebooks DIR [--json]", "Describes codebooks; needs no data."};

/* True when --help was asked for and has been printed. */
static bool helped(Kmeans *kmeans, const Usage *usage, int argc, char **argv) {
  select_options(kmeans, usage->command);
  return cli_helped(kmeans->options, usage->usage, usage->about, argc, argv);
}

static Status parse(Kmeans *kmeans, int argc, char **argv) {
  Status status = cli_parse(kmeans->options, argc, argv);
  log_quiet(kmeans->shared.train.quiet);
  log_verbose(kmeans->shared.verbose);
  return status;
}

/* ---------------------------------------------------------------- counting codes */

static Status count_rate(Session *session, TaskPart part, int64_t samples) {
  int64_t available = session->data.count[part], done = 0;
  TaskScore score = {0};
  if (samples <= 0 || samples > available) samples = available;
  session->emulation.look = 0;
  TRY(session->task->source->seek(session, part, 0, 0));
  while (done < samples) {
    TaskBatch batch;
    TRY(session->task->source->next(session, part, &batch));
    if (batch.count > samples - done) batch.count = (int)(samples - done);
    TRY(validate_batch(session, &batch, session->config->astra.devices, &score));
    done += batch.count;
  }
  return STATUS_OK;
}

/* The codes of the first `samples` images, windows or texts of a part (0: all), on the model's number of emulated devices, as the runner
 * places tokens: into the usage of each site, which is cleared first. */
static Status count_part(Session *session, TaskPart part, int64_t samples) {
  tape_record(session->tape, false);
  emulate_clear_usage(&session->emulation);
  for (int rate = 0; rate < session->emulation.rates; rate++) {
    TRY(session_use_rate(session, rate));
    TRY(count_rate(session, part, samples));
  }
  return STATUS_OK;
}

/* ---------------------------------------------------------------- init */

/* Codebooks alone, or, as a basis and predictions belong to the model, all of it. The last words hold until files are replaced. */
static Status save_made(Session *session, const char *out, bool overwrite) {
  const bool whole = session->config->astra.rotation;
  if (whole) TRY(count_part(session, TASK_TRAIN, USUAL_SAMPLES));
  cli_last_words(NULL, NULL);
  if (whole && overwrite) TRY(train_out_forget(session));
  return whole ? trainer_export(session, false)
               : checkpoint_save_codebooks(session->config, out, session->emulation.codewords, (SafeDtype)session->options.dtype);
}

static Status make_codebooks(const Kmeans *kmeans, Session *session, CodebookReport *reports) {
  const TrainOptions *train = &kmeans->shared.train;
  const bool whole = session->config->astra.rotation;
  if (!train->quiet) log_info("%s; weights from %s", session->data.about[TASK_TRAIN], session->origin);
  if (whole) TRY(session_check_classes(session)); /* the head is written, too, as it is */
  if (whole) TRY(out_directory_apart(train->out, session->origin, "it starts from"));
  if (whole) TRY(train_out_check_tokenizer(session, kmeans->shared.overwrite));
  const bool there = files_is_dir(train->out);
  TRY(out_directory_try(train->out, NULL, whole ? CHECKPOINT_WHOLE : CHECKPOINT_CODEBOOKS));
  const char *const made[] = {there ? NULL : train->out, NULL};
  cli_last_words(
      "\nastra-kmeans: interrupted: the codebooks are written when all are done, so nothing new is kept, and what lay in --out is as it "
      "was. Start again with the same command; fewer --kmeans-samples or --kmeans-iterations take less time\n",
      made);
  Status status = codebooks_fit(session, reports);
  if (status == STATUS_OK) status = save_made(session, train->out, kmeans->shared.overwrite);
  cli_last_words(NULL, NULL);
  if (status != STATUS_OK && !there) out_directory_leave(train->out, NULL);
  TRY(status);
  return report_evaluated(session->config, train->out, reports, kmeans->covariance, kmeans->shared.json);
}

static Status check_codebooks(const Kmeans *kmeans, Session *session, CodebookReport *reports) {
  const TrainOptions *train = &kmeans->shared.train;
  TRY(codebooks_read(session, train->codebooks));
  TRY(codebooks_constrain_as_counted(session, train->codebooks));
  if (!train->quiet) log_info("%s; weights from %s", session->data.about[TASK_TEST], session->origin);
  TRY(codebooks_evaluate(session, train->eval_samples, kmeans->covariance, reports));
  return report_evaluated(session->config, train->codebooks, reports, kmeans->covariance, kmeans->shared.json);
}

static Status with_session(const Kmeans *kmeans, Status (*work)(const Kmeans *, Session *, CodebookReport *)) {
  Session session;
  TRY(cli_check_kernels(kmeans->shared.backend));
  TRY(threads_start((int)kmeans->shared.train.threads));
  Status status = session_open(&session, &kmeans->shared.train, SESSION_LOOK);
  if (status == STATUS_OK) {
    CodebookReport *reports = calloc((size_t)emulate_all_sites(&session.emulation), sizeof *reports);
    status = reports ? work(kmeans, &session, reports) : status_no_memory(NULL, "a report");
    free(reports);
    session_close(&session);
  }
  threads_stop();
  return status;
}

/* Codebooks alone would be lost beside weights; a full checkpoint would be replaced when a training whose state lies there is resumed. */
static Status refuse_mixture(const TrainOptions *train) {
  if (!train->rotation && !train->prediction) return checkpoint_refuse_codebooks(train->out);
  return out_directory_refuse_training(train->out);
}

/* What the options leave open is taken from an ASTRA checkpoint that --model names; groups and codewords are those of the new codebooks. */
static Status adapt(Kmeans *kmeans) {
  TrainOptions *train = &kmeans->shared.train;
  ModelConfig config;
  if (!checkpoint_is_path(train->model)) return STATUS_OK;
  TRY(config_load(&config, train->model));
  if (config.astra.groups > 0) train_options_adapt(train, kmeans->options, &config.astra);
  config_release(&config);
  return STATUS_OK;
}

static Status run_init(int argc, char **argv) {
  Kmeans kmeans;
  if (helped(&kmeans, &INIT, argc, argv)) return STATUS_OK;
  TRY(parse(&kmeans, argc, argv));
  TrainOptions *train = &kmeans.shared.train;
  TRY(train_options_need_model(train, "astra-kmeans init"));
  train_options_find_others(train);
  if (train->groups == 0) return status_set(STATUS_BAD_USAGE, "--groups 0: a plain model has no codebooks; give 1 or more groups");
  TRY(adapt(&kmeans));
  if (train->out == NULL) train->out = train_options_usual_out(train, "codebooks-");
  TRY(train_out_check_data(train));
  TRY(refuse_mixture(train)); /* before the work, not after it */
  if (!kmeans.shared.overwrite) TRY(out_directory_free(train->out, OUT_CHECKPOINT, NULL));
  return with_session(&kmeans, make_codebooks);
}

/* ---------------------------------------------------------------- eval and show */

/* The configuration that lies beside codebooks. */
static Status codebooks_config(TrainOptions *train, ModelConfig *config) {
  train_options_find_others(train);
  if (train->codebooks == NULL)
    return status_set(STATUS_BAD_USAGE, "--codebooks is missing: the directory that astra-kmeans init or astra-train wrote");
  if (!files_is_dir(train->codebooks))
    return status_set(STATUS_NOT_FOUND, "--codebooks %s: no such directory, and no installed checkpoint of that name", train->codebooks);
  TRY(config_load(config, train->codebooks));
  if (config->astra.groups > 0) return STATUS_OK;
  config_release(config);
  return status_set(STATUS_NOT_FOUND, "--codebooks %s: a plain model (its config.json has no astra groups) has no codebooks",
                    train->codebooks);
}

static Status run_eval(int argc, char **argv) {
  Kmeans kmeans;
  ModelConfig config;
  if (helped(&kmeans, &EVAL, argc, argv)) return STATUS_OK;
  TRY(parse(&kmeans, argc, argv));
  TrainOptions *train = &kmeans.shared.train;
  TRY(codebooks_config(train, &config));
  session_set_codebooks(train, &config.astra);
  config_release(&config);
  const char *weights = NULL; /* without --model: the checkpoint that the codebooks are part of */
  if (train->model == NULL) TRY(checkpoint_find_weights(train->codebooks, &weights));
  if (weights) train->model = train->codebooks;
  if (train->model == NULL)
    return status_set(STATUS_BAD_USAGE, "--codebooks %s holds codebooks alone, no weights: name the model they were made for with --model",
                      train->codebooks);
  TRY(train_options_need_model(train, NULL));
  return with_session(&kmeans, check_codebooks);
}

static Status run_show(int argc, char **argv) {
  Kmeans kmeans;
  ModelConfig config;
  if (helped(&kmeans, &SHOW, argc, argv)) return STATUS_OK;
  TRY(parse(&kmeans, argc, argv));
  TRY(codebooks_config(&kmeans.shared.train, &config));
  const char *directory = kmeans.shared.train.codebooks;
  size_t numbers = (size_t)(config_rates(&config) * config_codebooks(&config) * config.astra.codebook_size * config_site_width(&config));
  real *codewords = calloc(numbers, sizeof *codewords);
  Status status = codewords ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for %zu numbers of codebooks", numbers);
  if (status == STATUS_OK) status = checkpoint_load_codebooks(&config, directory, codewords);
  if (status == STATUS_OK) status = report_rates(&config, directory, codewords, kmeans.shared.json, report_shown);
  free(codewords);
  config_release(&config);
  return status;
}

/* ---------------------------------------------------------------- frequencies */

static Status count_frequencies(Session *session, TaskPart part, int64_t samples, uint16_t *frequencies) {
  int64_t entries = session->config->astra.codebook_size;
  if (!code_frequencies_possible(entries))
    return status_set(STATUS_UNSUPPORTED, "codebooks of %lld codewords have no frequencies: at most %d are accepted", (long long)entries,
                      CODE_FREQUENCIES_MAX);
  TRY(count_part(session, part, samples));
  return codebooks_frequencies(session, false, frequencies);
}

/* Counts likewise. bits [rates]: of a token over all blocks, coded with these frequencies; packed they are config_codebooks times
 * config_code_bits. */
static Status count_bits(Session *session, TaskPart part, int64_t samples, const uint16_t *frequencies, double *bits) {
  const Emulation *emulation = &session->emulation;
  const int of_rate = emulate_sites(emulation);
  int64_t entries = session->config->astra.codebook_size;
  double *counts = malloc((size_t)entries * sizeof *counts);
  Status status =
      counts ? count_part(session, part, samples) : status_set(STATUS_NO_MEMORY, "no memory to count %lld codes", (long long)entries);
  memset(bits, 0, (size_t)emulation->rates * sizeof *bits);
  for (int i = 0; status == STATUS_OK && i < emulate_all_sites(emulation); i++) {
    const EmulateSite *site = &emulation->all[i];
    for (int64_t group = 0; group < site->book.groups; group++, frequencies += entries) {
      for (int64_t k = 0; k < entries; k++) counts[k] = (double)site->usage.counts[group * entries + k];
      bits[i / of_rate] += code_frequencies_bits(counts, frequencies, entries);
    }
  }
  free(counts);
  return status;
}

/* Whether they can be written beside the codebooks, asked before the work that is for them. */
static Status try_frequencies(const char *directory) {
  char *path = files_join(directory, CHECKPOINT_FREQUENCIES);
  FileWriter writer;
  Status status = path ? files_create(&writer, path) : status_no_memory(NULL, "a path");
  if (status == STATUS_OK) files_abort(&writer);
  free(path);
  return status == STATUS_OK ? status : status_wrap(status, "--checkpoint %s", directory);
}

static Status count_codes(const Kmeans *kmeans, Session *session, CodebookReport *reports) {
  const TrainOptions *train = &kmeans->shared.train;
  (void)reports;
  TRY(try_frequencies(train->codebooks));
  size_t numbers = (size_t)checkpoint_frequencies(session->config);
  uint16_t *frequencies = malloc(numbers * sizeof *frequencies);
  Status status =
      frequencies ? codebooks_read(session, train->codebooks) : status_set(STATUS_NO_MEMORY, "no memory for %zu frequencies", numbers);
  if (status == STATUS_OK && !train->quiet) log_info("counting the codes of %s", session->data.about[TASK_TRAIN]);
  if (status == STATUS_OK) status = count_frequencies(session, TASK_TRAIN, train->eval_samples, frequencies);
  for (int64_t round = 0; status == STATUS_OK && kmeans->entropy_weight > 0 && round < kmeans->rounds; round++) {
    codebooks_constrain(session, frequencies, kmeans->entropy_weight);
    status = count_frequencies(session, TASK_TRAIN, train->eval_samples, frequencies);
  }
  if (status == STATUS_OK && kmeans->entropy_weight > 0) codebooks_constrain(session, frequencies, kmeans->entropy_weight);
  double bits[CONFIG_RATES] = {0};
  if (status == STATUS_OK) status = count_bits(session, TASK_TEST, train->eval_samples, frequencies, bits);
  if (status == STATUS_OK)
    status = checkpoint_save_frequencies(session->config, train->codebooks, frequencies, (real)kmeans->entropy_weight);
  if (status == STATUS_OK) status = report_rates(session->config, train->codebooks, bits, kmeans->shared.json, report_counted);
  free(frequencies);
  return status;
}

static Status run_frequencies(int argc, char **argv) {
  Kmeans kmeans;
  if (helped(&kmeans, &COUNT, argc, argv)) return STATUS_OK;
  TRY(parse(&kmeans, argc, argv));
  TrainOptions *train = &kmeans.shared.train;
  if (train->codebooks == NULL) return status_set(STATUS_BAD_USAGE, "--checkpoint is missing: the directory that astra-train wrote");
  if (kmeans.entropy_weight <= 0 && options_given(kmeans.options, "rounds"))
    return status_set(STATUS_BAD_USAGE, "--rounds is for an --entropy-weight above 0, without which codes are counted once");
  TRY(train_options_inherit(train, train->codebooks));
  return with_session(&kmeans, count_codes);
}

/* ---------------------------------------------------------------- the program */

static const CliCommand *const COMMANDS[] = {
    &(const CliCommand){"init", "initialise codebooks with K-means on a pretrained model's embeddings", run_init},
    &(const CliCommand){"eval", "evaluate codebooks on the test part: usage, perplexity, distortion", run_eval},
    &(const CliCommand){"frequencies", "count how often codes are sent, for entropy coding", run_frequencies},
    &(const CliCommand){"show", "print shapes, bits, norms and duplicates of codebooks", run_show}, NULL};

static void help(FILE *stream) {
  fputs("usage: astra-kmeans COMMAND [options]\nMakes, evaluates and prints the codebooks that devices exchange.\n\nCommands\n", stream);
  cli_commands_help(COMMANDS, stream);
  fputs("\n'astra-kmeans COMMAND --help' prints its options. Start a training from codebooks with 'astra-train --codebooks DIR'.\n",
        stream);
}

int main(int argc, char **argv) {
  matmul_start();
  return cli_run(argc, argv, &(CliProgram){.name = "astra-kmeans", .commands = COMMANDS, .help = help});
}
