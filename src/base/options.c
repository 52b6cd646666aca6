/* Command lines against a table. Leaves out: abbreviations, sub-commands, files of options.
 * Invariant: a target is written only with a value that was checked in full; the first fault ends the parse.
 * In --help what is printed as a default is what the target holds. */
#include "base/options.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* What the arguments said: an option, under the name used, with a value or NULL. */
typedef struct Use {
  Option *option;
  const char *shown; /* "--devices" or "-n", for messages */
  bool negated;
} Use;

static bool at_end(const Option *option) { return option->kind == OPTION_GROUP && !option->help; }
static bool is_bounded(const Option *option) { return option->min != 0 || option->max != 0; }

/* A default that could not be given as a number says that the program chooses. */
static bool is_auto(const Option *option, double value) { return is_bounded(option) && value < option->min; }

static Status refuse(const char *shown, const char *value, const char *accepted) {
  return status_set(STATUS_BAD_USAGE, "%s: '%s' is not accepted; %s", shown, value, accepted);
}

static Status refuse_number(const Use *use, const char *value, const char *form) {
  char accepted[160];
  const Option *option = use->option;
  if (is_bounded(option))
    snprintf(accepted, sizeof accepted, "give %s from %.15g to %.15g", form, option->min, option->max);
  else
    snprintf(accepted, sizeof accepted, "give %s", form);
  return refuse(use->shown, value, accepted);
}

/* A decimal integer at `text`, within the option's bounds; *end is what follows it. */
static bool read_int(const Option *option, const char *text, int64_t *number, char **end) {
  bool digits = text[0] >= '0' && text[0] <= '9';
  if (text[0] == '-' || text[0] == '+') digits = text[1] >= '0' && text[1] <= '9';
  if (!digits) return false;
  errno = 0;
  long long parsed = strtoll(text, end, 10);
  *number = parsed;
  if (errno) return false;
  return !is_bounded(option) || ((double)parsed >= option->min && (double)parsed <= option->max);
}

static Status parse_int(const Use *use, const char *value) {
  int64_t number;
  char *end;
  if (strcmp(value, "auto") == 0 && is_auto(use->option, use->option->chosen)) {
    *(int64_t *)use->option->target = (int64_t)use->option->chosen;
    return STATUS_OK;
  }
  if (!read_int(use->option, value, &number, &end) || *end) return refuse_number(use, value, "a whole number");
  *(int64_t *)use->option->target = number;
  return STATUS_OK;
}

static Status parse_real(const Use *use, const char *value) {
  const Option *option = use->option;
  char *end;
  if (strcmp(value, "auto") == 0 && is_auto(option, option->chosen)) {
    *(double *)option->target = option->chosen;
    return STATUS_OK;
  }
  double number = strtod(value, &end);
  bool well_formed = end != value && !strchr(" \t\n\v\f\r", value[0]);
  if (well_formed && *end == '%') {
    number /= 100;
    end++;
  }
  if (!well_formed || *end || !isfinite(number)) return refuse_number(use, value, "a number");
  if (is_bounded(option) && !(number >= option->min && number <= option->max)) return refuse_number(use, value, "a number");
  *(double *)option->target = number;
  return STATUS_OK;
}

static Status parse_text(const Use *use, const char *value) {
  if (!*value) return refuse(use->shown, value, "give a text that is not empty");
  *(const char **)use->option->target = value;
  return STATUS_OK;
}

static Status parse_texts(const Use *use, const char *value) {
  OptionTexts *texts = use->option->target;
  if (texts->count == OPTION_TEXTS_MAX) return status_set(STATUS_BAD_USAGE, "%s: at most %d are possible", use->shown, OPTION_TEXTS_MAX);
  texts->list[texts->count++] = value;
  return STATUS_OK;
}

typedef struct Unit {
  const char *name;
  double size;
} Unit;

/* Units of RATE, TIME, TIMEOUT and SIZE, the smallest first. */
static const struct Units {
  Unit unit[5]; /* ends with a NULL name */
  double min, max;
  const char *accepted;
} kinds_of_units[] = {
    [OPTION_RATE] = {{{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}},
                     1,
                     1e12,
                     "give a rate: 20mbit, 1gbit, 500kbit, up to 1000gbit"},
    [OPTION_TIME] = {{{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}}, 0, 3600, "give a time: 2ms, 1s, 50us, 0, up to 3600s"},
    [OPTION_TIMEOUT] = {{{"us", 1e-6}, {"ms", 1e-3}, {"", 1}, {"s", 1}}, 0, 86400, "give a time: 30, 1.5s, 500ms, up to 86400s"},
    [OPTION_SIZE] = {{{"", 1}, {"k", 1024}, {"M", 1048576}, {"G", 1073741824}}, 0, 0x1p60, "give a size: 512M, 2G, 0, up to 1e9G"},
};

/* Of sizes M may be written MB or MiB as well. */
static bool is_unit(OptionKind kind, const char *unit, const char *text) {
  const size_t length = strlen(unit);
  if (strncasecmp(text, unit, length) != 0) return false;
  text += length;
  return *text == 0 || (kind == OPTION_SIZE && length > 0 && (!strcasecmp(text, "B") || !strcasecmp(text, "iB")));
}

Status options_unit(OptionKind kind, const char *shown, const char *text, double *value) {
  const struct Units *units = &kinds_of_units[kind];
  char *end;
  double number = strtod(text, &end);
  bool begins = (text[0] >= '0' && text[0] <= '9') || text[0] == '.';
  for (const Unit *unit = units->unit; begins && end != text && unit->name; unit++) {
    double all = number * unit->size;
    const bool bare = number == 0 && *end == '\0'; /* nothing is as much in any unit */
    if ((!is_unit(kind, unit->name, end) && !bare) || !isfinite(all) || all < units->min || all > units->max) continue;
    *value = all;
    return STATUS_OK;
  }
  return refuse(shown, text, units->accepted);
}

static Status parse_unit(const Use *use, const char *value) {
  return options_unit(use->option->kind, use->shown, value, use->option->target);
}

static Status parse_timeout(const Use *use, const char *value) {
  const Option *option = use->option;
  double seconds;
  TRY(options_unit(OPTION_TIMEOUT, use->shown, value, &seconds));
  if (is_bounded(option) && !(seconds >= option->min && seconds <= option->max)) return refuse_number(use, value, "seconds");
  *(double *)option->target = seconds;
  return STATUS_OK;
}

/* The place of a value in a list like "even|fixed|random"; -1: it is not there. */
static int index_of(const char *choice, const char *value) {
  size_t length = strlen(value);
  for (int index = 0;; index++) {
    size_t width = strcspn(choice, "|");
    if (width == length && !memcmp(choice, value, width)) return index;
    if (!choice[width]) return -1;
    choice += width + 1;
  }
}

static Status parse_choice(const Use *use, const char *value) {
  const Option *option = use->option;
  int index = *value ? index_of(option->choices, value) : -1;
  if (index < 0 && *value && option->old_choices) index = index_of(option->old_choices, value);
  if (index >= 0) {
    *(int *)option->target = index;
    return STATUS_OK;
  }
  if (option->removed && index_of(option->removed, value) >= 0)
    return status_set(STATUS_BAD_USAGE, "%s %s was removed; choose one of %s", use->shown, value, option->choices);
  char accepted[320];
  snprintf(accepted, sizeof accepted, "choose one of %s", option->choices);
  return refuse(use->shown, value, accepted);
}

static Status parse_range(const Use *use, const char *value) {
  int64_t low = 0, high = 0;
  char *end;
  bool good = read_int(use->option, value, &low, &end);
  if (good && *end == '-')
    good = read_int(use->option, end + 1, &high, &end);
  else
    high = low;
  if (!good || *end || low > high) return refuse_number(use, value, "a whole number or a range like 2-8");
  int64_t *target = use->option->target;
  target[0] = low;
  target[1] = high;
  return STATUS_OK;
}

static int compare_numbers(const void *a, const void *b) {
  const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
  return (left > right) - (left < right);
}

static Status parse_numbers(const Use *use, const char *value) {
  static const char accepted[] = "a whole number or a list of distinct ones like 1,2,8";
  int64_t list[OPTION_NUMBERS_MAX], *target = use->option->target;
  const char *at = value;
  size_t count = 0;
  char *end;
  for (bool more = true; more; at = end + 1) {
    if (count == OPTION_NUMBERS_MAX)
      return status_set(STATUS_BAD_USAGE, "%s: at most %d numbers are possible", use->shown, OPTION_NUMBERS_MAX);
    if (!read_int(use->option, at, &list[count++], &end) || (*end != ',' && *end != '\0')) return refuse_number(use, value, accepted);
    more = *end == ',';
  }
  qsort(list, count, sizeof *list, compare_numbers);
  for (size_t i = 0; count > 1 && i < count; i++)
    if (list[i] == (i > 0 ? list[i - 1] : 0)) return refuse_number(use, value, accepted);
  memset(target, 0, (OPTION_NUMBERS_MAX + 2) * sizeof *target);
  target[0] = list[count - 1];
  if (count > 1) memcpy(target + 1, list, count * sizeof *list);
  return STATUS_OK;
}

int options_integers(const char *text, int64_t min, int64_t max, int64_t *list, int room) {
  for (int count = 0; count < room;) {
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (end == text || errno || number < min || number > max || (*end && *end != ',')) return 0;
    list[count++] = number;
    if (!*end) return count;
    text = end + 1;
  }
  return 0;
}

int options_reals(const char *text, double *list, int room) {
  for (int count = 0; count < room;) {
    char *end;
    errno = 0;
    const double number = strtod(text, &end);
    if (end == text || errno || !isfinite(number) || number <= 0 || (*end && *end != ',')) return 0;
    list[count++] = number;
    if (!*end) return count;
    text = end + 1;
  }
  return 0;
}

typedef Status ParseValue(const Use *use, const char *value);
static ParseValue *const parse_value[] = {
    [OPTION_INT] = parse_int,     [OPTION_REAL] = parse_real,       [OPTION_TEXT] = parse_text,       [OPTION_CHOICE] = parse_choice,
    [OPTION_RANGE] = parse_range, [OPTION_TEXTS] = parse_texts,     [OPTION_RATE] = parse_unit,       [OPTION_TIME] = parse_unit,
    [OPTION_SIZE] = parse_unit,   [OPTION_NUMBERS] = parse_numbers, [OPTION_TIMEOUT] = parse_timeout,
};

static bool is_name(const char *known, const char *name, size_t length) {
  return known && strlen(known) == length && !memcmp(known, name, length);
}

static Option *find(Option *options, const char *name, size_t length) {
  for (Option *option = options; !at_end(option); option++) {
    if (option->kind == OPTION_GROUP) continue;
    if (is_name(option->name, name, length) || is_name(option->old_name, name, length)) return option;
  }
  return NULL;
}

static Option *find_letter(Option *options, char letter) {
  for (Option *option = options; !at_end(option); option++) {
    if (option->kind != OPTION_GROUP && option->letter == letter) return option;
  }
  return NULL;
}

const Option *options_find(const Option *options, const char *name) {
  for (const Option *option = options; !at_end(option); option++) {
    if (option->kind != OPTION_GROUP && !strcmp(option->name, name)) return option;
  }
  return NULL;
}

bool options_given(const Option *options, const char *name) {
  const Option *option = options != NULL ? options_find(options, name) : NULL;
  return option != NULL && option->given;
}

const char *options_first_given(const Option *options, int count, const char *const *names) {
  for (int i = 0; i < count; i++)
    for (const char *const *name = names; options[i].given && *name; name++)
      if (!strcmp(options[i].name, *name)) return *name;
  return NULL;
}

static size_t min(size_t a, size_t b) { return a < b ? a : b; }

/* Edits (insert, delete, replace, swap neighbours) between two names of fewer than 64 letters. */
static size_t edits(const char *a, size_t a_length, const char *b, size_t b_length) {
  enum { MAX = 64 };
  size_t row[MAX + 1][MAX + 1];
  if (a_length > MAX || b_length > MAX) return MAX;
  for (size_t i = 0; i <= a_length; i++) {
    for (size_t j = 0; j <= b_length; j++) {
      if (i == 0 || j == 0) {
        row[i][j] = i + j;
        continue;
      }
      size_t cost = min(min(row[i - 1][j], row[i][j - 1]) + 1, row[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) cost = min(cost, row[i - 2][j - 2] + 1);
      row[i][j] = cost;
    }
  }
  return row[a_length][b_length];
}

/* Up to a hyphen: "batch" of "batch-size". */
static bool begins_with(const char *whole, size_t whole_length, const char *part, size_t length) {
  return length < whole_length && whole[length] == '-' && !memcmp(whole, part, length);
}

/* From a hyphen on: "steps" of "max-steps". */
static bool ends_with(const char *whole, size_t whole_length, const char *part, size_t length) {
  if (length >= whole_length) return false;
  const char *end = whole + whole_length - length;
  return end[-1] == '-' && !memcmp(end, part, length);
}

/* The only option whose name ends with this one; of several (link-model, loss-model) none is likelier than the others. */
static const char *only_longer(const Option *options, const char *name, size_t length) {
  const char *only = NULL;
  for (const Option *option = options; !at_end(option); option++) {
    if (option->kind == OPTION_GROUP || option->kind == OPTION_REMOVED || !ends_with(option->name, strlen(option->name), name, length))
      continue;
    if (only) return NULL;
    only = option->name;
  }
  return only;
}

static bool is_abbreviation(const char *name, size_t length, const char *known, size_t width) {
  return length >= 3 && length < width && !memcmp(name, known, length);
}

static Status refuse_unknown(const Option *options, const char *name, size_t length) {
  const char *nearest = NULL;
  size_t fewest = (length <= 5 ? 1 : min(3, length / 3 + 1)) + 1; /* more edits of few letters make any word of any other */
  for (const Option *option = options; !at_end(option); option++) {
    if (option->kind == OPTION_GROUP || option->kind == OPTION_REMOVED) continue;
    size_t width = strlen(option->name), distance = edits(name, length, option->name, width);
    if (is_abbreviation(name, length, option->name, width) || begins_with(name, length, option->name, width) ||
        ends_with(name, length, option->name, width))
      distance = 1;
    if (distance >= fewest) continue;
    fewest = distance;
    nearest = option->name;
  }
  if (!nearest) nearest = only_longer(options, name, length);
  int shown = (int)min(length, 80);
  if (nearest) return status_set(STATUS_BAD_USAGE, "unknown option --%.*s; did you mean --%s?", shown, name, nearest);
  return status_set(STATUS_BAD_USAGE, "unknown option --%.*s; see --help", shown, name);
}

/* Before the first use, as that overwrites it. */
static void keep_chosen(Option *option) {
  if (option->kind == OPTION_INT) option->chosen = (double)*(const int64_t *)option->target;
  if (option->kind == OPTION_REAL) option->chosen = *(const double *)option->target;
}

static Status accept(const Use *use, const char *value) {
  if (!use->option->given) keep_chosen(use->option);
  use->option->given = true;
  if (use->negated && use->option->kind == OPTION_TEXT) return parse_text(use, use->option->off);
  if (use->option->kind != OPTION_FLAG) return parse_value[use->option->kind](use, value);
  *(bool *)use->option->target = !use->negated;
  return STATUS_OK;
}

/* Whether an argument is an option where a value may stand: a long one, or behind an option that can do without a value any. */
static bool is_next_option(const Option *option, const char *next) { return next[0] == '-' && (next[1] == '-' || option->bare != NULL); }

/* The arguments not yet looked at. */
typedef struct Rest {
  char **next;
  int count;
} Rest;

/* The next argument serves as the value, unless it is an option itself: that one was forgotten, or left out. */
static Status take_value(const Use *use, Rest *rest, const char **value) {
  if (rest->count == 0 || is_next_option(use->option, rest->next[0])) {
    if ((*value = use->option->bare) != NULL) return STATUS_OK;
    const char *name = use->option->kind == OPTION_CHOICE ? use->option->choices : use->option->value;
    return status_set(STATUS_BAD_USAGE, "%s needs a value: %s", use->shown, name ? name : "VALUE");
  }
  *value = *rest->next++;
  rest->count--;
  return STATUS_OK;
}

/* Whether the argument behind this one is its value. */
static bool takes_next(Option *options, const char *argument, const char *next) {
  if (argument[0] != '-' || !argument[1] || !next || !strncmp(next, "--", 2)) return false;
  if (argument[1] == '-') {
    const Option *option = find(options, argument + 2, strlen(argument + 2));
    return option && option->kind != OPTION_FLAG && !is_next_option(option, next);
  }
  for (const char *letter = argument + 1; *letter; letter++) {
    const Option *option = find_letter(options, *letter);
    if (!option) return false;
    if (option->kind != OPTION_FLAG) return !letter[1];
  }
  return false;
}

char options_asked(Option *options, int argc, char **argv) {
  for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
    if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) return 'h';
    if (!strcmp(argv[i], "-V") || !strcmp(argv[i], "--version")) return 'V';
    i += takes_next(options, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
  }
  return 0;
}

static Status parse_long(Option *options, const char *argument, Rest *rest) {
  const char *name = argument + 2, *equals = strchr(name, '='), *value = equals ? equals + 1 : NULL;
  size_t length = equals ? (size_t)(equals - name) : strlen(name);
  char shown[96];
  Use use = {.option = find(options, name, length), .shown = shown};
  if (!use.option && length > 3 && !memcmp(name, "no-", 3)) {
    use.option = find(options, name + 3, length - 3);
    use.negated = true;
    if (use.option && use.option->kind != OPTION_FLAG && !use.option->off) use.option = NULL;
  }
  if (!use.option) return refuse_unknown(options, name, length);
  if (use.option->kind == OPTION_REMOVED) return status_set(STATUS_BAD_USAGE, "--%s was removed: %s", use.option->name, use.option->help);
  snprintf(shown, sizeof shown, "--%.*s", (int)min(length, 80), name);
  if ((use.option->kind == OPTION_FLAG || use.negated) && value)
    return status_set(STATUS_BAD_USAGE, "%s takes no value; '%s' was given", shown, value);
  if (use.option->kind != OPTION_FLAG && !use.negated && !value) TRY(take_value(&use, rest, &value));
  return accept(&use, value);
}

/* "-n4", "-n 4", and flags together: "-qv". */
static Status parse_short(Option *options, const char *argument, Rest *rest) {
  for (const char *letter = argument + 1; *letter; letter++) {
    char shown[] = {'-', *letter, 0};
    Use use = {.option = find_letter(options, *letter), .shown = shown};
    if (!use.option) return status_set(STATUS_BAD_USAGE, "unknown option %s; see --help", shown);
    if (use.option->kind == OPTION_FLAG) {
      TRY(accept(&use, NULL));
      continue;
    }
    const char *value = letter + 1;
    if (!*value) TRY(take_value(&use, rest, &value));
    return accept(&use, value);
  }
  return STATUS_OK;
}

Status options_parse(Option *options, int argc, char **argv, const char **positional, int *count) {
  Rest rest = {argv + 1, argc > 0 ? argc - 1 : 0};
  bool ended = false;
  *count = 0;
  while (rest.count > 0) {
    const char *argument = *rest.next++;
    rest.count--;
    if (ended || argument[0] != '-' || !argument[1])
      positional[(*count)++] = argument;
    else if (!strcmp(argument, "--"))
      ended = true;
    else if (argument[1] == '-')
      TRY(parse_long(options, argument, &rest));
    else
      TRY(parse_short(options, argument, &rest));
  }
  return STATUS_OK;
}

const char *options_choice(const Option *option, int index, int *length) {
  const char *choice = option->choices;
  for (int left = index; left > 0 && *choice; left--) {
    choice += strcspn(choice, "|");
    choice += *choice == '|';
  }
  *length = (int)strcspn(choice, "|");
  return choice;
}

/* ---- --help ---- */

enum { HELP_COLUMN = 32 };

/* What an option holds before the command line is read; "" where there is nothing to say. */
static void show_default(const Option *option, char *text, size_t room) {
  const void *target = option->target;
  text[0] = 0;
  switch (option->kind) {
  case OPTION_FLAG:
    if (*(const bool *)target) snprintf(text, room, "on");
    break;
  case OPTION_INT:
  case OPTION_NUMBERS:
    if (is_auto(option, (double)*(const int64_t *)target))
      snprintf(text, room, "auto");
    else
      snprintf(text, room, "%" PRId64, *(const int64_t *)target);
    break;
  case OPTION_REAL:
    if (is_auto(option, *(const double *)target))
      snprintf(text, room, "auto");
    else
      snprintf(text, room, "%g", *(const double *)target);
    break;
  case OPTION_TEXT:
    if (*(const char *const *)target) snprintf(text, room, "%s", *(const char *const *)target);
    break;
  case OPTION_CHOICE: {
    int length;
    const char *choice = options_choice(option, *(const int *)target, &length);
    snprintf(text, room, "%.*s", length, choice);
    break;
  }
  case OPTION_RANGE: {
    const int64_t *range = target;
    if (range[0] == range[1])
      snprintf(text, room, "%" PRId64, range[0]);
    else
      snprintf(text, room, "%" PRId64 "-%" PRId64, range[0], range[1]);
    break;
  }
  case OPTION_TEXTS: {
    const OptionTexts *texts = target;
    if (texts->count) snprintf(text, room, "%s", texts->list[0]);
    break;
  }
  case OPTION_RATE:
  case OPTION_TIME:
  case OPTION_TIMEOUT:
  case OPTION_SIZE: { /* by the largest unit of which there is at least one */
    const double value = *(const double *)target;
    const Unit *unit = kinds_of_units[option->kind].unit, *chosen = unit;
    for (; unit->name; unit++)
      if (value >= unit->size) chosen = unit;
    const char *name = value > 0 || option->kind == OPTION_SIZE ? chosen->name : option->kind == OPTION_TIME ? "ms" : "";
    if (value >= 0) snprintf(text, room, "%g%s", value / chosen->size, name);
    break;
  }
  case OPTION_GROUP:
  case OPTION_REMOVED:
    break;
  }
}

static void print_option(const Option *option, FILE *stream) {
  char left[160], value[64], letter[8] = "    ";
  show_default(option, value, sizeof value);
  if (option->letter) snprintf(letter, sizeof letter, "-%c, ", option->letter);
  const char *names = option->kind == OPTION_CHOICE ? option->choices : option->value;
  bool switched_on = option->kind == OPTION_FLAG && value[0];
  snprintf(left, sizeof left, "  %s--%s%s%s%s", letter, switched_on ? "[no-]" : "", option->name, names ? " " : "", names ? names : "");
  fprintf(stream, "%-*s%s%s", HELP_COLUMN, left, strlen(left) >= HELP_COLUMN ? "  " : "", option->help);
  if (value[0]) fprintf(stream, " (default %s)", value);
  fputc('\n', stream);
}

void options_help(const Option *options, const char *usage, const char *about, FILE *stream) {
  bool complete = true;
  fprintf(stream, "usage: %s\n", usage);
  if (about) fprintf(stream, "%s\n", about);
  for (const Option *option = options; !at_end(option); option++) {
    if (option->kind == OPTION_REMOVED) continue;
    if (!option->help)
      complete = false;
    else if (option->kind == OPTION_GROUP)
      fprintf(stream, "\n%s\n", option->help);
    else
      print_option(option, stream);
  }
  if (!complete) fprintf(stream, "\nMore options: man %.*s\n", (int)strcspn(usage, " "), usage);
}
