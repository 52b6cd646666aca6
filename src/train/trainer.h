/* The training loop: batches, maps, steps, reports, evaluations, checkpoints. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H
#include "train/session.h"
#include "train/validate.h"

typedef struct TrainResult {
  int64_t steps;
  double loss, accuracy;      /* of the last interval's training samples; NAN: no step was taken */
  Validation emulated, plain; /* of the last evaluation; emulated.samples 0 for a plain model; of several bit rates that with most groups */
  Validation rates[CONFIG_RATES]; /* likewise, emulated, of each; samples 0: not evaluated */
  double seconds;
} TrainResult;

/* What a model is judged by: the emulated devices, or the plain model where there are none. */
const Validation *trainer_judged(const Session *session, const TrainResult *result);

/* Evaluates the plain model and, with ASTRA, the emulated devices at each bit rate, on options.eval_samples. Errors as of validate_run. */
Status trainer_validate(Session *session, TrainResult *result);

/* Trains from session->step to session->total_steps and leaves the checkpoint in options.out. A signal (interrupt_catch) ends the run
 * after the step or the evaluation's batch under way with a saved state and STATUS_INTERRUPTED; a loss that is not finite ends it with
 * STATUS_NUMERIC, naming step and tensor, and leaves the last good checkpoint as it is. */
Status trainer_run(Session *session, TrainResult *result);

/* Config, weights (averaged ones if kept), tokenizer, codebooks, frequencies of codes and self-test into options.out: all that a checkpoint
 * has but the state to go on from. averaged: frequencies of the moving averages, or of the codes that the usage of each site has counted.
 * Errors of the files, and NUMERIC (checkpoint_save). */
Status trainer_export(Session *session, bool averaged);

#endif
