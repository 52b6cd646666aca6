/* What the mains of all programs share: choosing the subcommand, --help and --version, the error line and the exit code. It knows no
 * option but those two; each program has its own table. */
#include "cli/cli.h"
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include "base/files.h"
#include "base/log.h"
#include "base/options.h"
#include "base/printable.h"
#include "base/status.h"
#include "base/utf8.h"
#include "data/data_paths.h"
#include "nn/config.h"
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

void cli_write_text(const char *text, size_t bytes) {
  bool terminal = isatty(STDOUT_FILENO);
  for (size_t at = 0, size; at < bytes; at += size) {
    char written[PRINTABLE_ROOM];
    size = terminal ? utf8_size(text + at, bytes - at) : bytes;
    if (size == 0) size = 1;
    if (!terminal || text[at] == '\n' || text[at] == '\t')
      fwrite(text + at, 1, size, stdout);
    else
      fputs(printable_copy(written, sizeof written, text + at, size), stdout);
  }
  fflush(stdout);
}

static const char *volatile last_words;

static void speak_and_die(int signal_number) {
  const char *words = last_words;
  if (words != NULL && write(STDERR_FILENO, words, strlen(words)) < 0) _exit(128 + signal_number);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

void cli_last_words(const char *message) {
  struct sigaction action = {.sa_handler = message ? speak_and_die : SIG_DFL};
  last_words = message;
  sigemptyset(&action.sa_mask);
  action.sa_flags = (int)SA_NODEFER;
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}

bool cli_help_wanted(Option *options, int argc, char **argv) { return options_asked(options, argc, argv) == 'h'; }

Status cli_parse(Option *options, int argc, char **argv) {
  const char **positional = calloc((size_t)argc, sizeof *positional);
  if (positional == NULL) return status_set(STATUS_NO_MEMORY, "no memory");
  int count = 0;
  Status status = options_parse(options, argc, argv, positional, &count);
  if (status == STATUS_OK && count > 0)
    status = status_set(STATUS_BAD_USAGE, "unexpected argument \"%s\": only options are accepted here, as in --name VALUE", positional[0]);
  free(positional);
  return status;
}

Status cli_check_kernels(const char *backend) {
  char text[KERNELS_TEXT];
  TRY(kernels_check());
  TRY(matmul_choose_backend(backend));
  if (kernels_slowed(matmul_core(), text, sizeof text)) log_warning("%s", text);
  return STATUS_OK;
}

void cli_commands_help(const CliCommand *commands, FILE *stream) {
  for (; commands->name; commands++) fprintf(stream, "  %-10s %s\n", commands->name, commands->about);
}

static const CliCommand *cli_find(const CliCommand *commands, const char *name) {
  for (; commands && commands->name; commands++) {
    if (strcmp(commands->name, name) == 0) return commands;
  }
  return NULL;
}

static Status cli_no_command(const CliProgram *program, const char *given) {
  char known[256] = "";
  size_t used = 0;
  for (const CliCommand *command = program->commands; command && command->name && used < sizeof known; command++) {
    used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", command->name);
  }
  if (!given) return status_set(STATUS_BAD_USAGE, "no command given; the commands are: %s", known);
  return status_set(STATUS_BAD_USAGE, "unknown command '%s'; the commands are: %s", given, known);
}

/* stdout is where results go: a full disk or a closed pipe there is a failure, not a success. */
static Status cli_flush(Status status) {
  errno = 0;
  bool failed = fflush(stdout) != 0 || ferror(stdout);
  if (status == STATUS_OK && failed)
    return status_set(STATUS_IO, "standard output: cannot be written%s%s", errno ? ": " : "", errno ? strerror(errno) : "");
  return status;
}

/* 'h', 'V' or 0. Without a table no option takes a value. */
static char cli_asked(const CliProgram *program, int argc, char **argv) {
  Option table[CLI_OPTIONS_MAX] = {{.kind = OPTION_GROUP}};
  if (program->table) program->table(table);
  return options_asked(table, argc, argv);
}

/* A word in place of a command that no file is called, where files may stand as well. */
static bool cli_mistyped(const CliProgram *program, const char *word) {
  return program->commands && word[0] && !word[strspn(word, "abcdefghijklmnopqrstuvwxyz-")] && word[0] != '-' && access(word, F_OK) != 0;
}

int cli_run(int argc, char **argv, const CliProgram *program) {
  cli_program = program->name;
  log_program(program->name);
  const CliCommand *command = argc > 1 ? cli_find(program->commands, argv[1]) : NULL;
  if (command) {
    cli_command = command->name;
    return cli_finish(cli_flush(command->run(argc - 1, argv + 1)));
  }
  char asked = cli_asked(program, argc, argv);
  if (asked == 'V') {
    printf("%s %s\n", program->name, CLI_VERSION);
    return cli_finish(cli_flush(STATUS_OK));
  }
  if (asked == 'h') {
    program->help(stdout);
    return cli_finish(cli_flush(STATUS_OK));
  }
  bool mistyped = argc > 1 && cli_mistyped(program, argv[1]);
  if (program->otherwise && !mistyped) return cli_finish(cli_flush(program->otherwise(argc, argv)));
  return cli_finish(cli_no_command(program, argc > 1 ? argv[1] : NULL));
}

/* ---- Examples of what is installed ---- */

/* Examples of what is installed. Leaves out: what was downloaded later (astra-data list shows that). */

static Status with_example(const char *what, const char *example) {
  return status_set(STATUS_BAD_USAGE, "%s%s%s", what, example[0] ? ". For example: " : "", example);
}

static bool found(const char *kind, const char *name) {
  char *path;
  if (data_paths_find(kind, name, NULL, &path) != STATUS_OK) return false;
  free(path);
  return true;
}

static Status from_training_set(const char *what, const char *command) {
  char text[256] = "";
  if (found("checkpoints", "vit-cifar") && found("datasets", "cifar100-sample"))
    snprintf(text, sizeof text, "%s --model vit-cifar --dataset cifar100-sample --groups 8", command);
  return with_example(what, text);
}

Status example_train(const char *what) { return from_training_set(what, "astra-train"); }
Status example_kmeans(const char *what) { return from_training_set(what, "astra-kmeans init"); }

/* The first bundled model of images, in a fresh string; one with codebooks before a plain one. */
static char *find_model(bool *astra) {
  static const char *const names[] = {"vit-cifar-g8", "vit-cifar"};
  char *path;
  ModelConfig config;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (data_paths_find("checkpoints", names[i], NULL, &path) != STATUS_OK) continue;
    if (config_load(&config, path) == STATUS_OK) {
      *astra = config.astra.groups > 0;
      config_release(&config);
      return path;
    }
    free(path);
  }
  return NULL;
}

/* A plain model runs on several nodes by other strategies only. */
Status example_infer(const char *what, int64_t nodes) {
  char text[1024] = "", *images = NULL;
  bool astra = false;
  char *model = find_model(&astra);
  if (model != NULL && data_paths_find("datasets", "pictures", NULL, &images) == STATUS_OK)
    snprintf(text, sizeof text, "astra-infer --nodes %lld%s --checkpoint %s %s", (long long)nodes,
             astra || nodes == 1 ? "" : " --strategy sp", model, images);
  free(model);
  free(images);
  return with_example(what, text);
}

/* ---- Directories to write to ---- */

static char *inside(const char *out, const char *folder) { return folder != NULL ? files_join(out, folder) : strdup(out); }

static bool ends_with(const char *name, const char *end) {
  size_t length = strlen(name), tail = strlen(end);
  return length >= tail && strcmp(name + length - tail, end) == 0;
}

static bool is_one_of(const char *name, const char *const *list) {
  for (; *list != NULL; list++)
    if (strcmp(name, *list) == 0) return true;
  return false;
}

/* By its name: what a checkpoint or a tokenizer consists of, here and elsewhere. */
static bool is_work(const char *name, OutKind kind) {
  static const char *const checkpoint[] = {"config.json", "pytorch_model.bin", NULL};
  static const char *const tokenizer[] = {"tokenizer.json", "vocab.json", "merges.txt", NULL};
  if (kind == OUT_TOKENIZER) return is_one_of(name, tokenizer);
  return ends_with(name, ".safetensors") || ends_with(name, ".safetensors.index.json") || is_one_of(name, checkpoint);
}

/* The first such file of the directory, copied to found; "" if there is none. */
static Status find_work(const char *directory, OutKind kind, char found[256]) {
  char **names;
  size_t count;
  found[0] = '\0';
  if (!files_is_dir(directory)) return STATUS_OK;
  TRY(files_list(directory, &names, &count));
  for (size_t i = 0; i < count && found[0] == '\0'; i++)
    if (is_work(names[i], kind)) snprintf(found, 256, "%s", names[i]);
  files_list_free(names, count);
  return STATUS_OK;
}

Status out_directory_free(const char *out, OutKind kind, const char *also) {
  char found[256];
  TRY(find_work(out, kind, found));
  if (found[0] == '\0') return STATUS_OK;
  return status_set(
      STATUS_BAD_VALUE,
      "--out %s holds finished work already (%s), which would be replaced: give another --out, or --overwrite to replace it%s%s", out,
      found, also ? "; " : "", also ? also : "");
}

/* Of runs that were killed while they wrote. */
static void clean(const char *place) {
  int count;
  int64_t bytes = files_clean(place, &count);
  if (count > 0)
    log_info("%s: removed %d unfinished file%s (%.1f MB) of a run that was killed", place, count, count == 1 ? "" : "s",
             (double)bytes / 1e6);
}

Status out_directory_try(const char *out, const char *folder, const char *name) {
  char *place = inside(out, folder), *path = place ? files_join(place, name) : NULL;
  FileWriter writer;
  Status status = path != NULL ? files_make_dirs(place) : status_set(STATUS_NO_MEMORY, "no memory");
  if (status == STATUS_OK) clean(place);
  if (status == STATUS_OK && folder != NULL) clean(out);
  if (status == STATUS_OK) status = files_create(&writer, path);
  if (status == STATUS_OK) files_abort(&writer);
  free(path);
  free(place);
  return status == STATUS_OK ? status : status_wrap(status, "--out %s", out);
}

void out_directory_leave(const char *out, const char *folder) {
  char *place = inside(out, folder);
  if (place != NULL && rmdir(place) == 0 && folder != NULL) rmdir(out);
  free(place);
}

/* Whether both are the same directory, once links are followed. */
static bool same_directory(const char *a, const char *b) {
  char *real_a = realpath(a, NULL), *real_b = realpath(b, NULL);
  bool same = real_a != NULL && real_b != NULL && strcmp(real_a, real_b) == 0;
  free(real_a);
  free(real_b);
  return same;
}

Status out_directory_apart(const char *out, const char *base) {
  char *target = realpath(base, NULL); /* a linked file may lie elsewhere than its name */
  char *named = files_folder(base), *linked = target != NULL ? files_folder(target) : NULL;
  bool same = target != NULL && ((named != NULL && same_directory(out, named)) || (linked != NULL && same_directory(out, linked)));
  free(target);
  free(named);
  free(linked);
  if (!same) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--out %s is where the weights lie that --lora keeps as they are; give another directory", out);
}
