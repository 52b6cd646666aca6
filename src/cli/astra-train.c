/* astra-train: fine-tune (or pretrain) a model, with ASTRA or plain, evaluate it and export a checkpoint. */
#include "autograd/kernels/matmul.h"
#include "base/files.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/perplexity_report.h"
#include "cli/train_options.h"
#include "cli/train_out.h"
#include "cli/train_plan.h"
#include "nn/json_build.h"
#include "train/codebooks.h"
#include "train/data_parallel.h"
#include "train/interrupt.h"
#include "train/plan.h"
#include "train/ranks.h"
#include "train/session.h"
#include "train/state.h"
#include "train/task_windows.h"
#include "train/trainer.h"
#include "train/validate.h"
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Evaluations as text and JSON ---- */

/* What astra-train prints at the end of a run or of --eval-only: a line for people, one JSON object for programs. */
static bool by_convention(const Session *session) { return session->options.perplexity != PERPLEXITY_AUTO; }
static PerplexityUnit convention(const Session *session) { return (PerplexityUnit)session->options.perplexity; }
static long long stride(const Session *session) {
  return (long long)(session->options.stride > 0 ? session->options.stride : session->tokens);
}

/* ---------------------------------------------------------------- for people */

static Status print_perplexity(const Session *session, const TrainResult *result) {
  Perplexity devices, plain;
  char on[48];
  TRY(task_windows_perplexity(session, &result->plain.score, convention(session), &plain));
  printf("%s\n", printable(session->data.about[TASK_TEST]));
  if (session_astra(session)) {
    TRY(task_windows_perplexity(session, &result->emulated.score, convention(session), &devices));
    snprintf(on, sizeof on, " on %d emulated device%s", session->config->astra.devices, text_plural(session->config->astra.devices));
    perplexity_report_print(&devices, on, "");
  }
  perplexity_report_print(&plain, " plain", "");
  printf("divided by %s; windows of %lld tokens, each %lld further\n", perplexity_counts(convention(session)), (long long)session->tokens,
         stride(session));
  return STATUS_OK;
}

/* The task's own measures or, with --perplexity, that convention's, plain and on the emulated devices, and what it divides by what. */
static Status evaluation_report_text(const Session *session, const TrainResult *result) {
  char devices[TASK_TEXT], plain[TASK_TEXT];
  const Task *task = session->task;
  if (by_convention(session)) return print_perplexity(session, result);
  const char *of = session->options.validation_part > 0 ? " held out" : "";
  task->report->tell(&result->emulated.score, devices);
  task->report->tell(&result->plain.score, plain);
  for (int rate = 0; !session->options.one_rate && rate < config_rates(session->config) - 1; rate++) {
    char text[TASK_TEXT];
    task->report->tell(&result->rates[rate].score, text);
    printf("%s on %d emulated device%s with %d group%s\n", text, session->config->astra.devices,
           text_plural(session->config->astra.devices), config_rate_groups(session->config, rate),
           text_plural(config_rate_groups(session->config, rate)));
  }
  if (session_astra(session))
    printf("%s on %d emulated device%s, %s plain (%lld %s%s)\n", devices, session->config->astra.devices,
           text_plural(session->config->astra.devices), task_value(plain), (long long)result->plain.samples,
           task_samples(task, result->plain.samples), of);
  else
    printf("%s (%lld %s%s)\n", plain, (long long)result->plain.samples, task_samples(task, result->plain.samples), of);
  return STATUS_OK;
}

/* ---------------------------------------------------------------- for programs */

/* For each measure of the task "NAME_plain" and "NAME", on the devices. */
static void add_measures(const Session *session, const Validation *best, const Validation *alone, json_t *object) {
  double devices[TASK_MEASURES], plain[TASK_MEASURES];
  char name[64];
  session->task->report->measure(&best->score, devices);
  session->task->report->measure(&alone->score, plain);
  for (int m = 0; session->task->report->measures[m] != NULL; m++) {
    snprintf(name, sizeof name, "%s_plain", session->task->report->measures[m]);
    json_object_set_new(object, name, json_build_number(plain[m]));
    json_object_set_new(object, session->task->report->measures[m], json_build_number(devices[m]));
  }
}

/* Replaces the perplexity per token by that of the convention. */
static Status add_convention(const Session *session, const Validation *best, const Validation *alone, json_t *object) {
  Perplexity devices, plain;
  TRY(task_windows_perplexity(session, &best->score, convention(session), &devices));
  TRY(task_windows_perplexity(session, &alone->score, convention(session), &plain));
  json_object_set_new(object, "perplexity_plain", json_build_number(plain.value));
  perplexity_report_json(&devices, object);
  json_object_set_new(object, "nats_plain", json_build_number(plain.nats));
  json_object_set_new(object, "nats", json_build_number(devices.nats));
  if (plain.page_bytes > 0) json_object_set_new(object, "bits_per_byte_plain", json_build_number(plain.bits_per_byte));
  json_object_set_new(object, "context", json_integer((json_int_t)session->tokens));
  json_object_set_new(object, "stride", json_integer(stride(session)));
  return STATUS_OK;
}

/* One line. `checkpoint`: what was evaluated or written. */
static Status evaluation_report_json(const Session *session, const TrainResult *result, const char *checkpoint) {
  const Validation *best = trainer_judged(session, result);
  json_t *object = json_pack("{s:o, s:I, s:o}", "checkpoint", json_build_string(checkpoint), "steps", (json_int_t)result->steps, "loss",
                             json_build_number(result->loss));
  add_measures(session, best, &result->plain, object);
  Status status = by_convention(session) ? add_convention(session, best, &result->plain, object) : STATUS_OK;
  if (session_astra(session) && config_rates(session->config) > 1) {
    json_t *rates = json_array();
    for (int rate = 0; rate < config_rates(session->config); rate++) {
      if (result->rates[rate].samples == 0) continue; /* another one was asked for */
      json_t *of = json_pack("{s:i}", "groups", config_rate_groups(session->config, rate));
      add_measures(session, &result->rates[rate], &result->plain, of);
      json_array_append_new(rates, of);
    }
    json_object_set_new(object, "rates", rates);
  }
  json_object_set_new(object, "seconds", json_real(result->seconds));
  json_object_set_new(object, "eval_samples", json_integer((json_int_t)result->plain.samples));
  if (session->options.validation_part > 0) json_object_set_new(object, "eval_part", json_string("valid"));
  if (status == STATUS_OK) return json_build_print(object);
  json_decref(object);
  return status;
}

/* ---- The command ---- */

static const char USAGE[] = "astra-train --model NAME --dataset NAME [--groups G] [options]";
static const char ABOUT[] =
    "Trains a vision transformer or a language model to run on several devices that exchange vector-quantised codes.";

static void help(FILE *stream) {
  TrainCommand command;
  Option table[TRAIN_OPTIONS_MAX];
  train_options_table(&command, table);
  options_help(table, USAGE, ABOUT, stream);
}

static void describe(const Session *session) {
  const ModelConfig *config = session->config;
  char devices[32], compression[CONFIG_COMPRESSION];
  log_info("%s", session->data.about[TASK_TRAIN]);
  const ParamSet *params = model_params(session->model);
  log_info("model: %lld block%s of width %lld, %lld token%s, %.2f M parameters, %s%s%s%s", (long long)config->blocks,
           text_plural(config->blocks), (long long)config->width, (long long)session->tokens, text_plural(session->tokens),
           (double)param_count_numbers(params) / 1e6, session->origin ? "weights from " : "no weights found (dry run)",
           session->origin ? session->origin : "", session->report.new_head ? ", new classifier" : "",
           session->report.resized_positions ? ", position embeddings interpolated" : "");
  if (session->options.lora_rank > 0)
    log_info("adapters: rank %lld beside %s, %.2f M numbers that learn", (long long)session->options.lora_rank,
             session->options.lora_targets, (double)param_count_trainable(params) / 1e6);
  if (session_astra(session)) {
    int at = config->astra.devices_min < config->astra.devices ? snprintf(devices, sizeof devices, "%d-", config->astra.devices_min) : 0;
    snprintf(devices + at, sizeof devices - (size_t)at, "%d", config->astra.devices); /* "4", or "2-8" */
    log_info("astra: %d group%s of %d codewords, %s device%s, %.0f bits per token, %s", config->astra.groups,
             text_plural(config->astra.groups), config->astra.codebook_size, devices, text_plural(config->astra.devices),
             config_bits_per_token(config), config_compression_text(config, compression));
    if (config_end_coded(config) < config->blocks)
      log_info("blocks: codes are exchanged in the first %d of %lld; in later ones tokens attend only to tokens of the same device",
               config_end_coded(config), (long long)config->blocks);
    char rates[CONFIG_RATES_TEXT];
    if (config_rates(config) > 1 && session->options.one_rate)
      log_info("bit rate: the one with %d group%s, of %s", config->astra.groups, text_plural(config->astra.groups),
               config_rates_text(config, rates));
    else if (config_rates(config) > 1)
      log_info("bit rates: %s, with %s groups", session->use == SESSION_EVALUATE ? "all" : "one for each batch",
               config_rates_text(config, rates));
  }
  if (session->chosen[0] != '\0' && !session->options.drawn) log_info("defaults: %s", session->chosen);
  if (session->options.recompute > 0 || session->options.memory > 0)
    log_info("memory: %d of %lld blocks are computed twice", session->recomputed, (long long)config->blocks);
}

/* One process at a time trains in OUT: from before it reads the state of a run, or makes codebooks for one, to its end. */
static Status lock_out(const char *out, int *lock) {
  char *path = files_join(out, "training/lock");
  Status status = path != NULL ? files_lock(path, lock) : status_no_memory(NULL, "a path");
  if (status == STATUS_BUSY)
    status =
        status_set(STATUS_BUSY, "another process trains in %s and holds %s: wait for its end or stop it, or give another --out", out, path);
  free(path);
  return status;
}

/* What a run that writes has of OUT. */
typedef struct OutFolder {
  int lock;   /* lock_out's; -1: none */
  bool there; /* it was before the run, and stays if training does not begin */
} OutFolder;

/* Where training has not begun: takes back what was made for it. */
static void leave_out(const char *out, bool there) {
  char *path = files_join(out, "training/lock"), *folder = files_join(out, "training");
  if (path != NULL) remove(path);
  if (folder != NULL) out_directory_leave(there ? folder : out, there ? NULL : "training");
  free(path);
  free(folder);
}

static Status start_codebooks(Session *session, bool there) {
  static const char words[] =
      "\nastra-train: interrupted while K-means made the codebooks: training has not begun and nothing is kept. Start it again with the "
      "same command; `astra-kmeans init` makes codebooks once, for --codebooks DIR and --recipe paper\n";
  if (!session_astra(session)) return STATUS_OK;
  const char *path = session->options.codebooks, *out = session->options.out;
  char *folder = files_join(out, "training"), *lock = files_join(out, "training/lock");
  const char *const made[] = {lock, folder, there ? NULL : out, NULL};             /* as leave_out has it */
  cli_last_words(ranks_self() == 0 ? words : "", ranks_self() == 0 ? made : NULL); /* a signal ends all ranks, and one speaks */
  Status status = ranks_count() == 1 ? plan_check(session) : STATUS_OK;            /* else it takes all ranks, and comes behind K-means */
  if (status == STATUS_OK) status = path != NULL ? codebooks_read(session, path) : codebooks_fit(session, NULL);
  cli_last_words(NULL, NULL);
  free(lock);
  free(folder);
  if (status != STATUS_OK && ranks_self() == 0) leave_out(out, there);
  return status;
}

static Status evaluate_only(Session *session, bool json, TrainResult *result) {
  const char *path = session->options.codebooks ? session->options.codebooks : session->origin;
  *result = (TrainResult){.loss = NAN, .accuracy = NAN};
  TRY(session_check_classes(session));
  if (session_astra(session)) { /* nothing is clustered for a mere look: the codebooks come with the weights, or are named */
    if (!files_exists(path))
      return status_set(STATUS_BAD_USAGE,
                        "--eval-only with --groups %d needs codebooks: give --codebooks DIR, or a checkpoint that contains them",
                        session->config->astra.groups);
    TRY(codebooks_read(session, path));
    TRY(codebooks_constrain_as_counted(session, path));
  }
  TRY(task_windows_perplexity_check(session));
  TRY(trainer_validate(session, result));
  return json ? STATUS_OK : evaluation_report_text(session, result);
}

/* Nothing that was finished is replaced unasked; of a dry run, what the run would say. */
static Status refuse_finished(const TrainCommand *command) {
  const char *out = command->train.out;
  char *path = files_join(out, "training/options.txt"), *state = files_join(out, "training/state.safetensors"), also[512] = "";
  const bool writes = !command->eval_only && command->resume == NULL;
  const bool known = path != NULL && files_exists(path), begun = known && state != NULL && files_exists(state);
  Status status = path != NULL && state != NULL ? STATUS_OK : status_no_memory(NULL, "a path");
  if (known) snprintf(also, sizeof also, "`astra-train --resume %s` resumes the run that wrote it", out);
  free(path);
  free(state);
  if (status != STATUS_OK || !writes || command->overwrite) return status;
  TRY(out_directory_free(out, OUT_CHECKPOINT, known ? also : NULL));
  if (!begun) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE,
                    "--out %s holds a training whose checkpoint has not been written: `astra-train --resume %s` goes on with it; give "
                    "another --out, or --overwrite to begin anew",
                    out, out);
}

/* Neither OUT nor, with --keep-best, OUT/best is where weights lie that the run needs to the end. */
static Status check_apart(const TrainOptions *options, const char *weights, const char *why) {
  TRY(out_directory_apart(options->out, weights, why));
  if (!options->keep_best) return STATUS_OK;
  char *best = files_join(options->out, "best");
  Status status = best != NULL ? out_directory_apart(best, weights, why) : status_no_memory(NULL, "a path");
  free(best);
  return status == STATUS_BAD_USAGE ? status_wrap(status, "--keep-best") : status;
}

/* Before anything is computed that would then have no place. */
static Status check_out(const Session *session, const TrainCommand *command, OutFolder *folder) {
  const bool replaces = command->overwrite || command->resume != NULL;
  const char *out = session->options.out;
  const char *teacher = session->options.teacher ? session->options.teacher : session->origin;
  if (session->options.lora_rank > 0) TRY(check_apart(&session->options, session->origin, "--lora keeps as they are"));
  if (session->teacher.model != NULL)
    TRY(check_apart(&session->options, teacher,
                    session->options.distill > 0 ? "--distill learns from until the end" : "--distill-hidden learns from until the end"));
  TRY(train_out_check_tokenizer(session, replaces));
  folder->there = files_is_dir(out);
  TRY(out_directory_try(out, "training", "state.safetensors"));
  TRY(lock_out(out, &folder->lock));
  return refuse_finished(command); /* again: another process may have trained there since, to its end */
}

/* A run that ends where guessing would have: what it learnt says why. */
static void warn_of_chance(const Session *session, const TrainResult *result) {
  const Validation *best = trainer_judged(session, result);
  double chance = 1.0 / (double)session->classes, values[TASK_MEASURES];
  if (session->classes < 2 || best->samples == 0 || session->options.quiet) return;
  session->task->report->measure(&best->score, values);
  if (values[0] > 1.5 * chance) return;
  const bool by_heart = result->accuracy > 0.5 + 0.5 * chance;
  const char *augment = session->task->source->texts ? "" : " or stronger augmentation (--mixup, --crop-min)";
  char why[256] = ""; /* not known where no step was taken */
  if (isfinite(result->accuracy))
    snprintf(why, sizeof why, ", on those of the training %.1f%%: %s%s%s", 100 * result->accuracy,
             by_heart ? "overfitting. More data helps most; a larger pretrained model" : "more steps (--epochs) or another --learning-rate",
             by_heart ? augment : "", by_heart ? " may" : " may help");
  log_warning("accuracy on the %lld held-out %s is no better than guessing (%.1f%%, %lld classes)%s", (long long)best->samples,
              task_samples(session->task, best->samples), 100 * values[0], (long long)session->classes, why);
}

/* In OUT, for --resume: its command line, and nothing of another run before it. */
static Status note_run(const Session *session, TrainCommand *command, int argc, char **argv) {
  if (command->begun == NULL) command->begun = argv, command->begun_count = argc, command->begun_in = train_options_here();
  if (command->resume == NULL) TRY(state_forget(session->options.out));
  if (command->resume == NULL && command->overwrite) TRY(train_out_forget(session));
  return train_options_remember(&session->options, command->begun_count, command->begun, command->begun_in, threads_count());
}

static Status train_locked(Session *session, TrainCommand *command, bool there, int argc, char **argv, TrainResult *result) {
  if (ranks_count() > 1)
    log_info("%d ranks on %d machine%s with %d thread%s each; gradients travel in %s%s", ranks_count(), ranks_machines(),
             text_plural(ranks_machines()), threads_count(), text_plural(threads_count()),
             session->options.wire == WIRE_BF16 ? "bf16" : "fp32",
             session->options.shard_optimizer ? ", optimizer states are sharded" : "");
  if (command->resume != NULL)
    TRY(ranks_agree(state_load(session, command->resume)));
  else
    TRY(start_codebooks(session, there));
  interrupt_last_checkpoint(command->resume, session->step);
  interrupt_catch();        /* not before: a K-means that is not wanted after all ends at once */
  signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes then shows as a failed write, like a full disk */
  TRY(ranks_follow(ranks_self() == 0 ? note_run(session, command, argc, argv) : STATUS_OK));
  Status status = trainer_run(session, result);
  if (status == STATUS_OK) {
    char duration[16];
    log_info("done in %s: checkpoint in %s (curves.png, metrics.csv)", progress_duration(result->seconds, duration), session->options.out);
    warn_of_chance(session, result);
  }
  return status;
}

static Status train(Session *session, TrainCommand *command, int argc, char **argv, TrainResult *result) {
  OutFolder folder = {.lock = -1};
  TRY(data_parallel_check(session));
  Status status = ranks_follow(ranks_self() == 0 ? check_out(session, command, &folder) : STATUS_OK);
  if (status == STATUS_OK) status = train_locked(session, command, folder.there, argc, argv, result);
  if (folder.lock >= 0) close(folder.lock);
  return status;
}

static Status look_ahead(Session *session, const TrainCommand *command) {
  BenchPeak peak = {0};
  const TrainOptions *options = &session->options;
  if (options->codebooks != NULL && strcmp(options->codebooks, options->model) != 0) /* the model's own come with its weights */
    TRY(codebooks_check(session, options->codebooks));
  const Status vacant = refuse_finished(command);
  if (vacant == STATUS_NO_MEMORY) return vacant;
  if (vacant != STATUS_OK) { /* then nothing is drawn there, either */
    log_warning("the run would be refused: %s", status_message());
    session->options.out = NULL;
  }
  TRY(bench_peak_measure(&peak));
  return train_plan_print(session, peak.products[PEAK_F32].all, command->json);
}

static Status run_session(TrainCommand *command, int argc, char **argv) {
  Session session;
  TrainResult result;
  SessionUse use = command->dry_run ? SESSION_PLAN : command->eval_only ? SESSION_EVALUATE : SESSION_TRAIN;
  TRY(ranks_agree(train_options_tell_begun(command, session_open(&session, &command->train, use))));
  Status status = ranks_agree(command->eval_only ? STATUS_OK : plan_fit(&session));
  if (status == STATUS_OK && !command->train.quiet) describe(&session);
  if (status == STATUS_OK && session.doubt[0] != '\0') log_warning("%s", session.doubt);
  if (status == STATUS_OK)
    status = command->dry_run     ? look_ahead(&session, command)
             : command->eval_only ? evaluate_only(&session, command->json, &result)
                                  : train(&session, command, argc, argv, &result);
  if (status == STATUS_OK && command->json && !command->dry_run && ranks_self() == 0)
    status = evaluation_report_json(&session, &result, command->eval_only ? session.origin : session.options.out);
  session_close(&session);
  return status;
}

/* What says how to evaluate says nothing to a training run, whose own evaluations are all of one kind; and the other way round. */
static Status check_use(const TrainCommand *command) {
  const TrainOptions *train = &command->train;
  const char *name = train->perplexity != 0 ? "perplexity" : train->stride > 0 ? "stride" : NULL;
  if (train->test_part != SESSION_PART_AUTO) name = "eval-part";
  if (!command->eval_only) return name == NULL ? STATUS_OK : status_set(STATUS_BAD_USAGE, "--%s is for --eval-only", name);
  if (command->dry_run) return status_set(STATUS_BAD_USAGE, "--dry-run cannot be combined with --eval-only; give one of them");
  if (command->memory >= 0) return status_set(STATUS_BAD_USAGE, "--memory is for training; it cannot be combined with --eval-only");
  if (train->token_loss != NULL)
    return status_set(STATUS_BAD_USAGE, "--token-loss %s is for training; with --eval-only give --eval-token-loss P", train->token_loss);
  if (train->lora_rank > 0)
    return status_set(STATUS_BAD_USAGE,
                      "--lora %lld is for training; it cannot be combined with --eval-only: exported weights have the adapters folded in",
                      (long long)train->lora_rank);
  return STATUS_OK;
}

/* --recompute and --memory, of which one at most chooses the blocks that are computed twice. */
static Status read_memory(TrainCommand *command) {
  TrainOptions *train = &command->train;
  const char *text = command->recompute;
  char *end;
  train->recompute = text == NULL ? 0 : SESSION_ALL_BLOCKS;
  if (text != NULL && strcmp(text, "all") != 0) {
    bool digits = text[0] >= '0' && text[0] <= '9';
    train->recompute = digits ? strtol(text, &end, 10) : -1;
    if (!digits || *end != '\0' || train->recompute > SESSION_ALL_BLOCKS)
      return status_set(STATUS_BAD_USAGE, "--recompute: '%s' is not accepted; give a number of blocks up to %d, or all", text,
                        SESSION_ALL_BLOCKS);
  }
  if (command->memory > 0 && command->memory < 1 << 20)
    return status_set(STATUS_BAD_USAGE, "--memory: %.0f bytes are too few; give the unit, too, and at least 1M, as in 4G", command->memory);
  if (command->memory >= 0) train->memory = command->memory;
  if (train->memory > 0 && train->recompute > 0)
    return status_set(STATUS_BAD_USAGE, "--memory chooses the number of recomputed blocks itself; it cannot be combined with --recompute");
  return STATUS_OK;
}

/* Whether a run was begun when --no-prediction did not count, and --recipe tuned had predictions all the same. */
static bool predicts_anyway(const TrainCommand *command) {
  ModelConfig config;
  if (command->train.prediction || command->resume == NULL || config_load(&config, command->resume) != STATUS_OK) return false;
  const bool predicts = config.astra.prediction;
  config_release(&config);
  return predicts;
}

/* --no-rotation and --no-prediction are choices, too, which no recipe changes. */
static Status read_basis(TrainCommand *command, const Option *table) {
  TrainOptions *train = &command->train;
  const bool rotation = options_given(table, "rotation"), prediction = options_given(table, "prediction");
  train->basis_given = (rotation || prediction) && !predicts_anyway(command);
  if (train->resumed || !rotation || !prediction || train->rotation || !train->prediction) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--no-rotation cannot be combined with --prediction, which implies --rotation");
}

/* Whether --groups lists all bit rates of a checkpoint. */
static bool lists_all(const TrainOptions *train, const AstraConfig *astra) {
  bool all = train->rates[1 + astra->rate_count] == 0;
  for (int rate = 0; rate < astra->rate_count; rate++) all = all && train->rates[1 + rate] == astra->rates[rate];
  return all;
}

/* Of a checkpoint with several bit rates --eval-only goes through all of them, or one. */
static Status read_rates(TrainOptions *train, ModelConfig *config) {
  char rates[CONFIG_RATES_TEXT];
  if (train->rates[1] > 0 && lists_all(train, &config->astra)) return STATUS_OK;
  if (train->rates[1] > 0)
    return status_set(STATUS_BAD_USAGE,
                      "--groups: with --eval-only one of %s is accepted, the bit rates of %s; without --groups all of them are evaluated",
                      config_rates_text(config, rates), train->model);
  train->one_rate = true;
  return config_use_rate(config, (int)train->groups);
}

/* What the command line leaves open is taken from an ASTRA checkpoint that --model names, codebooks included. */
static Status inherit(TrainCommand *command, const Option *table) {
  TrainOptions *train = &command->train;
  ModelConfig config;
  if (train->model == NULL || !checkpoint_is_path(train->model)) return STATUS_OK;
  TRY(config_load(&config, train->model));
  const AstraConfig *astra = &config.astra;
  if (astra->groups > 0 && !(options_given(table, "groups") && train->groups == 0)) {
    if (command->eval_only && options_given(table, "groups") && astra->rate_count > 0) {
      Status status = read_rates(train, &config);
      if (status != STATUS_OK) config_release(&config);
      TRY(status);
    }
    const bool own = command->eval_only ||
                     (!options_given(table, "groups") && !options_given(table, "codebook-size")); /* codebooks: no others are made */
    if (own && !options_given(table, "codebooks")) train->codebooks = train->model;
    if (train->codebooks != NULL && files_same(train->codebooks, train->model)) { /* what its codebooks are of */
      if (!options_given(table, "rotation")) train->rotation = astra->rotation;
      if (!options_given(table, "prediction")) train->prediction = astra->prediction;
      train->plain_prediction = config_plain_prediction(astra);
    }
    if (!options_given(table, "groups") || train->one_rate) session_set_rates(train, astra);
    if (!options_given(table, "codebook-size")) train->entries = astra->codebook_size;
    train_options_adapt(train, table, astra);
  }
  config_release(&config);
  return STATUS_OK;
}

static const char *first_given(const Option *table, const char *const *names) {
  while (*names != NULL && !options_given(table, *names)) names++;
  return *names;
}

/* Options that would have no effect. Those that settings of experiments give to all rows, with codes or without (--site, --commitment,
 * --codebook-size, --kmeans-samples, --kmeans-iterations...), stand. */
static Status check_effect(const TrainOptions *train, const Option *table) {
  static const char *const of_codes[] =
      {"devices",     "map",        "concentration",    "noise",       "noise-warmup",   "noise-covariance",
       "class-token", "class-bias", "class-mean-power", "vq-gradient", "codebook-decay", "dead-below",
       NULL},
                           *const of_noise[] = {"noise-warmup", "noise-covariance", NULL};
  static const char *const of_kmeans[] = {"kmeans-tolerance", "kmeans-restarts", "kmeans-start", "kmeans-minibatch", NULL};
  const char *name;
  if (train->groups == 0 && (name = first_given(table, of_codes)) != NULL)
    return status_set(STATUS_BAD_USAGE, "--%s is for models with codes: give --groups", name);
  if (train->noise == 0 && (name = first_given(table, of_noise)) != NULL)
    return status_set(STATUS_BAD_USAGE, "--%s is of the noise, whose scale is 0: give --noise", name);
  if (options_given(table, "codebooks") && (name = first_given(table, of_kmeans)) != NULL)
    return status_set(STATUS_BAD_USAGE, "--%s cannot be combined with --codebooks, which takes the place of K-means", name);
  if (train->codebooks != NULL && (name = first_given(table, of_kmeans)) != NULL)
    return status_set(STATUS_BAD_USAGE, "--%s: codebooks are those of %s: --groups makes new ones with K-means", name, train->codebooks);
  if (train->lora_rank > 0 && train->optimizer.kind == OPTIMIZER_MUON)
    return status_set(STATUS_BAD_USAGE, "--optimizer muon moves the matrices of blocks, which --lora freezes, and adapters are AdamW's: "
                                        "leave --optimizer muon out");
  if (train->lora_rank > 0 && train->init != NULL && session_is_scratch(train->init))
    return status_set(STATUS_BAD_USAGE,
                      "--lora leaves the weights as they are, and --init %s has none that are trained: leave one of them out", train->init);
  return STATUS_OK;
}

/* Also of a run that goes on, which may be divided among ranks from then on. */
static Status check_division(const TrainOptions *train) {
  if (!train->shard_optimizer || train->optimizer.kind != OPTIMIZER_MUON) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--optimizer muon needs whole matrices: leave --shard-optimizer out");
}

static Status prepare(TrainCommand *command, int argc, char **argv) {
  Option table[TRAIN_OPTIONS_MAX];
  train_options_table(command, table);
  TRY(cli_parse(table, argc, argv));
  if (command->resume != NULL) TRY(train_options_resume(command, table, argc, argv));
  TRY(train_options_need_model(&command->train, "astra-train"));
  train_options_find_others(&command->train);
  TRY(check_use(command));
  if (!command->dry_run && !command->eval_only && command->resume == NULL) TRY(train_options_check_lines(argc, argv));
  TRY(read_memory(command));
  command->train.resumed = command->resume != NULL;
  TRY(read_basis(command, table));
  TRY(inherit(command, table));
  TRY(check_division(&command->train));
  if (!command->train.resumed) TRY(check_effect(&command->train, table));
  if (command->train.out == NULL) command->train.out = train_options_usual_out(&command->train, "");
  if (!command->train.resumed && !command->eval_only) TRY(train_out_check_data(&command->train));
  if (ranks_count() == 1) return STATUS_OK;
  /* The ranks of a job train; everything else is a process's own affair. Rank 0 speaks for all. */
  if (command->dry_run || command->eval_only)
    return status_set(STATUS_BAD_USAGE, "--%s runs in one process: start it without mpirun", command->dry_run ? "dry-run" : "eval-only");
  if (ranks_self() == 0) return STATUS_OK;
  command->train.quiet = true;
  log_errors_only(true);
  return STATUS_OK;
}

static Status run_process(int argc, char **argv) {
  TrainCommand command;
  TRY(ranks_agree(prepare(&command, argc, argv)));
  if (!command.dry_run && !command.eval_only) signal(SIGPIPE, SIG_IGN); /* a training outlives what reads its log, which Ctrl-C ends, too */
  if (ranks_self() == 0) log_quiet(command.train.quiet);
  log_verbose(command.verbose);
  TRY(ranks_agree(cli_check_kernels(command.backend)));
  TRY(ranks_follow(ranks_self() == 0 && !command.dry_run ? refuse_finished(&command) : STATUS_OK));
  TRY(ranks_agree(threads_start((int)command.train.threads)));
  Status status = run_session(&command, argc, argv);
  threads_stop();
  return status;
}

static char rank_name[192];

static Status run(int argc, char **argv) {
  TRY(ranks_join());
  if (ranks_self() > 0) {
    snprintf(rank_name, sizeof rank_name, "astra-train: rank %d on %s", ranks_self(), ranks_host());
    log_program(rank_name);
  }
  return train_options_end_rank(run_process(argc, argv));
}

/* For where the options' values stand. */
static void table(Option options[CLI_OPTIONS_MAX]) {
  static TrainCommand command;
  train_options_table(&command, options);
}

int main(int argc, char **argv) {
  matmul_start();
  return cli_run(argc, argv, &(CliProgram){.name = "astra-train", .otherwise = run, .help = help, .table = table});
}
