/* --dry-run: what a run would take, without running it. The step is planned on the tape (every array allocated, every product counted,
 * nothing computed), so memory and FLOPs are exact. */
#ifndef TRAIN_PLAN_H
#define TRAIN_PLAN_H
#include "train/session.h"

typedef struct Plan {
  double parameters, trainable;                                                        /* numbers, and those of them that learn */
  double weights, gradients, moments, average, codebooks, activations, data, selftest; /* bytes: the first four of what learns */
  double frozen;                                                                       /* bytes of the rest, in a file of 16 bits */
  double forward_flops, step_flops;                                                    /* of one batch's products */
} Plan;

Status plan_make(Session *session, Plan *plan);

/* Prints the plan, bits per token and compression, what a node of a language model takes, and shows the first batch: pictures as a sheet in
 * options.out/first_batch.png. The session may be one that was opened for SESSION_PLAN. */
Status plan_print(Session *session, bool json);

/* NO_MEMORY, saying how much is needed and what there is, when a step would not fit into this machine's free memory. */
Status plan_check(Session *session);

#endif
