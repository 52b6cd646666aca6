/* Mixup (Zhang et al., 2018): each picture is blended with another of its batch, and so are their labels. */
#ifndef TRAIN_MIXUP_H
#define TRAIN_MIXUP_H
#include "train/session.h"

/* One share for the batch, from Beta(alpha, alpha); picture i is blended with picture count - 1 - i (batches are shuffled).
 * Fills target->other and target->mix. */
Tensor *mixup_apply(Session *session, Tape *tape, const TaskBatch *batch, const Tensor *pixels, CrossEntropy *target);

#endif
