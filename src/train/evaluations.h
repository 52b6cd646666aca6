/* The evaluations of a run so far, for --keep-best and --early-stopping. They lie in OUT/training/evaluations.txt, a line
 * "STEP VALUE kept CONDITIONS" or "STEP VALUE - CONDITIONS" each, so that a resumed run knows them; the value is the task's first measure,
 * of the devices where there are some. What is kept need not be the best one: --keep-best may be given on --resume alone. Values of other
 * conditions (--eval-samples, --eval-token-loss, --eval-layout) cannot be compared: behind a change the evaluations begin anew. */
#ifndef TRAIN_EVALUATIONS_H
#define TRAIN_EVALUATIONS_H
#include "train/session.h"

#define EVALUATIONS_FILE "training/evaluations.txt" /* in OUT */

enum { EVALUATIONS_NOT_NOTED = -2 };

typedef struct Evaluations {
  int64_t step;      /* of the best one; -1: there was none */
  double value;      /* its */
  int64_t since;     /* evaluations after it, none of them better */
  int64_t last;      /* step of the last one; -1: none; EVALUATIONS_NOT_NOTED: of a run whose evaluations were not noted */
  int64_t kept;      /* step of the one whose checkpoint is in OUT/best; -1: none */
  double kept_value; /* its */
} Evaluations;

/* What was noted up to session->step; later lines, of steps that a resumed run takes once more, are dropped. A run that begins has none.
 * BAD_FILE names a damaged file. */
Status evaluations_open(Evaluations *evaluations, const Session *session);

/* Whether an evaluation at session->step was not noted: it was interrupted, or has failed before. */
bool evaluations_lack_step(const Evaluations *evaluations, const Session *session);

/* Whether the value is better than that of the checkpoint in OUT/best, the first of equals being the best. */
bool evaluations_better_than_kept(const Evaluations *evaluations, const Session *session, double value);

/* Adds the one at session->step, here and to the file. kept: its checkpoint is now in OUT/best. */
Status evaluations_add(Evaluations *evaluations, const Session *session, double value, bool kept);

/* Whether --early-stopping evaluations have passed without a better one. */
bool evaluations_stop_run(const Evaluations *evaluations, const Session *session);

#endif
