/* The quality of a model on a cluster, measured with its processes: accuracy over images and labelled texts, perplexity over a text. */
#ifndef INFER_EVALUATE_H
#define INFER_EVALUATE_H
#include "data/dataset.h"
#include "data/text/text_perplexity.h"
#include "infer/class_scores.h"
#include "infer/classify.h"
#include "infer/cluster/leader.h"
#include "infer/vocabulary.h"
#include <stdio.h>

/* Where `rows` is not NULL, an evaluation writes a CSV table to it: a line with the names of the columns, then a row for each sample (each
 * request, of windows of a text), so that two evaluations can be compared sample by sample: sample (number of the first), items (images,
 * texts or predicted tokens), correct (of these), loss (their sum in nats); of classes also what class_scores_write adds, and all rows at
 * the end. */

/* The model's class of each of a data set's: by their names where these are the model's, in whatever order; else by their order, with a
 * warning. *class_of [classes] is the caller's to free. BAD_VALUE where they are not as many as the model's. names [classes] and `about`, a
 * line for people, are the data set's. */
Status evaluate_match_classes(const ModelConfig *config, char *const *names, int64_t classes, const char *about, int32_t **class_of);

/* ---- images ---- */

typedef struct Evaluation {
  ClassSummary scores;
  int64_t skipped; /* broken images, which are computed as black ones and left out */
  double seconds;
} Evaluation;

/* `samples` (0: all) images of the set in batches, but for broken ones: the first or, where dataset_is_grouped, a random choice that is
 * always the same, that of astra-train --eval-samples. BAD_FILE where none is left. The next batch is decoded and sent while the last one
 * is computed. Labels are matched as above. */
Status evaluate_run(Leader *leader, Dataset *set, int64_t samples, int64_t batch, bool quiet, FILE *rows, Evaluation *evaluation);

/* ---- texts with classes ---- */

typedef struct LabelEvaluation {
  ClassSummary scores;
  int64_t answers[2][2]; /* of two classes: [label][answer]; else zeroes */
  double accuracy;       /* share of scores.correct1 */
  double matthews;       /* NAN for other than two classes */
  double seconds;
} LabelEvaluation;

/* labels [texts->count], each one of the model's classes. The most likely class is the answer, the first among equals. Otherwise as
 * texts_classify. */
Status evaluate_labels_run(Leader *leader, const Texts *texts, const int32_t *labels, int64_t batch, bool quiet, FILE *rows,
                           LabelEvaluation *evaluation);

/* ---- windows of a text's tokens, whole ones, many to a request ---- */

typedef struct TextEvaluation {
  int64_t windows, context, stride;
  int64_t bytes;    /* of the text of the predicted tokens; separators of documents have none */
  int64_t unscored; /* tokens that were to be predicted by a device that failed (--on-failure mask) */
  RequestScore score;
  double perplexity;    /* exp(nats / predicted tokens) */
  double bits_per_byte; /* nats / (ln 2 bytes); 0 without bytes; NAN where tokens are unscored, whose bytes are not known apart */
  double seconds;
} TextEvaluation;

/* The first `samples` (0: all) windows, up to `batch` to a request; the next request is sent while the last one is computed. Each token but
 * the first is predicted once. Windows of a request have one length, so that each is divided among the nodes as if it came alone; one of
 * fewer tokens than nodes is padded, which is not counted, and no token that counts attends to it. The leader's tokens_max must be at least
 * the windows' context. */
Status evaluate_text_run(Leader *leader, const Vocabulary *vocabulary, const TextWindows *windows, int64_t samples, int64_t batch,
                         bool quiet, FILE *rows, TextEvaluation *evaluation);

#endif
