/* astra-infer: classifies images and texts and goes on from prompts on several processes of this machine, measures models over a data set
 * through them, and proves that they compute what training emulated. */
#include "autograd/kernels/matmul.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/infer_run.h"
#include "cli/infer_settings.h"
#include "data/text/text_labels.h"
#include "data/text/text_loader.h"
#include "data/text/text_source.h"
#include "infer/evaluate.h"
#include "infer/report.h"
#include "infer/selftest.h"
#include "nn/json_build.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the best classes ---- */

typedef struct ClassTop {
  int count; /* classes below, best first */
  int32_t index[RANKING_MAX];
  double probability[RANKING_MAX];
  double seconds; /* of the request that it was part of */
} ClassTop;

static void print_classes(FILE *out, const Weights *weights, int count, const int32_t *index, const double *probability) {
  for (int k = 0; k < count; k++) fprintf(out, "  %6.2f%%  %s\n", 100 * probability[k], printable(weights->config->labels[index[k]]));
}

static json_t *json_classes(const Weights *weights, int count, const int32_t *index, const double *probability) {
  json_t *top = json_array();
  for (int k = 0; k < count; k++)
    json_array_append_new(top, json_pack("{s:o, s:i, s:o}", "label", json_build_string(weights->config->labels[index[k]]), "class",
                                         (int)index[k], "probability", json_build_number(probability[k])));
  return top;
}

/* ---- astra-infer IMAGE... ---- */

enum { IMAGES_MESSAGE = 256 };

typedef struct ImageResult {
  const char *path;
  bool read;                    /* false: a broken or missing file, which `message` explains */
  char message[IMAGES_MESSAGE]; /* names the file */
  double seconds;               /* of the request that it was part of, from its submission to the answer */
  int count;                    /* classes below */
  int32_t index[RANKING_MAX];
  double probability[RANKING_MAX];
} ImageResult;

/* The image files that a command line names. */
typedef struct ImageFiles {
  char **paths; /* [count], owned */
  int count;
  size_t room;
  int skipped; /* files of directories that are no images by their extension */
} ImageFiles;

/* Takes ownership of `path`; NULL is out of memory. */
static Status add_path(ImageFiles *files, char *path) {
  const bool fits = path && files->count < INT_MAX;
  if (!fits || ARRAY_RESERVE(files->paths, files->count, 1, files->room, "a list of images") != STATUS_OK) {
    free(path);
    return status_no_memory(NULL, "a list of images");
  }
  files->paths[files->count++] = path;
  return STATUS_OK;
}

static Status add_directory(ImageFiles *files, const char *directory) {
  char **names;
  size_t count;
  int before = files->count;
  TRY(files_list(directory, &names, &count));
  Status status = STATUS_OK;
  for (size_t i = 0; status == STATUS_OK && i < count; i++) {
    if (names[i][0] == '.') continue;
    char *path = files_join(directory, names[i]);
    if (path && files_is_dir(path)) {
      free(path);
    } else if (path && !image_has_extension(names[i])) {
      files->skipped++;
      free(path);
    } else {
      status = add_path(files, path);
    }
  }
  files_list_free(names, count);
  if (status != STATUS_OK || files->count > before) return status;
  return status_set(STATUS_BAD_FILE, "%s: a directory without images (%s); directories in it are not searched", directory,
                    image_extensions());
}

static void release_images(ImageFiles *files) {
  for (int i = 0; i < files->count; i++) free(files->paths[i]);
  free(files->paths);
  *files = (ImageFiles){0};
}

/* Files as they are named; of a directory its images (image_has_extension), sorted bytewise by name, without subdirectories and without
 * names that begin with a dot. BAD_FILE for a directory without images. */
static Status find_images(ImageFiles *files, const char *const *named, int count) {
  *files = (ImageFiles){0};
  Status status = STATUS_OK;
  for (int i = 0; status == STATUS_OK && i < count; i++)
    status = files_is_dir(named[i]) ? add_directory(files, named[i]) : add_path(files, strdup(named[i]));
  if (status != STATUS_OK) release_images(files);
  return status;
}

/* Classifies `count` files in requests of at most `batch`; the best `top` classes of each into results [count]. A file that cannot be read
 * does not stop the others. *seconds: wall time of the requests, decoding excluded. */
static Status classify_images(Leader *leader, const char *const *paths, int count, int64_t batch, int top, ImageResult *results,
                              double *seconds) {
  LoaderOptions options;
  weights_loader_options(leader_weights(leader), &options);
  int64_t size = weights_pixels(leader_weights(leader)), classes = leader_weights(leader)->config->classes, held = 0;
  float *pixels = malloc((size_t)(batch * size) * sizeof *pixels);
  ImageResult **taken = malloc((size_t)batch * sizeof(ImageResult *));
  Status status = pixels && taken ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for %lld images", (long long)batch);
  *seconds = 0;
  for (int i = 0; i < count && status == STATUS_OK; i++) {
    ImageResult *result = &results[i];
    Image image = {0};
    *result = (ImageResult){.path = paths[i]};
    Status loaded = image_load(&image, paths[i]);
    if (loaded == STATUS_OK) loaded = loader_prepare(&image, &options, pixels + held * size);
    image_release(&image);
    result->read = loaded == STATUS_OK;
    if (result->read) taken[held++] = result;
    if (!result->read) snprintf(result->message, sizeof result->message, "%s", status_message());
    if (held == 0 || (held < batch && i + 1 < count)) continue;
    LeaderAnswer answer;
    double start = clock_now();
    status = leader_submit(leader, pixels, held);
    if (status == STATUS_OK) status = leader_collect(leader, &answer);
    double took = clock_now() - start;
    *seconds += took;
    for (int64_t b = 0; b < held && status == STATUS_OK; b++) {
      taken[b]->seconds = took;
      taken[b]->count = top < classes ? top : (int)classes;
      ranking_top(answer.logits + b * classes, classes, taken[b]->count, taken[b]->index, taken[b]->probability);
    }
    held = 0;
  }
  free(pixels);
  free(taken);
  return status;
}

/* Writes text to `out`, or, where that is NULL, returns the same as a fresh JSON value: NULL when out of memory. */
static json_t *report_images(FILE *out, const Weights *weights, const ImageResult *results, int count) {
  json_t *list = out ? NULL : json_array();
  for (int i = 0; i < count; i++) {
    const ImageResult *r = &results[i];
    if (out && r->read) {
      fprintf(out, "%s\n", printable(r->path));
      print_classes(out, weights, r->count, r->index, r->probability);
    }
    if (out) continue;
    json_t *image = json_pack("{s:o, s:o}", "file", json_build_string(r->path), "top",
                              json_classes(weights, r->read ? r->count : 0, r->index, r->probability));
    if (image && !r->read) json_object_set_new(image, "error", json_build_string(r->message));
    json_array_append_new(list, image);
  }
  return list;
}

static Status report_failures(const ImageResult *results, int count) {
  int failed = 0;
  for (int i = 0; i < count; i++) {
    if (results[i].read) continue;
    log_error("%s", results[i].message);
    failed++;
  }
  if (!failed) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%d of %d images could not be read", failed, count);
}

static int64_t count_read(const ImageResult *results, int count) {
  int64_t read = 0;
  for (int i = 0; i < count; i++) read += results[i].read;
  return read;
}

static Status print_images(const InferSettings *s, const InferRun *run, const ImageResult *results, int count, double seconds) {
  if (s->json) {
    json_t *times = json_array(); /* of the request that each image was part of */
    for (int i = 0; i < count; i++) json_build_append(&times, json_build_number(results[i].read ? 1e3 * results[i].seconds : NAN));
    json_t *value = json_pack("{s:o, s:o, s:f, s:o}", "images", report_images(NULL, &run->weights, results, count), "nodes",
                              report_nodes_json(run->leader), "milliseconds", 1e3 * seconds, "image_milliseconds", times);
    report_traffic_json(value, run->leader, count_read(results, count), false);
    return infer_run_print_json(value, run);
  }
  report_images(stdout, &run->weights, results, count);
  if (s->quiet || count_read(results, count) == 0) return STATUS_OK; /* of what nobody computed there is nothing to tell */
  putchar('\n');
  report_nodes(stdout, run->leader);
  report_traffic(stdout, run->leader, count_read(results, count), false);
  infer_split_report(stdout, &run->divided, run->leader);
  return STATUS_OK;
}

static Status classify_files(const InferSettings *s, InferRun *run, const ImageFiles *files) {
  ImageResult *results = calloc((size_t)files->count, sizeof *results);
  if (!results) return status_set(STATUS_NO_MEMORY, "no memory for %d images", files->count);
  double seconds;
  Status status = infer_run_load(s, run);
  if (status == STATUS_OK) status = infer_run_require(run, INFER_KIND_IMAGES);
  if (status == STATUS_OK) config_warn_no_preprocessor(run->weights.config, run->directory);
  if (status == STATUS_OK) status = infer_run_require_options(s, run);
  if (status == STATUS_OK) status = infer_run_start(s, run, &(LeaderOptions){.batch_max = s->batch});
  if (status == STATUS_OK)
    status = classify_images(run->leader, (const char *const *)files->paths, files->count, s->batch, (int)s->top, results, &seconds);
  if (status == STATUS_OK) status = print_images(s, run, results, files->count, seconds);
  if (status == STATUS_OK) status = report_failures(results, files->count);
  free(results);
  return status;
}

static Status classify(const InferSettings *s, InferRun *run, const char *const *arguments, int count) {
  ImageFiles files;
  InferSettings fitted = *s;
  TRY(find_images(&files, arguments, count));
  if (files.skipped) log_info("%d file%s skipped: no image by the name", files.skipped, text_plural(files.skipped));
  if (fitted.batch > files.count) fitted.batch = files.count;
  Status status = classify_files(&fitted, run, &files);
  release_images(&files);
  return status;
}

/* ---- astra-infer --text, --text-pair, --text-file: texts to classify. All are read and tokenised before the nodes are started: what a
 * text costs in memory is theirs no concern, and the longest one says how much they need. ---- */

/* Of a request: enough for large products, few enough for two requests at once. */
enum { REQUEST_TOKENS = 4096, REQUEST_TEXTS = 64, FILE_BYTES = 64 << 20, SHOWN = 100 /* bytes of a text */ };

/* A text to classify, or a pair of texts; pair may be NULL. */
typedef struct TextSample {
  const char *text, *pair;
} TextSample;

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

static Status open_classifier(Job *job) {
  TRY(infer_run_load(job->settings, job->run));
  TRY(infer_run_require(job->run, INFER_KIND_TEXTS));
  TRY(infer_run_require_options(job->settings, job->run));
  TRY(vocabulary_open(&job->vocabulary, job->run->directory, job->run->weights.config));
  return tokenizer_encoder(&job->encoder, job->vocabulary.tokenizer);
}

static int64_t choose_batch(const Job *job, int64_t wanted) {
  int64_t batch = wanted > 0 ? wanted : REQUEST_TOKENS / job->texts.longest;
  if (wanted == 0 && batch > REQUEST_TEXTS) batch = REQUEST_TEXTS;
  if (batch > job->texts.count) batch = job->texts.count;
  return batch > 0 ? batch : 1;
}

static Status start_texts(Job *job, int64_t batch) {
  if (job->texts.cut > 0)
    log_warning("%lld of %lld text%s %s longer than the context of %lld tokens; %s cut off", (long long)job->texts.cut,
                (long long)job->texts.count, text_plural(job->texts.count), job->texts.cut == 1 ? "is" : "are", (long long)job->max_tokens,
                job->texts.cut == 1 ? "its end is" : "their ends are");
  return infer_run_start(job->settings, job->run, &(LeaderOptions){.batch_max = batch, .tokens_max = job->texts.longest});
}

static void release_job(Job *job) {
  texts_release(&job->texts);
  text_labels_close(job->set);
  vocabulary_close(&job->vocabulary);
  free(job->samples);
  free(job->file);
  free(job->results);
  free(job->labels);
}

static Status add_sample(Job *job, const char *where, const char *text, const char *pair) {
  if (!*text && (!pair || !*pair)) return status_set(STATUS_BAD_USAGE, "%s: an empty text", where);
  TRY(ARRAY_RESERVE(job->samples, job->texts.count, 1, job->room, "texts to classify"));
  job->samples[job->texts.count] = (TextSample){text, pair};
  Status status = texts_add(&job->texts, &job->encoder, text, pair, job->max_tokens);
  return status == STATUS_OK ? STATUS_OK : status_wrap(status, "%s", where);
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
  TRY(strcmp(path, "-") == 0 ? infer_run_read_standard_input(&job->file, &bytes) : files_read(path, FILE_BYTES, &job->file, &bytes));
  if (memchr(job->file, 0, bytes)) return status_set(STATUS_BAD_FILE, "%s: a NUL byte; lines of text are expected", name);
  char *text = realloc(job->file, bytes + 1), *line;
  if (!text) return status_no_memory(NULL, "texts to classify");
  job->file = text;
  text[bytes] = 0;
  text += utf8_mark(text, bytes);
  while ((line = strsep(&text, "\n"))) {
    const size_t length = strlen(line);
    if (length > 0 && line[length - 1] == '\r') line[length - 1] = 0; /* of a line end of DOS */
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

/* As report_images. */
static json_t *report_texts(FILE *out, const Weights *weights, const TextSample *samples, const Texts *texts, const ClassTop *results) {
  json_t *list = out ? NULL : json_array();
  for (int64_t i = 0; i < texts->count; i++) {
    const TextSample *sample = &samples[i];
    const ClassTop *r = &results[i];
    if (out) {
      char *text = printable_excerpt(sample->text, strlen(sample->text), SHOWN);
      char *pair = sample->pair ? printable_excerpt(sample->pair, strlen(sample->pair), SHOWN) : NULL;
      fprintf(out, "\"%s\"", text ? text : "");
      if (pair) fprintf(out, " and \"%s\"", pair);
      fputc('\n', out);
      print_classes(out, weights, r->count, r->index, r->probability);
      free(text);
      free(pair);
      continue;
    }
    json_t *text = json_pack("{s:o, s:I, s:o, s:f}", "text", json_build_string(sample->text), "tokens", (json_int_t)texts_length(texts, i),
                             "top", json_classes(weights, r->count, r->index, r->probability), "milliseconds", 1e3 * r->seconds);
    if (text && sample->pair) json_object_set_new(text, "pair", json_build_string(sample->pair));
    json_array_append_new(list, text);
  }
  return list;
}

static Status print_texts(const Job *job, double seconds) {
  const InferSettings *s = job->settings;
  const Leader *leader = job->run->leader;
  if (s->json) {
    json_t *list = report_texts(NULL, &job->run->weights, job->samples, &job->texts, job->results);
    json_t *value = json_pack("{s:o, s:o, s:f}", "texts", list, "nodes", report_nodes_json(leader), "milliseconds", 1e3 * seconds);
    report_rates_json(value, leader);
    return infer_run_print_json(value, job->run);
  }
  report_texts(stdout, &job->run->weights, job->samples, &job->texts, job->results);
  infer_run_report(s, job->run);
  return STATUS_OK;
}

static Status classify_job(Job *job) {
  const InferSettings *s = job->settings;
  double seconds;
  TRY(open_classifier(job));
  TRY(infer_settings_context("--max-context", s->context, job->run->weights.config, &job->max_tokens));
  for (int i = 0; i < s->texts.count; i++) {
    char where[32];
    snprintf(where, sizeof where, "--text %d", i + 1);
    TRY(add_sample(job, s->texts.count == 1 ? "--text" : where, s->texts.list[i], i < s->pairs.count ? s->pairs.list[i] : NULL));
  }
  if (s->text_file) TRY(add_file(job, s->text_file));
  int64_t batch = choose_batch(job, s->batch);
  if (!(job->results = calloc((size_t)job->texts.count, sizeof *job->results))) return status_no_memory(NULL, "texts to classify");
  TRY(start_texts(job, batch));
  TRY(texts_classify(job->run->leader, &job->texts, batch, s->quiet || job->texts.count <= batch, rank, job, &seconds));
  return print_texts(job, seconds);
}

static Status classify_texts(const InferSettings *s, InferRun *run, const char *const *arguments, int count) {
  Job job = {.settings = s, .run = run};
  (void)arguments, (void)count;
  Status status = classify_job(&job);
  release_job(&job);
  return status;
}

/* ---- astra-infer eval ---- */

enum { IMAGES_OF_A_REQUEST = 64 };

static double share(int64_t part, int64_t whole) { return whole > 0 ? (double)part / (double)whole : 0; }
static double per_second(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

/* Writes text to `out`, or, where that is NULL, returns the same as a fresh JSON value: NULL when out of memory. */
static json_t *report_images_evaluation(FILE *out, const Leader *leader, const Evaluation *e) {
  const ClassSummary *scores = &e->scores;
  const int64_t computed = scores->samples + e->skipped;
  const double images = (double)scores->samples;
  const ReportSent sent = report_sent(leader, computed);
  const double bytes_per_image = computed > 0 ? (double)sent.bytes / (double)computed : 0;
  if (!out)
    return json_pack("{s:I, s:f, s:f, s:o, s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:o}", "samples", (json_int_t)scores->samples,
                     "top1", share(scores->correct1, scores->samples), "top5", share(scores->correct5, scores->samples), "loss",
                     json_build_number(scores->loss), "tempered_loss", json_build_number(scores->tempered_loss), "temperature",
                     scores->temperature, "seconds", e->seconds, "images_per_second", per_second(images, e->seconds), "bytes_per_image",
                     bytes_per_image, "bytes_per_token_block_receiver", sent.token_bytes, "coded_bits_per_token_block_receiver",
                     sent.coded_bits, "packed_bits_per_token_block_receiver", sent.packed_bits, "skipped", (json_int_t)e->skipped, "nodes",
                     report_nodes_json(leader));
  fprintf(out, "%lld image%s on %d node%s in %.1f s, %.1f images/s\n", (long long)scores->samples, text_plural(scores->samples),
          leader_nodes(leader), text_plural(leader_nodes(leader)), e->seconds, per_second(images, e->seconds));
  fprintf(out, "top-1 %.2f%%   top-5 %.2f%%   mean loss %.4f, %.4f at temperature %.2f\n", 100 * share(scores->correct1, scores->samples),
          100 * share(scores->correct5, scores->samples), scores->loss, scores->tempered_loss, scores->temperature);
  if (sent.codes)
    fprintf(out, "sent %.1f bytes per image by all nodes together; %g bytes per token, block and receiver\n", bytes_per_image,
            sent.token_bytes);
  report_bits(out, &sent);
  if (e->skipped) fprintf(out, "%lld broken image%s left out\n", (long long)e->skipped, e->skipped == 1 ? " was" : "s were");
  return NULL;
}

static Status evaluate_images(const InferSettings *s, InferRun *run) {
  Evaluation evaluation;
  int64_t batch = s->batch > 0 ? s->batch : IMAGES_OF_A_REQUEST;
  TRY(s->validation_part > 0 ? dataset_open_share(&run->set, s->dataset, s->data_dir, (TrainShare){.of = s->validation_part})
                             : dataset_open(&run->set, s->dataset, s->data_dir, DATASET_TEST));
  if (s->validation_part > 0) log_info("%s", dataset_describe(run->set));
  TRY(infer_run_load(s, run));
  TRY(infer_run_require(run, INFER_KIND_IMAGES));
  config_warn_no_preprocessor(run->weights.config, run->directory);
  TRY(infer_run_require_options(s, run));
  const int64_t all = dataset_count(run->set), count = s->samples > 0 && s->samples < all ? s->samples : all;
  if (batch > count && count > 0) batch = count; /* --split auto plans for requests as they will be */
  run->divided.ahead = true;
  TRY(infer_run_start(s, run, &(LeaderOptions){.batch_max = batch}));
  TRY(evaluate_run(run->leader, run->set, s->samples, batch, s->quiet, run->rows.stream, &evaluation));
  if (s->json) {
    json_t *value = report_images_evaluation(NULL, run->leader, &evaluation);
    if (value) json_object_set_new(value, "dataset", json_build_string(s->dataset));
    if (value) json_object_set_new(value, "part", json_string(s->validation_part > 0 ? "valid" : "test"));
    report_traffic_json(value, run->leader, evaluation.scores.samples + evaluation.skipped, false);
    return infer_run_print_json(value, run);
  }
  report_images_evaluation(stdout, run->leader, &evaluation);
  report_traffic(stdout, run->leader, evaluation.scores.samples + evaluation.skipped, false);
  infer_run_report(s, run);
  return STATUS_OK;
}

static Status add_texts(Job *job, const int32_t *class_of) {
  const InferSettings *s = job->settings;
  int64_t all = text_labels_count(job->set), count = s->samples > 0 && s->samples < all ? s->samples : all;
  int32_t *chosen = malloc((size_t)all * sizeof *chosen);
  job->labels = malloc((size_t)count * sizeof *job->labels);
  Status status = chosen && job->labels ? STATUS_OK : status_no_memory(NULL, "texts to classify");
  if (status == STATUS_OK) text_loader_choose(job->set, count, chosen);
  for (int64_t i = 0; i < count && status == STATUS_OK; i++) {
    int32_t label;
    const char *text = text_labels_text(job->set, chosen[i], &label);
    job->labels[i] = class_of[label];
    status = texts_add(&job->texts, &job->encoder, text, text_labels_pair(job->set, chosen[i]), job->max_tokens);
    if (status != STATUS_OK) status = status_wrap(status, "text %lld of %s", (long long)chosen[i] + 1, s->dataset);
  }
  free(chosen);
  return status;
}

static Status open_set(Job *job) {
  const InferSettings *s = job->settings;
  int32_t *class_of;
  TRY(s->validation_part > 0 ? text_labels_open_share(&job->set, s->dataset, s->data_dir, (TrainShare){.of = s->validation_part})
                             : text_labels_open(&job->set, s->dataset, s->data_dir, DATASET_TEST));
  TRY(evaluate_match_classes(job->run->weights.config, text_labels_names(job->set), text_labels_classes(job->set),
                             text_labels_describe(job->set), &class_of));
  const Status status = add_texts(job, class_of);
  free(class_of);
  return status;
}

/* As report_images_evaluation. */
static json_t *report_label_evaluation(FILE *out, const Leader *leader, const Texts *texts, const LabelEvaluation *e) {
  const ClassSummary *scores = &e->scores;
  const ReportSent sent = report_sent(leader, scores->samples);
  if (!out)
    return json_pack("{s:I, s:f, s:o, s:o, s:o, s:f, s:I, s:I, s:I, s:f, s:f, s:I, s:o}", "samples", (json_int_t)scores->samples,
                     "accuracy", e->accuracy, "matthews", json_build_number(e->matthews), "loss", json_build_number(scores->loss),
                     "tempered_loss", json_build_number(scores->tempered_loss), "temperature", scores->temperature, "shortest",
                     (json_int_t)texts->shortest, "longest", (json_int_t)texts->longest, "cut", (json_int_t)texts->cut, "seconds",
                     e->seconds, "texts_per_second", per_second((double)scores->samples, e->seconds), "bytes_sent", (json_int_t)sent.bytes,
                     "nodes", report_nodes_json(leader));
  int nodes = leader_nodes(leader);
  double matthews = e->matthews;
  fprintf(out, "%lld text%s of %lld to %lld tokens on %d node%s in %.1f s, %.0f texts/s\n", (long long)scores->samples,
          text_plural(scores->samples), (long long)texts->shortest, (long long)texts->longest, nodes, text_plural(nodes), e->seconds,
          per_second((double)scores->samples, e->seconds));
  fprintf(out, "accuracy %.2f%%", 100 * e->accuracy);
  if (isfinite(matthews)) fprintf(out, " (Matthews correlation %.3f)", matthews);
  fprintf(out, "   mean loss %.4f, %.4f at temperature %.2f\n", scores->loss, scores->tempered_loss, scores->temperature);
  if (nodes > 1) fprintf(out, "sent %llu bytes by all nodes together\n", (unsigned long long)sent.bytes);
  return NULL;
}

static Status evaluate_job(Job *job) {
  const InferSettings *s = job->settings;
  LabelEvaluation evaluation;
  TRY(open_classifier(job));
  TRY(infer_settings_context("--context", s->window, job->run->weights.config, &job->max_tokens));
  TRY(open_set(job));
  int64_t batch = choose_batch(job, s->batch);
  job->run->divided.ahead = true;
  TRY(start_texts(job, batch));
  const Leader *leader = job->run->leader;
  TRY(evaluate_labels_run(job->run->leader, &job->texts, job->labels, batch, s->quiet, job->run->rows.stream, &evaluation));
  if (s->json) {
    json_t *value = report_label_evaluation(NULL, leader, &job->texts, &evaluation);
    if (value) json_object_set_new(value, "dataset", json_build_string(s->dataset));
    if (value) json_object_set_new(value, "part", json_string(s->validation_part > 0 ? "valid" : "test"));
    report_rates_json(value, leader);
    return infer_run_print_json(value, job->run);
  }
  printf("%s\n", printable(text_labels_describe(job->set)));
  report_label_evaluation(stdout, leader, &job->texts, &evaluation);
  report_rates(stdout, leader);
  infer_run_report(s, job->run);
  return STATUS_OK;
}

static Status evaluate_texts(const InferSettings *s, InferRun *run) {
  Job job = {.settings = s, .run = run};
  Status status = evaluate_job(&job);
  release_job(&job);
  return status;
}

static Status evaluate_any(const InferSettings *s, InferRun *run, const char *const *arguments, int count) {
  if (text_source_knows(s->dataset)) return infer_text_eval(s, run, arguments, count);
  return text_labels_knows(s->dataset) ? evaluate_texts(s, run) : evaluate_images(s, run);
}

static Status evaluate(const InferSettings *s, InferRun *run, const char *const *arguments, int count) {
  if (s->per_sample == NULL) return evaluate_any(s, run, arguments, count);
  char *target;
  TRY(files_follow(s->per_sample, &target));
  Status status = files_create(&run->rows, target);
  free(target);
  TRY(status);
  status = evaluate_any(s, run, arguments, count);
  if (status == STATUS_OK) return files_commit(&run->rows);
  files_abort(&run->rows);
  return status;
}

/* ---- astra-infer selftest ---- */

/* Writes text to `out`, or, where that is NULL, returns the same as a fresh JSON value: NULL when out of memory. */
static json_t *report_selftest(FILE *out, const SelftestReport *r) {
  if (!out)
    return json_pack("{s:b, s:i, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "passed", (int)r->passed, "nodes", r->nodes, "images",
                     (json_int_t)r->images, "codes", (json_int_t)r->codes, "ties", (json_int_t)r->ties, "followed", (json_int_t)r->followed,
                     "wrong", (json_int_t)r->wrong, "worst_logit_difference", json_build_number(r->worst_absolute),
                     "worst_logit_of_allowed", json_build_number(r->worst_same), "worst_replayed_of_allowed",
                     json_build_number(r->worst_replayed), "loss_of_allowed", json_build_number(r->worst_loss), "reason",
                     json_build_string(r->reason));
  fprintf(out, "%-44s %lld on %d node%s\n", "samples", (long long)r->images, r->nodes, text_plural(r->nodes));
  if (r->codes) {
    fprintf(out, "%-44s %lld\n", "codes compared", (long long)r->codes);
    fprintf(out, "%-44s %lld (%.4f%%, at most %g%%)\n", "  ties within rounding that fell the other way", (long long)r->ties,
            100 * share(r->ties, r->codes), 100 * r->ties_allowed);
    fprintf(out, "%-44s %lld\n", "  that follow from those in later blocks", (long long)r->followed);
    fprintf(out, "%-44s %lld\n", "  wrong", (long long)r->wrong);
  }
  fprintf(out, "%-44s %.2e (%.3f of what is allowed)\n", "worst logit where no code differs", r->worst_absolute, r->worst_same);
  if (r->same_images < r->images)
    fprintf(out, "%-44s %.3f of what is allowed\n", "worst logit elsewhere, for the codes sent", r->worst_replayed);
  if (r->losses) fprintf(out, "%-44s %.3f of what is allowed\n", "mean loss of the labels", r->worst_loss);
  fprintf(out, "%s%s\n", r->passed ? "passed" : "FAILED: ", printable(r->reason));
  return NULL;
}

/* What is lost is masked, so that codes and logits are others without anything being wrong. */
static Status check_lossless(const ClusterSetup *network) {
  if (network->reliability.deadline > 0)
    return status_set(STATUS_BAD_USAGE, "--deadline: codes that come too late are lost, and the self-test compares all; leave it at auto");
  if (network->links.loss <= 0 || (!network->links.lose_tokens && network->reliability.mode == RELIABILITY_RETRANSMIT)) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--loss: the self-test compares all codes, so that what is lost has to be sent again: %s",
                    network->links.lose_tokens ? "--loss-unit packet with --transport udp --reliability retransmit"
                                               : "--reliability retransmit");
}

static Status prove(const InferSettings *s, InferRun *run, const char *const *paths, int count) {
  SelftestReport report;
  (void)paths, (void)count;
  TRY(check_lossless(&run->network));
  TRY(infer_run_load(s, run));
  TRY(infer_run_require_options(s, run));
  infer_run_catch_signals();
  TRY(infer_tables_make(s->links.memory.tables, s->verbose, &run->weights));
  if (run->weights.constrained) run->network.entropy = ENTROPY_OFF; /* codes as training chooses them: by distance alone */
  LeaderOptions options = infer_run_options(s, run, run->weights.books ? 2 : 1);
  const ModelConfig *config = run->weights.config;
  const bool all = !run->weights.one_rate && config_rates(config) > 1; /* bit rates, of which a failed one is the last */
  json_t *rates = all && s->json ? json_array() : NULL;
  Status status = STATUS_OK;
  for (int rate = 0; rate < (all ? config_rates(config) : 1) && status == STATUS_OK; rate++) {
    if (all) status = weights_use_rate(&run->weights, config_rate_groups(config, rate));
    if (status == STATUS_OK) status = selftest_run(&run->weights, run->directory, s->file, &options, &report);
    if (status != STATUS_OK) break;
    if (all && !s->json) printf("%s%d group%s\n", rate > 0 ? "\n" : "", config->astra.groups, text_plural(config->astra.groups));
    json_t *object = report_selftest(s->json ? NULL : stdout, &report);
    if (all && object) json_object_set_new(object, "groups", json_integer(config->astra.groups));
    if (all && s->json) json_array_append_new(rates, json_copy(object));
    const bool last = !all || !report.passed || rate == config_rates(config) - 1;
    if (all && s->json && last) json_object_set(object, "rates", rates);
    if (s->json && last)
      status = infer_run_print_json(object, run);
    else
      json_decref(object);
    if (status == STATUS_OK && !report.passed)
      status = status_set(STATUS_NUMERIC, "the processes do not compute what training emulated: %s", report.reason);
  }
  json_decref(rates);
  return status;
}

/* ---- commands ---- */

static Status run_main_body(const InferSettings *s, InferRun *run, const char *const *arguments, int count) {
  if (count > 0) return classify(s, run, arguments, count);
  bool text = s->texts.count > 0 || s->text_file;
  return (text ? classify_texts : infer_text_generate)(s, run, arguments, count);
}

static Status run_main(int argc, char **argv) { return infer_run_command(INFER_MAIN, argc, argv, run_main_body); }

static Status run_generate(int argc, char **argv) { return infer_run_command(INFER_GENERATE, argc, argv, infer_text_generate); }
static Status run_eval(int argc, char **argv) { return infer_run_command(INFER_EVAL, argc, argv, evaluate); }
static Status run_selftest(int argc, char **argv) { return infer_run_command(INFER_SELFTEST, argc, argv, prove); }

static Status show_links(int argc, char **argv) {
  Option none[] = {{.kind = OPTION_GROUP}};
  if (!cli_help_wanted(none, argc, argv)) TRY(cli_parse(none, argc, argv));
  infer_settings_help(INFER_LINKS, stdout);
  return STATUS_OK;
}

static const CliCommand *const commands[] = {
    &(const CliCommand){"generate", "generate text from prompts (the default with --prompt); all its options", run_generate},
    &(const CliCommand){"eval", "measure accuracy on images or texts, or perplexity on a text", run_eval},
    &(const CliCommand){"selftest", "check that the processes compute what training emulated", run_selftest},
    &(const CliCommand){"links", "list further options: strategies, transport, simulated network", show_links},
    &infer_worker_command,
    &infer_plan_command,
    &infer_keygen_command,
    NULL};

static void help(FILE *stream) {
  infer_settings_help(INFER_MAIN, stream);
  fprintf(stream, "\nCommands (astra-infer COMMAND --help):\n");
  cli_commands_help(commands, stream);
}

/* For where the options' values stand; what they are set to is infer_settings_parse's. */
static void table(Option options[CLI_OPTIONS_MAX]) {
  static InferSettings settings;
  infer_settings_table(&settings, INFER_MAIN, options);
}

int main(int argc, char **argv) {
  matmul_start();
  const CliProgram program = {"astra-infer", commands, run_main, help, table};
  return cli_run(argc, argv, &program);
}
