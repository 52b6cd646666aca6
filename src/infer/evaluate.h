/* The quality of a cluster, through the real processes: accuracy over images and over texts with classes, perplexity over a text. */
#ifndef INFER_EVALUATE_H
#define INFER_EVALUATE_H
#include "data/dataset.h"
#include "data/text/text_perplexity.h"
#include "infer/classify.h"
#include "infer/cluster/leader.h"
#include "infer/vocabulary.h"
#include <stdio.h>

/* Every evaluation writes, where `rows` is not NULL, a CSV row for each sample (of windows of a text for each request, which has some), so
 * that two evaluations can be compared sample by sample: sample (number of the first), items (images, texts or predicted tokens), correct
 * ones, loss (nats, their sum). */
void evaluate_rows_head(FILE *rows);

/* ---- images ---- */

typedef struct Evaluation {
  int64_t samples;
  int64_t correct1, correct5; /* among the best one, and the best five */
  int64_t skipped;            /* broken images, each replaced by another one */
  double seconds;
} Evaluation;

/* The first `samples` (0: all) images of the set in batches; the next batch is decoded and sent while the last one is computed.
 * A data set whose classes are not as many as the model's is BAD_VALUE. */
Status evaluate_run(Leader *leader, Dataset *set, int64_t samples, int64_t batch, bool quiet, FILE *rows, Evaluation *evaluation);

/* ---- texts with classes ---- */

typedef struct LabelEvaluation {
  int64_t samples, correct;
  int64_t answers[2][2]; /* of two classes: [label][answer]; else zeroes */
  double loss;           /* nats, over all texts */
  double seconds;
} LabelEvaluation;

/* labels [texts->count], each one of the model's classes. The likeliest class is the answer, of equals the first. Otherwise as
 * texts_classify. */
Status evaluate_labels_run(Leader *leader, const Texts *texts, const int32_t *labels, int64_t batch, bool quiet, FILE *rows,
                           LabelEvaluation *evaluation);

double evaluate_labels_accuracy(const LabelEvaluation *evaluation);
double evaluate_labels_loss(const LabelEvaluation *evaluation);     /* mean */
double evaluate_labels_matthews(const LabelEvaluation *evaluation); /* NAN for other than two classes */

/* ---- windows of a text's tokens, whole ones, many to a request ---- */

typedef struct TextEvaluation {
  int64_t windows, context, stride;
  int64_t bytes; /* of text behind the predicted tokens; what stands between documents has none */
  RequestScore score;
  double seconds;
} TextEvaluation;

/* The first `samples` (0: all) windows, `batch` to a request; the next request is sent while the last one is computed. Each token but the
 * first is predicted once. A window at the end that is not full is filled up, so that every window is divided among the nodes alike; what
 * fills it counts nowhere and is seen by no token that does. The leader's tokens_max must be at least the windows' context. */
Status evaluate_text_run(Leader *leader, const Vocabulary *vocabulary, const TextWindows *windows, int64_t samples, int64_t batch,
                         bool quiet, FILE *rows, TextEvaluation *evaluation);

double evaluate_text_perplexity(const TextEvaluation *evaluation);    /* exp(nats / predicted tokens) */
double evaluate_text_bits_per_byte(const TextEvaluation *evaluation); /* nats / (ln 2 bytes); 0 without bytes */

#endif
