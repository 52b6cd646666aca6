/* The command accuracy: an experiment of the paper, or one of your own, from a file (docs/FORMATS.md, "Experiments"): every row is trained
 * and evaluated by the programs beside this one, with each seed, and the figures become a CSV, a table and a chart. What is done is kept,
 * so that a run which was interrupted goes on where it was. */
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/bench.h"
#include "cli/bench_experiment.h"
#include "cli/bench_figure.h"
#include "cli/bench_list.h"
#include "cli/bench_results.h"
#include "cli/bench_settings.h"
#include "cli/cli.h"
#include "cli/infer_settings.h"
#include "cli/train_options.h"
#include "data/data_paths.h"
#include "nn/checkpoint.h"
#include "nn/json_build.h"
#include "nn/safetensors.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const char USAGE[] = "astra-bench accuracy --table NAME [--quick] [options]";
static const char ABOUT[] =
    "Trains, adapts and evaluates every row of an experiment with each seed, and writes CSV, table and chart. Run it again to go on.";

enum { ARGUMENTS_MAX = 128 };

typedef struct AccuracyCommand {
  ExperimentChoice choice;
  const char *data_dir;
  int64_t threads;
  bool dry_run, list, json;
} AccuracyCommand;

/* ---------------------------------------------------------------- command lines */

typedef struct Arguments {
  char *list[ARGUMENTS_MAX]; /* owned; NULL behind the last */
  int count;
  Status status;  /* of the first that could not be added; those after it are left out */
  json_t *models; /* owned: {"--teacher": checkpoint_digest}, of options that name a model which is there; NULL: none */
} Arguments;

static void add(Arguments *a, const char *text) {
  if (a->status != STATUS_OK) return;
  if (text == NULL || a->count == ARGUMENTS_MAX - 1 || (a->list[a->count] = strdup(text)) == NULL)
    a->status = status_set(STATUS_NO_MEMORY, "no memory or room for its command line");
  else
    a->count++;
}

static void add_option(Arguments *a, const char *name, const char *value) {
  char option[NAME_MAX_LENGTH + 8];
  snprintf(option, sizeof option, "--%s", name);
  add(a, option);
  if (value) add(a, value);
}

/* Where `value` of this option is a checkpoint, or the name of an installed one, it is told from later ones in its place. */
static void note_model(Arguments *a, const char *option, const char *value, const char *data_dir) {
  char key[NAME_MAX_LENGTH + 8], digest[SAFE_DIGEST_TEXT] = "", *found = NULL;
  if (a->status != STATUS_OK) return;
  if (checkpoint_is_path(value) || data_paths_find("checkpoints", value, data_dir, &found) == STATUS_OK)
    a->status = checkpoint_digest(found ? found : value, digest);
  free(found);
  if (digest[0] == '\0') return;
  snprintf(key, sizeof key, "--%s", option);
  if (a->models == NULL) a->models = json_object();
  if (json_object_set_new(a->models, key, json_string(digest)) != 0) a->status = status_no_memory(NULL, "digests of its models");
}

static void arguments_free(Arguments *a) {
  for (int i = 0; i < a->count; i++) free(a->list[i]);
  json_decref(a->models);
}

/* PARENT/EXPERIMENT[-quick] of a reference, beside this experiment's own folder; with the row, its checkpoint there. A fresh string. */
static char *reference_place(const Experiment *e, const RunReference *to, bool row) {
  const char *slash = strrchr(e->folder, '/');
  char *place = NULL;
  size_t size;
  FILE *out = open_memstream(&place, &size);
  if (out == NULL) return NULL;
  fprintf(out, "%.*s%.*s%s", slash ? (int)(slash - e->folder) + 1 : 0, e->folder, to->experiment_length, to->experiment,
          experiment_suffix(e));
  if (row) fprintf(out, "/seed-%lld/%.*s", (long long)to->seed, to->row_length, to->row);
  if (fclose(out) == 0) return place;
  free(place);
  return NULL;
}

/* {data}, {seed} and {run:EXPERIMENT/ROW} of a text replaced: the data directory, this run's seed, and the checkpoint of another
 * experiment's row with the same seed, or with seed S: {run:EXPERIMENT/ROW@S}. *expanded: a fresh string. */
static Status expand(const Experiment *e, const AccuracyCommand *c, const char *text, int64_t seed, char **expanded) {
  size_t size;
  FILE *out = open_memstream(expanded, &size);
  if (out == NULL) return status_no_memory(NULL, "a setting");
  Status status = STATUS_OK;
  for (const char *at = text; *at && status == STATUS_OK;) {
    RunReference run;
    if (*at != '{') {
      putc(*at++, out);
      continue;
    }
    if (strncmp(at, "{seed}", 6) == 0) {
      fprintf(out, "%lld", (long long)seed);
    } else if (strncmp(at, "{data}", 6) == 0 && c->data_dir) {
      fputs(c->data_dir, out);
    } else if (strncmp(at, "{data}", 6) == 0) {
      status = status_set(STATUS_BAD_USAGE, "--data-dir DIR is missing: this experiment needs \"%s\"", text);
    } else if (experiment_read_reference(at, seed, &run)) {
      char *place = reference_place(e, &run, true);
      if (place)
        fputs(place, out);
      else
        status = status_no_memory(NULL, "a path");
      free(place);
    } else {
      status = status_set(STATUS_BAD_FILE,
                          "\"%s\": accepted in braces are {data}, {seed}, {run:EXPERIMENT/ROW} and {run:EXPERIMENT/ROW@SEED}", text);
    }
    if (status == STATUS_OK) at += strcspn(at, "}") + 1;
  }
  if (fclose(out) != 0 && status == STATUS_OK) status = status_no_memory(NULL, "a setting");
  if (status != STATUS_OK) free(*expanded), *expanded = NULL;
  return status;
}

/* Options of settings in the order of their names, so that equal settings are equal command lines: true is a flag, false its --no-. Models
 * are looked for in data_dir (may be NULL), too. */
static void add_settings(const Experiment *e, const AccuracyCommand *c, Arguments *a, json_t *settings, int64_t seed,
                         const char *data_dir) {
  const char *key;
  json_t *value;
  char *sorted = settings ? json_dumps(settings, JSON_SORT_KEYS) : NULL;
  json_t *in_order = sorted ? json_loads(sorted, 0, NULL) : NULL;
  if (in_order == NULL && a->status == STATUS_OK) a->status = status_no_memory(NULL, "settings");
  json_object_foreach(in_order, key, value) {
    char off[NAME_MAX_LENGTH + 4], *text = NULL;
    snprintf(off, sizeof off, "no-%s", key);
    if (json_is_null(value) || a->status != STATUS_OK) continue;
    if (json_is_boolean(value)) {
      add_option(a, json_is_true(value) ? key : off, NULL);
      continue;
    }
    if (json_is_string(value)) a->status = expand(e, c, json_string_value(value), seed, &text);
    if (json_is_number(value)) text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(12));
    add_option(a, key, NULL);
    add(a, text);
    if (text && json_is_string(value)) note_model(a, key, text, data_dir);
    free(text);
  }
  json_decref(in_order);
  free(sorted);
}

/* Where the model of a row lies, a fresh string: what it was trained to, or what it takes over untrained. */
static Status model_of(const Experiment *e, const AccuracyCommand *c, int row, int seed, char **model) {
  const Row *r = &e->row[row];
  if (!r->train && r->from) return model_of(e, c, experiment_find_row(e, r->from), seed, model);
  if (!r->train) return expand(e, c, r->model, e->seeds[seed], model);
  *model = experiment_place(e, row, seed, "");
  return *model ? STATUS_OK : status_no_memory(NULL, "a path");
}

static void train_arguments(const Experiment *e, const AccuracyCommand *c, int row, int seed, Arguments *a) {
  const Row *r = &e->row[row];
  char *program = process_beside("astra-train"), *out = experiment_place(e, row, seed, ""), *from = NULL, number[32];
  if (r->from)
    a->status = model_of(e, c, experiment_find_row(e, r->from), seed, &from);
  else if (r->model)
    a->status = expand(e, c, r->model, e->seeds[seed], &from);
  json_t *settings = experiment_settings(e, "train", r->train);
  if (from && settings) json_object_set_new(settings, "model", json_string(from));
  if (r->from && settings) json_object_del(settings, "init"), json_object_del(settings, "blocks"); /* how the first row began */
  if (c->threads > 0 && settings) json_object_del(settings, "threads");
  add(a, program);
  add_settings(e, c, a, settings, e->seeds[seed], c->data_dir);
  snprintf(number, sizeof number, "%lld", (long long)e->seeds[seed]);
  add_option(a, "seed", number);
  if (c->data_dir) add_option(a, "data-dir", c->data_dir);
  snprintf(number, sizeof number, "%lld", (long long)c->threads);
  if (c->threads > 0 || !json_object_get(settings, "threads")) add_option(a, "threads", number);
  add_option(a, "out", out);
  add_option(a, "overwrite", NULL);
  add_option(a, "json", NULL);
  json_decref(settings);
  free(program), free(out), free(from);
}

static void eval_arguments(const Experiment *e, const AccuracyCommand *c, int row, int seed, Arguments *a) {
  const Evaluation *how = e->evaluation;
  char *program = process_beside(how->program), *samples = experiment_place(e, row, seed, EXPERIMENT_SAMPLES), *model = NULL;
  char *folder = experiment_place(e, row, seed, ".eval");
  a->status = model_of(e, c, row, seed, &model);
  json_t *settings = experiment_settings(e, "eval", e->row[row].eval);
  add(a, program);
  add(a, how->command);
  add_option(a, how->model, model);
  if (model && !e->row[row].train) note_model(a, how->model, model, NULL);
  add_settings(e, c, a, settings, e->seeds[seed], NULL);
  if (c->data_dir) add_option(a, "data-dir", c->data_dir);
  if (how->samples) add_option(a, "per-sample", samples);
  if (how->folder) add_option(a, "out", folder);
  add_option(a, "json", NULL);
  json_decref(settings);
  free(program), free(model), free(samples), free(folder);
}

/* As a shell takes it; programs by their names alone, wherever they lie. */
static char *command_line(const Arguments *a) {
  char *line = NULL;
  size_t size;
  FILE *out = open_memstream(&line, &size);
  if (out == NULL) return NULL;
  for (int i = 0; i < a->count; i++) {
    const char *word = a->list[i], *slash = i == 0 ? strrchr(word, '/') : NULL;
    if (i > 0) putc(' ', out);
    if (slash) word = slash + 1;
    bool plain = *word != '\0';
    for (const char *at = word; *at; at++) plain &= isalnum((unsigned char)*at) || strchr("._=-+/:,@%", *at) != NULL;
    const char *quote = plain ? "" : "'";
    fputs(quote, out);
    for (; *word; word++) *word == '\'' ? (void)fputs("'\\''", out) : (void)putc(*word, out);
    fputs(quote, out);
  }
  if (fclose(out) == 0) return line;
  free(line);
  return NULL;
}

/* ---------------------------------------------------------------- a run */

#define TRAINED ".train.json" /* behind a row's place: what its training said at its end */

/* What one row does with one seed. Files beside its checkpoint: .train.json and .eval.json hold what the programs printed, .part.json the
 * seconds of a training that was interrupted, .commands the two command lines, .log what they said, .lock who makes it. */
typedef struct Job {
  Arguments train, eval;
  const char *folder; /* the experiment's */
  char *train_result, *train_part, *train_state, *eval_result, *samples, *commands, *log, *lock, *out;
  int64_t threads; /* of the training, as the command line says; 0: the experiment's, or those that it began with */
  json_t *lines;   /* {"train": ..., "eval": ...}: the command lines; "base": base_digest; and Arguments.models of both */
} Job;

static void job_free(Job *job) {
  arguments_free(&job->train), arguments_free(&job->eval);
  free(job->train_result), free(job->train_part), free(job->train_state), free(job->eval_result);
  free(job->samples), free(job->commands), free(job->log), free(job->lock), free(job->out);
  json_decref(job->lines);
}

/* Of what the training of the model that a row begins with has said: tells it from another one with the same command line, since the
 * seconds differ. "" of a model that no row trains, or that is not there. */
static Status base_digest(const Experiment *e, const AccuracyCommand *c, int row, int seed, char digest[SAFE_DIGEST_TEXT]) {
  const Row *r = &e->row[row];
  char *model = NULL, *said = NULL, *text = NULL;
  size_t size = 0;
  digest[0] = '\0';
  Status status = r->train && !r->from ? expand(e, c, r->model ? r->model : "", e->seeds[seed], &model)
                                       : model_of(e, c, r->train ? experiment_find_row(e, r->from) : row, seed, &model);
  if (status == STATUS_OK && (said = malloc(strlen(model) + sizeof TRAINED)) == NULL) status = status_no_memory(NULL, "a path");
  if (status == STATUS_OK) sprintf(said, "%s" TRAINED, model);
  if (status == STATUS_OK && files_exists(said)) status = files_read(said, EXPERIMENT_FILE_LIMIT, &text, &size);
  if (text) safe_digest_text(safe_digest_of(text, size), digest);
  free(model), free(said), free(text);
  return status;
}

static Status job_make(const Experiment *e, const AccuracyCommand *c, int row, int seed, Job *job) {
  if (e->row[row].of >= 0) row = e->row[row].of; /* whose evaluation it reads */
  *job = (Job){.train_result = experiment_place(e, row, seed, TRAINED),
               .train_part = experiment_place(e, row, seed, ".part.json"),
               .train_state = experiment_place(e, row, seed, "/training/state.safetensors"),
               .eval_result = experiment_place(e, row, seed, EXPERIMENT_EVALUATED),
               .samples = experiment_place(e, row, seed, EXPERIMENT_SAMPLES),
               .commands = experiment_place(e, row, seed, ".commands"),
               .log = experiment_place(e, row, seed, ".log"),
               .lock = experiment_place(e, row, seed, ".lock"),
               .out = experiment_place(e, row, seed, ""),
               .folder = e->folder,
               .threads = c->threads,
               .lines = json_object()};
  if (e->row[row].train) train_arguments(e, c, row, seed, &job->train);
  TRY(job->train.status); /* before the evaluation's arguments look for its model, and say that it is not there */
  eval_arguments(e, c, row, seed, &job->eval);
  TRY(job->eval.status);
  char base[SAFE_DIGEST_TEXT];
  TRY(base_digest(e, c, row, seed, base));
  char *train = command_line(&job->train), *eval = command_line(&job->eval);
  bool made = job->train_result && job->train_part && job->train_state && job->eval_result && job->samples && job->commands && job->log &&
              job->lock && job->out && train && eval && json_object_set_new(job->lines, "train", json_string(train)) == 0 &&
              json_object_set_new(job->lines, "eval", json_string(eval)) == 0 &&
              (!base[0] || json_object_set_new(job->lines, "base", json_string(base)) == 0) &&
              (!job->train.models || json_object_update(job->lines, job->train.models) == 0) &&
              (!job->eval.models || json_object_update(job->lines, job->eval.models) == 0);
  free(train), free(eval);
  return made ? STATUS_OK : status_no_memory(e->row[row].name, "its command lines");
}

static Status read_json(const char *path, json_t **root) {
  char *text;
  size_t size;
  json_error_t error;
  TRY(files_read(path, EXPERIMENT_FILE_LIMIT, &text, &size));
  *root = json_loadb(text, size, 0, &error);
  free(text);
  return *root ? STATUS_OK : status_set(STATUS_BAD_FILE, "%s: %s; remove it to run this row again", path, error.text);
}

static Status write_json(const char *path, const json_t *root) {
  char *text = json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS);
  if (text == NULL) return status_no_memory(path, "its text");
  Status status = files_write(path, text, strlen(text));
  free(text);
  return status;
}

/* ---- models of other experiments */

/* What is wanted of the experiment that `of` refers to. */
typedef struct Wanted {
  const RunReference *of;
  json_t *rows, *seeds; /* objects whose members are the rows and seeds, in the order in which they were met */
} Wanted;

static Status want(void *context, const RunReference *to) {
  Wanted *w = context;
  char row[NAME_MAX_LENGTH + 1], seed[32];
  if (to->experiment_length != w->of->experiment_length || memcmp(to->experiment, w->of->experiment, (size_t)to->experiment_length) != 0)
    return STATUS_OK;
  snprintf(row, sizeof row, "%.*s", to->row_length, to->row);
  snprintf(seed, sizeof seed, "%lld", (long long)to->seed);
  const bool added = json_object_set_new(w->rows, row, json_null()) == 0 && json_object_set_new(w->seeds, seed, json_null()) == 0;
  return added ? STATUS_OK : status_no_memory(NULL, "rows and seeds");
}

/* --NAME with the members of the object as its list. */
static void add_list(Arguments *a, const char *name, json_t *members) {
  char *list = NULL;
  const char *key, *between = "";
  json_t *value;
  size_t size;
  FILE *out = open_memstream(&list, &size);
  json_object_foreach(members, key, value) {
    if (out) fprintf(out, "%s%s", between, key);
    between = ",";
  }
  if (out && fclose(out) != 0) list = NULL;
  add_option(a, name, NULL);
  add(a, list);
  free(list);
}

/* The command line that makes all that this one needs of the experiment that `to` refers to. A fresh string, or NULL: no memory. */
static char *other_command(const Experiment *e, const AccuracyCommand *c, const RunReference *to) {
  Arguments a = {0};
  Wanted wanted = {to, json_object(), json_object()};
  char name[NAME_MAX_LENGTH + 1], *out = reference_place(e, to, false);
  for (int i = 0; i < e->chosen_count; i++)
    for (int row = 0; row < e->count && a.status == STATUS_OK; row++)
      if (e->row[row].selected) a.status = experiment_each_reference(e, row, e->seeds[e->chosen[i]], false, want, &wanted);
  snprintf(name, sizeof name, "%.*s", to->experiment_length, to->experiment);
  add(&a, "astra-bench");
  add(&a, "accuracy");
  add_option(&a, "table", name);
  if (e->quick) add_option(&a, "quick", NULL);
  add_list(&a, "rows", wanted.rows);
  add_list(&a, "seeds", wanted.seeds);
  if (c->data_dir) add_option(&a, "data-dir", c->data_dir);
  if (c->choice.out) add_option(&a, "out", NULL), add(&a, out);
  char *line = a.status == STATUS_OK ? command_line(&a) : NULL;
  json_decref(wanted.rows), json_decref(wanted.seeds);
  arguments_free(&a);
  free(out);
  return line;
}

/* NOT_FOUND where the other experiment is one that is found by its name, and has no such row. */
static Status check_other_row(const RunReference *to) {
  char name[NAME_MAX_LENGTH + 1], row[NAME_MAX_LENGTH + 1];
  Experiment *other;
  snprintf(name, sizeof name, "%.*s", to->experiment_length, to->experiment);
  snprintf(row, sizeof row, "%.*s", to->row_length, to->row);
  if (experiment_open(&other, &(ExperimentChoice){.name = name}) != STATUS_OK) return STATUS_OK;
  const bool has = experiment_find_row(other, row) >= 0;
  experiment_close(other);
  if (has) return STATUS_OK;
  return status_set(STATUS_NOT_FOUND,
                    "{run:%s/%s}: the experiment %s has no row \"%s\"; astra-bench accuracy --list --table %s prints its rows", name, row,
                    name, row, name);
}

/* Whether the reference is to a row that this command trains itself. */
static bool is_own(const Experiment *e, const RunReference *to) {
  char name[NAME_MAX_LENGTH + 1], *folder = reference_place(e, to, false);
  snprintf(name, sizeof name, "%.*s", to->row_length, to->row);
  const int row = experiment_find_row(e, name);
  const bool here = folder && strcmp(folder, e->folder) == 0 && row >= 0 && e->row[row].train;
  bool own = false;
  for (int s = 0; s < e->seed_count && here; s++) own |= e->seeds[s] == to->seed && experiment_is_run(e, row, s);
  free(folder);
  return own;
}

typedef struct Checked {
  const Experiment *e;
  const AccuracyCommand *c;
  bool ahead; /* nothing is run yet: rows of this command's own are still to be made */
} Checked;

static Status check_reference(void *context, const RunReference *to) {
  const Checked *of = context;
  if (of->ahead && is_own(of->e, to)) return STATUS_OK;
  char *path = reference_place(of->e, to, true), *said = path ? malloc(strlen(path) + sizeof TRAINED) : NULL, *command = NULL;
  if (said) sprintf(said, "%s" TRAINED, path);
  Status status = STATUS_OK;
  if (said == NULL)
    status = status_no_memory(NULL, "a path");
  else if (files_is_dir(path) && files_exists(said)) /* an interrupted training has left a directory, too */
    status = STATUS_OK;
  else if (check_other_row(to) != STATUS_OK)
    status = STATUS_NOT_FOUND;
  else if ((command = other_command(of->e, of->c, to)) == NULL)
    status = status_no_memory(NULL, "a command line");
  else
    status = status_set(STATUS_NOT_FOUND, "%s is not there, or not trained to its end; make it first: %s", path, command);
  free(path), free(said), free(command);
  return status;
}

/* The models that the row needs from now on, where other experiments make them. */
static Status check_others(const Experiment *e, const AccuracyCommand *c, int row, int seed, const Job *job, bool ahead) {
  Checked checked = {e, c, ahead};
  return experiment_each_reference(e, row, e->seeds[seed], files_exists(job->train_result), check_reference, &checked);
}

/* ---- the command lines of then and now */

/* Whether anything came of it. A training that failed before its first checkpoint leaves nothing but its seconds, and begins anew. */
static bool is_begun(const Job *job) {
  return files_exists(job->train_result) || files_exists(job->train_state) || files_exists(job->eval_result);
}

/* Of the command line `key`, with which something is begun or not: whether `before` is the same. kept: what is there was made by that one,
 * or will be. */
static bool take_line(const Job *job, const json_t *before, const char *key, bool begun, bool kept) {
  json_t *line = json_object_get(before, key);
  if (!begun) return true;
  if (!bench_settings_same(job->folder, json_string_value(json_object_get(job->lines, key)), json_string_value(line), NULL)) return false;
  return !kept || json_object_set(job->lines, key, line) == 0;
}

/* Whether a model's digest of then, `was`, is that of now; NULL: it was not noted yet. That counts as the same, as does a model that is not
 * there any more. */
static bool take_digest(const Job *job, const char *key, json_t *was) {
  json_t *is = json_object_get(job->lines, key);
  if (was && is) return json_equal(was, is);
  return was ? json_object_set(job->lines, key, was) == 0 : json_object_del(job->lines, key) == 0;
}

static bool is_line(const char *key) { return strcmp(key, "train") == 0 || strcmp(key, "eval") == 0; }

/* Whether the row began, or would begin, with the same models. */
static bool take_models(const Job *job, json_t *before) {
  const char *key;
  json_t *value;
  void *next;
  bool same = true;
  if (!is_begun(job)) return true;
  json_object_foreach_safe(job->lines, next, key, value) {
    if (!is_line(key)) same = same && take_digest(job, key, json_object_get(before, key));
  }
  json_object_foreach(before, key, value) {
    if (!is_line(key)) same = same && take_digest(job, key, value);
  }
  return same;
}

/* A training that is resumed keeps its number of threads where no other is given. */
static bool take_lines(const Job *job, json_t *before) {
  const bool trained = files_exists(job->train_result) || (files_exists(job->train_state) && job->threads == 0);
  const bool evaluated = files_exists(job->eval_result);
  return take_models(job, before) && take_line(job, before, "train", is_begun(job), trained) &&
         take_line(job, before, "eval", evaluated, evaluated);
}

/* BAD_VALUE: the row cannot be made, since what is there was made otherwise. */
static Status refuse_lines(const Job *job, const json_t *before) {
  const char *const keys[] = {"train", files_exists(job->eval_result) ? "eval" : NULL};
  char *difference = NULL;
  for (size_t i = 0; i < 2 && keys[i] && difference == NULL; i++)
    bench_settings_same(job->folder, json_string_value(json_object_get(job->lines, keys[i])),
                        json_string_value(json_object_get(before, keys[i])), &difference);
  const char *how = difference ? "with other settings, of which the first is " : "from a model that has been made again since, or replaced";
  status_set(STATUS_BAD_VALUE, "%s: this row was run %s%s; give another --out, or remove %s and %s.* to run it again", job->commands, how,
             difference ? difference : "", job->out, job->out);
  free(difference);
  return STATUS_BAD_VALUE;
}

/* BAD_FILE: it is not known how the row was run. */
static Status read_commands(const Job *job, json_t **before) {
  const Status status = read_json(job->commands, before);
  if (status != STATUS_NOT_FOUND && status != STATUS_BAD_FILE) return status;
  return status_set(STATUS_BAD_FILE,
                    "%s, which says how this row was run, is %s; give another --out, or remove %s and %s.* to run it again", job->commands,
                    status == STATUS_NOT_FOUND ? "missing" : "damaged", job->out, job->out);
}

/* Results belong to the command lines that made them: others are a mistake to be told of, not to be mixed. */
static Status check_commands(const Job *job) {
  json_t *before = NULL;
  if (!files_exists(job->commands) && !is_begun(job)) return write_json(job->commands, job->lines);
  TRY(read_commands(job, &before));
  Status status = STATUS_OK;
  if (!take_lines(job, before))
    status = refuse_lines(job, before);
  else if (!json_equal(before, job->lines))
    status = write_json(job->commands, job->lines);
  json_decref(before);
  return status;
}

/* Runs a program and adds its seconds to the object that it printed, so that they stay when the run is read again. `before`: the seconds of
 * earlier parts of the same run, NAN where they are not known: nor are those of all then. Where `part` is not NULL, the seconds of a run
 * that does not come to its end are kept in that file. */
static Status time_program(Arguments *a, const char *result, const char *log, double before, const char *part) {
  json_t *root = NULL;
  double start = clock_now();
  Status status = process_run((const char *const *)a->list, result, log);
  double seconds = before + clock_now() - start;
  if (status == STATUS_OK) TRY(read_json(result, &root));
  if (root == NULL && part) root = json_object();
  if (root == NULL) return status;
  bool whole = json_object_set_new(root, "bench_seconds", json_build_number(seconds)) == 0 &&
               json_object_set_new(root, "bench_commit", json_string(ASTRA_COMMIT)) == 0;
  Status noted = whole ? write_json(status == STATUS_OK ? result : part, root) : status_no_memory(result, "its seconds");
  json_decref(root);
  return noted == STATUS_OK ? status : noted;
}

/* An evaluation that is there before the training is one of an earlier model, and must not be taken for one of that which comes. */
static Status remove_evaluation(const Job *job) {
  const char *const paths[] = {job->eval_result, job->samples};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
    if (remove(paths[i]) != 0 && errno != ENOENT)
      return status_set(STATUS_IO, "cannot remove %s, which is of the model before this training: %s", paths[i], strerror(errno));
  return STATUS_OK;
}

/* An interrupted training goes on from its last checkpoint, where it has one. */
static Status train(Job *job) {
  Arguments resume = {0}, *a = &job->train;
  double before = 0;
  TRY(remove_evaluation(job));
  if (files_exists(job->train_state)) {
    json_t *part = NULL;
    char threads[32];
    snprintf(threads, sizeof threads, "%lld", (long long)job->threads);
    add(&resume, job->train.list[0]);
    add_option(&resume, "resume", job->out);
    if (job->threads > 0) add_option(&resume, "threads", threads);
    add_option(&resume, "json", NULL);
    a = &resume;
    if (files_exists(job->train_part) && resume.status == STATUS_OK) resume.status = read_json(job->train_part, &part);
    before = bench_figure_at(part, "bench_seconds"); /* NAN where this program was killed, and has not noted them */
    json_decref(part);
  }
  /* What it says is not what all parts took, should this program be killed; of a training that failed it is not this one's. */
  if (resume.status == STATUS_OK) remove(job->train_part);
  Status status = resume.status != STATUS_OK ? resume.status : time_program(a, job->train_result, job->log, before, job->train_part);
  if (status == STATUS_OK) remove(job->train_part);
  arguments_free(&resume);
  return status;
}

static Status read_results(const Experiment *e, const Job *job, int row, Run *run) {
  json_t *root = NULL;
  free(run->train_command), free(run->eval_command);
  *run = (Run){.value = NAN};
  TRY(read_json(job->eval_result, &root));
  run->value = e->scale * bench_figure_at(root, e->row[row].figure);
  run->eval_seconds = bench_figure_at(root, "bench_seconds");
  const char *commit = json_string_value(json_object_get(root, "bench_commit"));
  snprintf(run->commit, sizeof run->commit, "%s", commit ? commit : "");
  const Status status = isnan(run->value) ? bench_figure_missing(job->eval_result, e->row[row].figure, root) : STATUS_OK;
  json_decref(root);
  TRY(status);
  if (job->train.count) {
    TRY(read_json(job->train_result, &root));
    run->train_seconds = bench_figure_at(root, "bench_seconds");
    json_decref(root);
  }
  run->train_command = strdup(json_string_value(json_object_get(job->lines, "train")));
  run->eval_command = strdup(json_string_value(json_object_get(job->lines, "eval")));
  return run->train_command && run->eval_command ? STATUS_OK : status_no_memory(e->row[row].name, "its command lines");
}

static bool is_done(const Job *job) { return files_exists(job->eval_result) && (job->train.count == 0 || files_exists(job->train_result)); }

/* What an earlier command with these settings left of a row, or nothing; *others: one with other settings did. */
static Status read_earlier(const Experiment *e, const AccuracyCommand *c, int row, int seed, Run *run, bool *others) {
  Job job;
  json_t *before = NULL;
  Status status = job_make(e, c, row, seed, &job);
  if (status == STATUS_OK && is_done(&job)) status = read_commands(&job, &before);
  *others = before != NULL && !take_lines(&job, before);
  if (before != NULL && !*others) status = read_results(e, &job, row, run);
  json_decref(before);
  job_free(&job);
  return status == STATUS_OK ? STATUS_OK : status_wrap(status, "seed %lld, %s", (long long)e->seeds[seed], e->row[row].name);
}

/* One process at a time makes a row. The programs that it runs inherit the lock: where it is killed, they are told to end, and its training
 * still writes a checkpoint, beside which no other may train. */
static Status lock_row(const Job *job, int *lock) {
  const Status status = files_lock(job->lock, lock);
  if (status != STATUS_BUSY) return status;
  return status_set(STATUS_BUSY,
                    "another process makes this row, or still saves what it has made, and holds %s; wait for its end and give the same "
                    "command again, or give another --out",
                    job->lock);
}

/* Where the job's files go. */
static Status make_folder(const Job *job) {
  char *folder = files_folder(job->log);
  const Status status = folder ? files_make_dirs(folder) : status_no_memory(NULL, "a path");
  free(folder);
  return status;
}

/* Removes what programs that were killed have left half written. */
static void clean_folder(const Job *job) {
  char *folder = files_folder(job->log);
  int count;
  if (folder) files_clean(folder, &count);
  free(folder);
}

/* What is missing of a row: its training, its evaluation, or both. `title`: for people. */
static Status make_row(Job *job, const char *title) {
  if (job->train.count && !files_exists(job->train_result)) {
    log_info("%s: training; %s", title, job->log);
    TRY(train(job));
  }
  if (files_exists(job->eval_result)) return STATUS_OK;
  log_info("%s: evaluation", title);
  return time_program(&job->eval, job->eval_result, job->log, 0, NULL);
}

/* *anew: whether anything of it was still to be run. */
static Status run_job(const Experiment *e, const AccuracyCommand *c, int row, int seed, Run *run, bool *anew) {
  Job job;
  int lock = -1;
  char title[NAME_MAX_LENGTH + 32];
  snprintf(title, sizeof title, "seed %lld, %s", (long long)e->seeds[seed], e->row[row].name);
  Status status = job_make(e, c, row, seed, &job);
  *anew = status == STATUS_OK && !is_done(&job);
  if (*anew) status = check_others(e, c, row, seed, &job, false);
  if (status == STATUS_OK) status = make_folder(&job);
  if (status == STATUS_OK && *anew) status = lock_row(&job, &lock);
  if (status == STATUS_OK && *anew) clean_folder(&job);
  if (status == STATUS_OK) status = check_commands(&job);
  if (status == STATUS_OK) status = make_row(&job, title);
  if (lock >= 0) close(lock);
  if (status == STATUS_OK) status = read_results(e, &job, row, run);
  if (status == STATUS_OK) log_info("%s: %s %.4g%s", title, e->row[row].figure, run->value, e->unit);
  job_free(&job);
  return status == STATUS_OK ? STATUS_OK : status_wrap(status, "%s", title);
}

/* ---------------------------------------------------------------- the command */

/* That a command line has options which `table` has, with values that they take. */
static Status check_options(const Arguments *a, const char *program, int first, Option *table) {
  const char *positional[ARGUMENTS_MAX];
  int count;
  const Status status = options_parse(table, a->count - first, (char **)(uintptr_t)a->list + first, positional, &count);
  return status == STATUS_OK ? STATUS_OK : status_wrap(STATUS_BAD_FILE, "%s", program); /* of the experiment, not of this command line */
}

static Status check_training(const Job *job) {
  TrainCommand command;
  Option table[TRAIN_OPTIONS_MAX];
  if (job->train.count == 0) return STATUS_OK;
  train_options_table(&command, table);
  return check_options(&job->train, "astra-train", 0, table);
}

/* The other evaluations' tables are their programs' own. */
static Status check_evaluation(const Experiment *e, const Job *job) {
  InferSettings settings;
  Option table[INFER_OPTIONS_MAX];
  if (strcmp(e->evaluation->name, "astra-infer eval") != 0) return STATUS_OK;
  infer_settings_table(&settings, INFER_EVAL, table);
  TRY(check_options(&job->eval, e->evaluation->name, 1, table));
  if (options_given(table, "dataset")) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "nothing says what it is evaluated on: give \"dataset\" in \"eval\" of the experiment or the row");
}

/* What can be known of a row before anything is run. */
static Status check_row(const Experiment *e, const AccuracyCommand *c, int row, int seed) {
  Job job;
  Status status = job_make(e, c, row, seed, &job);
  if (status == STATUS_OK && !is_done(&job)) {
    status = check_training(&job);
    if (status == STATUS_OK) status = check_evaluation(e, &job);
    if (status == STATUS_OK && !c->dry_run) status = check_others(e, c, row, seed, &job, true);
  }
  job_free(&job);
  return status == STATUS_OK ? STATUS_OK : status_wrap(status, "seed %lld, %s", (long long)e->seeds[seed], e->row[row].name);
}

/* A mistake in the last row is told now, not after the hours that those before it take. */
static Status check_rows(const Experiment *e, const AccuracyCommand *c) {
  for (int i = 0; i < e->chosen_count; i++)
    for (int row = 0; row < e->count; row++)
      if (e->row[row].of < 0 && e->row[row].selected) TRY(check_row(e, c, row, e->chosen[i]));
  return STATUS_OK;
}

static Status print_plan(const Experiment *e, const AccuracyCommand *c) {
  for (int i = 0; i < e->chosen_count; i++)
    for (int row = 0; row < e->count; row++) {
      Job job;
      if (e->row[row].of >= 0 || !e->row[row].selected) continue;
      Status status = job_make(e, c, row, e->chosen[i], &job);
      if (status == STATUS_OK && job.train.count) printf("%s\n", json_string_value(json_object_get(job.lines, "train")));
      if (status == STATUS_OK) printf("%s\n", json_string_value(json_object_get(job.lines, "eval")));
      job_free(&job);
      if (status != STATUS_OK) return status_wrap(status, "%s", e->row[row].name);
    }
  return STATUS_OK;
}

/* Of one that is not run, what cannot be read is left out; with a warning, unless it is read again: another command may be making it.
 * *left_out counts those that were made with other settings, too: of those that are run it is an error. */
static Status read_or_warn(const Experiment *e, const AccuracyCommand *c, int row, int seed, bool again, Run *run, int *left_out) {
  bool others = false;
  run->value = NAN;
  const Status status = read_earlier(e, c, row, seed, run, &others);
  *left_out += others && e->row[row].of < 0 && !experiment_is_run(e, row, seed);
  if (status == STATUS_OK || status == STATUS_NO_MEMORY) return status;
  if (!again && (status != STATUS_BAD_FILE || experiment_is_run(e, row, seed))) return status;
  if (!again) log_warning("%s", status_message());
  run->value = NAN;
  return STATUS_OK;
}

/* Whether a file of the row is there: TRAINED or EXPERIMENT_EVALUATED. */
static Status has_file(const Experiment *e, int row, int seed, const char *ending, bool *has) {
  char *path = experiment_place(e, row, seed, ending);
  if (path == NULL) return status_no_memory(NULL, "a path");
  *has = files_exists(path);
  free(path);
  return STATUS_OK;
}

/* Whether this command is still to train the row's own model. */
static Status is_to_train(const Experiment *e, int row, int seed, bool *to_train) {
  *to_train = false;
  if (!experiment_is_run(e, row, seed) || e->row[row].train == NULL) return STATUS_OK;
  bool trained = false;
  TRY(has_file(e, row, seed, TRAINED, &trained));
  *to_train = !trained;
  return STATUS_OK;
}

/* All that earlier commands made, whether it is chosen or not, so that results stay in the files while others are added; but not what was
 * made from a model that this command makes again. Where a row is evaluated again, its model and what goes on from that stay. again: what
 * this command runs is as it has it. */
static Status read_all(Experiment *e, const AccuracyCommand *c, bool again) {
  int left_out = 0;
  for (int s = 0; s < e->seed_count; s++) {
    bool anew[ROWS_MAX]; /* the model that the row evaluates, or was trained from */
    for (int row = 0; row < e->count; row++) {
      const Row *r = &e->row[row];
      const int origin = r->of >= 0 ? r->of : experiment_find_row(e, r->from);
      bool trains, evaluated = false;
      TRY(is_to_train(e, row, s, &trains));
      anew[row] = origin >= 0 && anew[origin];
      if (anew[row] && r->of < 0 && !experiment_is_run(e, row, s)) TRY(has_file(e, row, s, EXPERIMENT_EVALUATED, &evaluated));
      left_out += evaluated;
      if (!anew[row] && !(again && experiment_is_run(e, row, s))) TRY(read_or_warn(e, c, row, s, again, &e->run[row][s], &left_out));
      anew[row] |= trains;
    }
  }
  if (left_out > 0 && !again)
    log_warning("%d row%s made with other settings, or from a model that is another one now, %s left out of the results in %s; remove the "
                "files of a row to make it again",
                left_out, text_plural(left_out), left_out == 1 ? "is" : "are", e->folder);
  return STATUS_OK;
}

/* Writes the results, with what other commands have made meanwhile of rows that this one does not run. One process at a time reads and
 * writes, so that none leaves out what another has added. Where a folder cannot be locked, work goes on without. */
static Status update_results(Experiment *e, const AccuracyCommand *c) {
  const int folder = open(e->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  while (folder >= 0 && flock(folder, LOCK_EX) != 0 && errno == EINTR) continue;
  Status status = read_all(e, c, true);
  if (status == STATUS_OK) status = results_write(e);
  if (folder >= 0) close(folder);
  return status;
}

/* Seed by seed, so that after the first there is a whole table. */
static Status run_all(Experiment *e, const AccuracyCommand *c) {
  TRY(read_all(e, c, false));
  Status status = STATUS_OK;
  for (int i = 0; i < e->chosen_count; i++)
    for (int row = 0; row < e->count && status == STATUS_OK; row++) {
      const int s = e->chosen[i];
      if (!e->row[row].selected) continue;
      bool anew;
      status = run_job(e, c, row, s, &e->run[row][s], &anew);
      if (status == STATUS_OK && anew) status = update_results(e, c);
    }
  TRY(status);
  TRY(update_results(e, c));
  if (c->json) return results_print_json(e);
  TRY(results_print(e));
  char *chart = files_join(e->folder, RESULTS_CHART);
  log_info("%s: results.md, results.csv, metrics.csv%s", e->folder, chart && files_exists(chart) ? ", " RESULTS_CHART : "");
  free(chart);
  return STATUS_OK;
}

/* Without settings for --quick the table would be run in full. */
static Status check_quick(const Experiment *e) {
  if (!e->quick || json_object_size(json_object_get(e->root, "quick")) > 0) return STATUS_OK;
  return status_set(
      STATUS_BAD_FILE,
      "--quick: %s has no \"quick\", the settings that make it short, as in \"quick\": {\"train\": {\"max-steps\": 2}, \"eval\": "
      "{\"samples\": 16}}; add them, or run it without --quick",
      e->name);
}

static Status run_table(const AccuracyCommand *c) {
  Experiment *e;
  TRY(experiment_open(&e, &c->choice));
  Status status = check_quick(e);
  if (status == STATUS_OK) status = check_rows(e, c);
  if (status == STATUS_OK) status = c->dry_run ? print_plan(e, c) : run_all(e, c);
  if (status == STATUS_INTERRUPTED) status_wrap(status, "what is done is kept in %s; the same command goes on", e->folder);
  experiment_close(e);
  return status;
}

/* --seeds, which all tables have in common: what else is wrong usage, as without --data-dir, is so of one table. `name`: any of them. */
static Status check_seeds(const AccuracyCommand *c, const char *name) {
  Experiment *e;
  const Status status = experiment_open(&e, &(ExperimentChoice){.name = name, .seeds = c->choice.seeds});
  experiment_close(e);
  return status;
}

/* Every table that --list prints, each after those whose models it starts from. One that fails (its data or models are not there)
 * does not keep the others from being made. */
static Status run_every_table(const AccuracyCommand *c) {
  char **names, failed[32 * NAME_MAX_LENGTH] = "";
  size_t count, failures = 0;
  if (c->choice.rows || c->json)
    return status_set(STATUS_BAD_USAGE, "--table all cannot be combined with --%s", c->choice.rows ? "rows" : "json");
  TRY(experiment_names(&names, &count));
  Status status = check_seeds(c, names[0]);
  for (size_t i = 0; i < count && status == STATUS_OK; i++) {
    AccuracyCommand one = *c;
    char *out = c->choice.out ? experiment_folder(c->choice.out, names[i], c->choice.quick) : NULL;
    one.choice.name = names[i], one.choice.out = out;
    if (!c->dry_run) log_info("table %zu of %zu: %s", i + 1, count, names[i]);
    const Status made = c->choice.out && !out ? status_no_memory(NULL, "a path") : run_table(&one);
    free(out);
    if (made == STATUS_OK) continue;
    if (made == STATUS_INTERRUPTED || made == STATUS_NO_MEMORY) {
      status = made;
      break;
    }
    log_warning("%s: %s", names[i], status_message());
    const size_t length = strlen(failed);
    snprintf(failed + length, sizeof failed - length, "%s%s", failures++ ? ", " : "", names[i]);
  }
  if (status == STATUS_OK && failures)
    status = status_set(STATUS_NOT_FOUND, "%zu of %zu tables failed, as said above: %s; with what they lack, the same command makes them",
                        failures, count, failed);
  files_list_free(names, count);
  return status;
}

static Status run_accuracy(int argc, char **argv) {
  AccuracyCommand c = {0};
  Option options[] = {
      {OPTION_GROUP, .help = "What to run"},
      {OPTION_TEXT, "table", 0, &c.choice.name, "NAME|FILE|all",
       .help = "experiment that comes with the programs, a file of your own, or all"},
      {OPTION_TEXT, "seeds", 0, &c.choice.seeds, "LIST", .help = "seeds to run instead of the experiment's: 1,2,3"},
      {OPTION_TEXT, "rows", 0, &c.choice.rows, "LIST", .help = "run only these rows and those they depend on: G=8,G=1 (default: all)"},
      {OPTION_FLAG, "quick", 0, &c.choice.quick, .help = "a few steps with one seed, to check that everything runs"},
      {OPTION_FLAG, "list", 0, &c.list, .help = "print the experiments, or the rows of --table, and what of them is made; stop"},
      {OPTION_FLAG, "dry-run", 0, &c.dry_run, .help = "print the command lines and stop"},
      {OPTION_TEXT, "data-dir", 0, &c.data_dir, "DIR", .help = "directory searched first for data sets; {data} in experiments"},
      {OPTION_INT, "threads", 't', &c.threads, "N", .min = 0, .max = THREADS_MAX, .help = "training threads; 0: one per core"},
      {OPTION_GROUP, .help = "Results"},
      {OPTION_TEXT, "out", 'o', &c.choice.out, "DIR", .help = "checkpoints, results.csv, .md and .png, metrics.csv (default: runs/NAME)"},
      {OPTION_FLAG, "json", 'j', &c.json, .help = "print one JSON object on stdout, nothing else"},
      {.kind = OPTION_GROUP}};
  if (cli_helped(options, USAGE, ABOUT, argc, argv)) return STATUS_OK;
  TRY(cli_parse(options, argc, argv));
  if (c.list && (c.choice.rows || c.dry_run))
    return status_set(STATUS_BAD_USAGE, "--list cannot be combined with --%s", c.choice.rows ? "rows" : "dry-run");
  if (c.dry_run && c.json) return status_set(STATUS_BAD_USAGE, "--dry-run prints command lines: it cannot be combined with --json");
  if (c.list) return list_experiments(&c.choice, c.json);
  if (c.choice.name == NULL)
    return status_set(STATUS_BAD_USAGE,
                      "--table NAME is missing: an experiment, as in --table cifar100-groups (--list prints all), or a file");
  return strcmp(c.choice.name, "all") == 0 ? run_every_table(&c) : run_table(&c);
}

const CliCommand bench_accuracy_command = {"accuracy", "run an experiment: train, adapt and evaluate its rows with several seeds",
                                           run_accuracy};
