/* What --dry-run of astra-train prints. */
#ifndef CLI_TRAIN_PLAN_H
#define CLI_TRAIN_PLAN_H
#include "train/session.h"

/* Prints memory by purpose, products, an estimate of the time, bits per token and compression, what a node of a language model takes, and
 * shows the first batch: images as a sheet in options.out/first_batch.png. rate: FLOP/s that large products reach on this machine, from
 * which times are estimated. The session may be one that was opened for SESSION_PLAN. */
Status train_plan_print(Session *session, double rate, bool json);

#endif
