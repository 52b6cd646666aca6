/* Fuzz target: the options that --resume remembers. After a parse that went well every number of the table is within its bounds, every
 * choice is one of those offered, and every text that was given lies in the input. */
#include "cli/train_options.h"
#include "fuzz/fuzz.h"
#include <stdlib.h>
#include <string.h>

static bool in_bounds(const Option *option, double value) {
  return (option->min == 0 && option->max == 0) || (value >= option->min && value <= option->max);
}

static int choices_of(const Option *option) {
  int count = 1;
  for (const char *c = option->choices; *c; c++) count += *c == '|';
  return count;
}

static void check(const Option *option, const char *text, size_t size) {
  const int64_t *range = option->target;
  const char *value;
  if (option->kind == OPTION_INT && !in_bounds(option, (double)*range)) abort();
  if (option->kind == OPTION_REAL && !in_bounds(option, *(double *)option->target)) abort();
  if (option->kind == OPTION_RANGE && (range[0] > range[1] || !in_bounds(option, (double)range[0]) || !in_bounds(option, (double)range[1])))
    abort();
  if (option->kind == OPTION_CHOICE && (*(int *)option->target < 0 || *(int *)option->target >= choices_of(option))) abort();
  if (option->kind != OPTION_TEXT) return;
  value = *(const char **)option->target;
  if (value == option->bare || value == option->off) return; /* what --augment and --no-augment stand for */
  if (value < text || value >= text + size || *value == '\0') abort();
}

static void parse(char *text, size_t size) {
  static TrainCommand command;
  Option table[TRAIN_OPTIONS_MAX];
  char *arguments[TRAIN_OPTIONS_REMEMBERED];
  const char *positional[TRAIN_OPTIONS_REMEMBERED];
  int count, positionals;
  Status status = train_options_split(text, size, "fuzz", arguments, &count);
  if (status == STATUS_OK) {
    train_options_table(&command, table);
    status = options_parse(table, count, arguments, positional, &positionals);
  }
  if (status != STATUS_OK) {
    if (*status_message() == '\0') abort();
    return;
  }
  if (count < 1 || positionals >= count) abort();
  for (const Option *option = table; option->kind != OPTION_GROUP || option->help != NULL; option++)
    if (option->given) check(option, text, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size ? size : 1);
  if (!text) abort();
  if (size) memcpy(text, data, size);
  parse(text, size);
  free(text);
  return 0;
}
