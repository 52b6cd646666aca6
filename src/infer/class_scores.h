/* Answers of a classifier, scored one after another: how many are right, their loss, and the loss that is left when all logits are divided
 * by the one temperature that fits them best (Guo et al., On Calibration of Modern Neural Networks, 2017), which tells what a model knows
 * apart from how confident it is. */
#ifndef INFER_CLASS_SCORES_H
#define INFER_CLASS_SCORES_H
#include "autograd/real.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { CLASS_TEMPERATURES = 61 }; /* that are tried: 1 / 0.5, 1 / 0.525, ... 1 / 2 */

typedef struct ClassSummary {
  int64_t samples;
  int64_t correct1, correct5;        /* the label is the best class, the first among equals; it is among the best five */
  double loss;                       /* mean in nats; 0 without samples */
  double temperature, tempered_loss; /* of those tried the one with the least mean loss, and that loss; 1 and 0 without samples */
} ClassSummary;

typedef struct ClassRow {
  int64_t sample;
  bool correct;
  double loss;
  float tempered[CLASS_TEMPERATURES]; /* its loss at each */
} ClassRow;

typedef struct ClassScores {
  int64_t classes;
  ClassSummary sums;                   /* of losses the sum */
  double tempered[CLASS_TEMPERATURES]; /* sums */
  bool keeps_rows;
  ClassRow *list; /* [sums.samples] where rows are kept */
  size_t room;
} ClassScores;

/* keep_rows: for class_scores_write. To be freed with class_scores_free, which zeroes have nothing to give to. */
void class_scores_init(ClassScores *scores, int64_t classes, bool keep_rows);
void class_scores_free(ClassScores *scores);

/* logits [classes], 0 <= label < classes; returns the answer in *best, which may be NULL. NO_MEMORY, only where rows are kept: not added.
 */
Status class_scores_add(ClassScores *scores, int64_t sample, const real *logits, int32_t label, int32_t *best);

ClassSummary class_scores_summary(const ClassScores *scores);

/* A CSV table of what was added, in that order: sample, items (1), correct, loss, tempered_loss (at the summary's temperature). Errors of
 * the stream are the caller's to ask for. */
void class_scores_write(const ClassScores *scores, FILE *stream);

#endif
