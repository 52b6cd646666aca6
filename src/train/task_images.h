/* Mixup and CutMix of a batch of images, and the task of classifying images (task.h). */
#ifndef TRAIN_TASK_IMAGES_H
#define TRAIN_TASK_IMAGES_H
#include "train/session.h"

/* Mixup (Zhang et al., 2018): each image is blended with another of its batch, and so are their labels. CutMix (Yun et al., 2019): a box
 * of the other is pasted into it, and labels are blended by areas. */

/* One of options.mixup and options.cutmix that is above 0; where both are, each batch takes either half of the time. One share for the
 * batch, from Beta(alpha, alpha), and one box; image i is mixed with image count - 1 - i (batches are shuffled). Fills target->other
 * and target->mix. */
Tensor *mixup_apply(Session *session, Tape *tape, const TaskBatch *batch, const Tensor *pixels, CrossEntropy *target);

#endif
