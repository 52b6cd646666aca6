/* The training loop: see trainer.h. */
#include "train/trainer.h"
#include "autograd/ops/ops.h"
#include "base/log.h"
#include "train/codebooks.h"
#include "train/data_parallel.h"
#include "train/interrupt.h"
#include "train/plan.h"
#include "train/run_report.h"
#include "train/state.h"
#include <math.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- one step */

static const double DROP_UNTIL = 0.8; /* of the run: the rest is trained on whole images, as the model will see them */

/* PatchDropout (Liu et al., 2022): a random part of each batch's patches is left out, at a saving in proportion. */
static Status drop_patches(Session *session) {
  int64_t tokens = session->tokens;
  int64_t kept = tokens - (int64_t)(session->options.patch_drop * (double)tokens);
  for (int64_t i = 0; i < tokens; i++) session->order[i] = (int32_t)i;
  rng_shuffle(&session->map_rng, session->order, tokens);
  return layout_build_chosen(&session->layout, tokens, session->order, kept);
}

static Status draw_layout(Session *session, int64_t tokens, const TokenLayout **layout, Exchange **exchange) {
  bool drop = session->options.patch_drop > 0 && (double)session->step < DROP_UNTIL * (double)session->total_steps;
  *layout = drop ? &session->layout : &session->plain_layout;
  *exchange = NULL;
  if (drop) return drop_patches(session);
  if (!session_astra(session)) return session_lay_plain(session, tokens);
  emulate_begin_step(&session->emulation, true);
  *layout = &session->layout;
  *exchange = &session->emulation.exchange;
  return device_map_draw(&session->layout, tokens, session->config->astra.class_token, &session->map, &session->map_rng, session->order);
}

/* loss = task + beta * commitment (paper equation 2). */
static Tensor *total_loss(Session *session, Tensor *task, StepResult *result) {
  Tensor *commitment = session_astra(session) ? session->emulation.commitment : NULL;
  if (task == NULL) return NULL;
  Tensor *loss = commitment ? op_add_scaled(session->tape, task, commitment, session->config->astra.commitment_weight) : task;
  if (loss == NULL || tape_planning(session->tape)) return loss;
  result->task = (double)task->value[0];
  result->commitment = commitment ? (double)commitment->value[0] : 0;
  result->loss = (double)loss->value[0];
  return loss;
}

/* The first weight that is no finite number, or NULL. */
static const char *bad_weight(const ParamSet *params) {
  for (size_t i = 0; i < params->count; i++)
    for (int64_t j = 0; !params->list[i].frozen && j < tensor_count(&params->list[i].tensor); j++)
      if (!isfinite((double)params->list[i].tensor.value[j])) return params->list[i].name;
  return NULL;
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
  const char *weight = bad_weight(model_params(session->model));
  return status_set(
      STATUS_NUMERIC,
      "the loss is not a number at step %lld. The first tensor with such a value is %s%s%s%s. The last checkpoint is kept; a lower "
      "--learning-rate or --clip may help",
      (long long)session->step + 1, weight ? "the weight " : where, weight ? weight : "", weight ? " itself" : "", in);
}

/* Weights that are finite and yet of no use take the place of no checkpoint. */
static Status check_weights(Session *session) {
  char place[BLOCK_PLACE];
  Status status = validate_finite(session);
  if (status != STATUS_NUMERIC) return status;
  int first = model_not_finite(session->model);
  const char *weight = bad_weight(model_params(session->model));
  return status_set(
      status,
      "the numbers run away after step %lld, whose weights are not saved. The first tensor that is not finite is %s%s. The last checkpoint "
      "is kept; a lower --learning-rate or --clip may help",
      (long long)session->step, weight ? "the weight " : "the output of ",
      weight                ? weight
      : first == BLOCK_NONE ? "the loss"
                            : block_place(session->config, first, place));
}

/* A function of the seed, the step and the batch within it, so that there is no state to keep for a resumed run. */
static void draw_depth(Session *session, const TaskBatch *batch) {
  static const uint64_t key = 0x64726f7020706174; /* apart from other users of the seed */
  if (session->drop_step != session->step) session->drop_batch = 0;
  session->drop_step = session->step;
  Rng rng;
  rng_init(&rng, (uint64_t)session->options.seed ^ key, (uint64_t)(session->step * session->options.accumulate + session->drop_batch++));
  model_drop_path(session->model, session->options.drop_path, rng_next(&rng), batch->first);
}

static Status learn(Session *session, Tensor *loss, const TaskBatch *batch, bool exchange) {
  if (session->parallel != NULL && !tape_planning(session->tape)) return data_parallel_backward(session, loss, batch, exchange);
  TRY(tape_backward(session->tape, loss));
  return exchange ? emulate_update(&session->emulation, session->tape, &session->revive_rng) : STATUS_OK;
}

/* A loss that is not finite in one rank ends the step in all of them, behind the sums for which the others wait. */
static Status learn_in_ranks(Session *session, Tensor *loss, const TaskBatch *batch, bool exchange, StepResult *result) {
  Status failed = check_loss(session, result);
  char message[1024];
  snprintf(message, sizeof message, "%s", failed != STATUS_OK ? status_message() : "");
  TRY(learn(session, loss, batch, exchange));
  if (failed != STATUS_OK) status_set(failed, "%s", message);
  return data_parallel_result(session, batch, failed, result, &session->stop);
}

Status trainer_micro_step(Session *session, const TaskBatch *batch, StepResult *result) {
  Tape *tape = session->tape;
  const TokenLayout *layout;
  Exchange *exchange;
  TaskScore score = {0};
  bool in_ranks = session->parallel != NULL && !tape_planning(tape);
  TRY(draw_layout(session, batch->tokens, &layout, &exchange));
  draw_depth(session, batch);
  emulate_share(&session->emulation, batch->first, batch->whole);
  tape_record(tape, true);
  *result = (StepResult){.units = batch->units};
  Tensor *loss = total_loss(session, session->task->head->loss(session, batch, layout, exchange, &score), result);
  Status status = tape_status(tape);
  result->correct = score.correct;
  result->items = score.items;
  if (status == STATUS_OK && in_ranks) {
    status = learn_in_ranks(session, loss, batch, exchange != NULL, result);
  } else {
    if (status == STATUS_OK && !tape_planning(tape)) status = check_loss(session, result);
    if (status == STATUS_OK) status = learn(session, loss, batch, exchange != NULL);
  }
  tape_clear(tape);
  return status;
}

/* ---------------------------------------------------------------- the loop */

/* Beside the weights, in which they are folded: a few megabytes that PEFT and others take. */
static Status save_adapters(Session *session, const real *values) {
  char *folder = files_join(session->options.out, "adapter");
  if (folder == NULL) return status_set(STATUS_NO_MEMORY, "no memory");
  Status status = checkpoint_save_adapters(session->model, folder, values, session->origin);
  free(folder);
  return status;
}

static Status save(Session *session) {
  const char *out = session->options.out;
  ParamSet *params = model_params(session->model);
  const real *values = session->optimizer.average ? session->optimizer.average : params->values;
  const real *codewords = session_astra(session) ? session->emulation.codewords : NULL;
  TRY(check_weights(session));
  TRY(checkpoint_save(session->model, out, codewords, values, (SafeDtype)session->options.dtype));
  if (session->options.lora_rank > 0) TRY(save_adapters(session, values));
  if (session->tokenizer != NULL) TRY(tokenizer_save(session->tokenizer, out));
  if (codewords != NULL) TRY(code_counts_export(session, out));
  arena_trim(session->arena); /* the self-test maps the weights anew: in place of what a step holds, not beside it */
  if (session->block_arena != NULL) arena_trim(session->block_arena);
  param_trim_grads(params); /* the next step writes them anew */
  TRY(selftest_writer_run(session, out));
  return state_save(session, out);
}

/* The other ranks wait: what has failed in rank 0 ends them, too. */
Status trainer_save(Session *session) {
  data_parallel_gather_average(session);
  data_parallel_gather_states(session);
  Status status = ranks_follow(ranks_self() == 0 ? save(session) : STATUS_OK);
  data_parallel_scatter(session);
  if (status == STATUS_OK) interrupt_last_checkpoint(session->options.out, session->step);
  return status;
}

static Status train_step(RunReport *run) {
  Session *session = run->session;
  ParamSet *params = model_params(session->model);
  if (session->parallel != NULL)
    param_zero_grads(params); /* sums over ranks may begin with any of them */
  else
    param_empty_grads(params);
  for (int64_t i = 0; i < session->options.accumulate; i++) {
    TaskBatch batch;
    StepResult part;
    TRY(session->task->source->next(session, TASK_TRAIN, &batch));
    data_parallel_next(session, i + 1 == session->options.accumulate);
    TRY(trainer_micro_step(session, &batch, &part));
    run_report_add(run, &part);
  }
  param_fill_grads(params);
  double factor = optimizer_schedule(session->step, session->options.warmup, session->total_steps, session->options.rate_floor);
  run->rate = factor * session->options.optimizer.rate;
  Status status = data_parallel_step(session, factor, 1.0 / (double)session->options.accumulate, &run->norm);
  if (status != STATUS_OK) return status_wrap(status, "step %lld", (long long)session->step + 1);
  session->step++;
  return STATUS_OK;
}

static Status say_interrupted(const Session *session) {
  return ranks_common(status_set(STATUS_INTERRUPTED, "interrupted after step %lld of %lld; go on with `astra-train --resume %s`",
                                 (long long)session->step, (long long)session->total_steps, session->options.out));
}

/* In a job of several ranks they stop behind the same step, all of them. */
static bool stop_wanted(const Session *session) { return session->parallel != NULL ? session->stop : interrupt_asked(); }

static Status stop_early(const RunReport *run) {
  TRY(trainer_save(run->session));
  TRY(run_report_draw(run));
  return say_interrupted(run->session);
}

/* What was exported before the evaluation is what was evaluated. */
static Status weigh(RunReport *run) {
  Session *session = run->session;
  const Validation *evaluated = session_astra(session) ? &run->result->emulated : &run->result->plain;
  double values[TASK_MEASURES];
  bool better;
  session->task->report->measure(&evaluated->score, values);
  Status status = STATUS_OK;
  if (ranks_self() == 0) {
    status = best_add(&run->best, session, values[0], &better);
    if (status == STATUS_OK && better && session->options.keep_best) status = best_keep(session);
  }
  ranks_spread(0, &run->best, sizeof run->best);
  return ranks_follow(status);
}

static void say_best(const RunReport *run) {
  const Session *session = run->session;
  const char *measure = session->task->report->measures[0];
  if (best_is_over(&run->best, session) && session->step < session->total_steps)
    log_info("stopped early at step %lld of %lld: %lld evaluations in a row without a better %s", (long long)session->step,
             (long long)session->total_steps, (long long)run->best.since, measure);
  if (session->options.keep_best && run->best.step >= 0)
    log_info("the best %s, %.4g, was that of step %lld: its checkpoint is in %s/best", measure, run->best.value, (long long)run->best.step,
             session->options.out);
}

static Status evaluate(RunReport *run) {
  Status status = run_report_evaluation(run);
  if (status == STATUS_INTERRUPTED) return say_interrupted(run->session);
  return status == STATUS_OK ? weigh(run) : status;
}

/* Whether the session's step is one after which the run is evaluated. */
static bool is_look(const Session *session) {
  int64_t steps = session_epoch_steps(session);
  return session->step == session->total_steps || (session->step % steps == 0 && session->step / steps % session->options.eval_every == 0);
}

static Status after_step(RunReport *run) {
  Session *session = run->session;
  const TrainOptions *options = &session->options;
  bool last = session->step == session->total_steps, look = is_look(session);
  if (last || session->step % options->log_every == 0) TRY(run_report_interval(run));
  if (look || session->step % options->checkpoint_every == 0) TRY(trainer_save(session)); /* whatever becomes of the evaluation */
  return look ? evaluate(run) : STATUS_OK;
}

/* A run that is resumed when there is nothing left to do still says how good it is, and is exported as it is now asked for (--dtype). */
static Status evaluate_finished(RunReport *run) {
  Session *session = run->session;
  if (session->step >= session->total_steps)
    log_info("step %lld of %lld is done already: a larger --max-steps or --epochs would go on", (long long)session->step,
             (long long)session->total_steps);
  else
    log_info("the run was stopped early at step %lld of %lld: --early-stopping 0 would go on", (long long)session->step,
             (long long)session->total_steps);
  TRY(trainer_save(session));
  TRY(validate_run(session, 0, session->options.eval_samples, &run->result->plain));
  if (session_astra(session))
    TRY(validate_run(session, session->config->astra.devices, session->options.eval_samples, &run->result->emulated));
  return run_report_draw(run);
}

static Status loop(RunReport *run) {
  Session *session = run->session;
  int64_t steps = session_epoch_steps(session), accumulate = session->options.accumulate;
  if (session->step >= session->total_steps || best_is_over(&run->best, session)) return evaluate_finished(run);
  /* An evaluation that was interrupted is made up for. */
  if (session->step > 0 && is_look(session) && run->best.last != BEST_UNKNOWN && run->best.last < session->step) TRY(evaluate(run));
  TRY(session->task->source->seek(session, TASK_TRAIN, session->step / steps, session->step % steps * accumulate));
  while (session->step < session->total_steps && !best_is_over(&run->best, session)) {
    if (stop_wanted(session)) return stop_early(run);
    TRY(train_step(run));
    run_report_step(run);
    if (session->step % steps == 0)
      TRY(session->task->source->seek(session, TASK_TRAIN, session->step / steps, 0)); /* leftover micro-batches */
    TRY(after_step(run));
  }
  say_best(run);
  return STATUS_OK;
}

/* Files are rank 0's; what it finds in them the others know. */
static Status open_files(RunReport *run) {
  Session *session = run->session;
  Status status = STATUS_OK;
  if (ranks_self() == 0) {
    status = files_make_dirs(session->options.out);
    if (status == STATUS_OK) status = best_open(&run->best, session);
  }
  ranks_spread(0, &run->best, sizeof run->best);
  TRY(ranks_follow(status));
  return ranks_agree(run_report_open(run));
}

static Status run_all(RunReport *run) {
  Session *session = run->session;
  TRY(data_parallel_open(session));
  TRY(ranks_agree(plan_check(session)));
  TRY(data_parallel_compare(session));
  TRY(open_files(run));
  return loop(run);
}

Status trainer_run(Session *session, TrainResult *result) {
  RunReport run = {.session = session, .result = result, .first_step = session->step};
  *result = (TrainResult){0};
  param_refresh_shadows(model_params(session->model), false); /* of a run that is resumed */
  Status status = run_all(&run);
  if (session->task->source->finish != NULL) session->task->source->finish(session);
  result->steps = session->step;
  result->seconds = run_report_close(&run);
  data_parallel_close(session);
  return status;
}
