/* Lines, rows and curves of a run: see run_report.h. Which columns there are follows from the task; their order never changes, as a resumed
 * run appends to the same file. */
#include "train/run_report.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "train/data_parallel.h"
#include "train/metrics.h"
#include "train/session.h"
#include "train/trainer.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The best evaluation ---- */

/* The file is written anew each time: there are tens of lines. */

enum { NOTES_MAX = 1 << 24 };

static char *notes_path(const Session *session) { return files_join(session->options.out, "training/evaluations.txt"); }

static bool is_better(const Session *session, const Best *best, double value) {
  if (!isfinite(value)) return false;
  return best->step < 0 || (session->task->report->lower_is_better ? value < best->value : value > best->value);
}

static bool note(Best *best, const Session *session, int64_t step, double value) {
  bool better = is_better(session, best, value);
  best->since++;
  best->last = step;
  if (better) *best = (Best){step, value, 0, step};
  return better;
}

/* The file's text, "" if there is none; the caller frees it. */
static Status read_notes(const char *path, char **text) {
  size_t size;
  if (files_exists(path)) return files_read(path, NOTES_MAX, text, &size);
  *text = calloc(1, 1);
  return *text ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory");
}

/* Cuts off the lines behind session->step. */
static Status parse(Best *best, const Session *session, char *text, const char *path) {
  for (char *line = text; *line != '\0';) {
    long long step;
    double value;
    int length = 0;
    if (sscanf(line, "%lld %lf%n", &step, &value, &length) != 2 || line[length] != '\n')
      return status_set(STATUS_BAD_FILE, "%s is damaged: a step and a value to a line are expected; remove it to go on without", path);
    if (step > session->step) {
      *line = '\0';
      break;
    }
    note(best, session, step, value);
    line += length + 1;
  }
  return STATUS_OK;
}

static Status make_folder(const Session *session) {
  char *folder = files_join(session->options.out, "training");
  Status status = folder != NULL ? files_make_dirs(folder) : status_set(STATUS_NO_MEMORY, "no memory");
  free(folder);
  return status;
}

Status best_open(Best *best, const Session *session) {
  char *path = notes_path(session), *text = NULL;
  Status status = path != NULL ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory");
  *best = (Best){.step = -1, .last = session->step == 0 || (path != NULL && files_exists(path)) ? -1 : BEST_UNKNOWN};
  if (status == STATUS_OK && session->step > 0) {
    status = read_notes(path, &text);
    if (status == STATUS_OK) status = parse(best, session, text, path);
  }
  if (status == STATUS_OK && best->last != BEST_UNKNOWN) status = make_folder(session);
  if (status == STATUS_OK && best->last != BEST_UNKNOWN) status = files_write(path, text ? text : "", text ? strlen(text) : 0);
  free(text);
  free(path);
  return status;
}

Status best_add(Best *best, const Session *session, double value, bool *better) {
  char *path = notes_path(session), *text = NULL, line[64];
  *better = note(best, session, session->step, value);
  Status status = path != NULL ? read_notes(path, &text) : status_set(STATUS_NO_MEMORY, "no memory");
  size_t used = status == STATUS_OK ? strlen(text) : 0;
  int length = snprintf(line, sizeof line, "%lld %.17g\n", (long long)session->step, value);
  char *all = status == STATUS_OK ? realloc(text, used + (size_t)length + 1) : NULL;
  if (all != NULL) {
    memcpy(all + used, line, (size_t)length + 1);
    text = all;
    status = files_write(path, all, used + (size_t)length);
  } else if (status == STATUS_OK) {
    status = status_set(STATUS_NO_MEMORY, "no memory");
  }
  free(text);
  free(path);
  return status;
}

/* ---------------------------------------------------------------- keeping */

static bool ends_with(const char *name, const char *end) {
  size_t length = strlen(name), tail = strlen(end);
  return length >= tail && strcmp(name + length - tail, end) == 0;
}

/* What makes a checkpoint: weights, configurations, tokenizers. */
static bool belongs(const char *path, const char *name) {
  return !files_is_dir(path) && !ends_with(name, ".csv") && !ends_with(name, ".png") && strncmp(name, "events.", 7) != 0 &&
         strstr(name, ".tmp-") == NULL;
}

static Status copy_file(const char *from, const char *to) {
  static const size_t max = (size_t)1 << 20;
  FileWriter writer;
  FILE *source = fopen(from, "rb");
  char *buffer = malloc(max);
  size_t got = 0;
  Status status = source == NULL   ? status_set(STATUS_IO, "%s: cannot be read", from)
                  : buffer == NULL ? status_set(STATUS_NO_MEMORY, "no memory")
                                   : files_create(&writer, to);
  if (status == STATUS_OK) {
    while ((got = fread(buffer, 1, max, source)) > 0 && fwrite(buffer, 1, got, writer.stream) == got) continue;
    status = ferror(source) ? status_set(STATUS_IO, "%s: cannot be read", from) : STATUS_OK;
    if (status == STATUS_OK)
      status = files_commit(&writer);
    else
      files_abort(&writer);
  }
  if (source != NULL) fclose(source);
  free(buffer);
  return status;
}

static Status copy_named(const char *out, const char *folder, const char *name) {
  char *from = files_join(out, name), *to = files_join(folder, name);
  Status status = from != NULL && to != NULL ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory");
  if (status == STATUS_OK && belongs(from, name)) status = copy_file(from, to);
  free(from);
  free(to);
  return status;
}

Status best_keep(const Session *session) {
  const char *out = session->options.out;
  char *folder = files_join(out, "best"), **names;
  size_t count;
  Status status = folder != NULL ? files_make_dirs(folder) : status_set(STATUS_NO_MEMORY, "no memory");
  if (status == STATUS_OK && (status = files_list(out, &names, &count)) == STATUS_OK) {
    for (size_t i = 0; i < count && status == STATUS_OK; i++) status = copy_named(out, folder, names[i]);
    files_list_free(names, count);
  }
  free(folder);
  return status;
}

bool best_is_over(const Best *best, const Session *session) {
  return session->options.early_stopping > 0 && best->since >= session->options.early_stopping;
}

/* ---- Lines, metrics, events ---- */

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
  COLUMN_MEASURES /* for each measure of the task: on the devices, plain; then the loss */
};
_Static_assert((int)COLUMN_MEASURES == (int)RUN_REPORT_FIXED, "the fixed columns are those above");

static const char *const FIXED[RUN_REPORT_FIXED] = {"loss",          "task_loss",        "commitment", "train_accuracy",
                                                    "learning_rate", "gradient_norm",    "per_second", "codebook_perplexity",
                                                    "codebook_dead", "codewords_revived"};

/* ---------------------------------------------------------------- columns */

static void name_columns(RunReport *run) {
  const Task *task = run->session->task;
  const char *test = session_test_name(run->session);
  for (run->columns = 0; run->columns < RUN_REPORT_FIXED; run->columns++)
    snprintf(run->names[run->columns], RUN_REPORT_NAME, "%s", FIXED[run->columns]);
  snprintf(run->names[COLUMN_SPEED], RUN_REPORT_NAME, "%s_%s", task->source->name.units, FIXED[COLUMN_SPEED]);
  for (int m = 0; task->report->measures[m] != NULL; m++) {
    snprintf(run->names[run->columns++], RUN_REPORT_NAME, "%s_%s", test, task->report->measures[m]);
    snprintf(run->names[run->columns++], RUN_REPORT_NAME, "%s_%s_plain", test, task->report->measures[m]);
  }
  snprintf(run->names[run->columns++], RUN_REPORT_NAME, "%s_loss", test);
}

Status run_report_open(RunReport *run) {
  const char *names[RUN_REPORT_COLUMNS];
  name_columns(run);
  for (int i = 0; i < run->columns; i++) names[i] = run->names[i];
  run->started = run->interval_started = clock_now();
  int64_t step = run->session->step;
  progress_start(&run->bar, "training", run->session->total_steps, run->session->options.quiet);
  run->bar.first = step;
  if (ranks_self() > 0) return STATUS_OK;
  return metrics_open(&run->metrics, run->session->options.out, names, (size_t)run->columns, step > 0 ? step : -1);
}

double run_report_close(RunReport *run) {
  progress_wipe(&run->bar);
  metrics_close(run->metrics);
  return clock_now() - run->started;
}

static void blank(double values[RUN_REPORT_COLUMNS]) {
  for (int i = 0; i < RUN_REPORT_COLUMNS; i++) values[i] = NAN;
}

/* ---------------------------------------------------------------- intervals */

void run_report_step(RunReport *run) {
  char note[64];
  if (!run->bar.terminal) return;
  snprintf(note, sizeof note, "loss %.4g  rate %.2g", run->batches > 0 ? run->interval.loss / (double)run->batches : run->result->loss,
           run->rate);
  progress_update(&run->bar, run->session->step, note);
}

void run_report_add(RunReport *run, const StepResult *part) {
  run->interval.loss += part->loss;
  run->interval.task += part->task;
  run->interval.commitment += part->commitment;
  run->interval.correct += part->correct;
  run->interval.items += part->items;
  run->interval.units += part->units;
  run->batches++;
}

static void codebook_columns(const Session *session, double values[RUN_REPORT_COLUMNS]) {
  int sites = session->emulation.blocks * session->emulation.sites;
  values[COLUMN_PERPLEXITY] = values[COLUMN_DEAD] = 0;
  for (int index = 0; index < sites; index++) {
    UsageSummary summary = usage_summary(&session->emulation.site[index].usage);
    values[COLUMN_PERPLEXITY] += summary.perplexity / sites;
    values[COLUMN_DEAD] += summary.dead / sites;
  }
  values[COLUMN_REVIVED] = (double)session->emulation.revived;
}

static void print_interval(const RunReport *run, const double values[RUN_REPORT_COLUMNS], double left) {
  const Session *session = run->session;
  char duration[16], codebook[112] = "";
  if (session_astra(session))
    snprintf(codebook, sizeof codebook, "  commitment %.4g  codebook perplexity %.0f  dead %.1f%%", values[COLUMN_COMMITMENT],
             values[COLUMN_PERPLEXITY], 100 * values[COLUMN_DEAD]);
  (run->bar.terminal ? log_detail : log_info)("step %lld/%lld  epoch %.2f  loss %.4f  task %.4f%s  accuracy %.1f%%  %.0f %s/s  left %s",
                                              (long long)session->step, (long long)session->total_steps,
                                              (double)session->step / (double)session_epoch_steps(session), values[COLUMN_LOSS],
                                              values[COLUMN_TASK], codebook, 100 * values[COLUMN_ACCURACY], values[COLUMN_SPEED],
                                              session->task->source->name.units, progress_duration(left, duration));
}

Status run_report_interval(RunReport *run) {
  Session *session = run->session;
  double now = clock_now(), values[RUN_REPORT_COLUMNS], batches = (double)run->batches;
  blank(values);
  data_parallel_add_usage(session);
  values[COLUMN_LOSS] = run->result->loss = run->interval.loss / batches;
  values[COLUMN_TASK] = run->interval.task / batches;
  values[COLUMN_ACCURACY] = run->result->accuracy = (double)run->interval.correct / (double)run->interval.items;
  values[COLUMN_RATE] = run->rate;
  values[COLUMN_NORM] = run->norm;
  values[COLUMN_SPEED] = (double)run->interval.units / (now - run->interval_started);
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
  TRY(data_parallel_compare(session));
  return ranks_follow(ranks_self() == 0 ? metrics_row(run->metrics, session->step, now - run->started, values) : STATUS_OK);
}

/* ---------------------------------------------------------------- evaluations */

/* What the evaluation has seen of each codebook. */
static void print_codebooks(const Session *session) {
  char place[EMULATE_PLACE];
  for (int index = 0; index < session->emulation.blocks * session->emulation.sites; index++) {
    UsageSummary summary = usage_summary(&session->emulation.site[index].usage);
    log_detail("  %s: distortion %.4g a token, perplexity %.0f, used %.1f%%, dead %.1f%%", emulate_place(&session->emulation, index, place),
               summary.distortion, summary.perplexity, 100 * summary.used, 100 * summary.dead);
  }
}

Status run_report_draw(const RunReport *run) {
  const TrainOptions *options = &run->session->options;
  char title[512], astra[64] = "plain";
  if (session_astra(run->session))
    snprintf(astra, sizeof astra, "%lld groups of %lld codewords", (long long)options->groups, (long long)options->entries);
  snprintf(title, sizeof title, "%s on %s, %s", options->model, options->dataset, astra);
  return ranks_follow(ranks_self() == 0 ? metrics_draw(run->metrics, title) : STATUS_OK);
}

static void measure_columns(const RunReport *run, double values[RUN_REPORT_COLUMNS]) {
  const Task *task = run->session->task;
  const TrainResult *result = run->result;
  const Validation *best = session_astra(run->session) ? &result->emulated : &result->plain;
  double devices[TASK_MEASURES], plain[TASK_MEASURES];
  blank(values);
  task->report->measure(&best->score, devices);
  task->report->measure(&result->plain.score, plain);
  int column = COLUMN_MEASURES;
  for (int m = 0; task->report->measures[m] != NULL; m++) {
    values[column++] = devices[m];
    values[column++] = plain[m];
  }
  values[column] = best->loss;
}

static void print_evaluation(const RunReport *run) {
  const Session *session = run->session;
  const Validation *plain = &run->result->plain;
  char devices[TASK_TEXT], alone[TASK_TEXT];
  session->task->report->tell(&run->result->emulated.score, devices);
  session->task->report->tell(&plain->score, alone);
  const char *of = session->options.validation_part > 0 ? " held out" : "";
  if (session_astra(session))
    log_info("evaluation at step %lld: %s on %d devices, %s plain (%lld %s%s)", (long long)session->step, devices,
             session->config->astra.devices, alone + strcspn(alone, "0123456789"), (long long)plain->samples,
             session->task->source->name.samples, of);
  else
    log_info("evaluation at step %lld: %s, loss %.4f (%lld %s%s)", (long long)session->step, alone, plain->loss, (long long)plain->samples,
             session->task->source->name.samples, of);
}

static Status save_evaluation(const RunReport *run, const double values[RUN_REPORT_COLUMNS]) {
  const Session *session = run->session;
  if (session->confusion.classes > 0) TRY(confusion_save(&session->confusion, session->config->labels, session->options.out));
  return metrics_row(run->metrics, session->step, clock_now() - run->started, values);
}

Status run_report_evaluation(RunReport *run) {
  Session *session = run->session;
  TrainResult *result = run->result;
  double started = clock_now(), values[RUN_REPORT_COLUMNS];
  TRY(validate_run(session, 0, session->options.eval_samples, &result->plain));
  if (session_astra(session)) {
    emulate_clear_usage(&session->emulation);
    TRY(validate_run(session, session->config->astra.devices, session->options.eval_samples, &result->emulated));
  }
  print_evaluation(run);
  if (session_astra(session)) {
    print_codebooks(session);
    emulate_clear_usage(&session->emulation);
  }
  measure_columns(run, values);
  TRY(ranks_follow(ranks_self() == 0 ? save_evaluation(run, values) : STATUS_OK));
  run->interval_started += clock_now() - started; /* evaluation is not training time */
  run->bar.started += clock_now() - started;
  return run_report_draw(run);
}
