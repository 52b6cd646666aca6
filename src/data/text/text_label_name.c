/* The known sets as a table, and the options behind tsv: and csv:. Leaves out: opening anything. */
#include "data/text/text_label_name.h"
#include <stdlib.h>
#include <string.h>

static const TextLabelSet sets[] = {{.name = "cola",
                                     .title = "CoLA",
                                     .folder = "CoLA",
                                     .train = "train.tsv",
                                     .test = "dev.tsv",
                                     .format = {.texts = {"4"}, .text_count = 1, .label = "2"},
                                     .classes = 2,
                                     .labels = {"0", "1"},
                                     .names = {"unacceptable", "acceptable"}},
                                    {.name = "sst2",
                                     .title = "SST-2",
                                     .folder = "SST-2",
                                     .train = "train.tsv",
                                     .test = "dev.tsv",
                                     .format = {.header = true, .texts = {"sentence"}, .text_count = 1, .label = "label"},
                                     .classes = 2,
                                     .labels = {"0", "1"},
                                     .names = {"negative", "positive"}},
                                    {.name = "qqp",
                                     .title = "QQP",
                                     .folder = "QQP",
                                     .train = "train.tsv",
                                     .test = "dev.tsv",
                                     .format = {.header = true,
                                                .texts = {"question1"},
                                                .text_count = 1,
                                                .pair = "question2",
                                                .label = "is_duplicate",
                                                .skip_incomplete = true}, /* GLUE's file has rows that a line break cuts in two */
                                     .by_hand = true,
                                     .classes = 2,
                                     .labels = {"0", "1"},
                                     .names = {"not_duplicate", "duplicate"}},
                                    {.name = "mrpc",
                                     .title = "MRPC",
                                     .folder = "MRPC",
                                     .train = "train.tsv",
                                     .test = "dev.tsv",
                                     .format = {.header = true, .texts = {"4"}, .text_count = 1, .pair = "5", .label = "1"},
                                     .by_hand = true,
                                     .classes = 2,
                                     .labels = {"0", "1"},
                                     .names = {"not_equivalent", "equivalent"}},
                                    {.name = "agnews",
                                     .title = "AG News",
                                     .folder = "agnews",
                                     .train = "train.csv",
                                     .test = "test.csv",
                                     .format = {.quoted = true, .texts = {"2", "3"}, .text_count = 2, .label = "1"},
                                     .names_file = "classes.txt",
                                     .dividable = true,
                                     .classes = 4,
                                     .labels = {"1", "2", "3", "4"},
                                     .names = {"World", "Sports", "Business", "Sci/Tech"}}};

enum { SETS = sizeof sets / sizeof *sets };

/* Behind "NAME:", or at the end of "NAME" alone; NULL for another name. */
static const char *behind(const char *text, const char *name) {
  size_t length = strlen(name);
  if (strncmp(text, name, length) != 0 || (text[length] && text[length] != ':')) return NULL;
  return text + length + (text[length] == ':');
}

static const TextLabelSet *find_set(const char *name) {
  for (int i = 0; i < SETS; i++) {
    if (behind(name, sets[i].name)) return &sets[i];
  }
  return NULL;
}

bool text_label_name_knows(const char *name) {
  bool csv = strncmp(name, "csv:", 4) == 0 && strstr(name, ":text=");
  return csv || strncmp(name, "tsv:", 4) == 0 || find_set(name);
}

static Status split_columns(TextTableFormat *format, char *list, const char *name) {
  format->text_count = 0;
  for (char *column; (column = strsep(&list, "+"));) {
    if (!*column || format->text_count == TEXT_TABLE_TEXTS)
      return status_set(STATUS_BAD_VALUE, "'%s': text= takes 1 to %d columns, as in text=2 or text=2+3", name, TEXT_TABLE_TEXTS);
    format->texts[format->text_count++] = column;
  }
  return STATUS_OK;
}

static bool is_number(const char *column) { return *column && column[strspn(column, "0123456789")] == 0; }

typedef struct NameOptions {
  char *text, *label, *header, *test, *pair;
} NameOptions;

/* Cuts ":KEY=VALUE" off the end of text as long as the key is known, so that a path may hold colons. */
static void cut_options(char *text, NameOptions *options) {
  static const char *const keys[] = {"text=", "label=", "header=", "test=", "pair="};
  char **values[] = {&options->text, &options->label, &options->header, &options->test, &options->pair};
  const int known = sizeof keys / sizeof *keys;
  for (char *colon; (colon = strrchr(text, ':'));) {
    int key = 0;
    while (key < known && strncmp(colon + 1, keys[key], strlen(keys[key])) != 0) key++;
    if (key == known || *values[key]) return;
    *values[key] = colon + 1 + strlen(keys[key]);
    *colon = 0;
  }
}

static Status set_header(TextTableFormat *format, const char *header, const char *name) {
  if (header && strcmp(header, "yes") != 0 && strcmp(header, "no") != 0)
    return status_set(STATUS_BAD_VALUE, "'%s': header=%s; yes and no are accepted", name, header);
  format->header = header ? strcmp(header, "yes") == 0 : !is_number(format->label) || (format->pair && !is_number(format->pair));
  for (int i = 0; i < format->text_count && !header; i++) format->header |= !is_number(format->texts[i]);
  return STATUS_OK;
}

static Status parse_file(TextLabelName *parsed, const char *name) {
  static char usual_text[] = "text", usual_label[] = "label";
  NameOptions options = {0};
  cut_options(parsed->path, &options);
  bool empty = (options.test && !*options.test) || (options.label && !*options.label) || (options.pair && !*options.pair);
  if (!*parsed->path || empty)
    return status_set(STATUS_BAD_VALUE, "'%s': a file is expected behind the first colon, and a value behind each '='", name);
  parsed->test = options.test;
  parsed->format.quoted = name[0] == 'c';
  parsed->format.pair = options.pair;
  parsed->format.label = options.label ? options.label : usual_label;
  if (!options.text) {
    parsed->format.texts[0] = usual_text;
    parsed->format.text_count = 1;
  } else {
    TRY(split_columns(&parsed->format, options.text, name));
  }
  return set_header(&parsed->format, options.header, name);
}

Status text_label_name_parse(TextLabelName *parsed, const char *name) {
  *parsed = (TextLabelName){.set = find_set(name)};
  if (!text_label_name_knows(name))
    return status_set(STATUS_BAD_VALUE,
                      "'%s' is no set of labelled texts; cola:DIR, sst2:DIR, agnews:DIR, qqp:DIR, mrpc:DIR, tsv:FILE and "
                      "csv:FILE:text=COLUMN are",
                      name);
  parsed->owned = strdup(name);
  if (!parsed->owned) return status_set(STATUS_NO_MEMORY, "%s: no memory for its name", name);
  parsed->path = parsed->owned + (parsed->set ? behind(name, parsed->set->name) - name : 4);
  if (!parsed->set) return parse_file(parsed, name);
  parsed->format = parsed->set->format;
  return STATUS_OK;
}

void text_label_name_release(TextLabelName *parsed) {
  free(parsed->owned);
  *parsed = (TextLabelName){0};
}
