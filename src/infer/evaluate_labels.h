/* The accuracy of a cluster over texts with classes, through the real processes. */
#ifndef INFER_EVALUATE_LABELS_H
#define INFER_EVALUATE_LABELS_H
#include "infer/texts.h"

typedef struct LabelEvaluation {
  int64_t samples, correct;
  int64_t answers[2][2]; /* of two classes: [label][answer]; else zeroes */
  double loss;           /* nats, over all texts */
  double seconds;
} LabelEvaluation;

/* labels [texts->count], each one of the model's classes. The likeliest class is the answer, of equals the first. Otherwise as
 * texts_classify. */
Status evaluate_labels_run(Leader *leader, const Texts *texts, const int32_t *labels, int64_t batch, bool quiet,
                           LabelEvaluation *evaluation);

double evaluate_labels_accuracy(const LabelEvaluation *evaluation);
double evaluate_labels_loss(const LabelEvaluation *evaluation);     /* mean */
double evaluate_labels_matthews(const LabelEvaluation *evaluation); /* NAN for other than two classes */

#endif
