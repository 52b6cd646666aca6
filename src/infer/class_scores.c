#include "infer/class_scores.h"
#include "base/array.h"
#include "infer/classify.h"
#include <math.h>
#include <stdlib.h>

enum { BEST = 5, UNSCALED = 20 }; /* of the scales, that is 1 */

/* Logits are multiplied by these, which are evenly spaced, so that each class needs two exponentials, not one for each. */
static const double first_scale = 0.5, scale_step = 0.025;

static double scale_of(int t) { return first_scale + scale_step * t; }

void class_scores_init(ClassScores *scores, int64_t classes, bool keep_rows) {
  *scores = (ClassScores){.classes = classes, .keeps_rows = keep_rows};
}

void class_scores_free(ClassScores *scores) {
  free(scores->list);
  *scores = (ClassScores){0};
}

/* losses [CLASS_TEMPERATURES]: -ln of the label's probability, with logits times each scale. */
static void tempered_losses(const real *logits, int64_t classes, int32_t label, int32_t best, double *losses) {
  for (int t = 0; t < CLASS_TEMPERATURES; t++) losses[t] = 0;
  for (int64_t c = 0; c < classes; c++) {
    const double below = (double)logits[c] - (double)logits[best], ratio = exp(scale_step * below);
    double term = exp(first_scale * below);
    for (int t = 0; t < CLASS_TEMPERATURES; t++, term *= ratio) losses[t] += term;
  }
  for (int t = 0; t < CLASS_TEMPERATURES; t++) losses[t] = log(losses[t]) + scale_of(t) * ((double)logits[best] - (double)logits[label]);
}

Status class_scores_add(ClassScores *scores, int64_t sample, const real *logits, int32_t label, int32_t *best) {
  ClassSummary *sums = &scores->sums;
  const int count = scores->classes < BEST ? (int)scores->classes : BEST;
  int32_t ranked[BEST];
  double losses[CLASS_TEMPERATURES];
  if (scores->keeps_rows) TRY(ARRAY_RESERVE(scores->list, sums->samples, 1, scores->room, "rows of samples"));
  ranking_top(logits, scores->classes, count, ranked, NULL);
  tempered_losses(logits, scores->classes, label, ranked[0], losses);
  for (int t = 0; t < CLASS_TEMPERATURES; t++) scores->tempered[t] += losses[t];
  if (scores->keeps_rows) {
    ClassRow *row = &scores->list[sums->samples];
    *row = (ClassRow){.sample = sample, .correct = ranked[0] == label, .loss = losses[UNSCALED]};
    for (int t = 0; t < CLASS_TEMPERATURES; t++) row->tempered[t] = (float)losses[t];
  }
  sums->samples++;
  sums->correct1 += ranked[0] == label;
  for (int i = 0; i < count; i++) sums->correct5 += ranked[i] == label;
  sums->loss += losses[UNSCALED];
  if (best) *best = ranked[0];
  return STATUS_OK;
}

static int best_temperature(const ClassScores *scores) {
  int best = 0;
  for (int t = 1; t < CLASS_TEMPERATURES; t++)
    if (scores->tempered[t] < scores->tempered[best]) best = t;
  return best;
}

ClassSummary class_scores_summary(const ClassScores *scores) {
  ClassSummary summary = scores->sums;
  const double samples = (double)summary.samples;
  const int best = best_temperature(scores);
  summary.temperature = 1;
  if (summary.samples == 0) return summary;
  summary.loss /= samples;
  summary.temperature = 1 / scale_of(best);
  summary.tempered_loss = scores->tempered[best] / samples;
  return summary;
}

void class_scores_write(const ClassScores *scores, FILE *stream) {
  const int best = best_temperature(scores);
  fputs("sample,items,correct,loss,tempered_loss\n", stream);
  for (int64_t i = 0; scores->keeps_rows && i < scores->sums.samples; i++) {
    const ClassRow *row = &scores->list[i];
    fprintf(stream, "%lld,1,%d,%.9g,%.9g\n", (long long)row->sample, row->correct, row->loss, (double)row->tempered[best]);
  }
}
