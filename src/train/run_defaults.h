/* What a run takes where its options leave it open: batch, epochs, learning rate, warm-up, interval of evaluations. All follow from the
 * amount of training data and from where the weights come from, so that a run with defaults learns from 60 samples as from 60,000. An
 * option that was given is never touched. */
#ifndef TRAIN_RUN_DEFAULTS_H
#define TRAIN_RUN_DEFAULTS_H
#include "train/session.h"

/* After Task.open: the task's batch, halved while an epoch would have fewer than 8 of them, down to 8 samples. Sessions that do not train
 * take the task's batch. */
void run_defaults_batch(Session *session);

/* After Task.start and before the optimizer is made, of sessions that train or plan; sets session->total_steps:
 *   epochs          the task's, or as many as make Task.least_steps steps
 *   learning rate   1e-4 for pretrained weights, 3e-4 for adapters, min(1e-3, 0.4 / width) from scratch
 *   warm-up         a tenth of the steps, at most 100
 *   evaluations     after each epoch, or fewer so that there are about 20
 * What was chosen and why is then in session->chosen, one line; "" if the options said everything. */
void run_defaults_length(Session *session);

/* What is worth a warning about a run that the options describe: a line for people in `text`, or false. */
bool run_defaults_doubt(const Session *session, char *text, size_t size);

#endif
