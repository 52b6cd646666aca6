/* Sends batches to the leader and collects answers, the next batch while the last one is computed: images with labels, texts with labels,
 * and windows of a text. */
#include "infer/evaluate.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "data/text/text_labels.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Status evaluate_match_classes(const ModelConfig *config, char *const *names, int64_t classes, const char *about, int32_t **class_of) {
  bool matched;
  *class_of = NULL;
  if (classes != config->classes)
    return status_set(STATUS_BAD_VALUE, "the checkpoint knows %lld classes, the data set has %lld (%s)", (long long)config->classes,
                      (long long)classes, about);
  int32_t *numbers = malloc((size_t)classes * sizeof *numbers);
  if (!numbers) return status_no_memory(NULL, "the classes of a data set");
  Status status = config_match_labels(config, names, numbers, &matched);
  if (status != STATUS_OK) return free(numbers), status;
  const int64_t other = config_other_label(config, names);
  if (!matched && other >= 0)
    log_warning("class %lld is called \"%s\" in the data set, and \"%s\" in the checkpoint", (long long)other, names[other],
                config->labels[other]);
  if (matched && other >= 0) log_info("the data set has the checkpoint's classes in another order: they are matched by name");
  *class_of = numbers;
  return STATUS_OK;
}

/* ---- images: labels of requests in flight are kept in a ring as deep as the leader's ---- */

typedef struct ImageRun {
  Leader *leader;
  Loader *loader;
  int64_t samples, submitted, collected; /* images */
  int32_t *class_of;                     /* [classes] */
  int32_t *labels[LEADER_DEPTH];         /* [batch], as the model counts them */
  int place;                             /* in the ring, of the next to submit */
  ClassScores scores;
  int64_t skipped; /* of those collected */
} ImageRun;

static Status count_images(ImageRun *sheet, const LeaderAnswer *answer, const int32_t *labels) {
  ClassScores *scores = &sheet->scores;
  for (int64_t b = 0; b < answer->batch; b++, sheet->collected++) {
    if (labels[b] >= 0)
      TRY(class_scores_add(scores, sheet->collected, answer->logits + b * scores->classes, labels[b], NULL));
    else
      sheet->skipped++; /* a broken one */
  }
  return STATUS_OK;
}

static Status run_images(ImageRun *sheet, bool quiet, Evaluation *evaluation) {
  const ClassSummary *sums = &sheet->scores.sums;
  Progress progress;
  char note[64] = "";
  double start = clock_now();
  progress_start(&progress, "evaluating", sheet->samples, quiet);
  while (sheet->collected < sheet->samples) {
    while (sheet->submitted < sheet->samples && leader_takes_more(sheet->leader)) {
      Batch batch;
      TRY(loader_next(sheet->loader, &batch));
      int64_t left = sheet->samples - sheet->submitted, count = batch.count < left ? batch.count : left;
      for (int64_t i = 0; i < count; i++) sheet->labels[sheet->place][i] = batch.labels[i] < 0 ? -1 : sheet->class_of[batch.labels[i]];
      sheet->place = (sheet->place + 1) % LEADER_DEPTH;
      sheet->submitted += count;
      TRY(leader_submit(sheet->leader, batch.pixels, count));
    }
    int oldest = (sheet->place + LEADER_DEPTH - leader_under_way(sheet->leader)) % LEADER_DEPTH;
    LeaderAnswer answer;
    TRY(leader_collect(sheet->leader, &answer));
    TRY(count_images(sheet, &answer, sheet->labels[oldest]));
    evaluation->seconds = clock_now() - start;
    snprintf(note, sizeof note, "top-1 %.2f%%  %.0f images/s", sums->samples ? 100.0 * (double)sums->correct1 / (double)sums->samples : 0,
             (double)sheet->collected / evaluation->seconds);
    progress_update(&progress, sheet->collected, note);
  }
  progress_finish(&progress, sheet->collected, note);
  return sums->samples > 0 ? STATUS_OK : status_set(STATUS_BAD_FILE, "not one of %lld images can be read", (long long)sheet->samples);
}

Status evaluate_run(Leader *leader, Dataset *set, int64_t samples, int64_t batch, bool quiet, FILE *rows, Evaluation *evaluation) {
  LoaderOptions options;
  const Weights *weights = leader_weights(leader);
  int64_t count = dataset_count(set);
  ImageRun sheet = {.leader = leader, .samples = samples > 0 && samples < count ? samples : count};
  *evaluation = (Evaluation){0};
  TRY(evaluate_match_classes(weights->config, dataset_labels(set), dataset_classes(set), dataset_describe(set), &sheet.class_of));
  weights_loader_options(weights, &options);
  options.batch = (int)batch;
  options.mark_broken = true;
  options.shuffle = sheet.samples < count && dataset_is_grouped(set); /* the first images of a folder are those of its first classes */
  class_scores_init(&sheet.scores, weights->config->classes, rows);
  bool memory = true;
  for (int i = 0; i < LEADER_DEPTH; i++) memory = (sheet.labels[i] = malloc((size_t)batch * sizeof(int32_t))) && memory;
  Status status = memory ? loader_new(&sheet.loader, set, &options) : status_no_memory(NULL, "labels");
  if (status == STATUS_OK) status = run_images(&sheet, quiet, evaluation);
  if (status == STATUS_OK && rows) class_scores_write(&sheet.scores, rows);
  evaluation->scores = class_scores_summary(&sheet.scores);
  evaluation->skipped = sheet.skipped;
  if (sheet.loader) loader_free(sheet.loader);
  for (int i = 0; i < LEADER_DEPTH; i++) free(sheet.labels[i]);
  free(sheet.class_of);
  class_scores_free(&sheet.scores);
  return status;
}

/* ---- texts with classes ---- */

typedef struct LabelSheet {
  const int32_t *labels;
  ClassScores scores;
  LabelEvaluation *evaluation;
} LabelSheet;

static Status count_text(void *context, int64_t index, const real *logits, double seconds) {
  LabelSheet *sheet = context;
  int32_t label = sheet->labels[index], best;
  (void)seconds;
  TRY(class_scores_add(&sheet->scores, index, logits, label, &best));
  if (sheet->scores.classes == 2) sheet->evaluation->answers[label][best]++;
  return STATUS_OK;
}

Status evaluate_labels_run(Leader *leader, const Texts *texts, const int32_t *labels, int64_t batch, bool quiet, FILE *rows,
                           LabelEvaluation *evaluation) {
  LabelSheet sheet = {.labels = labels, .evaluation = evaluation};
  LabelEvaluation *e = evaluation;
  *e = (LabelEvaluation){.matthews = NAN};
  class_scores_init(&sheet.scores, leader_weights(leader)->config->classes, rows);
  Status status = texts_classify(leader, texts, batch, quiet, count_text, &sheet, &e->seconds);
  if (status == STATUS_OK && rows) class_scores_write(&sheet.scores, rows);
  e->scores = class_scores_summary(&sheet.scores);
  if (e->scores.samples > 0) e->accuracy = (double)e->scores.correct1 / (double)e->scores.samples;
  const LabelEvaluation *counted = e;
  if (sheet.scores.classes == 2 && e->scores.samples > 0) e->matthews = text_labels_matthews(counted->answers);
  class_scores_free(&sheet.scores);
  return status;
}

/* ---- windows of a text ---- */

typedef struct WindowRun {
  Leader *leader;
  const Tokenizer *tokenizer;
  const TextWindows *windows;
  int64_t batch, samples, submitted, collected; /* windows */
  int32_t *ids, *labels; /* [batch, context], of which a request of shorter windows takes less: the leader copies them */
  FILE *rows;
} WindowRun;

/* The next windows of one length, as they are divided among the nodes: each of these needs a token. */
static Status submit_windows(WindowRun *sheet, TextEvaluation *evaluation) {
  const TextWindows *windows = sheet->windows;
  const int64_t left = sheet->samples - sheet->submitted, nodes = leader_nodes(sheet->leader);
  const int64_t count = text_windows_alike(windows, sheet->submitted, left < sheet->batch ? left : sheet->batch);
  const int64_t rows = text_windows_rows(windows, sheet->submitted), least = nodes < windows->context ? nodes : windows->context;
  const int64_t width = rows > least ? rows : least;
  for (int64_t i = 0; i < count; i++)
    text_windows_fill(windows, sheet->submitted + i, width, sheet->ids + i * width, sheet->labels + i * width);
  for (int64_t i = 0; i < count * width; i++) {
    if (sheet->labels[i] < 0) continue;
    evaluation->bytes += (int64_t)tokenizer_text_bytes(sheet->tokenizer, sheet->ids[i], sheet->labels[i]);
    evaluation->unscored++;
  }
  sheet->submitted += count;
  return leader_text_score(sheet->leader, sheet->ids, sheet->labels, count, width);
}

static Status run_windows(WindowRun *sheet, bool quiet, TextEvaluation *evaluation) {
  RequestScore *score = &evaluation->score;
  Progress progress;
  char note[80] = "";
  double start = clock_now();
  progress_start(&progress, "evaluating", sheet->samples, quiet);
  while (sheet->collected < sheet->samples) {
    while (sheet->submitted < sheet->samples && leader_takes_more(sheet->leader)) TRY(submit_windows(sheet, evaluation));
    LeaderAnswer answer;
    TRY(leader_collect(sheet->leader, &answer));
    if (sheet->rows)
      fprintf(sheet->rows, "%lld,%lld,%lld,%.9g\n", (long long)sheet->collected, (long long)answer.score.counted,
              (long long)answer.score.correct, answer.score.loss);
    sheet->collected += answer.batch;
    score->loss += answer.score.loss;
    score->counted += answer.score.counted;
    evaluation->unscored -= (int64_t)answer.score.counted;
    score->correct += answer.score.correct;
    evaluation->seconds = clock_now() - start;
    evaluation->perplexity = score->counted ? exp(score->loss / (double)score->counted) : 0;
    snprintf(note, sizeof note, "perplexity %.2f  %.0f tokens/s", evaluation->perplexity, (double)score->counted / evaluation->seconds);
    progress_update(&progress, sheet->collected, note);
  }
  progress_finish(&progress, sheet->collected, note);
  evaluation->windows = sheet->collected;
  evaluation->bits_per_byte = evaluation->unscored > 0 ? NAN : evaluation->bytes > 0 ? score->loss / log(2) / (double)evaluation->bytes : 0;
  return STATUS_OK;
}

Status evaluate_text_run(Leader *leader, const Vocabulary *vocabulary, const TextWindows *windows, int64_t samples, int64_t batch,
                         bool quiet, FILE *rows, TextEvaluation *evaluation) {
  size_t numbers = (size_t)(batch * windows->context);
  WindowRun sheet = {.leader = leader,
                     .tokenizer = vocabulary->tokenizer,
                     .windows = windows,
                     .rows = rows,
                     .batch = batch,
                     .samples = samples > 0 && samples < windows->count ? samples : windows->count,
                     .ids = malloc(numbers * sizeof *sheet.ids),
                     .labels = malloc(numbers * sizeof *sheet.labels)};
  *evaluation = (TextEvaluation){.context = windows->context, .stride = windows->stride};
  Status status = sheet.ids && sheet.labels ? STATUS_OK : status_no_memory(NULL, "windows of text");
  if (rows) fputs("sample,items,correct,loss\n", rows);
  if (status == STATUS_OK) status = run_windows(&sheet, quiet, evaluation);
  free(sheet.ids);
  free(sheet.labels);
  return status;
}
