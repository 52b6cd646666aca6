/* How the model does on the test part: the plain model, and the emulated cluster with even shares, as the runner places them. */
#ifndef TRAIN_VALIDATE_H
#define TRAIN_VALIDATE_H
#include "train/session.h"

typedef struct Validation {
  double accuracy, loss; /* top-1 share, of predicted tokens too; mean cross-entropy */
  int64_t samples;
  TaskScore score; /* what the task's measures follow from */
} Validation;

/* The first `samples` pictures, windows or texts (0: all). devices 0: the plain model. The averaged weights are used where the optimizer
 * keeps them. STATUS_INTERRUPTED when interrupt_ask was called. */
Status validate_run(Session *session, int devices, int64_t samples, Validation *result);

/* NUMERIC where the plain model, with the weights that would be saved, gives numbers that are not finite for the first sample;
 * model_not_finite says where. Moves the place in the test part, nothing else. */
Status validate_finite(Session *session);

#endif
