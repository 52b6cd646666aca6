/* Validation: see validate.h. */
#include "train/validate.h"
#include "base/progress.h"
#include "train/data_parallel.h"
#include "train/interrupt.h"
#include "train/ranks.h"
#include "train/session.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Points the parameters at the averaged weights (true) or back at their own (false). Nothing happens without averaging. */
static void use_average(Session *session, bool average) {
  const Optimizer *optimizer = &session->optimizer;
  if (optimizer->average == NULL) return;
  ParamSet *params = model_params(session->model);
  const real *from = average ? params->values : optimizer->average;
  real *to = average ? optimizer->average : params->values;
  for (size_t i = 0; i < params->count; i++)
    if (!params->list[i].frozen) params->list[i].tensor.value = to + (params->list[i].tensor.value - from);
  param_refresh_shadows(params, false);
}

Status validate_batch(Session *session, const TaskBatch *batch, int devices, TaskScore *sum) {
  Tape *tape = session->tape;
  Exchange *exchange = devices > 0 ? &session->emulation.exchange : NULL;
  const TokenLayout *layout = devices > 0 ? &session->layout : &session->plain_layout;
  TaskScore score = {.confusion = sum->confusion};
  if (devices > 0) /* even shares, as the runner places them */
    TRY(device_map_place(&session->layout, session->config, batch->tokens, devices, session->order));
  else
    TRY(task_lay_plain(session, batch->tokens));
  if (exchange) emulate_begin_step(&session->emulation, false);
  emulate_share(&session->emulation, batch->first, batch->whole);
  if (batch->count == 0) return STATUS_OK; /* the other ranks have it */
  session->task->head->loss(session, batch, layout, exchange, &score);
  sum->loss += score.loss;
  sum->samples += score.samples;
  sum->items += score.items;
  sum->correct += score.correct;
  sum->bytes += score.bytes;
  for (int label = 0; label < 2; label++)
    for (int answer = 0; answer < 2; answer++) sum->answers[label][answer] += score.answers[label][answer];
  Status status = tape_status(tape);
  tape_clear(tape);
  return status;
}

static Status validate_all(Session *session, int devices, int64_t samples, TaskScore *sum) {
  const TaskSource *source = session->task->source;
  int64_t available = session->data.count[TASK_TEST];
  if (samples <= 0 || samples > available) samples = available;
  if (devices > 0) session->emulation.look = 0;
  TRY(source->seek(session, TASK_TEST, 0, 0));
  Progress progress;
  Status status = STATUS_OK;
  progress_start(&progress, devices > 0 ? "evaluating on devices" : "evaluating", samples, session->options.quiet);
  for (int64_t done = 0; done < samples && status == STATUS_OK;) {
    TaskBatch batch;
    status = interrupt_asked() && session->parallel == NULL ? status_set(STATUS_INTERRUPTED, "the evaluation was interrupted")
                                                            : source->next(session, TASK_TEST, &batch);
    if (status != STATUS_OK) break;
    int64_t left = samples - done - batch.first; /* from where this rank's share begins */
    if (batch.count > left) batch.count = left > 0 ? (int)left : 0;
    status = validate_batch(session, &batch, devices, sum);
    done += batch.whole;
    if (status == STATUS_OK && progress.terminal) progress_update(&progress, done < samples ? done : samples, NULL);
  }
  progress_wipe(&progress); /* also before what failed is said */
  return status;
}

Status validate_weights(Session *session) {
  char place[BLOCK_PLACE];
  TaskBatch batch;
  TaskScore score = {0};
  TRY(session->task->source->seek(session, TASK_TEST, 0, 0));
  TRY(session->task->source->next(session, TASK_TEST, &batch));
  batch.count = 1;
  if (session->classes > 0 && batch.labels[0] < 0) batch.labels[0] = 0; /* a broken image: any label tells whether numbers are finite */
  tape_record(session->tape, false);
  use_average(session, true);
  Status status = validate_batch(session, &batch, 0, &score);
  use_average(session, false);
  if (status == STATUS_OK && !isfinite(task_mean_loss(&score))) status = STATUS_NUMERIC;
  if (status != STATUS_NUMERIC) return status;
  int first = model_not_finite(session->model);
  const char *weight = param_not_finite(model_params(session->model));
  return status_set(
      status,
      "training diverged: the weights after step %lld are not saved. The first tensor that is not finite is %s%s. The last checkpoint "
      "is kept; a lower --learning-rate or --clip may help",
      (long long)session->step, weight ? "the weight " : "the output of ",
      weight                ? weight
      : first == BLOCK_NONE ? "the loss"
                            : block_place(session->config, first, place));
}

/* What each rank has seen of its shares: the same sums in all of them. */
static Status add_ranks(Session *session, Status status, TaskScore *score) {
  int64_t counts[] = {score->samples, score->items, score->correct, score->bytes, interrupt_asked()};
  TRY(ranks_agree(status));
  ranks_sum(&score->loss, 1);
  ranks_count_all(counts, sizeof counts / sizeof *counts);
  ranks_count_all(&score->answers[0][0], 4);
  const int64_t cells = session->confusion != NULL ? session->classes * session->classes : 0;
  int64_t *wide = calloc((size_t)cells + 1, sizeof *wide);
  TRY(ranks_agree(wide ? STATUS_OK : status_no_memory(NULL, "adding up answers over ranks")));
  for (int64_t i = 0; i < cells; i++) wide[i] = session->confusion[i];
  ranks_count_all(wide, cells);
  for (int64_t i = 0; i < cells; i++) session->confusion[i] = (uint32_t)wide[i];
  free(wide);
  score->samples = counts[0];
  score->items = counts[1];
  score->correct = counts[2];
  score->bytes = counts[3];
  return counts[4] > 0 ? ranks_common(status_set(STATUS_INTERRUPTED, "the evaluation was interrupted")) : STATUS_OK;
}

Status validate_run(Session *session, int devices, int64_t samples, Validation *result) {
  *result = (Validation){0};
  if (session->confusion != NULL) memset(session->confusion, 0, (size_t)(session->classes * session->classes) * sizeof *session->confusion);
  tape_record(session->tape, false);
  data_parallel_gather_average(session);
  result->score.confusion = session->confusion;
  use_average(session, true);
  Status status = validate_all(session, devices, samples, &result->score);
  use_average(session, false);
  result->score.confusion = NULL; /* the session's */
  if (session->parallel != NULL) status = add_ranks(session, status, &result->score);
  if (status == STATUS_OK && devices > 0) data_parallel_add_usage(session, session->emulation.site, emulate_sites(&session->emulation));
  result->accuracy = task_accuracy(&result->score);
  result->loss = task_mean_loss(&result->score);
  result->samples = result->score.samples;
  if (status == STATUS_OK && !isfinite(result->loss))
    status = ranks_common(status_set(STATUS_NUMERIC, "the loss over the %s part is not finite: the weights are damaged or too large",
                                     session_test_name(session)));
  return status;
}

Status validate_rates(Session *session, int64_t samples, Validation *last, Validation *rates) {
  const bool one = session->options.one_rate;
  const int used = config_rate(session->config);
  for (int rate = one ? used : 0; rate < (one ? used + 1 : session->emulation.rates); rate++) {
    TRY(session_use_rate(session, rate));
    TRY(validate_run(session, session->config->astra.devices, samples, &rates[rate]));
    *last = rates[rate];
  }
  return STATUS_OK;
}
