/* Options: every kind, defaults kept, what a wrong command line is told, the help page. */
#include "base/options.h"
#include <cmocka.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct Values {
  bool quiet, augment;
  int64_t epochs, offset, devices[2], groups[OPTION_NUMBERS_MAX + 2];
  double lr, ratio, bandwidth, latency, timeout, memory;
  const char *data, *style;
  int split;
} Values;

enum { OPTIONS = 19 };

static Values values;
static Option options[OPTIONS];
static const char *positional[16];
static int count;

static void reset(void) {
  values =
      (Values){.augment = true, .epochs = 10, .devices = {4, 4}, .lr = 0.001, .split = 1, .bandwidth = 20e6, .timeout = 30, .memory = -1};
  const Option table[OPTIONS] = {
      {.kind = OPTION_GROUP, .help = "Training"},
      {OPTION_INT, "epochs", 'e', &values.epochs, "N", NULL, 1, 1000, .help = "passes over the data"},
      {OPTION_INT, "offset", 0, &values.offset, "N", NULL, 0, 0, .help = "any whole number"},
      {OPTION_REAL, "lr", 0, &values.lr, "RATE", NULL, 0, 1, .help = "learning rate"},
      {OPTION_REAL, "ratio", 0, &values.ratio, "R", NULL, 0, 0, .help = "any number", .old_name = "quotient"},
      {OPTION_RANGE, "devices", 'n', values.devices, "N|A-B", NULL, 1, 64, .help = "devices"},
      {OPTION_NUMBERS, "groups", 'g', values.groups, "G", NULL, 0, 512, .help = "groups"},
      {OPTION_CHOICE, "split", 0, &values.split, NULL, "even|fixed|random", 0, 0, .help = "shares of the tokens",
       .removed = "odd-even|prime", .old_choices = "||drawn"},
      {.kind = OPTION_GROUP, .help = "Other"},
      {OPTION_TEXT, "data-dir", 'd', &values.data, "DIR", NULL, 0, 0, .help = "where the data is"},
      {OPTION_FLAG, "quiet", 'q', &values.quiet, NULL, NULL, 0, 0, .help = "say less"},
      {OPTION_TEXT, "style", 0, &values.style, "HOW", .bare = "plain", .off = "none", .help = "once a flag"},
      {OPTION_FLAG, "augment", 'a', &values.augment, NULL, NULL, 0, 0, .help = "crops and flips"},
      {OPTION_RATE, "bandwidth", 0, &values.bandwidth, "RATE", .help = "of a link"},
      {OPTION_TIME, "latency", 0, &values.latency, "TIME", .help = "of a link"},
      {OPTION_TIMEOUT, "timeout", 0, &values.timeout, "TIME", NULL, 0.1, 600, .help = "of an answer"},
      {OPTION_SIZE, "memory", 0, &values.memory, "SIZE", .help = "of a device"},
      {OPTION_REMOVED, "moment", 0, .help = "it changed nothing"},
      {.kind = OPTION_GROUP},
  };
  memcpy(options, table, sizeof table);
}

/* Parses a line split at blanks; '~' stands for an empty argument. */
static Status parse(const char *line) {
  static char copy[512];
  char *arguments[32] = {"program"};
  int length = 1;
  reset();
  snprintf(copy, sizeof copy, "%s", line);
  for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) arguments[length++] = strcmp(word, "~") ? word : word + 1;
  return options_parse(options, length, arguments, positional, &count);
}

static void check_refused(const char *line, const char *first, const char *second) {
  if (parse(line) != STATUS_BAD_USAGE) fail_msg("accepted: %s", line);
  if (!strstr(status_message(), first)) fail_msg("%s: '%s' is not in '%s'", line, first, status_message());
  if (second && !strstr(status_message(), second)) fail_msg("%s: '%s' is not in '%s'", line, second, status_message());
}

static void defaults_stay(void **state) {
  (void)state;
  assert_int_equal(parse(""), STATUS_OK);
  assert_int_equal(count, 0);
  assert_true(values.epochs == 10 && values.lr == 0.001 && values.augment && !values.quiet && values.split == 1 && !values.data);
  assert_false(options_given(options, "epochs"));
  assert_int_equal(options_parse(options, 0, NULL, positional, &count), STATUS_OK);
}

static void every_kind_is_read(void **state) {
  (void)state;
  assert_int_equal(parse("--epochs 3 --offset=-7 --lr=2.5e-1 --ratio 5% --devices 2-8 --split random --data-dir a=b --quiet --no-augment"),
                   STATUS_OK);
  assert_int_equal(values.epochs, 3);
  assert_int_equal(values.offset, -7);
  assert_true(values.lr == 0.25 && fabs(values.ratio - 0.05) < 1e-15);
  assert_true(values.devices[0] == 2 && values.devices[1] == 8);
  assert_int_equal(values.split, 2);
  assert_string_equal(values.data, "a=b");
  assert_true(values.quiet && !values.augment);
  assert_true(options_given(options, "epochs") && options_given(options, "augment"));
  assert_int_equal(parse("--offset 9223372036854775807 --devices=5 --ratio -1e300"), STATUS_OK);
  assert_true(values.offset == INT64_MAX && values.devices[0] == 5 && values.devices[1] == 5 && values.ratio == -1e300);
  assert_int_equal(parse("--epochs 3 --epochs 4"), STATUS_OK); /* the last one counts */
  assert_int_equal(values.epochs, 4);
}

static void the_first_one_given_is_named(void **state) {
  (void)state;
  static const char *const names[] = {"quiet", "offset", NULL};
  int rows = 0;
  assert_int_equal(parse("--quiet --epochs 3 --offset 1"), STATUS_OK);
  while (options[rows].kind != OPTION_GROUP || options[rows].help) rows++;
  assert_string_equal(options_first_given(options, rows, names), "offset"); /* in the order of the table */
  assert_null(options_first_given(options, 1, names));
  assert_int_equal(parse("--epochs 3"), STATUS_OK);
  assert_null(options_first_given(options, rows, names));
}

static void flags_that_became_texts_keep_their_forms(void **state) {
  (void)state;
  assert_int_equal(parse("--style bold --epochs 3"), STATUS_OK);
  assert_string_equal(values.style, "bold");
  assert_int_equal(parse("--style --epochs 3"), STATUS_OK);
  assert_string_equal(values.style, "plain");
  assert_int_equal(values.epochs, 3);
  assert_int_equal(parse("--style -q"), STATUS_OK);
  assert_string_equal(values.style, "plain");
  assert_true(values.quiet);
  assert_int_equal(parse("--epochs 3 --style"), STATUS_OK);
  assert_string_equal(values.style, "plain");
  assert_int_equal(parse("--no-style here"), STATUS_OK);
  assert_string_equal(values.style, "none");
  assert_int_equal(count, 1);
  check_refused("--no-style=bold", "takes no value", "bold");
  check_refused("--no-data-dir", "unknown option --no-data-dir", NULL);
  check_refused("--data-dir --quiet", "needs a value", "DIR");
}

static void short_forms_work(void **state) {
  (void)state;
  assert_int_equal(parse("-e3 -n 2-3 -qd here"), STATUS_OK);
  assert_true(values.epochs == 3 && values.devices[1] == 3 && values.quiet);
  assert_string_equal(values.data, "here");
  check_refused("-x", "-x", "--help");
  check_refused("-e", "-e needs a value", "N");
  check_refused("-e0", "-e: '0'", "from 1 to 1000");
}

static void removed_options_say_so(void **state) {
  (void)state;
  check_refused("--moment 3", "--moment was removed", "it changed nothing");
  check_refused("--moments", "unknown option --moments", "see --help"); /* nor is it suggested */
}

static void earlier_spellings_are_accepted_and_not_listed(void **state) {
  (void)state;
  assert_int_equal(parse("--quotient 0.25 --split drawn"), STATUS_OK);
  assert_true(values.ratio == 0.25);
  assert_int_equal(values.split, 2);
  check_refused("--quotien 1", "unknown option --quotien;", NULL);
  assert_null(strstr(status_message(), "--quotient")); /* nor is it suggested */
  char text[4096] = "";
  FILE *stream = fmemopen(text, sizeof text, "w");
  options_help(options, "program [options]", "It is tested.", stream);
  fclose(stream);
  assert_non_null(strstr(text, "--ratio"));
  assert_null(strstr(text, "quotient"));
  assert_null(strstr(text, "drawn"));
}

static void the_rest_is_positional(void **state) {
  (void)state;
  assert_int_equal(parse("a.png --quiet b.png - -- --epochs -e"), STATUS_OK);
  assert_int_equal(count, 5);
  const char *expected[] = {"a.png", "b.png", "-", "--epochs", "-e"};
  for (int i = 0; i < 5; i++) assert_string_equal(positional[i], expected[i]);
  assert_int_equal(values.epochs, 10);
}

static void wrong_numbers_are_told_the_range(void **state) {
  (void)state;
  const char *const wrong[] = {"0", "1001", "-1", "x", "3x", "1.5", "0x10", "99999999999999999999", "+", "~"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char line[64];
    snprintf(line, sizeof line, "--epochs %s", wrong[i]);
    check_refused(line, "--epochs: '", "a whole number from 1 to 1000");
    assert_int_equal(values.epochs, 10);
  }
  check_refused("--lr 1.5", "--lr: '1.5'", "a number from 0 to 1");
  check_refused("--lr nan", "--lr: 'nan'", NULL);
  check_refused("--ratio inf", "--ratio: 'inf'", "give a number");
  check_refused("--ratio 1e999", "--ratio", NULL);
  check_refused("--lr 5%%", "--lr: '5%%'", NULL);
  check_refused("--lr %", "--lr", NULL);
  check_refused("--offset 9223372036854775808", "--offset", "a whole number");
}

/* The word that --help shows for such a default may be given, too; of an option with another default it is no number. */
static void what_the_program_chooses_is_auto(void **state) {
  (void)state;
  int64_t steps = -1;
  double rate = -1;
  Option own[] = {{OPTION_INT, "warmup", 0, &steps, "STEPS", .min = 0, .max = 10, .help = "steps"},
                  {OPTION_REAL, "rate", 0, &rate, "RATE", .min = 0, .max = 1, .help = "rate"},
                  {.kind = OPTION_GROUP}};
  char *line[] = {"program", "--warmup", "auto", "--rate=auto"};
  assert_int_equal(options_parse(own, 4, line, positional, &count), STATUS_OK);
  assert_true(steps == -1 && rate == -1 && own[0].given && own[1].given);
  char *again[] = {"program", "--warmup", "5", "--rate", "0.5", "--warmup", "7", "--warmup", "auto", "--rate=auto"};
  for (int i = 0; i < 2; i++) own[i].given = false;
  assert_int_equal(options_parse(own, 7, again, positional, &count), STATUS_OK);
  assert_true(steps == 7 && rate == 0.5);
  steps = rate = -1;
  for (int i = 0; i < 2; i++) own[i].given = false;
  assert_int_equal(options_parse(own, 10, again, positional, &count), STATUS_OK); /* the last one counts */
  assert_true(steps == -1 && rate == -1);
  check_refused("--epochs 5 --epochs auto", "--epochs: 'auto'", "from 1 to 1000");
  check_refused("--epochs auto", "--epochs: 'auto'", "from 1 to 1000");
  check_refused("--lr auto", "--lr: 'auto'", "from 0 to 1");
}

static void wrong_ranges_are_refused(void **state) {
  (void)state;
  const char *const wrong[] = {"0-4", "8-2", "2-", "-2", "2-65", "2-4-6", "a-b", "2-4x", "2--4"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char line[64];
    snprintf(line, sizeof line, "--devices=%s", wrong[i]);
    check_refused(line, "--devices: '", "a range like 2-8 from 1 to 64");
    assert_true(values.devices[0] == 4 && values.devices[1] == 4);
  }
}

static void lists_have_the_largest_number_first(void **state) {
  (void)state;
  const int64_t one[4] = {8}, several[6] = {32, 1, 4, 32};
  assert_int_equal(parse("--groups=8"), STATUS_OK);
  assert_memory_equal(values.groups, one, sizeof one);
  assert_int_equal(parse("--groups=4,32,1"), STATUS_OK);
  assert_memory_equal(values.groups, several, sizeof several);
  assert_int_equal(parse("--groups=1,2,4 --groups=0"), STATUS_OK);
  assert_true(values.groups[0] == 0 && values.groups[1] == 0);
  const char *const wrong[] = {"1,", ",1", "1,,2", "1,1", "0,2", "1,513", "1;2", "a", "-1"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char line[64];
    snprintf(line, sizeof line, "--groups=%s", wrong[i]);
    check_refused(line, "--groups: '", "a list of distinct ones like 1,2,8 from 0 to 512");
  }
  check_refused("-g 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "-g", "at most 16 numbers");
}

static void lists_are_whole_or_none(void **state) {
  (void)state;
  int64_t numbers[4];
  double reals[4];
  static const char *const no_integers[] = {"",    ",",   "1,",        ",1", "1,,2", "1;2",  "1 ,2",
                                            "1.5", "1,x", "1,2,3,1,2", "0",  "4",    "1,-1", "99999999999999999999"};
  static const char *const no_reals[] = {"", ",", "1,", ",1", "1,,2", "1;2", "1,x", "1,2,3,1,2", "0", "-1", "nan", "1,inf", "1e999"};
  assert_int_equal(options_integers("3,1,1,2", 1, 3, numbers, 4), 4);
  assert_true(numbers[0] == 3 && numbers[1] == 1 && numbers[2] == 1 && numbers[3] == 2);
  assert_int_equal(options_integers("9223372036854775807", 0, INT64_MAX, numbers, 1), 1);
  assert_true(numbers[0] == INT64_MAX);
  assert_int_equal(options_integers("9223372036854775808", 0, INT64_MAX, numbers, 1), 0);
  for (size_t i = 0; i < sizeof no_integers / sizeof *no_integers; i++)
    if (options_integers(no_integers[i], 1, 3, numbers, 4) != 0) fail_msg("\"%s\" is a list", no_integers[i]);
  assert_int_equal(options_reals("3,0.5,1e-3", reals, 4), 3);
  assert_true(reals[0] == 3 && reals[1] == 0.5 && reals[2] == 1e-3);
  for (size_t i = 0; i < sizeof no_reals / sizeof *no_reals; i++)
    if (options_reals(no_reals[i], reals, 4) != 0) fail_msg("\"%s\" is a list", no_reals[i]);
  assert_int_equal(options_integers("1", 1, 3, numbers, 0), 0);
}

static void wrong_choices_are_told_the_others(void **state) {
  (void)state;
  check_refused("--split odd", "--split: 'odd'", "even|fixed|random");
  check_refused("--split rand", "--split: 'rand'", NULL);
  check_refused("--split ~", "--split: ''", NULL);
  check_refused("--split even|fixed", "--split", NULL);
  check_refused("--split prime", "--split prime was removed", "even|fixed|random");
  check_refused("--split", "--split needs a value", "even|fixed|random");
  assert_int_equal(values.split, 1);
  assert_int_equal(parse("--split even"), STATUS_OK);
  assert_int_equal(values.split, 0);
}

static void choices_have_their_words(void **state) {
  (void)state;
  static const char *const words[] = {"even", "fixed", "random", "", ""};
  reset();
  for (int i = 0; i < 5; i++) {
    int length;
    const char *word = options_choice(options_find(options, "split"), i, &length);
    assert_int_equal(length, strlen(words[i]));
    assert_memory_equal(word, words[i], length);
  }
}

static void timeouts_are_seconds_or_have_a_unit(void **state) {
  (void)state;
  static const struct {
    const char *line;
    double seconds;
  } lines[] = {{"", 30}, {"--timeout 5", 5}, {"--timeout 1.5s", 1.5}, {"--timeout=500ms", 0.5}, {"--timeout .25", 0.25}};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    assert_int_equal(parse(lines[i].line), STATUS_OK);
    assert_true(values.timeout == lines[i].seconds);
  }
  check_refused("--timeout 5m", "--timeout", "30, 1.5s, 500ms");
  check_refused("--timeout -1", "--timeout", "30, 1.5s, 500ms");
  check_refused("--timeout nan", "--timeout", "30, 1.5s, 500ms");
  check_refused("--timeout 0", "--timeout", "from 0.1 to 600");
  check_refused("--timeout 50ms", "--timeout", "from 0.1 to 600");
  check_refused("--timeout 601s", "--timeout", "from 0.1 to 600");
  reset();
  values.timeout = 0;
  char *help = NULL;
  size_t size;
  FILE *stream = open_memstream(&help, &size);
  options_help(options, "program", "", stream);
  fclose(stream);
  assert_non_null(strstr(help, "of an answer (default 0)"));
  free(help);
  double value = 7;
  assert_int_equal(options_unit(OPTION_TIMEOUT, "--timeout", "86401", &value), STATUS_BAD_USAGE);
  assert_true(value == 7);
}

static void units_are_read(void **state) {
  (void)state;
  static const struct {
    const char *line;
    double bandwidth, latency, memory;
  } lines[] = {{"", 20e6, 0, -1},
               {"--bandwidth 500kbit --latency 2ms --memory 512M", 500e3, 2e-3, 536870912},
               {"--bandwidth=1.5gbit --latency=50us --memory=1.5G", 1.5e9, 50e-6, 1610612736},
               {"--bandwidth 9600bit --latency 1s --memory 64k", 9600, 1, 65536},
               {"--bandwidth 1000gbit --latency 0s --memory 0", 1e12, 0, 0},
               {"--latency 0", 20e6, 0, -1}, /* nothing is as much in any unit */
               {"--bandwidth 20MBIT --latency .5MS --memory 4g", 20e6, 5e-4, 4294967296},
               {"--memory 4GB", 20e6, 0, 4294967296},
               {"--memory 1.5GiB", 20e6, 0, 1610612736},
               {"--memory 512MiB", 20e6, 0, 536870912},
               {"--memory 64kB", 20e6, 0, 65536}};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    assert_int_equal(parse(lines[i].line), STATUS_OK);
    assert_true(values.bandwidth == lines[i].bandwidth && fabs(values.latency - lines[i].latency) < 1e-12);
    assert_true(values.memory == lines[i].memory);
  }
  static const char *const wrong[] = {"20", "mbit", "-1mbit", "0bit", "2000gbit", "20mbits", "nanmbit", "infmbit", "1e400bit", "20 mbit"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char line[64];
    double value = 7;
    snprintf(line, sizeof line, "--bandwidth=%s", wrong[i]);
    if (!strchr(line, ' ')) check_refused(line, "--bandwidth", "20mbit");
    assert_int_equal(options_unit(OPTION_RATE, "--links", wrong[i], &value), STATUS_BAD_USAGE);
    assert_true(value == 7 && strstr(status_message(), "--links"));
  }
  check_refused("--latency -2ms", "--latency", "2ms");
  check_refused("--latency 2", "--latency", "2ms");
  check_refused("--latency 3601s", "--latency", "3600s");
  check_refused("--memory 1X", "--memory", "512M");
  check_refused("--memory lots", "--memory", "512M");
  check_refused("--memory 4iB", "--memory", "512M");
  check_refused("--memory 4GBB", "--memory", "512M");
  check_refused("--bandwidth 20mbitB", "--bandwidth", "20mbit");
  check_refused("--memory 1e300", "--memory", "up to 1e9G"); /* counts of bytes are 64 bits wide */
}

static void unknown_names_get_the_nearest(void **state) {
  (void)state;
  check_refused("--epoch 3", "unknown option --epoch;", "did you mean --epochs?");
  check_refused("--devcies 3", "--devcies", "did you mean --devices?");
  check_refused("--data x", "--data;", "did you mean --data-dir?");
  check_refused("--memory-size 4G", "--memory-size;", "did you mean --memory?");
  check_refused("--dir x", "--dir;", "did you mean --data-dir?");
  check_refused("--radio 1", "--radio;", "did you mean --ratio?");
  check_refused("--rates 1", "unknown option --rates", "see --help"); /* two of five letters */
  assert_null(strstr(status_message(), "did you mean"));
  check_refused("--elephants", "unknown option --elephants", "see --help");
  assert_null(strstr(status_message(), "did you mean"));
  assert_null(strstr(status_message(), "lists all")); /* which it need not */
  check_refused("--no-epochs", "unknown option --no-epochs", NULL);
  check_refused("--=3", "unknown option", NULL);
  char line[300] = "--";
  memset(line + 2, 'x', 250);
  check_refused(line, "unknown option --xxx", NULL);
}

static void flags_take_no_value_and_others_need_one(void **state) {
  (void)state;
  check_refused("--quiet=yes", "--quiet takes no value", NULL);
  check_refused("--epochs", "--epochs needs a value", "N");
  check_refused("--data-dir --quiet", "--data-dir needs a value", "DIR");
  check_refused("--data-dir=", "--data-dir: ''", NULL);
}

static void the_help_shows_groups_and_defaults(void **state) {
  (void)state;
  char *text = NULL;
  size_t size;
  reset();
  FILE *stream = open_memstream(&text, &size);
  options_help(options, "program [options]", "Does things.", stream);
  fclose(stream);
  assert_string_equal(text, "usage: program [options]\nDoes things.\n\nTraining\n"
                            "  -e, --epochs N                passes over the data (default 10)\n"
                            "      --offset N                any whole number (default 0)\n"
                            "      --lr RATE                 learning rate (default 0.001)\n"
                            "      --ratio R                 any number (default 0)\n"
                            "  -n, --devices N|A-B           devices (default 4)\n"
                            "  -g, --groups G                groups (default 0)\n"
                            "      --split even|fixed|random shares of the tokens (default fixed)\n"
                            "\nOther\n"
                            "  -d, --data-dir DIR            where the data is\n"
                            "  -q, --quiet                   say less\n"
                            "      --style HOW               once a flag\n"
                            "  -a, --[no-]augment            crops and flips (default on)\n"
                            "      --bandwidth RATE          of a link (default 20mbit)\n"
                            "      --latency TIME            of a link (default 0ms)\n"
                            "      --timeout TIME            of an answer (default 30s)\n"
                            "      --memory SIZE             of a device\n");
  free(text);
  assert_null(options_find(options, "nothing"));
  assert_false(options_given(options, "nothing"));
  assert_false(options_given(NULL, "epochs"));
}

static void the_help_names_the_page_of_what_it_leaves_out(void **state) {
  (void)state;
  char *text = NULL;
  size_t size;
  reset();
  for (Option *option = options; option->name == NULL || strcmp(option->name, "moment") != 0; option++)
    if (option->kind != OPTION_GROUP) option->help = strcmp(option->name, "epochs") == 0 ? option->help : NULL;
  FILE *stream = open_memstream(&text, &size);
  options_help(options, "program command [options]", NULL, stream);
  fclose(stream);
  assert_string_equal(text, "usage: program command [options]\n\nTraining\n"
                            "  -e, --epochs N                passes over the data (default 10)\n"
                            "\nOther\n"
                            "\nMore options: man program\n");
  free(text);
}

static char asked(const char *line) {
  static char copy[512];
  char *arguments[32] = {"program"};
  int length = 1;
  reset();
  snprintf(copy, sizeof copy, "%s", line);
  for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) arguments[length++] = word;
  char letter = options_asked(options, length, arguments);
  assert_true(!values.quiet && !values.data && values.epochs == 10);
  return letter;
}

static void help_is_asked_for_where_an_option_may_stand(void **state) {
  (void)state;
  const char *const helps[] = {"-h",        "--help",  "-q --help",    "-d x -h", "--data-dir=x -h", "-dx -h",          "--data-dir --help",
                               "-d --help", "file -h", "--unknown -h", "-x -h",   "-qa -h",          "--epochs none -h"},
                    *const values_of_others[] = {"-d -h", "--data-dir -h", "-qd -h",        "-- -h", "-e -h",
                                                 "-d -V", "file",          "--data-dir=-h", "-q"};
  for (size_t i = 0; i < sizeof helps / sizeof *helps; i++) {
    if (asked(helps[i]) != 'h') fail_msg("'%s' does not ask for help", helps[i]);
  }
  for (size_t i = 0; i < sizeof values_of_others / sizeof *values_of_others; i++) {
    if (asked(values_of_others[i])) fail_msg("'%s' asks for something", values_of_others[i]);
  }
  assert_int_equal(asked("-q -V"), 'V');
  assert_int_equal(asked("--version --help"), 'V');
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(defaults_stay),
      cmocka_unit_test(every_kind_is_read),
      cmocka_unit_test(the_first_one_given_is_named),
      cmocka_unit_test(flags_that_became_texts_keep_their_forms),
      cmocka_unit_test(short_forms_work),
      cmocka_unit_test(the_rest_is_positional),
      cmocka_unit_test(earlier_spellings_are_accepted_and_not_listed),
      cmocka_unit_test(wrong_numbers_are_told_the_range),
      cmocka_unit_test(what_the_program_chooses_is_auto),
      cmocka_unit_test(wrong_ranges_are_refused),
      cmocka_unit_test(lists_have_the_largest_number_first),
      cmocka_unit_test(lists_are_whole_or_none),
      cmocka_unit_test(wrong_choices_are_told_the_others),
      cmocka_unit_test(removed_options_say_so),
      cmocka_unit_test(choices_have_their_words),
      cmocka_unit_test(timeouts_are_seconds_or_have_a_unit),
      cmocka_unit_test(units_are_read),
      cmocka_unit_test(unknown_names_get_the_nearest),
      cmocka_unit_test(flags_take_no_value_and_others_need_one),
      cmocka_unit_test(help_is_asked_for_where_an_option_may_stand),
      cmocka_unit_test(the_help_shows_groups_and_defaults),
      cmocka_unit_test(the_help_names_the_page_of_what_it_leaves_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
