/* Windows to the leader and losses back: see evaluate_text.h. */
#include "infer/evaluate_text.h"
#include "base/clock.h"
#include "base/progress.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct Sheet {
  Leader *leader;
  const Tokenizer *tokenizer;
  const TextWindows *windows;
  int64_t batch, samples, submitted, collected; /* windows */
  int32_t *ids, *labels;                        /* [batch, context]: the leader copies them */
} Sheet;

static Status submit_next(Sheet *sheet, TextEvaluation *evaluation) {
  int64_t left = sheet->samples - sheet->submitted, count = left < sheet->batch ? left : sheet->batch, context = sheet->windows->context;
  for (int64_t i = 0; i < count; i++)
    text_windows_fill(sheet->windows, sheet->submitted + i, sheet->ids + i * context, sheet->labels + i * context);
  for (int64_t i = 0; i < count * context; i++)
    if (sheet->labels[i] >= 0) evaluation->bytes += (int64_t)tokenizer_text_bytes(sheet->tokenizer, sheet->ids[i], sheet->labels[i]);
  sheet->submitted += count;
  return leader_text_score(sheet->leader, sheet->ids, sheet->labels, count, context);
}

static Status collect(Sheet *sheet, TextEvaluation *evaluation) {
  LeaderAnswer answer;
  TRY(leader_collect(sheet->leader, &answer));
  sheet->collected += answer.batch;
  evaluation->score.loss += answer.score.loss;
  evaluation->score.counted += answer.score.counted;
  evaluation->score.correct += answer.score.correct;
  return STATUS_OK;
}

static Status run(Sheet *sheet, bool quiet, TextEvaluation *evaluation) {
  Progress progress;
  char note[80] = "";
  double start = clock_now();
  progress_start(&progress, "evaluating", sheet->samples, quiet);
  while (sheet->collected < sheet->samples) {
    while (sheet->submitted < sheet->samples && leader_takes_more(sheet->leader)) TRY(submit_next(sheet, evaluation));
    TRY(collect(sheet, evaluation));
    evaluation->seconds = clock_now() - start;
    snprintf(note, sizeof note, "perplexity %.2f  %.0f tokens/s", evaluate_text_perplexity(evaluation),
             (double)evaluation->score.counted / evaluation->seconds);
    progress_update(&progress, sheet->collected, note);
  }
  progress_finish(&progress, sheet->collected, note);
  evaluation->windows = sheet->collected;
  return STATUS_OK;
}

Status evaluate_text_run(Leader *leader, const Vocabulary *vocabulary, const TextWindows *windows, int64_t samples, int64_t batch,
                         bool quiet, TextEvaluation *evaluation) {
  size_t numbers = (size_t)(batch * windows->context);
  Sheet sheet = {.leader = leader,
                 .tokenizer = vocabulary->tokenizer,
                 .windows = windows,
                 .batch = batch,
                 .samples = samples > 0 && samples < windows->count ? samples : windows->count,
                 .ids = malloc(numbers * sizeof *sheet.ids),
                 .labels = malloc(numbers * sizeof *sheet.labels)};
  *evaluation = (TextEvaluation){.context = windows->context, .stride = windows->stride};
  Status status = sheet.ids && sheet.labels ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for windows of text");
  if (status == STATUS_OK) status = run(&sheet, quiet, evaluation);
  free(sheet.ids);
  free(sheet.labels);
  return status;
}

double evaluate_text_perplexity(const TextEvaluation *e) { return e->score.counted ? exp(e->score.loss / (double)e->score.counted) : 0; }

double evaluate_text_bits_per_byte(const TextEvaluation *e) { return e->bytes > 0 ? e->score.loss / log(2) / (double)e->bytes : 0; }
