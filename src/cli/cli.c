/* What the mains of all programs share: choosing the subcommand, --help and --version, the error line and the exit code. It knows no
 * option but those two; each program has its own table. */
#include "cli/cli.h"
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include "base/array.h"
#include "base/files.h"
#include "base/log.h"
#include "base/options.h"
#include "base/printable.h"
#include "base/signals.h"
#include "base/status.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_config.h"
#include "nn/checkpoint.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLI_VERSION "0.1.0"

static const char *cli_program; /* NULL in a main that does not go through cli_run */
static const char *cli_command; /* that runs; NULL: none */

int cli_finish(Status status) {
  if (status == STATUS_OK) return CLI_OK;
  const char *message = status_message();
  log_error("%s", message[0] ? message : status_text(status));
  if (status != STATUS_BAD_USAGE) return CLI_FAILED;
  if (cli_program) fprintf(stderr, "Try '%s%s%s --help'.\n", cli_program, cli_command ? " " : "", cli_command ? cli_command : "");
  return CLI_BAD_USAGE;
}

static int stdout_error; /* errno of the first write to stdout that failed; 0: none did */

static void note_write(bool failed) {
  if (failed && stdout_error == 0) stdout_error = errno;
}

void cli_flush_text(void) { note_write(fflush(stdout) != 0); }

void cli_write_text(const char *text, size_t bytes) {
  bool terminal = isatty(STDOUT_FILENO);
  for (size_t at = 0, size; at < bytes; at += size) {
    char written[PRINTABLE_ROOM];
    size = terminal ? utf8_size(text + at, bytes - at) : bytes;
    if (size == 0) size = 1;
    if (!terminal || text[at] == '\n' || text[at] == '\t')
      note_write(fwrite(text + at, 1, size, stdout) != size);
    else
      note_write(fputs(printable_copy(written, sizeof written, text + at, size), stdout) < 0);
  }
  cli_flush_text();
}

static const char *volatile last_words;
static const char *const *volatile last_made;

static void speak_and_die(int signal_number) {
  const char *words = last_words;
  for (const char *const *made = last_made; made != NULL && *made != NULL; made++) { /* a link is the user's */
    struct stat file;
    if (lstat(*made, &file) == 0 && S_ISREG(file.st_mode)) unlink(*made);
    rmdir(*made);
  }
  if (words != NULL && write(STDERR_FILENO, words, strlen(words)) < 0) _exit(128 + signal_number);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

enum { READ_STEP = 1 << 16 };

Status cli_read_stream(FILE *stream, size_t max, const char *what, const volatile sig_atomic_t *stop, char **data, size_t *size) {
  size_t room = 0;
  *data = NULL, *size = 0;
  do {
    TRY(ARRAY_RESERVE(*data, *size, READ_STEP + 1, room, what));
    *size += fread(*data + *size, 1, READ_STEP, stream);
    if (stop && *stop) return status_set(STATUS_INTERRUPTED, "interrupted");
    if (*size > max) return STATUS_BAD_VALUE;
  } while (!feof(stream) && !ferror(stream));
  (*data)[*size] = '\0';
  return ferror(stream) ? STATUS_IO : STATUS_OK;
}

void cli_last_words(const char *message, const char *const *made) {
  struct sigaction action = {.sa_handler = message ? speak_and_die : SIG_DFL};
  last_words = message, last_made = made;
  sigemptyset(&action.sa_mask);
  action.sa_flags = (int)SA_NODEFER;
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  if (!signals_hangup_ignored()) sigaction(SIGHUP, &action, NULL);
}

bool cli_help_wanted(Option *options, int argc, char **argv) { return options_asked(options, argc, argv) == 'h'; }

bool cli_helped(Option *options, const char *usage, const char *about, int argc, char **argv) {
  if (!cli_help_wanted(options, argc, argv)) return false;
  options_help(options, usage, about, stdout);
  return true;
}

Status cli_parse_arguments(Option *options, int argc, char **argv, int min, int max, const char *wanted, const char ***arguments,
                           int *count) {
  const char **list = calloc((size_t)argc, sizeof *list);
  *arguments = NULL, *count = 0;
  if (list == NULL) return status_no_memory(NULL, "the command line");
  Status status = options_parse(options, argc, argv, list, count);
  if (status == STATUS_OK && (*count < min || *count > max)) status = status_set(STATUS_BAD_USAGE, "%s: %s", argv[0], wanted);
  if (status == STATUS_OK)
    *arguments = list;
  else
    free(list);
  return status;
}

Status cli_parse(Option *options, int argc, char **argv) {
  const char **arguments;
  int count;
  TRY(cli_parse_arguments(options, argc, argv, 0, argc, "", &arguments, &count));
  if (count > 0)
    status_set(STATUS_BAD_USAGE, "unexpected argument \"%s\": only options are accepted here, as in --name VALUE", arguments[0]);
  free(arguments);
  return count > 0 ? STATUS_BAD_USAGE : STATUS_OK;
}

static bool is_among(int number, const int *list, int count) {
  for (int i = 0; i < count; i++)
    if (list[i] == number) return true;
  return false;
}

Status cli_parse_numbers(const char *option, const char *text, int max, int *list, int room, int *count) {
  int64_t numbers[CLI_NUMBERS_MAX];
  const int found = options_integers(text, 1, max, numbers, room);
  for (*count = 0; *count < found && !is_among((int)numbers[*count], list, *count); (*count)++) list[*count] = (int)numbers[*count];
  if (found > 0 && *count == found) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--%s \"%s\": accepted is a list of at most %d different numbers from 1 to %d, with commas between",
                    option, text, room, max);
}

Status cli_check_kernels(const char *backend) {
  char text[KERNELS_TEXT];
  TRY(kernels_check(matmul_core(), text, sizeof text));
  TRY(matmul_choose_backend(backend));
  if (text[0]) log_warning("%s", text);
  if (matmul_backend().onednn || !matmul_core_is_picked()) return STATUS_OK;
  kernels_check_core(matmul_core(), text, sizeof text);
  if (text[0]) log_warning("%s", text);
  return STATUS_OK;
}

void cli_commands_help(const CliCommand *const *commands, FILE *stream) {
  for (; *commands; commands++) fprintf(stream, "  %-12s %s\n", (*commands)->name, (*commands)->about);
}

static Status cli_no_command(const CliProgram *program, const char *given) {
  char known[256] = "";
  size_t used = 0;
  for (const CliCommand *const *command = program->commands; command && *command && used < sizeof known; command++) {
    used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", (*command)->name);
  }
  if (!given) return status_set(STATUS_BAD_USAGE, "no command given; the commands are: %s", known);
  return status_set(STATUS_BAD_USAGE, "unknown command '%s'; the commands are: %s", given, known);
}

Status cli_flush(Status status) {
  cli_flush_text();
  if (status == STATUS_OK && ferror(stdout))
    return status_set(STATUS_IO, "standard output: cannot be written%s%s", stdout_error ? ": " : "",
                      stdout_error ? strerror(stdout_error) : "");
  return status;
}

static int say_version(const CliProgram *program) {
  printf("%s %s\n", program->name, CLI_VERSION);
  return cli_finish(cli_flush(STATUS_OK));
}

/* The next socket or file would get the number of a standard descriptor that is closed, and what is meant for this one would go there. 0
 * and 1 are opened so that their use fails as that of closed ones does; what is said on 2 is lost. */
static void cli_fill_standard(void) {
  static const int modes[] = {[STDIN_FILENO] = O_WRONLY, [STDOUT_FILENO] = O_RDONLY, [STDERR_FILENO] = O_WRONLY};
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", modes[fd]) != fd) _exit(CLI_FAILED); /* nothing that could be said to anyone */
}

int cli_run(int argc, char **argv, const CliProgram *program) {
  const char *word = argc > 1 ? argv[1] : NULL;
  Option table[CLI_OPTIONS_MAX] = {{.kind = OPTION_GROUP}}; /* without rows no option takes a value */
  cli_fill_standard();
  cli_program = program->name;
  log_program(program->name);
  for (const CliCommand *const *command = program->commands; word && command && *command; command++) {
    if (strcmp((*command)->name, word) != 0) continue;
    cli_command = (*command)->name;
    if (argc == 3 && options_asked(table, 2, argv + 1) == 'V') return say_version(program);
    return cli_finish(cli_flush((*command)->run(argc - 1, argv + 1)));
  }
  if (program->table) program->table(table);
  char asked = options_asked(table, argc, argv);
  if (asked == 'V') return say_version(program);
  if (asked == 'h') program->help(stdout);
  if (asked) return cli_finish(cli_flush(STATUS_OK));
  /* A word in place of a command that no file is called, where files may stand as well. */
  bool mistyped = program->commands && word && word[0] && !word[strspn(word, "abcdefghijklmnopqrstuvwxyz-")] && word[0] != '-' &&
                  access(word, F_OK) != 0;
  if (program->otherwise && !mistyped) return cli_finish(cli_flush(program->otherwise(argc, argv)));
  return cli_finish(cli_no_command(program, word));
}

/* ---- Directories to write to ---- */

static char *inside(const char *out, const char *folder) { return folder != NULL ? files_join(out, folder) : strdup(out); }

static bool is_one_of(const char *name, const char *const *list) {
  for (; *list != NULL; list++)
    if (strcmp(name, *list) == 0) return true;
  return false;
}

/* Files are known by their names: what a checkpoint or a tokenizer consists of, here and elsewhere. */
Status out_directory_free(const char *out, OutKind kind, const char *also) {
  static const char *const checkpoint[] = {"config.json", "pytorch_model.bin", NULL};
  char found[256] = "", **names;
  size_t count;
  if (!files_is_dir(out)) return STATUS_OK;
  TRY(files_list(out, &names, &count));
  for (size_t i = 0; i < count && found[0] == '\0'; i++) {
    bool weights = text_ends_with(names[i], ".safetensors") || text_ends_with(names[i], ".safetensors.index.json");
    if (kind == OUT_TOKENIZER ? out_directory_companion(names[i]) : weights || is_one_of(names[i], checkpoint))
      snprintf(found, sizeof found, "%s", names[i]);
  }
  files_list_free(names, count);
  if (found[0] == '\0') return STATUS_OK;
  return status_set(
      STATUS_BAD_VALUE,
      "--out %s holds finished work already (%s), which would be replaced: give another --out, or --overwrite to replace it%s%s", out,
      found, also ? "; " : "", also ? also : "");
}

Status out_directory_refuse_training(const char *out) {
  char *state = files_join(out, "training/state.safetensors");
  if (state == NULL) return status_no_memory(NULL, "a path");
  const bool found = files_exists(state);
  free(state);
  if (!found) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "--out %s holds a training that can be resumed (training/state.safetensors); give another directory",
                    out);
}

/* Of runs that were killed while they wrote. */
static void clean(const char *place) {
  int count;
  int64_t bytes = files_clean(place, &count);
  if (count > 0)
    log_info("%s: removed %d unfinished file%s (%.1f MB) of a run that was killed", place, count, text_plural(count), (double)bytes / 1e6);
}

Status out_directory_try(const char *out, const char *folder, const char *name) {
  char *place = inside(out, folder), *path = place ? files_join(place, name) : NULL;
  FileWriter writer;
  Status status = path != NULL ? files_make_dirs(place) : status_no_memory(NULL, "a path");
  if (status == STATUS_OK) clean(place);
  if (status == STATUS_OK && folder != NULL) clean(out);
  if (status == STATUS_OK) status = files_create(&writer, path);
  if (status == STATUS_OK) files_abort(&writer);
  free(path);
  free(place);
  return status == STATUS_OK ? status : status_wrap(status, "--out %s", out);
}

Status out_directory_apart(const char *out, const char *base, const char *why) {
  char *target = realpath(base, NULL); /* a linked file may lie elsewhere than its name */
  char *named = files_folder(base), *linked = target != NULL ? files_folder(target) : NULL;
  bool same = target != NULL && ((named != NULL && files_same(out, named)) || (linked != NULL && files_same(out, linked)));
  free(target);
  free(named);
  free(linked);
  if (!same) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--out %s is where the weights lie that %s; give another directory", out, why);
}

bool out_directory_beside_tokenizer(const char *name) {
  static const char *const names[] = {TOKENIZER_CONFIG,    TOKENIZER_CONFIG_TEMPLATE,  "special_tokens_map.json",
                                      "added_tokens.json", TOKENIZER_CONFIG_TEMPLATES, NULL};
  return is_one_of(name, names);
}

bool out_directory_companion(const char *name) {
  static const char *const names[] = {"generation_config.json", CHECKPOINT_FREQUENCIES, CHECKPOINT_SELFTEST, NULL};
  return is_one_of(name, names) || out_directory_beside_tokenizer(name) || tokenizer_is_file(name);
}

/* Whether a path that may be none is the directory, or names a file in it. */
static bool lies_in(const char *directory, const char *path) {
  char *folder = path != NULL && files_exists(path) ? files_folder(path) : NULL;
  const bool found = folder != NULL && files_same(folder, directory);
  free(folder);
  return found;
}

bool out_directory_is_source(const char *directory, const char *const *sources, size_t count) {
  bool found = false;
  for (size_t i = 0; i < count && !found; i++) found = lies_in(directory, sources[i]);
  return found;
}

static bool is_codebooks(const char *name) { return strcmp(name, CHECKPOINT_CODEBOOKS) == 0; }

Status out_directory_forget(const char *out, const char *const *sources, size_t count) {
  /* best before what lies in it, for it may be a link, which goes alone; and once more when it is empty. */
  static const char *const folders[] = {"adapter", "best", ("best/" TOKENIZER_CONFIG_TEMPLATES), "best/adapter", "best"};
  if (!out_directory_is_source(out, sources, count)) {
    TRY(files_prune(out, NULL, is_codebooks));
    TRY(tokenizer_config_remove_templates(out));
  }
  bool kept = false;
  Status status = STATUS_OK;
  for (size_t i = 0; i < sizeof folders / sizeof *folders && status == STATUS_OK && !kept; i++) {
    char *folder = files_join(out, folders[i]);
    if (folder == NULL)
      status = status_no_memory(NULL, "a path");
    else if (!out_directory_is_source(folder, sources, count))
      status = files_remove_dir(folder);
    else
      kept = strcmp(folders[i], "best") == 0; /* with all that lies in it */
    free(folder);
  }
  return status;
}

void out_directory_leave(const char *out, const char *folder) {
  char *place = inside(out, folder);
  if (place != NULL && rmdir(place) == 0 && folder != NULL) rmdir(out);
  free(place);
}
