/* How the model does on the test part: the plain model, and the emulated cluster with even shares, as the runner places them. */
#ifndef TRAIN_VALIDATE_H
#define TRAIN_VALIDATE_H
#include "train/session.h"

typedef struct Validation {
  double accuracy, loss; /* top-1 share, of predicted tokens too; mean cross-entropy */
  int64_t samples;
  TaskScore score; /* what the task's measures follow from */
} Validation;

/* The first `samples` images, windows or texts (0: all). devices 0: the plain model. The averaged weights are used where the optimizer
 * keeps them. STATUS_INTERRUPTED when a signal asked for it (interrupt_catch). */
Status validate_run(Session *session, int devices, int64_t samples, Validation *result);

/* The emulated cluster at each bit rate (config_rates), rates [CONFIG_RATES]; with TrainOptions.one_rate only at the one in use. *last: the
 * one with the most groups of these, which stays in use. */
Status validate_rates(Session *session, int64_t samples, Validation *last, Validation *rates);

/* One batch through the session's tape, which does not record, by the weights that the parameters point to; *sum is added to. While the
 * tape plans, the batch is planned. */
Status validate_batch(Session *session, const TaskBatch *batch, int devices, TaskScore *sum);

/* NUMERIC, naming the first tensor that is not finite, where the weights that would be saved are of no use: finite or not, they give no
 * finite loss for the first sample. Moves the place in the test part, nothing else. */
Status validate_weights(Session *session);

#endif
