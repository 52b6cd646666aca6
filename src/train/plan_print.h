/* What --dry-run says: memory by purpose, products, an estimate of the time, bits per token, a node's memory. */
#ifndef TRAIN_PLAN_PRINT_H
#define TRAIN_PLAN_PRINT_H
#include "train/session.h"

/* Prints the plan (plan.h), bits per token and compression, what a node of a language model takes, and shows the first batch: pictures as a
 * sheet in options.out/first_batch.png. rate: FLOP/s that large products reach on this machine, from which times are estimated. The session
 * may be one that was opened for SESSION_PLAN. */
Status plan_print(Session *session, double rate, bool json);

#endif
