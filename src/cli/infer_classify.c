/* Texts to classify, from the command line, files and labelled sets. All texts are read and tokenised before the nodes are started: what a
 * text costs in memory is theirs no concern, and the longest one says how much they need. */
#include "base/array.h"
#include "base/files.h"
#include "base/log.h"
#include "base/printable.h"
#include "cli/infer_run.h"
#include "data/text/text_labels.h"
#include "infer/evaluate.h"
#include "infer/report.h"
#include "nn/json_build.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of a request: enough for large products, few enough for two requests at once. */
enum { REQUEST_TOKENS = 4096, REQUEST_TEXTS = 64, FILE_BYTES = 64 << 20 };

typedef struct Job {
  const InferSettings *settings;
  InferRun *run;
  Vocabulary vocabulary;
  TextEncoder encoder;
  Texts texts;
  TextSample *samples; /* [texts.count] of --text and --text-file; they point into argv and `file` */
  size_t room;
  char *file;         /* whole */
  ClassTop *results;  /* [texts.count] */
  LabelledText *set;  /* of an evaluation */
  int32_t *labels;    /* [texts.count] likewise */
  int64_t max_tokens; /* of a text; what is longer is cut */
} Job;

/* ---- beginning ---- */

static Status choose_context(Job *job, const char *option, int64_t wanted) {
  int64_t context = job->run->weights.config->context;
  job->max_tokens = wanted > 0 ? wanted : context;
  if (wanted <= context) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--%s %lld: the model takes at most %lld tokens", option, (long long)wanted, (long long)context);
}

static Status open_model(Job *job) {
  TRY(infer_run_load(job->settings, job->run));
  TRY(infer_run_require(job->run, INFER_KIND_TEXTS));
  TRY(infer_run_require_options(job->settings, job->run));
  TRY(vocabulary_open(&job->vocabulary, job->run->directory, job->run->weights.config));
  return tokenizer_encoder(&job->encoder, job->vocabulary.tokenizer);
}

static void warn_of_cut(const Job *job) {
  if (job->texts.cut > 0)
    log_warning("%lld of %lld texts are longer than the context of %lld tokens; their ends are cut off", (long long)job->texts.cut,
                (long long)job->texts.count, (long long)job->max_tokens);
}

static int64_t choose_batch(const Job *job, int64_t wanted) {
  int64_t batch = wanted > 0 ? wanted : REQUEST_TOKENS / job->texts.longest;
  if (wanted == 0 && batch > REQUEST_TEXTS) batch = REQUEST_TEXTS;
  if (batch > job->texts.count) batch = job->texts.count;
  return batch > 0 ? batch : 1;
}

static Status start(Job *job, int64_t batch) {
  warn_of_cut(job);
  return infer_run_start(job->settings, job->run, &(LeaderOptions){.batch_max = batch, .tokens_max = job->texts.longest});
}

static void release(Job *job) {
  texts_release(&job->texts);
  text_labels_close(job->set);
  vocabulary_close(&job->vocabulary);
  free(job->samples);
  free(job->file);
  free(job->results);
  free(job->labels);
}

/* ---- --text, --text-pair, --text-file ---- */

static Status add_sample(Job *job, const char *where, const char *text, const char *pair) {
  if (!*text && (!pair || !*pair)) return status_set(STATUS_BAD_USAGE, "%s: an empty text", where);
  TRY(ARRAY_RESERVE(job->samples, job->texts.count, 1, job->room, "texts to classify"));
  job->samples[job->texts.count] = (TextSample){text, pair};
  Status status = texts_add(&job->texts, &job->encoder, text, pair, job->max_tokens);
  return status == STATUS_OK ? STATUS_OK : status_wrap(status, "%s", where);
}

static Status add_options(Job *job) {
  const OptionTexts *texts = &job->settings->texts, *pairs = &job->settings->pairs;
  for (int i = 0; i < texts->count; i++) {
    char where[32];
    snprintf(where, sizeof where, "--text %d", i + 1);
    TRY(add_sample(job, texts->count == 1 ? "--text" : where, texts->list[i], i < pairs->count ? pairs->list[i] : NULL));
  }
  return STATUS_OK;
}

static Status read_file(Job *job, const char *path, size_t *bytes) {
  if (strcmp(path, "-") == 0) return infer_run_read_standard_input(&job->file, bytes);
  return files_read(path, FILE_BYTES, &job->file, bytes);
}

/* A text, or two with a tab between. */
static Status add_line(Job *job, const char *name, long number, char *line) {
  char where[300], *tab = strchr(line, '\t');
  snprintf(where, sizeof where, "%.256s, line %ld", name, number);
  if (tab && strchr(tab + 1, '\t'))
    return status_set(STATUS_BAD_FILE, "%s: more than one tab; a line is a text, or the two texts of a pair with a tab between", where);
  if (tab) *tab = 0;
  return add_sample(job, where, line, tab ? tab + 1 : NULL);
}

static Status add_file(Job *job, const char *path) {
  const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
  size_t bytes;
  long number = 0;
  TRY(read_file(job, path, &bytes));
  if (memchr(job->file, 0, bytes)) return status_set(STATUS_BAD_FILE, "%s: a NUL byte; lines of text are expected", name);
  char *text = realloc(job->file, bytes + 1), *line;
  if (!text) return status_no_memory(NULL, "texts to classify");
  job->file = text;
  text[bytes] = 0;
  while ((line = strsep(&text, "\n"))) {
    line[strcspn(line, "\r")] = 0;
    number++;
    if (line[strspn(line, " \t")]) TRY(add_line(job, name, number, line));
  }
  return job->texts.count > 0 ? STATUS_OK : status_set(STATUS_BAD_FILE, "%s: no text in it; a line a text is expected", name);
}

static Status rank(void *context, int64_t index, const real *logits, double seconds) {
  Job *job = context;
  int64_t classes = job->run->weights.config->classes, top = job->settings->top;
  ClassTop *result = &job->results[index];
  result->seconds = seconds;
  result->count = top < classes ? (int)top : (int)classes;
  ranking_top(logits, classes, result->count, result->index, result->probability);
  return STATUS_OK;
}

static Status print(const Job *job, double seconds) {
  const InferSettings *s = job->settings;
  const Leader *leader = job->run->leader;
  if (s->json) {
    json_t *list = report_texts(NULL, &job->run->weights, job->samples, &job->texts, job->results);
    return infer_run_print_json(
        json_pack("{s:o, s:o, s:f}", "texts", list, "nodes", report_nodes_json(leader), "milliseconds", 1e3 * seconds), job->run);
  }
  report_texts(stdout, &job->run->weights, job->samples, &job->texts, job->results);
  if (s->quiet) return STATUS_OK;
  putchar('\n');
  report_nodes(stdout, leader);
  infer_split_report(stdout, &job->run->divided, leader);
  return STATUS_OK;
}

static Status classify(Job *job) {
  const InferSettings *s = job->settings;
  double seconds;
  TRY(open_model(job));
  TRY(choose_context(job, "max-context", s->context));
  TRY(add_options(job));
  if (s->text_file) TRY(add_file(job, s->text_file));
  int64_t batch = choose_batch(job, s->batch);
  if (!(job->results = calloc((size_t)job->texts.count, sizeof *job->results))) return status_no_memory(NULL, "texts to classify");
  TRY(start(job, batch));
  TRY(texts_classify(job->run->leader, &job->texts, batch, s->quiet || job->texts.count <= batch, rank, job, &seconds));
  return print(job, seconds);
}

Status infer_classify_texts(const InferSettings *s, InferRun *run, const char *const *arguments, int count) {
  Job job = {.settings = s, .run = run};
  (void)arguments, (void)count;
  Status status = classify(&job);
  release(&job);
  return status;
}

/* ---- eval ---- */

/* The order of the classes is the data set's: a model that was trained on another one would be evaluated by the wrong names. */
static Status check_classes(const Job *job) {
  const ModelConfig *config = job->run->weights.config;
  char *const *names = text_labels_names(job->set);
  if (text_labels_classes(job->set) != config->classes)
    return status_set(STATUS_BAD_VALUE, "the checkpoint knows %lld classes, the data set has %lld (%s)", (long long)config->classes,
                      (long long)text_labels_classes(job->set), text_labels_describe(job->set));
  for (int64_t i = 0; i < config->classes; i++) {
    if (strcmp(names[i], config->labels[i]) == 0) continue;
    log_warning("class %lld is called \"%s\" in the data set, and \"%s\" in the checkpoint", (long long)i, names[i], config->labels[i]);
    break;
  }
  return STATUS_OK;
}

static Status open_set(Job *job) {
  const InferSettings *s = job->settings;
  TRY(s->validation_part > 0 ? text_labels_open_held_out(&job->set, s->dataset, s->data_dir, true, s->validation_part)
                             : text_labels_open(&job->set, s->dataset, s->data_dir, DATASET_TEST));
  TRY(check_classes(job));
  int64_t all = text_labels_count(job->set), count = s->samples > 0 && s->samples < all ? s->samples : all;
  if (!(job->labels = malloc((size_t)count * sizeof *job->labels))) return status_no_memory(NULL, "texts to classify");
  for (int64_t i = 0; i < count; i++) {
    const char *text = text_labels_text(job->set, i, &job->labels[i]);
    Status status = texts_add(&job->texts, &job->encoder, text, text_labels_pair(job->set, i), job->max_tokens);
    if (status != STATUS_OK) return status_wrap(status, "text %lld of %s", (long long)i + 1, s->dataset);
  }
  return STATUS_OK;
}

static Status evaluate(Job *job) {
  const InferSettings *s = job->settings;
  LabelEvaluation evaluation;
  TRY(open_model(job));
  TRY(choose_context(job, "context", s->window));
  TRY(open_set(job));
  int64_t batch = choose_batch(job, s->batch);
  job->run->divided.ahead = true;
  TRY(start(job, batch));
  const Leader *leader = job->run->leader;
  TRY(evaluate_labels_run(job->run->leader, &job->texts, job->labels, batch, s->quiet, job->run->rows.stream, &evaluation));
  if (s->json) {
    json_t *value = report_label_evaluation(NULL, leader, &job->texts, &evaluation);
    if (value) json_object_set_new(value, "dataset", json_string(s->dataset));
    if (value) json_object_set_new(value, "part", json_string(s->validation_part > 0 ? "valid" : "test"));
    return infer_run_print_json(value, job->run);
  }
  printf("%s\n", printable(text_labels_describe(job->set)));
  report_label_evaluation(stdout, leader, &job->texts, &evaluation);
  if (s->quiet) return STATUS_OK;
  putchar('\n');
  report_nodes(stdout, leader);
  infer_split_report(stdout, &job->run->divided, leader);
  return STATUS_OK;
}

Status infer_classify_eval(const InferSettings *s, InferRun *run, const char *const *arguments, int count) {
  Job job = {.settings = s, .run = run};
  (void)arguments, (void)count;
  Status status = evaluate(&job);
  release(&job);
  return status;
}
