/* What the mains of all programs share: choosing the subcommand, --help and --version, the error line and the exit code. It knows no
 * option but those two; each program has its own table. */
#include "cli/cli.h"
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include "base/log.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
  if (status == STATUS_OK && count > 0) status = status_set(STATUS_BAD_USAGE, "unexpected argument \"%s\"", positional[0]);
  free(positional);
  return status;
}

Status cli_check_kernels(const char *backend) {
  char text[KERNELS_TEXT];
  TRY(kernels_check());
  TRY(matmul_choose_backend(backend));
  if (kernels_slowed(text, sizeof text)) log_warning("%s", text);
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
  bool failed = fflush(stdout) != 0 || ferror(stdout);
  if (status == STATUS_OK && failed) return status_set(STATUS_IO, "standard output: cannot be written");
  return status;
}

/* 'h', 'V' or 0. Without a table no option takes a value. */
static char cli_asked(const CliProgram *program, int argc, char **argv) {
  Option table[CLI_OPTIONS_MOST] = {{.kind = OPTION_GROUP}};
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
