/* Groups texts of one length into requests, and ranks classes. */
#include "infer/classify.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/progress.h"
#include "data/text/text_loader.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Top k by insertion: k is small and the row is read once. */
void ranking_top(const real *logits, int64_t classes, int count, int32_t *index, double *probability) {
  int held = 0;
  for (int64_t c = 0; c < classes; c++) {
    int place = held < count ? held++ : count;
    while (place > 0 && logits[index[place - 1]] < logits[c]) {
      if (place < count) index[place] = index[place - 1];
      place--;
    }
    if (place < count) index[place] = (int32_t)c;
  }
  if (!probability || count < 1) return;
  double sum = 0;
  for (int64_t c = 0; c < classes; c++) sum += exp((double)logits[c] - (double)logits[index[0]]);
  for (int i = 0; i < count; i++) probability[i] = exp((double)logits[index[i]] - (double)logits[index[0]]) / sum;
}

/* ---- texts ---- */

void texts_release(Texts *texts) {
  token_list_release(&texts->tokens);
  free(texts->begin);
  *texts = (Texts){.count = 0};
}

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

/* ---- requests of texts ---- */

typedef struct Place {
  int64_t length, index;
} Place;

typedef struct Run {
  Leader *leader;
  const Texts *texts;
  Place *order;                       /* [count], shorter texts first */
  int64_t batch, submitted, answered; /* texts */
  double sent[LEADER_DEPTH];          /* when each request in flight was submitted */
  int64_t requests;
  int32_t *ids; /* [batch, longest]: the leader copies them */
} Run;

static int by_length(const void *a, const void *b) {
  const Place *x = a, *y = b;
  if (x->length != y->length) return x->length < y->length ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

static Status run_all(Run *run, bool quiet, TextsTake *take, void *context, double *seconds) {
  const Texts *texts = run->texts;
  const int64_t classes = leader_weights(run->leader)->config->classes;
  Progress progress;
  char note[40] = "";
  double start = clock_now();
  progress_start(&progress, "classifying", texts->count, quiet);
  while (run->answered < texts->count) {
    while (run->submitted < texts->count && leader_takes_more(run->leader)) {
      const Place *first = &run->order[run->submitted];
      int64_t left = texts->count - run->submitted, count = 0;
      for (; count < left && count < run->batch && first[count].length == first->length; count++)
        memcpy(run->ids + count * first->length, texts->tokens.ids + texts->begin[first[count].index],
               (size_t)first->length * sizeof *run->ids);
      run->submitted += count;
      run->sent[run->requests++ % LEADER_DEPTH] = clock_now();
      TRY(leader_text_classify(run->leader, run->ids, count, first->length));
    }
    int64_t oldest = run->requests - leader_under_way(run->leader);
    LeaderAnswer answer;
    TRY(leader_collect(run->leader, &answer));
    double took = clock_now() - run->sent[oldest % LEADER_DEPTH];
    for (int64_t b = 0; b < answer.batch; b++) TRY(take(context, run->order[run->answered++].index, answer.logits + b * classes, took));
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
