/* Sorts texts by length, cuts them into requests, and hands answers back by number. */
#include "infer/texts.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/progress.h"
#include "data/text/text_loader.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the texts ---- */

void texts_release(Texts *texts) {
  token_list_release(&texts->tokens);
  free(texts->begin);
  *texts = (Texts){.count = 0};
}

int64_t texts_length(const Texts *texts, int64_t index) { return (int64_t)(texts->begin[index + 1] - texts->begin[index]); }

Status texts_add(Texts *texts, const TextEncoder *encoder, const char *text, const char *pair, int64_t context) {
  bool cut;
  TRY(ARRAY_RESERVE(texts->begin, texts->count, 2, texts->room, "texts to classify")); /* one more: where the last text ends */
  texts->begin[texts->count] = texts->tokens.count;
  TRY(text_loader_sample(encoder, text, pair, context, &texts->tokens, &cut));
  texts->begin[++texts->count] = texts->tokens.count;
  int64_t length = texts_length(texts, texts->count - 1);
  if (length > texts->longest) texts->longest = length;
  if (texts->count == 1 || length < texts->shortest) texts->shortest = length;
  texts->cut += cut;
  return STATUS_OK;
}

/* ---- requests ---- */

typedef struct Place {
  int64_t length, index;
} Place;

typedef struct Run {
  Leader *leader;
  const Texts *texts;
  Place *order;                       /* [count], shorter texts first */
  int64_t batch, submitted, answered; /* texts */
  double sent[LEADER_DEPTH];          /* when each request under way was submitted */
  int64_t requests;
  int32_t *ids; /* [batch, longest]: the leader copies them */
} Run;

static int by_length(const void *a, const void *b) {
  const Place *x = a, *y = b;
  if (x->length != y->length) return x->length < y->length ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

static Status submit_next(Run *run) {
  const Place *first = &run->order[run->submitted];
  int64_t left = run->texts->count - run->submitted, count = 0;
  for (; count < left && count < run->batch && first[count].length == first->length; count++)
    memcpy(run->ids + count * first->length, run->texts->tokens.ids + run->texts->begin[first[count].index],
           (size_t)first->length * sizeof *run->ids);
  run->submitted += count;
  run->sent[run->requests++ % LEADER_DEPTH] = clock_now();
  return leader_text_classify(run->leader, run->ids, count, first->length);
}

static Status collect(Run *run, TextsTake *take, void *context) {
  int64_t oldest = run->requests - leader_under_way(run->leader), classes = leader_weights(run->leader)->config->classes;
  LeaderAnswer answer;
  TRY(leader_collect(run->leader, &answer));
  double seconds = clock_now() - run->sent[oldest % LEADER_DEPTH];
  for (int64_t b = 0; b < answer.batch; b++) TRY(take(context, run->order[run->answered++].index, answer.logits + b * classes, seconds));
  return STATUS_OK;
}

static Status run_all(Run *run, bool quiet, TextsTake *take, void *context, double *seconds) {
  Progress progress;
  char note[40] = "";
  double start = clock_now();
  progress_start(&progress, "classifying", run->texts->count, quiet);
  while (run->answered < run->texts->count) {
    while (run->submitted < run->texts->count && leader_takes_more(run->leader)) TRY(submit_next(run));
    TRY(collect(run, take, context));
    *seconds = clock_now() - start;
    snprintf(note, sizeof note, "%.0f texts/s", (double)run->answered / *seconds);
    progress_update(&progress, run->answered, note);
  }
  progress_finish(&progress, run->answered, note);
  return STATUS_OK;
}

Status texts_classify(Leader *leader, const Texts *texts, int64_t batch, bool quiet, TextsTake *take, void *context, double *seconds) {
  Run run = {.leader = leader,
             .texts = texts,
             .batch = batch,
             .order = malloc((size_t)texts->count * sizeof *run.order + 1),
             .ids = malloc((size_t)(batch * texts->longest) * sizeof *run.ids + 1)};
  Status status = run.order && run.ids ? STATUS_OK : status_no_memory(NULL, "texts to classify");
  *seconds = 0;
  for (int64_t i = 0; run.order && i < texts->count; i++) run.order[i] = (Place){texts_length(texts, i), i};
  if (status == STATUS_OK) {
    qsort(run.order, (size_t)texts->count, sizeof *run.order, by_length);
    status = run_all(&run, quiet, take, context, seconds);
  }
  free(run.order);
  free(run.ids);
  return status;
}
