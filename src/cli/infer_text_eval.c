/* See infer_text_eval.h. The text is tokenised before the nodes are started: what a text costs in memory is theirs no concern. */
#include "cli/infer_text_eval.h"
#include "base/files.h"
#include "base/printable.h"
#include "data/text_encoder.h"
#include "infer/evaluate_text.h"
#include "infer/report.h"
#include "infer/report_traffic.h"
#include <stdlib.h>
#include <string.h>

enum { REQUEST_TOKENS = 4096 }; /* of all windows of a request: enough for large products, few enough for two requests at once */

typedef struct Text {
  Vocabulary vocabulary;
  char *about;
  TokenCache *cache;
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

static Status open_cache(const InferSettings *s, Text *text) {
  TextSource *source;
  TextEncoder encoder;
  TRY(text_source_open(&source, s->dataset, s->data_dir, choose_part(s)));
  Status status = text_encoder_of(&encoder, text->vocabulary.tokenizer);
  if (status == STATUS_OK) status = token_cache_open(&text->cache, source, &encoder, &(TokenCacheOptions){.quiet = s->quiet});
  if (status == STATUS_OK && !(text->about = strdup(text_source_describe(source))))
    status = status_set(STATUS_NO_MEMORY, "no memory for a name");
  text_source_close(source);
  return status;
}

static Status open_windows(const InferSettings *s, const ModelConfig *config, Text *text) {
  int64_t context = s->window > 0 ? s->window : config->context, stride = s->stride > 0 ? s->stride : context;
  if (context > config->context)
    return status_set(STATUS_BAD_USAGE, "--context %lld: the model takes at most %lld tokens", (long long)context,
                      (long long)config->context);
  if (stride > context)
    return status_set(STATUS_BAD_USAGE, "--stride %lld is longer than the context of %lld tokens: some tokens would not be seen",
                      (long long)stride, (long long)context);
  Status status = text_windows_init(&text->windows, text->cache, context, stride);
  return status == STATUS_OK ? status : status_wrap(status, "--dataset %s", s->dataset);
}

static int64_t choose_batch(const InferSettings *s, const TextWindows *windows) {
  int64_t batch = s->batch > 0 ? s->batch : REQUEST_TOKENS / windows->context;
  if (batch > windows->count) batch = windows->count;
  return batch > 0 ? batch : 1;
}

static Status print(const InferSettings *s, const InferRun *run, const Text *text, const TextEvaluation *evaluation) {
  if (s->json) {
    json_t *value = report_text_evaluation_json(run->leader, evaluation);
    if (value) json_object_set_new(value, "dataset", json_string(s->dataset));
    report_traffic_json(value, run->leader, evaluation->windows, true);
    return infer_run_print_json(value, run);
  }
  printf("%s\n", printable(text->about));
  report_text_evaluation(stdout, run->leader, evaluation);
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
  TRY(open_cache(s, text));
  TRY(open_windows(s, run->weights.config, text));
  int64_t batch = choose_batch(s, &text->windows);
  run->divided.all_rows = true;
  TRY(infer_run_start(s, run, &(LeaderOptions){.batch_most = batch, .tokens_most = text->windows.context}));
  TRY(evaluate_text_run(run->leader, &text->vocabulary, &text->windows, s->samples, batch, s->quiet, &evaluation));
  return print(s, run, text, &evaluation);
}

static void release(Text *text) {
  token_cache_close(text->cache);
  free(text->about);
  vocabulary_close(&text->vocabulary);
}

Status infer_text_eval(const InferSettings *s, InferRun *run, const char *const *arguments, int count) {
  Text text = {.about = NULL};
  (void)arguments, (void)count;
  TRY(infer_run_load(s, run));
  TRY(infer_run_require_language(run, "have its perplexity measured"));
  TRY(infer_run_require_options(s, run));
  Status status = evaluate(s, run, &text);
  release(&text);
  return status;
}
