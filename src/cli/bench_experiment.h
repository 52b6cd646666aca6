/* An experiment as its file describes it (docs/FORMATS.md, "Experiments"): rows, seeds, settings, the folder of its results, and room for
 * the figures of its runs. */
#ifndef CLI_BENCH_EXPERIMENT_H
#define CLI_BENCH_EXPERIMENT_H
#include "base/status.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ROWS_MAX = 64, SEEDS_MAX = 32 /* of a list */, NAME_MAX_LENGTH = 60 };
#define EXPERIMENT_FILE_LIMIT ((size_t)1 << 20) /* bytes of its file, and of what its programs print */
#define EXPERIMENT_EVALUATED  ".eval.json"      /* behind a row's place: what its evaluation printed */
#define EXPERIMENT_SAMPLES    ".samples.csv"    /* the same: what it found of each sample */

typedef struct Row {
  const char *name, *from, *model; /* from: the row whose model it goes on from; model: a directory or name in place of that; NULL */
  const char *figure;              /* what is read from the evaluation's JSON: the experiment's, or its own */
  int of;                          /* earlier row whose evaluation it reads another figure of; -1: it has its own */
  int baseline;                    /* row that differences are taken from; -1: none */
  json_t *train, *eval;            /* settings of this row alone, or NULL; without train it evaluates what it goes on from */
  double x, paper;                 /* NAN: none */
  bool selected;                   /* it is run; of the others the results have what an earlier command made */
} Row;

/* What evaluates a model: a program's command, the option that takes the model, and what it writes beside its JSON. */
typedef struct Evaluation {
  const char *name, *program, *command, *model;
  bool samples, folder; /* --per-sample FILE, --out DIR */
} Evaluation;

enum { COMMIT_MAX = 64 };

typedef struct Run {
  double value; /* the figure; NAN: not there yet */
  double train_seconds, eval_seconds;
  char commit[COMMIT_MAX];            /* of the programs that evaluated; "": not known */
  char *train_command, *eval_command; /* as a shell takes them; NULL until there is a value */
} Run;

/* What a command line chooses of an experiment. */
typedef struct ExperimentChoice {
  const char *name;  /* of one that comes with the programs, or its file's path */
  const char *out;   /* folder of the results; NULL: runs/NAME (runs/NAME-quick) */
  const char *seeds; /* to run: "1,2,3"; NULL: the file's, of which quick takes the first */
  const char *rows;  /* "A,B": these and those they depend on; NULL: all */
  bool quick;        /* a few steps with one seed */
} ExperimentChoice;

typedef struct Experiment {
  json_t *root;
  const char *name; /* as it was chosen */
  char *folder;     /* of the results */
  bool quick;
  const char *title, *about, *paper, *figure, *unit, *x_label;
  const Evaluation *evaluation;
  double scale;
  int baseline;                 /* of rows of its figure that name no other; -1: none */
  bool has_baselines;           /* of any row */
  int64_t seeds[2 * SEEDS_MAX]; /* the file's, then those of the command line that it lacks: results have them all */
  int seed_count;
  int chosen[SEEDS_MAX]; /* seeds to run, by their index, in this order; of the others the results have what an earlier command made */
  int chosen_count;
  Row row[ROWS_MAX];
  int count;
  Run run[ROWS_MAX][2 * SEEDS_MAX];
} Experiment;

/* Reads an experiment and makes the choices; the values of its runs are NAN. *e: the caller's, with experiment_close; NULL after an error.
 * The choice's name must outlive it. NOT_FOUND; BAD_FILE names the file and what is wrong, BAD_USAGE --seeds or --rows. */
Status experiment_open(Experiment **e, const ExperimentChoice *choice);

/* NULL is fine. */
void experiment_close(Experiment *e);

/* Names of the experiments in all folders where experiment_open looks for them, each after those whose models its rows start or learn from
 * ({run:NAME/ROW}), otherwise by name. Files that are no experiment are left out, with a warning. The caller's, with files_list_free.
 * NOT_FOUND: there is none; BAD_FILE where two wait for each other. */
Status experiment_names(char ***names, size_t *count);

/* The folder of one experiment among those of several: PARENT/NAME (PARENT/NAME-quick), a fresh string; NULL: no memory. */
char *experiment_folder(const char *parent, const char *name, bool quick);

/* FOLDER/seed-S/ROW and a suffix behind it, a fresh string; NULL: no memory. seed: index in seeds. */
char *experiment_place(const Experiment *e, int row, int seed, const char *suffix);

/* Suffix of the folder names of experiments: "-quick" or nothing. */
const char *experiment_suffix(const Experiment *e);

/* Settings of the kind "train" or "eval": of all rows, of one row (own: its train or eval, or NULL), and of quick, the later ones
 * before the earlier. The caller's, with json_decref; NULL: no memory. */
json_t *experiment_settings(const Experiment *e, const char *kind, json_t *own);

/* Whether any row has {data} in its model or settings: it cannot be run without --data-dir. */
bool experiment_uses_data(const Experiment *e);

/* Whether the row is run with the seed of this index, or what an earlier command made of it is read. */
bool experiment_is_run(const Experiment *e, int row, int seed);

/* {run:EXPERIMENT/ROW} or {run:EXPERIMENT/ROW@SEED} in a text: the checkpoint of a row of another experiment, or of its own. */
typedef struct RunReference {
  const char *experiment, *row; /* within the text, of these lengths */
  int experiment_length, row_length;
  int64_t seed;
} RunReference;

/* The one that the text begins with; `seed` where it names none. False: it begins with none, or one that is malformed. */
bool experiment_read_reference(const char *text, int64_t seed, RunReference *to);

/* Calls `visit` for each reference of the row's model and settings with this seed, up to the first that fails, whose status is returned.
 * trained: its training is done, what that needs is left out. */
typedef Status ReferenceVisit(void *context, const RunReference *to);
Status experiment_each_reference(const Experiment *e, int row, int64_t seed, bool trained, ReferenceVisit *visit, void *context);

/* Index of the row of that name, or -1 (also for NULL). */
int experiment_find_row(const Experiment *e, const char *name);

/* Whether both rows are there (not -1) and have one figure: what can be subtracted. */
bool experiment_same_figure(const Experiment *e, int row, int other);

#endif
