/* How the model does on the test part: the plain model, and the emulated cluster with even shares, as the runner places them. */
#ifndef TRAIN_VALIDATE_H
#define TRAIN_VALIDATE_H
#include "data/text/text_perplexity.h"
#include "train/session.h"

/* The perplexity of an evaluation under a convention (data/text/text_perplexity.h). */

typedef struct Perplexity {
  double value;
  double nats;        /* S */
  int64_t units;      /* n */
  int64_t page_bytes; /* of PERPLEXITY_LM_EVAL: bytes of the pages as they stand; else 0 */
} Perplexity;

/* BAD_USAGE where the options ask for words of a part of the windows alone, as only the whole text's are counted: for before the
 * evaluation. */
Status perplexity_check(const Session *session);

/* Of a score over the test part of a text. BAD_USAGE as above. */
Status perplexity_of(const Session *session, const TaskScore *score, PerplexityUnit unit, Perplexity *result);

typedef struct Validation {
  double accuracy, loss; /* top-1 share, of predicted tokens too; mean cross-entropy */
  int64_t samples;
  TaskScore score; /* what the task's measures follow from */
} Validation;

/* The first `samples` images, windows or texts (0: all). devices 0: the plain model. The averaged weights are used where the optimizer
 * keeps them. STATUS_INTERRUPTED when interrupt_ask was called. */
Status validate_run(Session *session, int devices, int64_t samples, Validation *result);

/* One batch through the session's tape, which does not record, by the weights that the parameters point to; *sum is added to. While the
 * tape plans, the batch is planned. */
Status validate_batch(Session *session, const TaskBatch *batch, int devices, TaskScore *sum);

/* The first weight that is no finite number, or NULL. */
const char *validate_bad_weight(const ParamSet *params);

/* NUMERIC, naming the first tensor that is not finite, where the weights that would be saved are of no use: finite or not, they give no
 * finite loss for the first sample. Moves the place in the test part, nothing else. */
Status validate_weights(Session *session);

#endif
