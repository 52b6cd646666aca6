/* Norms and duplicates of codewords; tables and JSON of astra-kmeans. */
#include "cli/codebook_report.h"
#include "autograd/real.h"
#include "base/printable.h"
#include "base/status.h"
#include "nn/config.h"
#include "nn/json_build.h"
#include "train/codebooks.h"
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Facts ---- */

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

static int64_t duplicates_of(Word *words, int64_t count) {
  int64_t found = 0;
  qsort(words, (size_t)count, sizeof *words, by_numbers);
  for (int64_t i = 1; i < count; i++) found += by_numbers(&words[i - 1], &words[i]) == 0;
  return found;
}

static double norm_of(const Word *word) {
  double square = 0;
  for (int64_t i = 0; i < word->width; i++) square += (double)word->numbers[i] * (double)word->numbers[i];
  return sqrt(square);
}

Status codebook_facts(const real *codewords, int64_t groups, int64_t entries, int64_t width, CodebookFacts *facts) {
  *facts = (CodebookFacts){.norm_min = INFINITY};
  Word *words = calloc((size_t)entries, sizeof *words);
  if (words == NULL) return status_set(STATUS_NO_MEMORY, "no memory to sort %lld codewords", (long long)entries);
  for (int64_t g = 0; g < groups; g++) {
    for (int64_t i = 0; i < entries; i++) {
      words[i] = (Word){codewords + (g * entries + i) * width, width};
      double norm = norm_of(&words[i]);
      facts->norm_mean += norm / (double)(groups * entries);
      if (norm < facts->norm_min) facts->norm_min = norm;
      if (norm > facts->norm_max) facts->norm_max = norm;
    }
    facts->duplicates += duplicates_of(words, entries);
  }
  free(words);
  return STATUS_OK;
}

/* ---- Report ---- */

enum { PLACE = 24 };

/* "3", or "3.k" and "3.v" where a block has two codebooks. */
static const char *place_of(const ModelConfig *config, int64_t index, char text[PLACE]) {
  int sites = config_sites(config);
  snprintf(text, PLACE, "%lld%s", (long long)(index / sites), sites == 1 ? "" : index % sites == 0 ? ".k" : ".v");
  return text;
}

static int64_t sites_of(const ModelConfig *config) { return config->blocks * config_sites(config); }

static json_t *shape_json(const ModelConfig *config, const char *directory) {
  return json_pack("{s:s, s:i, s:i, s:I, s:I, s:f, s:f, s:f, s:i}", "codebooks", directory, "groups", config->astra.groups, "codebook_size",
                   config->astra.codebook_size, "blocks", (json_int_t)config->blocks, "width", (json_int_t)config_site_width(config),
                   "bits_per_token", config_bits_per_token(config), "compression", config_compression(config, 32), "compression_16bit",
                   config_compression(config, 16), "paper_number_bits", config_paper_bits(config));
}

static void print_shape(const ModelConfig *config, const char *directory) {
  printf("%s: %lld codebooks of %d groups x %d codewords x %lld numbers\n", printable(directory), (long long)sites_of(config),
         config->astra.groups, config->astra.codebook_size, (long long)config_site_width(config) / config->astra.groups);
  char compression[CONFIG_COMPRESSION];
  printf("%.0f bits per token over %lld blocks, %s\n", config_bits_per_token(config), (long long)config->blocks,
         config_compression_text(config, compression));
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
  }
  return mean;
}

static void add_moments(json_t *object, const ResidualMoments *moments) {
  json_object_set_new(object, "covariance_quantised_residual", json_real(moments->dependence));
  json_object_set_new(object, "wasserstein_quantised", json_real(moments->quantised));
  json_object_set_new(object, "wasserstein_noisy", json_real(moments->noisy));
}

static json_t *evaluated_json(const CodebookReport *report, const char *place, bool moments) {
  json_t *object = json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "block", place, "distortion", report->usage.distortion, "variance",
                             report->variance, "relative_distortion", relative(report), "perplexity", report->usage.perplexity,
                             "entropy_bits", report->usage.entropy_bits, "used", report->usage.used, "dead", report->usage.dead);
  if (object && moments) add_moments(object, &report->moments);
  return object;
}

static void print_moments(const CodebookReport *report, const char *place) {
  printf("%-6s %24.4g %24.4g %24.4g\n", place, report->moments.dependence, report->moments.quantised, report->moments.noisy);
}

static void print_evaluated(const CodebookReport *report, const char *place) {
  printf("%-6s %12.4f %12.4f %12.1f %9.1f%% %7.1f%%\n", place, report->usage.distortion, relative(report), report->usage.perplexity,
         100 * report->usage.used, 100 * report->usage.dead);
}

Status codebook_report_evaluated(const ModelConfig *config, const char *directory, const CodebookReport *reports, bool moments, bool json) {
  int64_t count = sites_of(config);
  CodebookReport mean = mean_of(reports, count);
  char place[PLACE];
  if (json) {
    json_t *object = shape_json(config, directory), *list = json_array();
    for (int64_t i = 0; i < count; i++) json_array_append_new(list, evaluated_json(&reports[i], place_of(config, i, place), moments));
    json_object_set_new(object, "sites", list);
    json_object_set_new(object, "mean", evaluated_json(&mean, "all", moments));
    return json_build_print(object);
  }
  print_shape(config, directory);
  printf("%-6s %12s %12s %12s %10s %8s\n", "block", "distortion", "/ variance", "perplexity", "used", "dead");
  for (int64_t i = 0; i < count; i++) print_evaluated(&reports[i], place_of(config, i, place));
  print_evaluated(&mean, "mean");
  if (!moments) return STATUS_OK;
  printf("\n%-6s %24s %24s %24s\n", "block", "|Cov(X^,R)| / |Cov(R)|", "W2^2 of X and X^", "W2^2 of X and X^ + noise");
  for (int64_t i = 0; i < count; i++) print_moments(&reports[i], place_of(config, i, place));
  print_moments(&mean, "mean");
  return STATUS_OK;
}

/* ---------------------------------------------------------------- by themselves */

static json_t *facts_json(const CodebookFacts *facts, const char *place) {
  return json_pack("{s:s, s:f, s:f, s:f, s:I}", "block", place, "norm_least", facts->norm_min, "norm_mean", facts->norm_mean, "norm_most",
                   facts->norm_max, "duplicates", (json_int_t)facts->duplicates);
}

Status codebook_report_shown(const ModelConfig *config, const char *directory, const real *codewords, bool json) {
  int64_t groups = config->astra.groups, entries = config->astra.codebook_size, width = config_site_width(config) / groups;
  json_t *list = json_array(); /* the text is printed line by line, without it */
  char place[PLACE];
  Status status = STATUS_OK;
  if (!json) {
    print_shape(config, directory);
    printf("%-6s %12s %12s %12s %12s\n", "block", "least norm", "mean norm", "most norm", "duplicates");
  }
  for (int64_t i = 0; i < sites_of(config) && status == STATUS_OK; i++) {
    CodebookFacts facts;
    status = codebook_facts(codewords + i * groups * entries * width, groups, entries, width, &facts);
    if (status != STATUS_OK) break;
    place_of(config, i, place);
    if (json)
      json_array_append_new(list, facts_json(&facts, place));
    else
      printf("%-6s %12.4f %12.4f %12.4f %12lld\n", place, facts.norm_min, facts.norm_mean, facts.norm_max, (long long)facts.duplicates);
  }
  if (status == STATUS_OK && json) {
    json_t *object = shape_json(config, directory);
    json_object_set(object, "sites", list);
    status = json_build_print(object);
  }
  json_decref(list);
  return status;
}

/* ---------------------------------------------------------------- how often codes come */

Status codebook_report_counted(const ModelConfig *config, const char *directory, double bits, bool json) {
  double packed = config_bits_per_token(config);
  if (json) {
    json_t *object = shape_json(config, directory);
    json_object_set_new(object, "coded_bits_per_token", json_real(bits));
    return json_build_print(object);
  }
  print_shape(config, directory);
  printf("frequencies of codes added to %s: a token of the test part takes %.1f bits where packed codes take %.0f (%+.1f%%)\n",
         printable(directory), bits, packed, 100 * (bits / packed - 1));
  return STATUS_OK;
}
