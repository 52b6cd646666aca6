/* See infer_text_eval.h. The text is tokenised before the nodes are started: what a text costs in memory is theirs no concern. */
#include "cli/infer_text_eval.h"
#include "base/files.h"
#include "base/printable.h"
#include "data/text/text_encoder.h"
#include "data/text/text_perplexity.h"
#include "infer/evaluate_text.h"
#include "infer/report.h"
#include "infer/report_traffic.h"
#include "nn/json_build.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REQUEST_TOKENS = 4096 }; /* of all windows of a request: enough for large products, few enough for two requests at once */

typedef struct Text {
  Vocabulary vocabulary;
  char *about;
  TokenCache *cache;   /* or, for PERPLEXITY_LM_EVAL, */
  RollingText rolling; /* documents by themselves */
  TextWindows windows;
} Text;

bool infer_text_eval_knows(const char *dataset) { return text_source_knows(dataset); }

/* Files that are named one by one are meant as they are; of a folder or a stored corpus the part that is for validation. */
static bool names_files(const char *dataset) {
  const char *at = strchr(dataset, ':') + 1;
  if (files_exists(at)) return !files_is_dir(at);
  for (size_t length; *at; at += length + (at[length] == ',')) {
    char path[4096];
    length = strcspn(at, ",");
    if (length >= sizeof path) return false;
    memcpy(path, at, length);
    path[length] = 0;
    if (!files_exists(path) || files_is_dir(path)) return false;
  }
  return true;
}

static TextPart choose_part(const InferSettings *s) {
  if (s->part != INFER_PART_AUTO) return (TextPart)s->part;
  return names_files(s->dataset) ? TEXT_WHOLE : TEXT_VALID;
}

static Status open_cache(const InferSettings *s, Text *text, TextSource *source, int64_t context) {
  TextEncoder encoder;
  TRY(text_encoder_of(&encoder, text->vocabulary.tokenizer));
  TRY(token_cache_open(&text->cache, source, &encoder, &(TokenCacheOptions){.quiet = s->quiet}));
  return text_windows_init(&text->windows, text->cache, context, s->stride > 0 ? s->stride : context);
}

static Status open_rolling(Text *text, TextSource *source, int64_t context) {
  TRY(rolling_text_read(&text->rolling, source, text->vocabulary.tokenizer, context));
  text_windows_roll(&text->windows, &text->rolling);
  return STATUS_OK;
}

static Status choose_context(const InferSettings *s, const ModelConfig *config, int64_t *context) {
  *context = s->window > 0 ? s->window : config->context;
  if (s->validation_part > 0)
    return status_set(STATUS_BAD_USAGE, "--validation-part is for pictures and labelled texts; of a text there is --eval-part valid");
  if (*context > config->context)
    return status_set(STATUS_BAD_USAGE, "--context %lld: the model takes at most %lld tokens", (long long)*context,
                      (long long)config->context);
  if (s->stride > *context)
    return status_set(STATUS_BAD_USAGE, "--stride %lld is longer than the context of %lld tokens: some tokens would not be seen",
                      (long long)s->stride, (long long)*context);
  if (s->stride > 0 && s->perplexity == PERPLEXITY_LM_EVAL)
    return status_set(STATUS_BAD_USAGE, "--stride cannot be combined with --perplexity lm-eval, whose windows follow from --context");
  return STATUS_OK;
}

static Status open_windows(const InferSettings *s, const ModelConfig *config, Text *text) {
  TextSource *source;
  int64_t context;
  TRY(choose_context(s, config, &context));
  TRY(text_source_open(&source, s->dataset, s->data_dir, choose_part(s)));
  Status status = s->perplexity == PERPLEXITY_LM_EVAL ? open_rolling(text, source, context) : open_cache(s, text, source, context);
  if (status == STATUS_OK && !(text->about = strdup(text_source_describe(source))))
    status = status_set(STATUS_NO_MEMORY, "no memory for a name");
  text_source_close(source);
  if (status != STATUS_OK) return status_wrap(status, "--dataset %s", s->dataset);
  if (s->perplexity == PERPLEXITY_AUTO || s->samples == 0) return STATUS_OK;
  return perplexity_check_whole((PerplexityUnit)s->perplexity, &text->windows, s->samples, "--samples");
}

static int64_t choose_batch(const InferSettings *s, const TextWindows *windows) {
  int64_t batch = s->batch > 0 ? s->batch : REQUEST_TOKENS / windows->context;
  if (batch > windows->count) batch = windows->count;
  return batch > 0 ? batch : 1;
}

typedef struct Convention {
  PerplexityUnit unit;
  int64_t units, page_bytes;
  double value, byte_value, bits;
} Convention;

/* What the evaluation comes to under --perplexity. */
static Convention apply_convention(const InferSettings *s, const Text *text, const TextEvaluation *evaluation) {
  Convention c = {.unit = (PerplexityUnit)s->perplexity, .page_bytes = text->rolling.bytes};
  double nats = evaluation->score.loss;
  c.units = perplexity_units(c.unit, &text->windows, (int64_t)evaluation->score.counted, evaluation->bytes);
  c.value = perplexity_value(nats, c.units);
  c.byte_value = perplexity_value(nats, c.page_bytes);
  c.bits = c.page_bytes > 0 ? nats / log(2) / (double)c.page_bytes : 0;
  return c;
}

static void print_convention(const Convention *c, double nats) {
  printf("perplexity (%s) %.4f = exp(%.2f nats / %lld), divided by %s\n", perplexity_name(c->unit), c->value, nats, (long long)c->units,
         perplexity_counts(c->unit));
  if (c->page_bytes > 0)
    printf("word_perplexity %.4f, byte_perplexity %.6f, bits_per_byte %.6f (%lld bytes)\n", c->value, c->byte_value, c->bits,
           (long long)c->page_bytes);
}

/* As astra-train --eval-only --json has it. */
static void put_convention(json_t *value, const Convention *c) {
  json_object_set_new(value, "perplexity", json_build_number(c->value));
  json_object_set_new(value, "convention", json_string(perplexity_name(c->unit)));
  json_object_set_new(value, "divided_by", json_string(perplexity_counts(c->unit)));
  json_object_set_new(value, "units", json_integer((json_int_t)c->units));
  if (c->page_bytes == 0) return;
  json_object_set_new(value, "word_perplexity", json_build_number(c->value));
  json_object_set_new(value, "byte_perplexity", json_build_number(c->byte_value));
  json_object_set_new(value, "bits_per_byte", json_build_number(c->bits));
  json_object_set_new(value, "bytes", json_integer((json_int_t)c->page_bytes));
}

static Status print(const InferSettings *s, const InferRun *run, const Text *text, const TextEvaluation *evaluation) {
  bool convention = s->perplexity != PERPLEXITY_AUTO;
  Convention measured = {0};
  if (convention) measured = apply_convention(s, text, evaluation);
  if (s->json) {
    json_t *value = report_text_evaluation_json(run->leader, evaluation);
    if (value) json_object_set_new(value, "dataset", json_string(s->dataset));
    if (value && convention) put_convention(value, &measured);
    report_traffic_json(value, run->leader, evaluation->windows, true);
    return infer_run_print_json(value, run);
  }
  printf("%s\n", printable(text->about));
  report_text_evaluation(stdout, run->leader, evaluation);
  if (convention) print_convention(&measured, evaluation->score.loss);
  report_traffic(stdout, run->leader, evaluation->windows, true);
  if (s->quiet) return STATUS_OK;
  putchar('\n');
  report_nodes(stdout, run->leader);
  infer_split_report(stdout, &run->divided, run->leader);
  return STATUS_OK;
}

static Status evaluate(const InferSettings *s, InferRun *run, Text *text) {
  TextEvaluation evaluation;
  TRY(vocabulary_open(&text->vocabulary, run->directory, run->weights.config));
  TRY(open_windows(s, run->weights.config, text));
  int64_t batch = choose_batch(s, &text->windows);
  run->divided.all_rows = true;
  TRY(infer_run_start(s, run, &(LeaderOptions){.batch_most = batch, .tokens_most = text->windows.context}));
  TRY(evaluate_text_run(run->leader, &text->vocabulary, &text->windows, s->samples, batch, s->quiet, &evaluation));
  return print(s, run, text, &evaluation);
}

static void release(Text *text) {
  token_cache_close(text->cache);
  rolling_text_release(&text->rolling);
  free(text->about);
  vocabulary_close(&text->vocabulary);
}

Status infer_text_eval(const InferSettings *s, InferRun *run, const char *const *arguments, int count) {
  Text text = {.about = NULL};
  (void)arguments, (void)count;
  TRY(infer_run_load(s, run));
  TRY(infer_run_require(run, INFER_KIND_LANGUAGE));
  TRY(infer_run_require_options(s, run));
  Status status = evaluate(s, run, &text);
  release(&text);
  return status;
}
