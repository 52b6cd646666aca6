/* Command lines: GNU long options (--name value, --name=value), short forms for the common few, groups in --help.
 * One table describes a program's options; parsing checks every value against it. An unknown option, a missing or
 * malformed value or one outside its range gives STATUS_BAD_USAGE with a message that names the option and lists what is
 * accepted (and the nearest known option for a typing error). */
#ifndef BASE_OPTIONS_H
#define BASE_OPTIONS_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef enum OptionKind {
  OPTION_GROUP,   /* a heading in --help: only `help` is used */
  OPTION_FLAG,    /* bool *      : --name sets it, --no-name clears it */
  OPTION_INT,     /* int64_t *   : decimal, within [min, max] */
  OPTION_REAL,    /* double *    : within [min, max]; a trailing % divides by 100 */
  OPTION_TEXT,    /* const char **: points into argv */
  OPTION_CHOICE,  /* int *       : index into `choices` ("even|fixed|random") */
  OPTION_RANGE,   /* int64_t [2] : "4" or "2-8", both within [min, max] */
  OPTION_TEXTS,   /* OptionTexts *: every use adds one, which may be empty; they point into argv */
  OPTION_NUMBERS, /* int64_t [OPTION_NUMBERS_MAX + 2]: "8" or "1,2,8", distinct, within [min, max]: the largest; then, where there are
                     several, all in ascending order; zeroes behind them */
  OPTION_RATE,    /* double *    : bits per second, 1 to 1e12: "20mbit", "1.5gbit", "500kbit", "9600bit" */
  OPTION_TIME,    /* double *    : seconds, up to 3600: "2ms", "1s", "50us" */
  OPTION_TIMEOUT, /* double *    : seconds, up to 86400, within [min, max] too: "30", "30s", "500ms" */
  OPTION_SIZE,    /* double *    : bytes, up to 2^60: "512M", "1.5G", "64k" (powers of 1,024) or plain bytes */
  OPTION_REMOVED  /* an option that no longer exists: using it is an error that says so, with `help` as the reason; not listed */
} OptionKind;

enum { OPTION_TEXTS_MAX = 64, OPTION_NUMBERS_MAX = 16 };
typedef struct OptionTexts {
  const char *list[OPTION_TEXTS_MAX];
  int count;
} OptionTexts;

typedef struct Option {
  OptionKind kind;
  const char *name; /* without the dashes */
  char letter;      /* short form or 0 */
  void *target; /* holds the default; see OptionKind. A number below `min` is shown and accepted as "auto", a negative rate, time or size
                   not at all */
  const char *value;   /* name of the value in --help: "N", "DIR"; NULL for a flag or a choice */
  const char *choices; /* OPTION_CHOICE only */
  double min, max;     /* numbers only; min == max == 0 means any (finite) value */
  const char *help;    /* one line; the default is added by options_help. NULL: on the manual page alone */
  bool given;          /* out: was on the command line */
  double chosen;       /* out: what a number's target held before that, to which a later "auto" returns */
  /* OPTION_TEXT only, of options that were flags once: what --name without a value and --no-name set. NULL: neither is accepted. */
  const char *bare, *off;
  const char *removed; /* OPTION_CHOICE only: choices that no longer exist, as in `choices`; may be NULL */
  /* Earlier spellings, which are accepted and not listed; NULL: none. Of the name; of choices, each in its place: "||shared-air". */
  const char *old_name, *old_choices;
} Option;

/* Parses argv[1..]; `options` ends with an entry whose kind is OPTION_GROUP and help is NULL.
 * Arguments that are no options are gathered in order at positional[0..*count), which has room for argc. "--" ends the options. */
Status options_parse(Option *options, int argc, char **argv, const char **positional, int *count);

/* 'h' when the arguments ask for -h or --help, 'V' for -V or --version, else 0: where an option may stand, which the value of another one
 * and what comes behind "--" are not. Nothing is set, and faults are passed over. */
char options_asked(Option *options, int argc, char **argv);

/* Prints usage, the groups and their options with defaults (from the targets: call before parsing); where options are on the manual page
 * alone, its name, which is the first word of `usage`. */
void options_help(const Option *options, const char *usage, const char *about, FILE *stream);

/* The value of a text for an option of kind RATE, TIME, TIMEOUT or SIZE, as options_parse reads it; BAD_USAGE begins with `shown`
 * ("--links"). */
Status options_unit(OptionKind kind, const char *shown, const char *text, double *value);

/* Lists with commas between, of 1 to `room` numbers: "3,1,1" -> list [room]. How many there are; 0: the text is no such list, be it for a
 * number outside [min, max] or, of reals, one that is not positive and finite; list is undefined then. Numbers may be there twice. */
int options_integers(const char *text, int64_t min, int64_t max, int64_t *list, int room);
int options_reals(const char *text, double *list, int room);

/* The word in an option's choices that has this index, *length bytes: "%.*s"; none where there are fewer. */
const char *options_choice(const Option *option, int index, int *length);

/* The entry of that name, or NULL. */
const Option *options_find(const Option *options, const char *name);

/* Whether the option was on the command line. False where the table is NULL, or has no such option. */
bool options_given(const Option *options, const char *name);

/* Of options [count] that were parsed, the name of the first one given that is among `names` (up to a NULL); NULL: none was. */
const char *options_first_given(const Option *options, int count, const char *const *names);

#endif
