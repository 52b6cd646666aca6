/* Counts answers: see evaluate_labels.h. */
#include "infer/evaluate_labels.h"
#include "data/text/text_labels.h"
#include "infer/ranking.h"
#include <math.h>

typedef struct Sheet {
  const int32_t *labels;
  int64_t classes;
  LabelEvaluation *evaluation;
} Sheet;

/* -ln of the label's probability. */
static double loss_of(const real *logits, int64_t classes, int32_t label, int32_t best) {
  double sum = 0;
  for (int64_t c = 0; c < classes; c++) sum += exp((double)logits[c] - (double)logits[best]);
  return log(sum) + (double)logits[best] - (double)logits[label];
}

static Status judge(void *context, int64_t index, const real *logits, double seconds) {
  Sheet *sheet = context;
  LabelEvaluation *e = sheet->evaluation;
  int32_t label = sheet->labels[index], best;
  (void)seconds;
  ranking_top(logits, sheet->classes, 1, &best, NULL);
  e->samples++;
  e->correct += best == label;
  e->loss += loss_of(logits, sheet->classes, label, best);
  if (sheet->classes == 2) e->answers[label][best]++;
  return STATUS_OK;
}

Status evaluate_labels_run(Leader *leader, const Texts *texts, const int32_t *labels, int64_t batch, bool quiet,
                           LabelEvaluation *evaluation) {
  Sheet sheet = {.labels = labels, .classes = leader_weights(leader)->config->classes, .evaluation = evaluation};
  *evaluation = (LabelEvaluation){.samples = 0};
  return texts_classify(leader, texts, batch, quiet, judge, &sheet, &evaluation->seconds);
}

double evaluate_labels_accuracy(const LabelEvaluation *e) { return e->samples > 0 ? (double)e->correct / (double)e->samples : 0; }
double evaluate_labels_loss(const LabelEvaluation *e) { return e->samples > 0 ? e->loss / (double)e->samples : 0; }

double evaluate_labels_matthews(const LabelEvaluation *e) {
  bool of_two = e->answers[0][0] + e->answers[0][1] + e->answers[1][0] + e->answers[1][1] > 0;
  return of_two ? text_labels_matthews(e->answers) : NAN;
}
