/* The training loop: see trainer.h. */
#include "train/trainer.h"
#include "autograd/ops/ops.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "train/interrupt.h"
#include "train/metrics.h"
#include "train/mixup.h"
#include "train/plan.h"
#include "train/selftest_writer.h"
#include "train/state.h"
#include <math.h>

/* ---------------------------------------------------------------- one step */

static const double DROP_UNTIL = 0.8; /* of the run: the rest is trained on whole pictures, as the model will see them */

/* PatchDropout (Liu et al., 2022): a random part of each batch's patches is left out, at a saving in proportion. */
static Status drop_patches(Session *session) {
  int64_t tokens = config_tokens(session->config);
  int64_t kept = tokens - (int64_t)(session->options.patch_drop * (double)tokens);
  for (int64_t i = 0; i < tokens; i++) session->order[i] = (int32_t)i;
  rng_shuffle(&session->map_rng, session->order, tokens);
  return layout_build_chosen(&session->layout, tokens, session->order, kept);
}

static Status draw_layout(Session *session, const TokenLayout **layout, Exchange **exchange) {
  bool drop = session->options.patch_drop > 0 && (double)session->step < DROP_UNTIL * (double)session->total_steps;
  *layout = drop ? &session->layout : &session->plain_layout;
  *exchange = NULL;
  if (drop) return drop_patches(session);
  if (!session_astra(session)) return STATUS_OK;
  emulate_begin_step(&session->emulation, true);
  *layout = &session->layout;
  *exchange = &session->emulation.exchange;
  return device_map_draw(&session->layout, config_tokens(session->config), session->config->astra.class_token, &session->map,
                         &session->map_rng, session->order);
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
  const char *weight = bad_weight(model_params(session->model));
  return status_set(
      STATUS_NUMERIC,
      "the loss is not a number at step %lld. The first tensor with such a value is %s%s%s. The last checkpoint is kept; a lower "
      "--learning-rate or --clip may help",
      (long long)session->step + 1, weight ? "the weight " : where, weight ? weight : "", weight ? " itself" : "");
}

Status trainer_micro_step(Session *session, const Batch *batch, StepResult *result) {
  Tape *tape = session->tape;
  const TokenLayout *layout;
  Exchange *exchange;
  TRY(draw_layout(session, &layout, &exchange));
  tape_record(tape, true);
  *result = (StepResult){.samples = batch->count};
  CrossEntropy target = {.labels = batch->labels, .smoothing = session->options.smoothing, .correct = &result->correct};
  Tensor *pixels = session_pixels(tape, batch, session->config);
  if (session->options.mixup > 0) pixels = mixup_apply(session, tape, batch, pixels, &target);
  Tensor *logits = model_classify(session->model, tape,
                                  model_encode(session->model, tape, &(ModelInput){.pixels = pixels}, layout, exchange, MODEL_ROWS_CLASS));
  Tensor *loss = total_loss(session, op_cross_entropy(tape, logits, &target), result);
  Status status = tape_status(tape);
  if (status == STATUS_OK && !tape_planning(tape)) status = check_loss(session, result);
  if (status == STATUS_OK) status = tape_backward(tape, loss);
  if (status == STATUS_OK && exchange != NULL) status = emulate_update(&session->emulation, tape, &session->revive_rng);
  tape_clear(tape);
  return status;
}

/* ---------------------------------------------------------------- reports */

enum {
  COLUMN_LOSS,
  COLUMN_TASK,
  COLUMN_COMMITMENT,
  COLUMN_ACCURACY,
  COLUMN_RATE,
  COLUMN_NORM,
  COLUMN_SPEED,
  COLUMN_PERPLEXITY,
  COLUMN_DEAD,
  COLUMN_REVIVED,
  COLUMN_TEST,
  COLUMN_TEST_PLAIN,
  COLUMN_TEST_LOSS,
  COLUMNS
};
static const char *const COLUMN_NAMES[COLUMNS] = {"loss",          "task_loss",         "commitment",        "train_accuracy",
                                                  "learning_rate", "gradient_norm",     "images_per_second", "codebook_perplexity",
                                                  "codebook_dead", "codewords_revived", "test_accuracy",     "test_accuracy_plain",
                                                  "test_loss"};

typedef struct Run {
  Session *session;
  Metrics *metrics;
  TrainResult *result;
  StepResult interval; /* sums over its micro-batches */
  int64_t batches;
  double started, interval_started, rate, norm;
  int64_t first_step;
} Run;

static void blank(double values[COLUMNS]) {
  for (int i = 0; i < COLUMNS; i++) values[i] = NAN;
}

static void codebook_columns(const Session *session, double values[COLUMNS]) {
  int sites = session->emulation.blocks * session->emulation.sites;
  values[COLUMN_PERPLEXITY] = values[COLUMN_DEAD] = 0;
  for (int index = 0; index < sites; index++) {
    UsageSummary summary = usage_summary(&session->emulation.site[index].usage);
    values[COLUMN_PERPLEXITY] += summary.perplexity / sites;
    values[COLUMN_DEAD] += summary.dead / sites;
  }
  values[COLUMN_REVIVED] = (double)session->emulation.revived;
}

static void print_interval(const Run *run, const double values[COLUMNS], double left) {
  const Session *session = run->session;
  char duration[16], codebook[96] = "";
  if (session_astra(session))
    snprintf(codebook, sizeof codebook, "  commitment %.4g  perplexity %.0f  dead %.1f%%", values[COLUMN_COMMITMENT],
             values[COLUMN_PERPLEXITY], 100 * values[COLUMN_DEAD]);
  log_info("step %lld/%lld  epoch %.2f  loss %.4f  task %.4f%s  accuracy %.1f%%  %.0f images/s  left %s", (long long)session->step,
           (long long)session->total_steps, (double)session->step / (double)session_epoch_steps(session), values[COLUMN_LOSS],
           values[COLUMN_TASK], codebook, 100 * values[COLUMN_ACCURACY], values[COLUMN_SPEED], progress_duration(left, duration));
}

static Status report_interval(Run *run) {
  Session *session = run->session;
  double now = clock_now(), values[COLUMNS], batches = (double)run->batches;
  blank(values);
  values[COLUMN_LOSS] = run->result->loss = run->interval.loss / batches;
  values[COLUMN_TASK] = run->interval.task / batches;
  values[COLUMN_ACCURACY] = (double)run->interval.correct / (double)run->interval.samples;
  values[COLUMN_RATE] = run->rate;
  values[COLUMN_NORM] = run->norm;
  values[COLUMN_SPEED] = (double)run->interval.samples / (now - run->interval_started);
  if (session_astra(session)) {
    values[COLUMN_COMMITMENT] = run->interval.commitment / batches;
    codebook_columns(session, values);
    emulate_clear_usage(&session->emulation);
  }
  double per_step = (now - run->started) / (double)(session->step - run->first_step);
  print_interval(run, values, per_step * (double)(session->total_steps - session->step));
  run->interval = (StepResult){0};
  run->batches = 0;
  run->interval_started = now;
  return metrics_row(run->metrics, session->step, now - run->started, values);
}

/* What the evaluation has seen of each codebook. */
static void print_codebooks(const Session *session) {
  for (int index = 0; index < session->emulation.blocks * session->emulation.sites; index++) {
    UsageSummary summary = usage_summary(&session->emulation.site[index].usage);
    log_info("  block %d: distortion %.4g a token, perplexity %.0f, used %.1f%%, dead %.1f%%", index / session->emulation.sites,
             summary.distortion, summary.perplexity, 100 * summary.used, 100 * summary.dead);
  }
}

static Status draw_curves(const Run *run) {
  const TrainOptions *options = &run->session->options;
  char title[512], astra[64] = "plain";
  if (session_astra(run->session))
    snprintf(astra, sizeof astra, "%lld groups of %lld codewords", (long long)options->groups, (long long)options->entries);
  snprintf(title, sizeof title, "%s on %s, %s", options->model, options->dataset, astra);
  return metrics_draw(run->metrics, title);
}

static Status report_evaluation(Run *run) {
  Session *session = run->session;
  TrainResult *result = run->result;
  double started = clock_now(), values[COLUMNS];
  blank(values);
  TRY(validate_run(session, 0, session->options.eval_samples, &result->plain));
  values[COLUMN_TEST_PLAIN] = values[COLUMN_TEST] = result->plain.accuracy;
  values[COLUMN_TEST_LOSS] = result->plain.loss;
  if (session_astra(session)) {
    emulate_clear_usage(&session->emulation);
    TRY(validate_run(session, session->config->astra.devices, session->options.eval_samples, &result->emulated));
    values[COLUMN_TEST] = result->emulated.accuracy;
    values[COLUMN_TEST_LOSS] = result->emulated.loss;
    log_info("evaluation at step %lld: accuracy %.2f%% on %d devices, %.2f%% plain (%lld pictures)", (long long)session->step,
             100 * result->emulated.accuracy, session->config->astra.devices, 100 * result->plain.accuracy,
             (long long)result->plain.samples);
    print_codebooks(session);
    emulate_clear_usage(&session->emulation);
  } else {
    log_info("evaluation at step %lld: accuracy %.2f%%, loss %.4f (%lld pictures)", (long long)session->step, 100 * result->plain.accuracy,
             result->plain.loss, (long long)result->plain.samples);
  }
  TRY(metrics_row(run->metrics, session->step, clock_now() - run->started, values));
  run->interval_started += clock_now() - started; /* evaluation is not training time */
  return draw_curves(run);
}

/* ---------------------------------------------------------------- the loop */

Status trainer_save(Session *session) {
  const char *out = session->options.out;
  ParamSet *params = model_params(session->model);
  const real *values = session->optimizer.average ? session->optimizer.average : params->values;
  const real *codewords = session_astra(session) ? session->emulation.codewords : NULL;
  TRY(checkpoint_save(session->model, out, codewords, values, (SafeDtype)session->options.dtype));
  if (codewords != NULL) TRY(selftest_writer_run(session, out));
  return state_save(session, out);
}

static Status train_step(Run *run) {
  Session *session = run->session;
  param_zero_grads(model_params(session->model));
  for (int64_t i = 0; i < session->options.accumulate; i++) {
    Batch batch;
    StepResult part;
    TRY(loader_next(session->train_loader, &batch));
    TRY(trainer_micro_step(session, &batch, &part));
    run->interval.loss += part.loss;
    run->interval.task += part.task;
    run->interval.commitment += part.commitment;
    run->interval.correct += part.correct;
    run->interval.samples += part.samples;
    run->batches++;
  }
  double factor = optimizer_schedule(session->step, session->options.warmup, session->total_steps, session->options.rate_floor);
  run->rate = factor * session->options.optimizer.rate;
  Status status = optimizer_step(&session->optimizer, factor, 1.0 / (double)session->options.accumulate, &run->norm);
  if (status != STATUS_OK) return status_wrap(status, "step %lld", (long long)session->step + 1);
  session->step++;
  return STATUS_OK;
}

static Status say_interrupted(const Session *session) {
  return status_set(STATUS_INTERRUPTED, "interrupted after step %lld of %lld; go on with `astra-train --resume %s`",
                    (long long)session->step, (long long)session->total_steps, session->options.out);
}

static Status stop_early(const Run *run) {
  TRY(trainer_save(run->session));
  TRY(draw_curves(run));
  return say_interrupted(run->session);
}

static Status after_step(Run *run) {
  Session *session = run->session;
  const TrainOptions *options = &session->options;
  bool last = session->step == session->total_steps, epoch = session->step % session_epoch_steps(session) == 0;
  if (last || session->step % options->log_every == 0) TRY(report_interval(run));
  if (last || epoch || session->step % options->checkpoint_every == 0) TRY(trainer_save(session)); /* whatever becomes of the evaluation */
  if (!last && !(epoch && session->step / session_epoch_steps(session) % options->eval_every == 0)) return STATUS_OK;
  Status status = report_evaluation(run);
  return status == STATUS_INTERRUPTED ? say_interrupted(session) : status;
}

/* A run that is resumed when there is nothing left to do still says how good it is. */
static Status evaluate_finished(Run *run) {
  Session *session = run->session;
  log_info("step %lld of %lld is done already: a larger --max-steps or --epochs would go on", (long long)session->step,
           (long long)session->total_steps);
  TRY(validate_run(session, 0, session->options.eval_samples, &run->result->plain));
  if (session_astra(session))
    TRY(validate_run(session, session->config->astra.devices, session->options.eval_samples, &run->result->emulated));
  return draw_curves(run);
}

static Status loop(Run *run) {
  Session *session = run->session;
  int64_t steps = session_epoch_steps(session), accumulate = session->options.accumulate;
  if (session->step >= session->total_steps) return evaluate_finished(run);
  TRY(loader_seek(session->train_loader, session->step / steps, session->step % steps * accumulate));
  while (session->step < session->total_steps) {
    if (interrupt_asked()) return stop_early(run);
    TRY(train_step(run));
    if (session->step % steps == 0) TRY(loader_seek(session->train_loader, session->step / steps, 0)); /* leftover micro-batches */
    TRY(after_step(run));
  }
  return STATUS_OK;
}

/* Each was named when it was met. */
static void count_broken(const Session *session) {
  long long train = (long long)loader_skipped(session->train_loader), test = (long long)loader_skipped(session->test_loader);
  if (train + test > 0) log_warning("%lld broken pictures of the training part and %lld of the test part were skipped", train, test);
}

Status trainer_run(Session *session, TrainResult *result) {
  Run run = {.session = session, .result = result, .started = clock_now(), .interval_started = clock_now(), .first_step = session->step};
  *result = (TrainResult){0};
  TRY(plan_check(session));
  TRY(files_make_dirs(session->options.out));
  TRY(metrics_open(&run.metrics, session->options.out, COLUMN_NAMES, COLUMNS, session->step > 0 ? session->step : -1));
  Status status = loop(&run);
  count_broken(session);
  result->steps = session->step;
  result->seconds = clock_now() - run.started;
  metrics_close(run.metrics);
  return status;
}
