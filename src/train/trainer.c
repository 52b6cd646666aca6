/* The training loop: see trainer.h. First the copy of the best checkpoint, then what a run reports on its way (which columns there are
 * follows from the task; their order never changes, as a resumed run appends to the same file), checkpoints, and the loop that calls all
 * of these. */
#include "train/trainer.h"
#include "autograd/narrow.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "data/tokenizer/tokenizer_config.h"
#include "train/codebooks.h"
#include "train/data_parallel.h"
#include "train/evaluations.h"
#include "train/interrupt.h"
#include "train/metrics.h"
#include "train/micro_step.h"
#include "train/plan.h"
#include "train/ranks.h"
#include "train/selftest_writer.h"
#include "train/state.h"
#include "vq/rans.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

/* ---- The best checkpoint ---- */

static Status copy_if_there(const char *from, const char *to, const char *name) {
  const Status status = files_copy_named(from, to, name);
  return status == STATUS_NOT_FOUND && files_is_dir(to) ? STATUS_OK : status;
}

static const char CONFIG[] = "config.json";

static bool is_config(const char *name) { return strcmp(name, CONFIG) == 0; }

/* The files of a folder (all but measures and images) into another one. A config.json goes first and comes last: without one nothing takes
 * a copy that was interrupted for a checkpoint. */
static Status copy_files(const char *out, const char *folder) {
  char **names;
  size_t count;
  Status status = files_make_dirs(folder);
  if (status == STATUS_OK) status = files_prune(folder, NULL, is_config);
  if (status == STATUS_OK && (status = files_list(out, &names, &count)) == STATUS_OK) {
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
      const char *ending = strrchr(names[i], '.');
      bool measures =
          (ending != NULL && (strcmp(ending, ".csv") == 0 || strcmp(ending, ".png") == 0)) || strncmp(names[i], "events.", 7) == 0;
      if (!measures && !is_config(names[i]) && strstr(names[i], ".tmp-") == NULL) status = copy_if_there(out, folder, names[i]);
    }
    files_list_free(names, count);
  }
  return status == STATUS_OK ? copy_if_there(out, folder, CONFIG) : status;
}

/* Copies the checkpoint that lies in OUT to OUT/best, with --lora its adapters too. What an earlier one has left there goes. */
static Status keep_best(const Session *session) {
  const char *out = session->options.out;
  char *best = files_join(out, "best"), *adapter = files_join(out, "adapter"), *to = files_join(out, "best/adapter");
  Status status = best && adapter && to ? copy_files(out, best) : status_no_memory(NULL, "a path");
  if (status == STATUS_OK) status = files_prune(best, out, NULL);
  if (status == STATUS_OK) status = tokenizer_config_remove_templates(best);
  if (status == STATUS_OK) status = tokenizer_config_copy_templates(out, best);
  if (status == STATUS_OK) status = session->options.lora_rank > 0 ? copy_files(adapter, to) : files_remove_dir(to);
  free(best);
  free(adapter);
  free(to);
  return status;
}

/* ---- Lines, metrics, events ---- */

/* Gives the memory of the tape's last step back to the system; the next one takes it anew. */
static void trim_arenas(Session *session) {
  arena_trim(session->arena);
  if (session->block_arena != NULL) arena_trim(session->block_arena);
}

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
  COLUMN_MEASURES, /* for each measure of the task: on the devices, plain; then the loss */
  COLUMNS = COLUMN_MEASURES + 2 * TASK_MEASURES + 1,
  COLUMN_NAME = 40
};

static const char *const FIXED[COLUMN_MEASURES] = {
    [COLUMN_LOSS] = "loss",
    [COLUMN_TASK] = "task_loss",
    [COLUMN_COMMITMENT] = "commitment",
    [COLUMN_ACCURACY] = "train_accuracy",
    [COLUMN_RATE] = "learning_rate",
    [COLUMN_NORM] = "gradient_norm",
    [COLUMN_SPEED] = "per_second", /* behind the units of the task's source */
    [COLUMN_PERPLEXITY] = "codebook_perplexity",
    [COLUMN_DEAD] = "codebook_dead",
    [COLUMN_REVIVED] = "codewords_revived",
};

typedef struct Run {
  Session *session;
  TrainResult *result;
  int64_t first_step; /* of this process */
  Evaluations evaluations;
  Progress bar; /* on a terminal; elsewhere there are lines */
  Metrics *metrics;
  char names[COLUMNS][COLUMN_NAME];
  int columns;
  StepResult interval; /* sums over its micro-batches */
  int64_t batches;
  double started, interval_started;
  double rate, norm; /* of the last step */
  bool unsaved;      /* which class was taken for which */
} Run;

/* ---------------------------------------------------------------- when */

/* Whether the session's step is one after which the run is evaluated. */
static bool is_evaluated(const Session *session) {
  const int64_t every = session->options.eval_every, done = (int64_t)session_epochs(session, session->step),
                before = (int64_t)session_epochs(session, session->step - 1);
  return session->step == session->total_steps || done / every > before / every;
}

/* An evaluation that was due and has been interrupted, or has failed before it was noted. */
static bool owes_evaluation(const Run *run) {
  return run->session->step > 0 && is_evaluated(run->session) && evaluations_lack_step(&run->evaluations, run->session);
}

/* ---------------------------------------------------------------- columns */

static Status open_report(Run *run) {
  const Task *task = run->session->task;
  const char *names[COLUMNS], *test = session_test_name(run->session);
  for (run->columns = 0; run->columns < COLUMN_MEASURES; run->columns++)
    snprintf(run->names[run->columns], COLUMN_NAME, "%s", FIXED[run->columns]);
  snprintf(run->names[COLUMN_SPEED], COLUMN_NAME, "%s_%s", task->source->name.units, FIXED[COLUMN_SPEED]);
  for (int m = 0; task->report->measures[m] != NULL; m++) {
    snprintf(run->names[run->columns++], COLUMN_NAME, "%s_%s", test, task->report->measures[m]);
    snprintf(run->names[run->columns++], COLUMN_NAME, "%s_%s_plain", test, task->report->measures[m]);
  }
  snprintf(run->names[run->columns++], COLUMN_NAME, "%s_loss", test);
  for (int i = 0; i < run->columns; i++) names[i] = run->names[i];
  run->started = run->interval_started = clock_now();
  int64_t step = run->session->step;
  progress_start(&run->bar, "training", run->session->total_steps, run->session->options.quiet);
  run->bar.first = step;
  if (ranks_self() > 0) return STATUS_OK;
  return metrics_open(&run->metrics, run->session->options.out, names, (size_t)run->columns, step > 0 ? step : -1, owes_evaluation(run));
}

/* ---------------------------------------------------------------- intervals */

static Status report_interval(Run *run) {
  Session *session = run->session;
  double now = clock_now(), values[COLUMNS], batches = (double)run->batches;
  for (int i = 0; i < COLUMNS; i++) values[i] = NAN;
  data_parallel_add_usage(session, session->emulation.all, emulate_all_sites(&session->emulation));
  values[COLUMN_LOSS] = run->result->loss = run->interval.loss / batches;
  values[COLUMN_TASK] = run->interval.task / batches;
  values[COLUMN_ACCURACY] = run->result->accuracy = (double)run->interval.correct / (double)run->interval.items;
  values[COLUMN_RATE] = run->rate;
  values[COLUMN_NORM] = run->norm;
  values[COLUMN_SPEED] = (double)run->interval.units / (now - run->interval_started);
  if (session_astra(session)) {
    values[COLUMN_COMMITMENT] = run->interval.commitment / batches;
    const int all = emulate_all_sites(&session->emulation);
    int used = 0;
    for (int index = 0; index < all; index++) used += session->emulation.all[index].usage.rows > 0; /* not of rates that were not drawn */
    values[COLUMN_PERPLEXITY] = values[COLUMN_DEAD] = 0;
    for (int index = 0; index < all; index++) {
      if (session->emulation.all[index].usage.rows == 0) continue;
      UsageSummary summary = usage_summary(&session->emulation.all[index].usage);
      values[COLUMN_PERPLEXITY] += summary.perplexity / used;
      values[COLUMN_DEAD] += summary.dead / used;
    }
    values[COLUMN_REVIVED] = (double)session->emulation.revived;
    emulate_clear_usage(&session->emulation);
  }
  double per_step = (now - run->started) / (double)(session->step - run->first_step);
  char duration[16], codebook[112] = "";
  if (session_astra(session))
    snprintf(codebook, sizeof codebook, "  commitment %.4g  codebook perplexity %.0f  dead %.1f%%", values[COLUMN_COMMITMENT],
             values[COLUMN_PERPLEXITY], 100 * values[COLUMN_DEAD]);
  (run->bar.terminal ? log_detail : log_info)("step %lld/%lld  epoch %.2f  loss %.4f  task %.4f%s  accuracy %.1f%%  %.0f %s/s  ETA %s",
                                              (long long)session->step, (long long)session->total_steps,
                                              session_epochs(session, session->step), values[COLUMN_LOSS], values[COLUMN_TASK], codebook,
                                              100 * values[COLUMN_ACCURACY], values[COLUMN_SPEED], session->task->source->name.units,
                                              progress_duration(per_step * (double)(session->total_steps - session->step), duration));
  run->interval = (StepResult){0};
  run->batches = 0;
  run->interval_started = now;
  TRY(data_parallel_compare(session));
  return ranks_follow(ranks_self() == 0 ? metrics_row(run->metrics, session->step, now - run->started, values) : STATUS_OK);
}

/* ---------------------------------------------------------------- evaluations */

static Status draw_curves(const Run *run) {
  const TrainOptions *options = &run->session->options;
  char title[512], astra[64] = "plain";
  if (session_astra(run->session))
    snprintf(astra, sizeof astra, "%lld group%s of %lld codewords", (long long)options->groups, text_plural(options->groups),
             (long long)options->entries);
  snprintf(title, sizeof title, "%s on %s, %s", options->model, options->dataset, astra);
  trim_arenas(run->session); /* charts take some megabytes: in place of what an evaluation holds, not beside it */
  return ranks_follow(ranks_self() == 0 ? metrics_draw(run->metrics, title) : STATUS_OK);
}

static void measure_columns(const Run *run, double values[COLUMNS]) {
  const Task *task = run->session->task;
  const TrainResult *result = run->result;
  const Validation *best = trainer_judged(run->session, result);
  double devices[TASK_MEASURES], plain[TASK_MEASURES];
  for (int i = 0; i < COLUMNS; i++) values[i] = NAN;
  task->report->measure(&best->score, devices);
  task->report->measure(&result->plain.score, plain);
  int column = COLUMN_MEASURES;
  for (int m = 0; task->report->measures[m] != NULL; m++) {
    values[column++] = devices[m];
    values[column++] = plain[m];
  }
  values[column] = best->loss;
}

static void print_evaluation(const Run *run) {
  const Session *session = run->session;
  const Validation *plain = &run->result->plain;
  char devices[TASK_TEXT], alone[TASK_TEXT];
  session->task->report->tell(&run->result->emulated.score, devices);
  session->task->report->tell(&plain->score, alone);
  const char *of = session->options.validation_part > 0 ? " held out" : "";
  for (int rate = 0; session_astra(session) && rate < config_rates(session->config) - 1; rate++) {
    char text[TASK_TEXT];
    session->task->report->tell(&run->result->rates[rate].score, text);
    log_info("evaluation at step %lld: %s with %d group%s", (long long)session->step, text, config_rate_groups(session->config, rate),
             text_plural(config_rate_groups(session->config, rate)));
  }
  if (session_astra(session))
    log_info("evaluation at step %lld: %s on %d device%s, %s plain (%lld %s%s)", (long long)session->step, devices,
             session->config->astra.devices, text_plural(session->config->astra.devices), task_value(alone), (long long)plain->samples,
             task_samples(session->task, plain->samples), of);
  else
    log_info("evaluation at step %lld: %s, loss %.4f (%lld %s%s)", (long long)session->step, alone, plain->loss, (long long)plain->samples,
             task_samples(session->task, plain->samples), of);
  /* What it has seen of each codebook, of several bit rates of the one with the most groups. */
  for (int index = 0; session_astra(session) && index < emulate_sites(&session->emulation); index++) {
    char place[EMULATE_PLACE];
    UsageSummary summary = usage_summary(&session->emulation.site[index].usage);
    log_detail("  %s: distortion %.4g per token, perplexity %.0f, used %.1f%%, dead %.1f%%",
               emulate_place(&session->emulation, index, place), summary.distortion, summary.perplexity, 100 * summary.used,
               100 * summary.dead);
  }
}

/* As for metrics and curves, a run does not end because this cannot be written. */
static Status save_confusion(Run *run) {
  const Session *session = run->session;
  Status status = metrics_confusion_save(session->confusion, session->classes, session->config->labels, session->options.out);
  const bool lost = status == STATUS_IO;
  if (lost && !run->unsaved) log_warning("%s; the run goes on, and tries again later", status_message());
  run->unsaved = lost;
  return lost ? STATUS_OK : status;
}

const Validation *trainer_judged(const Session *session, const TrainResult *result) {
  return session_astra(session) ? &result->emulated : &result->plain;
}

Status trainer_validate(Session *session, TrainResult *result) {
  const int64_t samples = session->options.eval_samples;
  TRY(validate_run(session, 0, samples, &result->plain));
  return session_astra(session) ? validate_rates(session, samples, &result->emulated, result->rates) : STATUS_OK;
}

static Status report_evaluation(Run *run) {
  Session *session = run->session;
  TrainResult *result = run->result;
  double started = clock_now(), values[COLUMNS];
  if (session_astra(session)) emulate_swap_usage(&session->emulation); /* those of the interval under way, which goes on afterwards */
  Status status = trainer_validate(session, result);
  if (status == STATUS_OK) print_evaluation(run);
  if (session_astra(session)) {
    emulate_clear_usage(&session->emulation);
    emulate_swap_usage(&session->emulation);
  }
  TRY(status);
  measure_columns(run, values);
  if (ranks_self() == 0) {
    status = save_confusion(run);
    if (status == STATUS_OK) status = metrics_row(run->metrics, session->step, clock_now() - run->started, values);
  }
  TRY(ranks_follow(status));
  run->interval_started += clock_now() - started; /* evaluation is not training time */
  run->bar.started += clock_now() - started;
  return draw_curves(run);
}

/* ---- Checkpoints ---- */

/* What a chat needs besides ids: its template, and the special tokens that it names. They come from where the tokenizer came from. */
static Status keep_chat_template(const Session *session, const char *out) {
  static const char *const names[] = {TOKENIZER_CONFIG_TEMPLATE, TOKENIZER_CONFIG};
  if (session->chat != NULL) return tokenizer_config_save(session->chat, out);
  char *folder = files_folder(session->tokenizer_place);
  Status status = folder != NULL ? STATUS_OK : status_no_memory(NULL, "a path");
  for (size_t i = 0; i < sizeof names / sizeof *names && status == STATUS_OK; i++) status = copy_if_there(folder, out, names[i]);
  if (status == STATUS_OK) status = tokenizer_config_copy_templates(folder, out);
  free(folder);
  return status;
}

/* Beside the checkpoint in `directory`; none where a codebook is too large. */
static Status save_frequencies(const Session *session, bool averaged, const char *directory) {
  const AstraConfig *astra = &session->config->astra;
  if (!code_frequencies_possible(astra->codebook_size)) return checkpoint_save_frequencies(session->config, directory, NULL, 0);
  size_t numbers = (size_t)checkpoint_frequencies(session->config);
  uint16_t *frequencies = malloc(numbers * sizeof *frequencies);
  Status status = frequencies ? codebooks_frequencies(session, averaged, frequencies)
                              : status_set(STATUS_NO_MEMORY, "no memory for %zu frequencies", numbers);
  if (status == STATUS_OK) status = checkpoint_save_frequencies(session->config, directory, frequencies, 0);
  free(frequencies);
  return status;
}

/* counted: the frequencies of codes in OUT stay as they are. */
static Status export_all(Session *session, bool averaged, bool counted) {
  const char *out = session->options.out;
  ParamSet *params = model_params(session->model);
  const real *values = session->optimizer.average ? session->optimizer.average : params->values;
  const real *codewords = session_astra(session) ? session->emulation.codewords : NULL;
  TRY(checkpoint_save(session->model, out, codewords, values, (SafeDtype)session->options.dtype));
  if (session->options.lora_rank > 0) { /* beside the weights, in which they are folded: a few megabytes that PEFT and others take */
    char *folder = files_join(out, "adapter");
    Status status =
        folder != NULL ? checkpoint_save_adapters(session->model, folder, values, session->origin) : status_no_memory(NULL, "a path");
    free(folder);
    TRY(status);
  }
  if (session->tokenizer != NULL) {
    TRY(tokenizer_save(session->tokenizer, out));
    TRY(keep_chat_template(session, out));
  }
  if (codewords != NULL && !counted) TRY(save_frequencies(session, averaged, out));
  trim_arenas(session);     /* the self-test maps the weights anew: in place of what a step holds, not beside it */
  param_trim_grads(params); /* the next step writes them anew */
  return selftest_writer_run(session, out);
}

Status trainer_export(Session *session, bool averaged) { return export_all(session, averaged, false); }

/* The state comes first: when the disk is full, it is what the run goes on from. Where it does not fit, the weights, a third of it, may.
 * counted: as of export_all. */
static Status write_all(Session *session, bool counted) {
  TRY(validate_weights(session));
  char fault[1024];
  const Status state = state_save(session, session->options.out);
  snprintf(fault, sizeof fault, "%s", state == STATUS_OK ? "" : status_message());
  const Status exported = export_all(session, true, counted);
  if (state != STATUS_OK) return status_set(state, "%s", fault);
  if (exported == STATUS_OK) return STATUS_OK;
  return status_wrap(exported, "the state after step %lld is saved, and `astra-train --resume %s` writes the rest",
                     (long long)session->step, session->options.out);
}

static Status write_checkpoint(Session *session) { return write_all(session, false); }

/* Told before the work and not after it. A new file lies beside the old one until it is whole. */
static void warn_of_room(const Session *session) {
  const char *out = session->options.out;
  const double state = (double)state_bytes(session), mebibyte = 1 << 20;
  double weights = (double)model_params(session->model)->total * (double)safe_dtype_bytes((SafeDtype)session->options.dtype);
  char *old = files_join(out, "training/state.safetensors");
  struct statvfs disk;
  if (old != NULL && files_exists(old)) weights = 0;
  free(old);
  if (statvfs(out, &disk) != 0) return;
  const double room = (double)disk.f_bavail * (double)disk.f_frsize;
  if (room < state + weights)
    log_warning("a checkpoint of this run takes %.1f MiB, and the disk of %s has %.1f MiB left: free some, or choose another --out",
                (state + weights) / mebibyte, out, room / mebibyte);
}

/* Whether a file's number is this one, in any of the types that checkpoints have. */
static bool is_stored(real number, real there) {
  const float own = (float)number, other = (float)there;
  return other == own || other == narrow_half_to_float(narrow_half(own)) || other == narrow_bfloat_to_float(narrow_bfloat(own));
}

/* Whether the checkpoint in OUT has the run's codebooks: of a step before the state's, where writing it failed, it has others. */
static Status has_codebooks(const Session *session, bool *same) {
  const Emulation *emulation = &session->emulation;
  const ModelConfig *config = session->config;
  const size_t sites = (size_t)emulate_all_sites(emulation);
  const size_t numbers = sites * (size_t)config->astra.codebook_size * (size_t)config_site_width(config);
  real *there = malloc(numbers * sizeof *there);
  *same = false;
  if (there == NULL) return status_no_memory(NULL, "codebooks");
  const Status status = checkpoint_load_codebooks(config, session->options.out, there);
  *same = status == STATUS_OK;
  for (size_t i = 0; i < numbers && *same; i++) *same = is_stored(emulation->codewords[i], there[i]);
  free(there);
  return status == STATUS_NO_MEMORY ? status : STATUS_OK;
}

/* Where no step was taken: frequencies of these codebooks, which somebody may have counted, with a weight perhaps, are not touched, so that
 * a kill or a full disk cannot lose them; those that cannot be read, or are of others, are replaced. */
static Status write_again(Session *session) {
  const ModelConfig *config = session->config;
  real weight;
  bool counted = false;
  if (!session_astra(session) || !code_frequencies_possible(config->astra.codebook_size)) return write_checkpoint(session);
  uint16_t *frequencies = malloc((size_t)checkpoint_frequencies(config) * sizeof *frequencies);
  if (frequencies == NULL) return status_no_memory(NULL, "frequencies of codes");
  Status status = checkpoint_load_frequencies(config, session->options.out, frequencies, &weight);
  free(frequencies);
  if (status == STATUS_OK) status = has_codebooks(session, &counted);
  return status == STATUS_NO_MEMORY ? status : write_all(session, counted);
}

static Status save_checkpoint(const Run *run) {
  Session *session = run->session;
  const Status status = data_parallel_write(session, session->step > run->first_step ? write_checkpoint : write_again);
  if (status == STATUS_OK) interrupt_last_checkpoint(session->options.out, session->step);
  return status;
}

/* ---- The loop ---- */

static Status train_step(Run *run) {
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
    session->more_batches = i + 1 < session->options.accumulate;
    TRY(micro_step(session, &batch, &part));
    run->interval.loss += part.loss;
    run->interval.task += part.task;
    run->interval.commitment += part.commitment;
    run->interval.correct += part.correct;
    run->interval.items += part.items;
    run->interval.units += part.units;
    run->batches++;
  }
  param_fill_grads(params);
  double factor = optimizer_schedule(session->step, session->options.warmup, session->total_steps, session->options.rate_floor);
  run->rate = factor * session->options.optimizer.rate;
  Status status = data_parallel_step(session, factor, 1.0 / (double)session->options.accumulate, &run->norm);
  if (status != STATUS_OK) return status_wrap(status, "step %lld", (long long)session->step + 1);
  session->step++;
  return STATUS_OK;
}

/* The resumed run knows nothing of the interval under way. */
static Status end_interval(Run *run) { return run->batches > 0 ? report_interval(run) : STATUS_OK; }

static Status say_interrupted(const Session *session) {
  return ranks_common(status_set(STATUS_INTERRUPTED, "interrupted after step %lld of %lld; go on with `astra-train --resume %s`",
                                 (long long)session->step, (long long)session->total_steps, session->options.out));
}

static Status evaluate(Run *run) {
  const double started = clock_now();
  Status status = report_evaluation(run);
  if (status == STATUS_INTERRUPTED) {
    run->interval_started += clock_now() - started;
    TRY(end_interval(run));
    TRY(draw_curves(run));
    return say_interrupted(run->session);
  }
  TRY(status);
  Session *session = run->session;
  double values[TASK_MEASURES];
  session->task->report->measure(&trainer_judged(session, run->result)->score, values);
  if (ranks_self() == 0) { /* what was exported before the evaluation is what was evaluated; what is noted is kept */
    const bool kept = session->options.keep_best && evaluations_better_than_kept(&run->evaluations, session, values[0]);
    if (kept) status = keep_best(session);
    if (status == STATUS_OK) status = evaluations_add(&run->evaluations, session, values[0], kept);
  }
  ranks_spread(0, &run->evaluations, sizeof run->evaluations);
  return ranks_follow(status);
}

static void say_best(const Run *run) {
  const Session *session = run->session;
  const Evaluations *best = &run->evaluations;
  const char *measure = session->task->report->measures[0], *out = session->options.out;
  if (!session->options.keep_best || best->kept < 0) return;
  if (best->kept == best->step)
    log_info("the best %s, %.4g, was that of step %lld: its checkpoint is in %s/best", measure, best->value, (long long)best->step, out);
  else
    log_info("the best %s, %.4g, was that of step %lld, whose checkpoint was not kept; the one in %s/best is that of step %lld (%.4g)",
             measure, best->value, (long long)best->step, out, (long long)best->kept, best->kept_value);
}

/* A run that is resumed when there is nothing left to do still says how good it is, and is exported as it is now asked for (--dtype). */
static Status evaluate_finished(Run *run) {
  Session *session = run->session;
  if (session->step >= session->total_steps)
    log_info("step %lld of %lld is done already: a larger --max-steps or --epochs would go on", (long long)session->step,
             (long long)session->total_steps);
  else
    log_info("the run was stopped early at step %lld of %lld: --early-stopping 0 would go on", (long long)session->step,
             (long long)session->total_steps);
  TRY(save_checkpoint(run));
  if (owes_evaluation(run)) { /* as the others were: by distance alone */
    TRY(evaluate(run));
    say_best(run);
    return STATUS_OK;
  }
  if (session_astra(session) && ranks_count() == 1) /* other ranks may not see the files */
    TRY(codebooks_constrain_as_counted(session, session->options.out));
  TRY(trainer_validate(session, run->result));
  return draw_curves(run);
}

static Status loop(Run *run) {
  Session *session = run->session;
  if (session->step >= session->total_steps || evaluations_stop_run(&run->evaluations, session)) return evaluate_finished(run);
  if (owes_evaluation(run)) {
    TRY(save_checkpoint(run)); /* --keep-best copies what is exported, which may have failed */
    TRY(evaluate(run));
  }
  TRY(session_seek_step(session));
  while (session->step < session->total_steps && !evaluations_stop_run(&run->evaluations, session)) {
    bool stop = session->parallel != NULL ? session->stop : interrupt_asked(); /* the ranks of a job stop behind the same step */
    if (stop) {
      TRY(end_interval(run));
      TRY(save_checkpoint(run));
      TRY(draw_curves(run));
      return say_interrupted(session);
    }
    TRY(train_step(run));
    if (run->bar.terminal) {
      char note[64];
      snprintf(note, sizeof note, "loss %.4g  rate %.2g", run->batches > 0 ? run->interval.loss / (double)run->batches : run->result->loss,
               run->rate);
      progress_update(&run->bar, session->step, note);
    }
    if (session->step % session_epoch_steps(session) == 0) TRY(session_seek_step(session)); /* leftover micro-batches */
    const bool last = session->step == session->total_steps, evaluated = is_evaluated(session);
    if (last || session->step % session->options.log_every == 0) TRY(report_interval(run));
    if (evaluated || session->step % session->options.checkpoint_every == 0) TRY(save_checkpoint(run)); /* whatever the evaluation finds */
    if (evaluated) TRY(evaluate(run));
  }
  const char *measure = session->task->report->measures[0];
  if (run->batches > 0) { /* of a run that is over early: the steps since its last line */
    TRY(report_interval(run));
    TRY(draw_curves(run));
  }
  if (evaluations_stop_run(&run->evaluations, session) && session->step < session->total_steps)
    log_info("stopped early at step %lld of %lld: %lld evaluation%s in a row without a better %s", (long long)session->step,
             (long long)session->total_steps, (long long)run->evaluations.since, text_plural(run->evaluations.since), measure);
  say_best(run);
  return STATUS_OK;
}

static Status run_all(Run *run) {
  Session *session = run->session;
  Status status = STATUS_OK;
  TRY(data_parallel_open(session));
  TRY(ranks_agree(plan_check(session)));
  TRY(data_parallel_compare(session));
  if (ranks_self() == 0) { /* files are rank 0's; what it finds in them the others know */
    status = files_make_dirs(session->options.out);
    if (status == STATUS_OK) warn_of_room(session);
    if (status == STATUS_OK) status = evaluations_open(&run->evaluations, session);
  }
  ranks_spread(0, &run->evaluations, sizeof run->evaluations);
  TRY(ranks_follow(status));
  TRY(ranks_agree(open_report(run)));
  return loop(run);
}

Status trainer_run(Session *session, TrainResult *result) {
  Run run = {.session = session, .result = result, .first_step = session->step};
  *result = (TrainResult){.loss = NAN, .accuracy = NAN};
  param_refresh_shadows(model_params(session->model), false); /* of a run that is resumed */
  Status status = run_all(&run);
  if (session->task->source->finish != NULL) session->task->source->finish(session);
  result->steps = session->step;
  progress_wipe(&run.bar);
  metrics_close(run.metrics);
  result->seconds = clock_now() - run.started;
  data_parallel_close(session);
  return status;
}
