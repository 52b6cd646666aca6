/* --dry-run: what a run would take, without running it. The step is planned on the tape (every array allocated, every product counted,
 * nothing computed), so memory and FLOPs are exact. */
#ifndef TRAIN_PLAN_H
#define TRAIN_PLAN_H
#include "train/session.h"

/* Makes the run fit into options.memory: the smallest number of blocks is computed twice (session_recompute) that brings its peak
 * under it. BAD_USAGE, saying what would be needed, when no number does. Without such an option nothing is done. */
Status plan_fit(Session *session);

/* NO_MEMORY, saying how much is needed and what there is, when a step would not fit into this machine's free memory. K-means looks for
 * itself (codebooks_fit). */
Status plan_check(Session *session);

/* Prints memory by purpose, products, an estimate of the time, bits per token and compression, what a node of a language model takes, and
 * shows the first batch: images as a sheet in options.out/first_batch.png. rate: FLOP/s that large products reach on this machine, from
 * which times are estimated. The session may be one that was opened for SESSION_PLAN. */
Status plan_print(Session *session, double rate, bool json);

#endif
