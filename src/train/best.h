/* The evaluations of a run so far, for --keep-best and --early-stopping. They lie in OUT/training/evaluations.txt, a line "STEP VALUE"
 * each, so that a resumed run knows them; the value is the task's first measure, of the devices where there are some. */
#ifndef TRAIN_BEST_H
#define TRAIN_BEST_H
#include "train/session.h"

enum { BEST_UNKNOWN = -2 };
typedef struct Best {
  int64_t step;  /* of the best evaluation; -1: there was none */
  double value;  /* its */
  int64_t since; /* evaluations after it, none of them better */
  int64_t last;  /* step of the last one; -1: none; BEST_UNKNOWN: of a run whose evaluations were not noted */
} Best;

/* What was noted up to session->step; later lines, of steps that a resumed run takes once more, are dropped. A run that begins has none. */
Status best_open(Best *best, const Session *session);

/* Adds an evaluation at session->step; *better: it is the best one (the first of equals). */
Status best_add(Best *best, const Session *session, double value, bool *better);

/* Copies the checkpoint that lies in OUT (all but states, measures and pictures) to OUT/best. */
Status best_keep(const Session *session);

/* Whether options.early_stopping evaluations have passed without a better one. */
bool best_is_over(const Best *best, const Session *session);

#endif
