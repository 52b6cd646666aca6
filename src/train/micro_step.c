/* The order of a micro-batch: see micro_step.h. */
#include "train/micro_step.h"
#include "autograd/ops/ops.h"
#include "train/data_parallel.h"
#include "train/interrupt.h"
#include "train/ranks.h"
#include <math.h>

static const double DROP_UNTIL = 0.8; /* of the run: the rest is trained on whole images, as the model will see them */

int64_t micro_step_dropping(const Session *session) {
  return session->options.patch_drop > 0 ? (int64_t)ceil(DROP_UNTIL * (double)session->total_steps) : 0;
}

static Status draw_layout(Session *session, int64_t tokens, const TokenLayout **layout, Exchange **exchange) {
  const bool drop = session->step < micro_step_dropping(session);
  *layout = drop ? &session->layout : &session->plain_layout;
  *exchange = NULL;
  if (drop) { /* PatchDropout (Liu et al., 2022): a random part of each batch's patches is left out, at a saving in proportion */
    int64_t all = session->tokens, kept = all - (int64_t)(session->options.patch_drop * (double)all);
    for (int64_t i = 0; i < all; i++) session->order[i] = (int32_t)i;
    rng_shuffle(&session->map_rng, session->order, all);
    return layout_build_chosen(&session->layout, all, session->order, kept);
  }
  if (!session_astra(session)) return task_lay_plain(session, tokens);
  if (session->emulation.rates > 1 && !tape_planning(session->tape)) TRY(session_use_rate(session, emulate_draw_rate(&session->emulation)));
  emulate_begin_step(&session->emulation, true);
  *layout = &session->layout;
  *exchange = &session->emulation.exchange;
  return device_map_draw(&session->layout, tokens, session->config->astra.class_token, &session->map, &session->map_rng, session->order);
}

static Status check_loss(const Session *session, const StepResult *result) {
  if (isfinite(result->loss)) return STATUS_OK;
  TapeFault fault;
  char where[160] = "the loss alone", shape[64] = "";
  if (tape_find_not_finite(session->tape, &fault)) {
    for (int i = 0, at = 0; i < fault.output->dims; i++)
      at += snprintf(shape + at, sizeof shape - (size_t)at, "%s%lld", i ? ", " : "", (long long)fault.output->shape[i]);
    snprintf(where, sizeof where, "the output [%s] of operation %lld of %lld, \"%s\"", shape, (long long)fault.number,
             (long long)fault.count, fault.op);
  }
  char place[BLOCK_PLACE], in[BLOCK_PLACE + 8] = "";
  int first = model_not_finite(session->model);
  if (first != BLOCK_NONE) snprintf(in, sizeof in, " in %s", block_place(session->config, first, place));
  const char *weight = param_not_finite(model_params(session->model));
  return status_set(
      STATUS_NUMERIC,
      "the loss is not a number at step %lld. The first tensor with such a value is %s%s%s%s. The last checkpoint is kept; a lower "
      "--learning-rate or --clip may help",
      (long long)session->step + 1, weight ? "the weight " : where, weight ? weight : "", weight ? " itself" : "", in);
}

static Status learn(Session *session, Tensor *loss, const TaskBatch *batch, bool exchange) {
  if (session->parallel != NULL && !tape_planning(session->tape)) return data_parallel_backward(session, loss, batch, exchange);
  TRY(tape_backward(session->tape, loss));
  return exchange ? emulate_update(&session->emulation, session->tape, &session->revive_rng) : STATUS_OK;
}

enum { SUM_LOSS, SUM_TASK, SUM_COMMITMENT, SUM_CORRECT, SUM_ITEMS, SUM_UNITS, SUM_FAILED, SUM_STOP, SUMS };

/* The result over all ranks. `failed`: this rank's loss, or OK; each rank gets the first failure. *stop: some rank was asked to stop. */
static Status add_ranks(const TaskBatch *batch, Status failed, StepResult *result, bool *stop) {
  double weight = (double)batch->count / (double)batch->whole;
  double sums[SUMS] = {
      [SUM_LOSS] = weight * result->loss,      [SUM_TASK] = weight * result->task,  [SUM_COMMITMENT] = weight * result->commitment,
      [SUM_CORRECT] = (double)result->correct, [SUM_ITEMS] = (double)result->items, [SUM_UNITS] = (double)result->units,
      [SUM_FAILED] = failed != STATUS_OK,      [SUM_STOP] = interrupt_asked()};
  ranks_sum(sums, SUMS);
  *stop = sums[SUM_STOP] > 0;
  *result = (StepResult){.loss = sums[SUM_LOSS],
                         .task = sums[SUM_TASK],
                         .commitment = sums[SUM_COMMITMENT],
                         .correct = (int64_t)sums[SUM_CORRECT],
                         .items = (int64_t)sums[SUM_ITEMS],
                         .units = (int64_t)sums[SUM_UNITS]};
  return sums[SUM_FAILED] > 0 ? ranks_agree(failed) : STATUS_OK;
}

Status micro_step(Session *session, const TaskBatch *batch, StepResult *result) {
  Tape *tape = session->tape;
  const TokenLayout *layout;
  Exchange *exchange;
  TaskScore score = {0};
  bool in_ranks = session->parallel != NULL && !tape_planning(tape);
  TRY(draw_layout(session, batch->tokens, &layout, &exchange));
  static const uint64_t key = 0x64726f7020706174; /* apart from other users of the seed */
  if (session->drop_step != session->step) session->drop_batch = 0;
  session->drop_step = session->step;
  Rng depth; /* a function of the seed, the step and the batch within it, so that there is no state to keep for a resumed run */
  rng_init(&depth, (uint64_t)session->options.seed ^ key, (uint64_t)(session->step * session->options.accumulate + session->drop_batch++));
  model_drop_path(session->model, session->options.drop_path, rng_next(&depth), batch->first);
  emulate_share(&session->emulation, batch->first, batch->whole);
  tape_record(tape, true);
  session->teacher.states.error = NULL;
  *result = (StepResult){.units = batch->units};
  Tensor *task = session->task->head->loss(session, batch, layout, exchange, &score), *loss = task;
  Tensor *commitment = session_astra(session) ? session->emulation.carried[EMULATE_COMMITMENT] : NULL;
  if (task != NULL && commitment != NULL) /* loss = task + beta * commitment (paper equation 2) */
    loss = op_add_scaled(tape, task, commitment, session->config->astra.commitment_weight);
  Tensor *hidden = session->teacher.states.error;
  if (loss != NULL && hidden != NULL)
    loss = op_add_scaled(tape, loss, hidden, session->options.distill_hidden / (double)(session->config->blocks - 1));
  if (loss != NULL && !tape_planning(tape)) {
    result->task = (double)task->value[0];
    result->commitment = commitment ? (double)commitment->value[0] : 0;
    result->loss = (double)loss->value[0];
  }
  Status status = tape_status(tape);
  result->correct = score.correct;
  result->items = score.items;
  if (status == STATUS_OK && in_ranks) {
    /* A loss that is not finite in one rank ends the step in all of them, behind the sums for which the others wait. */
    char message[1024];
    Status failed = check_loss(session, result);
    snprintf(message, sizeof message, "%s", failed != STATUS_OK ? status_message() : "");
    status = learn(session, loss, batch, exchange != NULL);
    if (status == STATUS_OK && failed != STATUS_OK) status_set(failed, "%s", message);
    if (status == STATUS_OK) status = add_ranks(batch, failed, result, &session->stop);
  } else {
    if (status == STATUS_OK && !tape_planning(tape)) status = check_loss(session, result);
    if (status == STATUS_OK) status = learn(session, loss, batch, exchange != NULL);
  }
  tape_clear(tape);
  return status;
}
