/* What the mains of all programs share: the error line and exit code at the end, --help and --version. Only src/cli prints errors and
 * exits; exit codes are 0 (done), 1 (failed), 2 (the command line was wrong). */
#ifndef CLI_CLI_H
#define CLI_CLI_H
#include "base/options.h"
#include "base/status.h"
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_BAD_USAGE = 2 };
enum { CLI_OPTIONS_MAX = 104 };

/* Prints "PROGRAM: error: MESSAGE" (the status message of this thread) through log_error unless status is OK; for a wrong command line
 * the line "Try 'PROGRAM COMMAND --help'" follows. The exit code. */
int cli_finish(Status status);

/* What a model writes, to stdout: as it is to a file or another program. A terminal gets line feeds and tabs, and nothing else that it
 * obeys. */
void cli_write_text(const char *text, size_t bytes);

/* Flushes stdout; why that fails is kept for the message at the program's end, when a second attempt would not say it. */
void cli_flush_text(void);

/* The same after a step that ended with `status`. stdout is where results go: a full disk or a closed pipe there is a failure (IO), not a
 * success. */
Status cli_flush(Status status);

/* All that a stream holds, with a NUL behind it; *data is to be freed, also after a failure. BAD_VALUE and IO (errno says why), without a
 * message: more than `max` bytes, or a failure. NO_MEMORY: for `what`. INTERRUPTED: *stop, which a signal sets, whereupon a read that waits
 * returns; NULL: nothing does. */
Status cli_read_stream(FILE *stream, size_t max, const char *what, const volatile sig_atomic_t *stop, char **data, size_t *size);

/* From here on SIGINT, SIGTERM and SIGHUP (signals_hangup_ignored) remove those of the paths `made` (the last one NULL, kept until the next
 * call; NULL: none) that are regular files or empty folders, write `message` (a whole line, which stays) to stderr and end the program as
 * they would have; both NULL: as they do anyway. For work of which nothing is kept; training has a handler of its own. */
void cli_last_words(const char *message, const char *const *made);

/* -h or --help stands where an option may stand (options_asked). */
bool cli_help_wanted(Option *options, int argc, char **argv);

/* Prints the help of options_help where it is wanted. Whether it was: the command ends. */
bool cli_helped(Option *options, const char *usage, const char *about, int argc, char **argv);

/* options_parse for a command line of options and `min` to `max` arguments (max argc: any number). BAD_USAGE where there are fewer or more
 * says `wanted` behind the command's name: "one DATASET is needed". *arguments [*count] is the caller's to free, its texts are argv's;
 * NULL after a failure. */
Status cli_parse_arguments(Option *options, int argc, char **argv, int min, int max, const char *wanted, const char ***arguments,
                           int *count);

/* The same for a command line of options alone: BAD_USAGE where anything else stands in it. */
Status cli_parse(Option *options, int argc, char **argv);

enum { CLI_NUMBERS_MAX = 64 };

/* "1,16,32" -> list [*count]: different whole numbers in [1, max], at most `room` of them, which is CLI_NUMBERS_MAX or less. BAD_USAGE
 * names the option. */
Status cli_parse_numbers(const char *option, const char *text, int max, int *list, int room, int *count);

/* A subcommand ("astra-data get"): run gets argv with argv[0] being the subcommand's name. */
typedef struct CliCommand {
  const char *name;
  const char *about; /* one line for the program's --help */
  Status (*run)(int argc, char **argv);
} CliCommand;

/* The main of a program: sets the program's name for messages, answers --version and, when argv[1] is no subcommand, --help (through
 * `help`); runs the subcommand argv[1] of `commands` (up to a NULL); with no match it runs `otherwise` on the whole of argv or,
 * where that is NULL, complains and lists the commands. The exit code. `commands` may be NULL. */
typedef struct CliProgram {
  const char *name;
  const CliCommand *const *commands;
  Status (*otherwise)(int argc, char **argv);
  void (*help)(FILE *stream);
  void (*table)(Option options[CLI_OPTIONS_MAX]); /* those that `otherwise` takes; NULL: all that looks like an option is one */
} CliProgram;

int cli_run(int argc, char **argv, const CliProgram *program);

/* What a program that computes calls once, when its command line is understood: BAD_USAGE when ASTRA_KERNELS names kernels that are not
 * there, or `backend` (--backend; NULL: ASTRA_BACKEND in the environment, or by processor) a library that is not; a warning when the
 * environment forces slower kernels than the processor has. */
Status cli_check_kernels(const char *backend);

#define CLI_BACKEND_HELP "library of matrix products: auto, openblas, onednn, onednn-int8; auto: by processor"

/* Lines "  NAME  ABOUT" for --help. */
void cli_commands_help(const CliCommand *const *commands, FILE *stream);

/* Whether --out can be written, asked before the work that is for it; shared by the programs that write checkpoints and tokenizers. */

/* A checkpoint (codebooks alone, too), or a tokenizer and what else out_directory_companion names. */
typedef enum OutKind { OUT_CHECKPOINT, OUT_TOKENIZER } OutKind;

/* BAD_VALUE where OUT holds a file of that kind of work, whoever wrote it: it would be replaced or made useless. `also` is a way on beside
 * another directory and --overwrite, or NULL. Asked before anything is opened or computed. */
Status out_directory_free(const char *out, OutKind kind, const char *also);

/* BAD_VALUE where OUT holds a training that can be resumed: it would replace a whole checkpoint that is written there, also by --overwrite.
 */
Status out_directory_refuse_training(const char *out);

/* Makes OUT (and in it FOLDER, if that is not NULL) and tries whether the file NAME can be created there. What an earlier run left stays as
 * it is, but for files that it was killed while writing (files_clean). Errors begin with "--out OUT". */
Status out_directory_try(const char *out, const char *folder, const char *name);

/* Of what goes on from weights that an export into their place would replace: BAD_USAGE where OUT is the directory that `base` is or that
 * the file `base` lies in, by whatever name. What is no path ("random") is apart from everything. why: "--lora keeps as they are". */
Status out_directory_apart(const char *out, const char *base, const char *why);

/* Whether files of this name lie beside weights and belong to them: tokenizer, chat template, frequencies of codes, self-test. What an
 * earlier checkpoint has left of them would be taken for the next one's. */
bool out_directory_companion(const char *name);
/* Of these what tells more of a tokenizer, and is no file of its own: special tokens, chat templates (one name is a folder's). */
bool out_directory_beside_tokenizer(const char *name);

/* Whether the directory is one of the `sources`, `count` paths of which some may be NULL, or holds the file that one of them names. */
bool out_directory_is_source(const char *directory, const char *const *sources, size_t count);

/* Removes from OUT what belongs to the checkpoint before beside its weights and companions, and would be taken for the new one's: codebooks
 * alone, adapter/, best/, additional_chat_templates/. What holds a source stays. */
Status out_directory_forget(const char *out, const char *const *sources, size_t count);

/* Takes back what out_directory_try made, where nothing came into it. */
void out_directory_leave(const char *out, const char *folder);

#endif
