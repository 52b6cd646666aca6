/* The --help page of an option table. Leaves out: parsing (options.c).
 * Invariant: what is printed as a default is what the target holds. */
#include "base/options.h"
#include <inttypes.h>
#include <string.h>

enum { HELP_COLUMN = 32 };

static void show_flag(const Option *option, char *text, size_t room) {
  if (*(const bool *)option->target) snprintf(text, room, "on");
}

/* A default that could not be given says that the program chooses. */
static bool is_auto(const Option *option, double value) { return (option->least != 0 || option->most != 0) && value < option->least; }

static void show_int(const Option *option, char *text, size_t room) {
  int64_t value = *(const int64_t *)option->target;
  if (is_auto(option, (double)value))
    snprintf(text, room, "auto");
  else
    snprintf(text, room, "%" PRId64, value);
}

static void show_real(const Option *option, char *text, size_t room) {
  double value = *(const double *)option->target;
  if (is_auto(option, value))
    snprintf(text, room, "auto");
  else
    snprintf(text, room, "%g", value);
}

static void show_text(const Option *option, char *text, size_t room) {
  const char *value = *(const char *const *)option->target;
  if (value) snprintf(text, room, "%s", value);
}

static void show_choice(const Option *option, char *text, size_t room) {
  const char *choice = option->choices;
  for (int left = *(const int *)option->target; left > 0 && *choice; left--) {
    choice += strcspn(choice, "|");
    choice += *choice == '|';
  }
  snprintf(text, room, "%.*s", (int)strcspn(choice, "|"), choice);
}

static void show_range(const Option *option, char *text, size_t room) {
  const int64_t *range = option->target;
  if (range[0] == range[1])
    snprintf(text, room, "%" PRId64, range[0]);
  else
    snprintf(text, room, "%" PRId64 "-%" PRId64, range[0], range[1]);
}

static void show_texts(const Option *option, char *text, size_t room) {
  const OptionTexts *texts = option->target;
  if (texts->count) snprintf(text, room, "%s", texts->list[0]);
}

typedef void ShowDefault(const Option *option, char *text, size_t room);
static ShowDefault *const show_default[] = {
    [OPTION_FLAG] = show_flag,     [OPTION_INT] = show_int,     [OPTION_REAL] = show_real,   [OPTION_TEXT] = show_text,
    [OPTION_CHOICE] = show_choice, [OPTION_RANGE] = show_range, [OPTION_TEXTS] = show_texts,
};

static void print_option(const Option *option, FILE *stream) {
  char left[160], value[64] = "", letter[8] = "    ";
  show_default[option->kind](option, value, sizeof value);
  if (option->letter) snprintf(letter, sizeof letter, "-%c, ", option->letter);
  const char *names = option->kind == OPTION_CHOICE ? option->choices : option->value;
  bool switched_on = option->kind == OPTION_FLAG && value[0];
  snprintf(left, sizeof left, "  %s--%s%s%s%s", letter, switched_on ? "[no-]" : "", option->name, names ? " " : "", names ? names : "");
  fprintf(stream, "%-*s%s%s", HELP_COLUMN, left, strlen(left) >= HELP_COLUMN ? "  " : "", option->help);
  if (value[0]) fprintf(stream, " (default %s)", value);
  fputc('\n', stream);
}

void options_help(const Option *options, const char *usage, const char *about, FILE *stream) {
  fprintf(stream, "usage: %s\n", usage);
  if (about) fprintf(stream, "%s\n", about);
  for (const Option *option = options; option->kind != OPTION_GROUP || option->help; option++) {
    if (option->kind == OPTION_REMOVED) continue;
    if (option->kind == OPTION_GROUP)
      fprintf(stream, "\n%s\n", option->help);
    else
      print_option(option, stream);
  }
}
