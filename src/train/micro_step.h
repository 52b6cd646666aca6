/* One micro-batch of training: map, forward, loss, backward, codebook updates; gradients are added up. A step of the optimizer takes one or
 * several of them (--accumulate). */
#ifndef TRAIN_MICRO_STEP_H
#define TRAIN_MICRO_STEP_H
#include "train/session.h"

typedef struct StepResult {
  double loss, task, commitment; /* means over the batch */
  int64_t correct, items, units; /* of items: images, texts or predicted tokens; units: speed is reported in these */
} StepResult;                    /* of a job of several ranks: over all of them */

/* On a tape that plans nothing is computed: memory and products are counted. NUMERIC where the loss is not finite, naming step and tensor.
 */
Status micro_step(Session *session, const TaskBatch *batch, StepResult *result);

/* How many of the run's steps, from the first on, leave patches out (options.patch_drop); the rest is on whole images. */
int64_t micro_step_dropping(const Session *session);

#endif
