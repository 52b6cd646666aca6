/* The command line of training, shared by astra-train, astra-kmeans and astra-bench. */
#ifndef CLI_TRAIN_OPTIONS_H
#define CLI_TRAIN_OPTIONS_H
#include "base/options.h"
#include "train/session.h"

typedef struct TrainCommand {
  TrainOptions train;
  const char *resume, *backend, *recompute;
  double memory; /* bytes; negative: not given */
  bool dry_run, json, eval_only, overwrite, verbose;
  char **begun; /* the command line that the run was begun with, [begun_count] with the program's name; until train_options_resume NULL */
  int begun_count;
  const char *begun_in; /* the directory that relative paths on it are of; NULL: not known */
} TrainCommand;

enum { TRAIN_OPTIONS_MAX = 104, TRAIN_OPTIONS_REMEMBERED = 256 };

/* Sets the defaults and fills `table`, whose targets lie in `command`. */
void train_options_table(TrainCommand *command, Option table[TRAIN_OPTIONS_MAX]);

/* Copies the entries of these names (NULL-terminated) to `to`, for programs that take a part of the table; returns how many. */
size_t train_options_select(const Option *table, const char *const *names, Option *to);

/* BAD_USAGE, naming the presets, without --model; with an example of what is installed for `command` ("astra-train"; NULL: none). The name
 * of an installed checkpoint (astra-data list) that is no preset becomes its directory. */
Status train_options_need_model(TrainOptions *options, const char *command);

/* The names of installed checkpoints that --init, --teacher and --codebooks have become their directories. */
void train_options_find_others(TrainOptions *options);

/* What `table` has no option for, or has one that was not given, as in a checkpoint with codebooks that a run starts from: class tokens,
 * commitment, noise, site and devices. table NULL: there are no options. */
void train_options_adapt(TrainOptions *options, const Option *table, const AstraConfig *astra);

/* What evaluates a checkpoint with codebooks: sets model and codebooks to its directory, which must outlive the options, and groups,
 * codewords, site, basis, devices and class token to its own. BAD_VALUE for a plain model, NOT_FOUND where there are no weights. */
Status train_options_inherit(TrainOptions *options, const char *directory);

/* --out where none is given: "runs/PREFIXvit-base-cifar100-g32", of the last parts of paths. Good until the next call. */
const char *train_options_usual_out(const TrainOptions *options, const char *prefix);

/* BAD_USAGE where the command line could not be remembered for --resume, which reads it from a file with an argument to a line: for line
 * feeds in it, and where it is too long. Asked before anything is computed. */
Status train_options_check_lines(int argc, char **argv);

/* Remembers the command line that a run was begun with, those options that were chosen for the data and the machine (session.c) and, of
 * those that it was resumed with, what stays for the next time (the manual names them), in OUT/training/options.txt, one to a line; and
 * where it was begun (NULL: not known). */
Status train_options_remember(const TrainOptions *options, int argc, char **argv, const char *begun_in, int64_t threads);

/* The working directory, until the next call; NULL where it cannot be told or has a line feed in its name. */
const char *train_options_here(void);

/* Remembered options as an argument vector that points into `text`, whose line ends become NULs; entry 0 stands for the program's name.
 * BAD_FILE, naming `path`: a last line without an end, or too many lines. */
Status train_options_split(char *text, size_t size, const char *path, char *arguments[TRAIN_OPTIONS_REMEMBERED], int *count);

/* Sets `command` from the remembered options of command->resume, then from argv again, where only options that leave the numbers alone may
 * stand. */
Status train_options_resume(TrainCommand *command, Option table[TRAIN_OPTIONS_MAX], int argc, char **argv);

/* `status`, with words about where a resumed run was begun in front of its message, if that is elsewhere and the reason may be a relative
 * path. */
Status train_options_tell_begun(const TrainCommand *command, Status status);

/* The end of a program that runs as one of several ranks, which `status` came to: rank 0's status, as it is. What only this rank has found
 * ends the job, and it says so itself; what all know, rank 0 says. Other ranks do not return. */
Status train_options_end_rank(Status status);

#endif
