/* Batches from the loader to the leader and back. Labels of requests under way wait in a ring as deep as the leader's. */
#include "infer/evaluate.h"
#include "base/clock.h"
#include "base/progress.h"
#include "infer/ranking.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Sheet {
  Leader *leader;
  Loader *loader;
  int64_t batch, samples, submitted; /* images */
  int32_t *labels[LEADER_DEPTH];     /* [batch] */
  int place;                         /* in the ring, of the next to submit */
} Sheet;

static Status submit_next(Sheet *sheet) {
  Batch batch;
  TRY(loader_next(sheet->loader, &batch));
  int64_t left = sheet->samples - sheet->submitted, count = batch.count < left ? batch.count : left;
  memcpy(sheet->labels[sheet->place], batch.labels, (size_t)count * sizeof(int32_t));
  sheet->place = (sheet->place + 1) % LEADER_DEPTH;
  sheet->submitted += count;
  return leader_submit(sheet->leader, batch.pixels, count);
}

static void judge(const LeaderAnswer *answer, const int32_t *labels, int64_t classes, Evaluation *evaluation) {
  int count = classes < 5 ? (int)classes : 5;
  for (int64_t b = 0; b < answer->batch; b++) {
    int32_t best[5];
    ranking_top(answer->logits + b * classes, classes, count, best, NULL);
    evaluation->correct1 += best[0] == labels[b];
    for (int i = 0; i < count; i++) evaluation->correct5 += best[i] == labels[b];
  }
  evaluation->samples += answer->batch;
}

static Status collect(Sheet *sheet, Evaluation *evaluation) {
  int oldest = (sheet->place + LEADER_DEPTH - leader_under_way(sheet->leader)) % LEADER_DEPTH;
  LeaderAnswer answer;
  TRY(leader_collect(sheet->leader, &answer));
  judge(&answer, sheet->labels[oldest], leader_weights(sheet->leader)->config->classes, evaluation);
  return STATUS_OK;
}

static Status run(Sheet *sheet, bool quiet, Evaluation *evaluation) {
  Progress progress;
  char note[64] = "";
  double start = clock_now();
  progress_start(&progress, "evaluating", sheet->samples, quiet);
  while (evaluation->samples < sheet->samples) {
    while (sheet->submitted < sheet->samples && leader_takes_more(sheet->leader)) TRY(submit_next(sheet));
    TRY(collect(sheet, evaluation));
    evaluation->seconds = clock_now() - start;
    snprintf(note, sizeof note, "top-1 %.2f%%  %.0f images/s", 100.0 * (double)evaluation->correct1 / (double)evaluation->samples,
             (double)evaluation->samples / evaluation->seconds);
    progress_update(&progress, evaluation->samples, note);
  }
  progress_finish(&progress, evaluation->samples, note);
  return STATUS_OK;
}

static Status check_classes(const Weights *weights, const Dataset *set) {
  if (dataset_classes(set) == weights->config->classes) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "the checkpoint knows %lld classes, the data set has %lld (%s)", (long long)weights->config->classes,
                    (long long)dataset_classes(set), dataset_describe(set));
}

Status evaluate_run(Leader *leader, Dataset *set, int64_t samples, int64_t batch, bool quiet, Evaluation *evaluation) {
  LoaderOptions options;
  int64_t count = dataset_count(set);
  Sheet sheet = {.leader = leader, .batch = batch, .samples = samples > 0 && samples < count ? samples : count};
  *evaluation = (Evaluation){0};
  TRY(check_classes(leader_weights(leader), set));
  weights_loader_options(leader_weights(leader), &options);
  options.batch = (int)batch;
  bool memory = true;
  for (int i = 0; i < LEADER_DEPTH; i++) memory = (sheet.labels[i] = malloc((size_t)batch * sizeof(int32_t))) && memory;
  Status status = memory ? loader_new(&sheet.loader, set, &options) : status_set(STATUS_NO_MEMORY, "no memory for labels");
  if (status == STATUS_OK) status = run(&sheet, quiet, evaluation);
  if (sheet.loader) evaluation->skipped = loader_facts(sheet.loader).skipped;
  if (sheet.loader) loader_free(sheet.loader);
  for (int i = 0; i < LEADER_DEPTH; i++) free(sheet.labels[i]);
  return status;
}
