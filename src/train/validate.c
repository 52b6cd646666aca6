/* Validation: see validate.h. */
#include "train/validate.h"
#include "base/progress.h"
#include "train/interrupt.h"
#include <math.h>

/* Points the parameters at the averaged weights (true) or back at their own (false). Nothing happens without averaging. */
static void use_average(Session *session, bool average) {
  const Optimizer *optimizer = &session->optimizer;
  if (optimizer->average == NULL) return;
  ParamSet *params = model_params(session->model);
  const real *from = average ? params->values : optimizer->average;
  real *to = average ? optimizer->average : params->values;
  for (size_t i = 0; i < params->count; i++)
    if (!params->list[i].frozen) params->list[i].tensor.value = to + (params->list[i].tensor.value - from);
}

/* Even shares over `devices`, as the runner places them, or the plain model's layout for none. */
static Status place_tokens(Session *session, int devices, int64_t tokens, const TokenLayout **layout) {
  *layout = devices > 0 ? &session->layout : &session->plain_layout;
  if (devices == 0) return session_lay_plain(session, tokens);
  return device_map_place(&session->layout, session->config, tokens, devices, session->order);
}

static Status validate_batch(Session *session, const TaskBatch *batch, int devices, TaskScore *sum) {
  Tape *tape = session->tape;
  Exchange *exchange = devices > 0 ? &session->emulation.exchange : NULL;
  const TokenLayout *layout;
  TaskScore score = {0};
  TRY(place_tokens(session, devices, batch->tokens, &layout));
  if (exchange) emulate_begin_step(&session->emulation, false);
  session->task->loss(session, batch, layout, exchange, &score);
  task_add(sum, &score);
  Status status = tape_status(tape);
  tape_clear(tape);
  return status;
}

static Status validate_all(Session *session, int devices, int64_t samples, TaskScore *sum) {
  const Task *task = session->task;
  int64_t available = task->count(session, TASK_TEST);
  if (samples <= 0 || samples > available) samples = available;
  if (devices > 0) emulate_begin_look(&session->emulation);
  TRY(task->seek(session, TASK_TEST, 0, 0));
  Progress progress;
  progress_start(&progress, devices > 0 ? "evaluating on devices" : "evaluating", samples, session->options.quiet);
  while (sum->samples < samples) {
    TaskBatch batch;
    if (interrupt_asked()) return status_set(STATUS_INTERRUPTED, "the evaluation was interrupted");
    TRY(task->next(session, TASK_TEST, &batch));
    if (batch.count > samples - sum->samples) batch.count = (int)(samples - sum->samples);
    TRY(validate_batch(session, &batch, devices, sum));
    if (progress.terminal) progress_update(&progress, sum->samples, NULL);
  }
  progress_wipe(&progress);
  return STATUS_OK;
}

/* Whoever interrupts the run, which is then saved. */
Status validate_finite(Session *session) {
  TaskBatch batch;
  TaskScore score = {0};
  TRY(session->task->seek(session, TASK_TEST, 0, 0));
  TRY(session->task->next(session, TASK_TEST, &batch));
  batch.count = 1;
  tape_record(session->tape, false);
  use_average(session, true);
  Status status = validate_batch(session, &batch, 0, &score);
  use_average(session, false);
  if (status == STATUS_OK && !isfinite(task_mean_loss(&score))) status = status_set(STATUS_NUMERIC, "the loss is not finite");
  return status;
}

Status validate_run(Session *session, int devices, int64_t samples, Validation *result) {
  *result = (Validation){0};
  confusion_clear(&session->confusion);
  tape_record(session->tape, false);
  use_average(session, true);
  Status status = validate_all(session, devices, samples, &result->score);
  use_average(session, false);
  result->accuracy = task_accuracy(&result->score);
  result->loss = task_mean_loss(&result->score);
  result->samples = result->score.samples;
  if (status == STATUS_OK && !isfinite(result->loss))
    status = status_set(STATUS_NUMERIC, "the loss over the %s part is not finite: the weights are damaged or too large",
                        session_test_name(session));
  return status;
}
