/* Labelled texts: rows of TSV and CSV, names of sets, from a name to rows with class numbers. Leaves out: tokens and batches
 * (text_loader.c). Invariant: every label is in [0, classes), and both parts of a set number the classes alike. */
#include "data/text/text_labels.h"
#include "base/array.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/text.h"
#include "data/csv_rows.h"
#include "data/data_paths.h"
#include "data/dataset.h"
#include "data/dataset_internal.h"
#include "data/text/text_source.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Rows of a file ---- */

/* Rows of a text, or of two, and a label out of TSV or CSV in memory (csv_rows.h). Invariant: of a row only the wanted fields are kept. */

enum { TEXT_TABLE_TEXTS = 4 };

typedef struct TextTableFormat {
  bool quoted;                         /* CSV, else TSV */
  bool header;                         /* the first row names the columns */
  const char *texts[TEXT_TABLE_TEXTS]; /* columns, each a number from 1 or (with a header) a name; joined with a space in this order */
  int text_count;                      /* 1 or more */
  const char *label;                   /* column */
  const char *pair;                    /* column of the second of two texts, or NULL */
  bool skip_incomplete;                /* passes rows over that lack a column or a text; else they are errors */
} TextTableFormat;

typedef struct TextRow {
  char *text, *label; /* owned; never empty, but for one of two texts */
  char *pair;         /* owned; NULL where rows have one text */
  int64_t line;       /* on which the row ends */
} TextRow;

typedef struct TextTable {
  TextRow *rows;
  int64_t count;
  size_t room;
  int64_t skipped; /* rows that were passed over */
} TextTable;

/* Cell text_count is the label's, the one behind it the second text's. */
enum { CELLS = TEXT_TABLE_TEXTS + 2, MAX_NAMES = 160 };

typedef struct TableReader {
  TextTable *table;
  const TextTableFormat *format;
  const char *file;
  int64_t columns[CELLS]; /* which column a cell is, from 0; -1: not found yet */
  char *cells[CELLS];     /* of the row being read, owned */
  int64_t fields;         /* of it so far */
  bool in_header;
  char names[MAX_NAMES]; /* of the header, for messages */
} TableReader;

static const char *wanted(const TextTableFormat *format, int cell) {
  return cell < format->text_count ? format->texts[cell] : cell == format->text_count ? format->label : format->pair;
}

static int cells_of(const TextTableFormat *format) { return format->text_count + 1 + (format->pair != NULL); }

static Status on_field(void *context, const char *text, size_t length, int64_t line) {
  TableReader *reader = context;
  const int cells = cells_of(reader->format);
  const int64_t column = reader->fields++;
  if (reader->in_header) { /* the name of a column */
    size_t used = strlen(reader->names);
    snprintf(reader->names + used, sizeof reader->names - used, "%s%.*s", used ? ", " : "", (int)(length < 64 ? length : 64), text);
    for (int i = 0; i < cells; i++) {
      const char *name = wanted(reader->format, i);
      if (reader->columns[i] < 0 && strlen(name) == length && memcmp(name, text, length) == 0) reader->columns[i] = column;
    }
    return STATUS_OK;
  }
  if (memchr(text, 0, length))
    return status_set(STATUS_BAD_FILE, "%s, line %lld: a NUL byte; text is expected, in UTF-8", reader->file, (long long)line);
  for (int i = 0; i < cells; i++) {
    if (reader->columns[i] != column) continue;
    reader->cells[i] = i == reader->format->text_count ? csv_rows_label(text, length) : strndup(text, length);
    if (!reader->cells[i]) return status_no_memory(reader->file, "its rows");
  }
  return STATUS_OK;
}

/* The text columns, joined. */
static char *join_texts(const TableReader *reader) {
  size_t room = 1;
  for (int i = 0; i < reader->format->text_count; i++) room += strlen(reader->cells[i]) + 1;
  char *text = malloc(room), *at = text;
  if (!text) return NULL;
  *text = 0;
  for (int i = 0; i < reader->format->text_count; i++) {
    if (at > text && *reader->cells[i]) *at++ = ' ';
    at = stpcpy(at, reader->cells[i]);
  }
  return text;
}

/* What the row lacks, as BAD_FILE. */
static Status check_row(const TableReader *reader, int64_t line) {
  const TextTableFormat *format = reader->format;
  int label = format->text_count;
  bool empty = true;
  for (int i = 0; i < cells_of(format); i++) {
    if (!reader->cells[i])
      return status_set(STATUS_BAD_FILE, "%s, line %lld: a row of %lld columns; the %s is expected in column %lld", reader->file,
                        (long long)line, (long long)reader->fields, i == label ? "label" : "text", (long long)reader->columns[i] + 1);
    empty = empty && (i == label || !*reader->cells[i]);
  }
  if (!*reader->cells[label]) return status_set(STATUS_BAD_FILE, "%s, line %lld: an empty label", reader->file, (long long)line);
  if (!empty) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s, line %lld: an empty text; remove the row", reader->file, (long long)line);
}

static char *take_cell(TableReader *reader, int cell) {
  char *text = reader->cells[cell];
  reader->cells[cell] = NULL;
  return text;
}

static Status end_row(TableReader *reader, int64_t line) {
  int label = reader->format->text_count;
  Status status = check_row(reader, line);
  if (status != STATUS_OK && reader->format->skip_incomplete) return reader->table->skipped++, STATUS_OK;
  TRY(status);
  TRY(ARRAY_RESERVE(reader->table->rows, reader->table->count, 1, reader->table->room, "the rows of a table"));
  TextRow row = {.text = join_texts(reader), .line = line};
  if (!row.text) return status_no_memory(reader->file, "its rows");
  row.label = take_cell(reader, label);
  if (reader->format->pair) row.pair = take_cell(reader, label + 1);
  reader->table->rows[reader->table->count++] = row;
  return STATUS_OK;
}

static void forget_cells(TableReader *reader) {
  for (int i = 0; i < CELLS; i++) {
    free(reader->cells[i]);
    reader->cells[i] = NULL;
  }
  reader->fields = 0;
}

static Status on_row(void *context, int64_t line) {
  TableReader *reader = context;
  Status status = reader->in_header ? STATUS_OK : end_row(reader, line);
  for (int i = 0; status == STATUS_OK && reader->in_header && i < cells_of(reader->format); i++)
    if (reader->columns[i] < 0)
      status = status_set(STATUS_BAD_FILE, "%s, line %lld: no column \"%s\" in the header; it has %s", reader->file, (long long)line,
                          wanted(reader->format, i), reader->names);
  reader->in_header = false;
  forget_cells(reader);
  return status;
}

/* Reads it all; blank lines are passed over, further columns ignored. BAD_FILE names `file`, the line and what is missing: a column, a
 * text, a label, a closing quote, or rows at all. BAD_VALUE: a column's name without a header. Release also after a failure. */
static Status text_table_parse(TextTable *table, const char *bytes, size_t size, const TextTableFormat *format, const char *file) {
  *table = (TextTable){0};
  TableReader reader = {.table = table, .format = format, .file = file, .in_header = format->header};
  for (int i = 0; i < cells_of(format); i++) {
    const char *name = wanted(format, i);
    size_t digits = strspn(name, "0123456789");
    reader.columns[i] = digits == 0 || digits > 9 || name[digits] ? -1 : strtol(name, NULL, 10) - 1;
    if (strcmp(name, "0") == 0) return status_set(STATUS_BAD_VALUE, "%s: column 0; columns are counted from 1", file);
    if (reader.columns[i] < 0 && !format->header)
      return status_set(STATUS_BAD_VALUE, "%s: column \"%s\" needs a header; without one, columns are numbers from 1", file, name);
  }
  Status status = csv_rows_read(&(CsvRows){format->quoted, on_field, on_row}, &reader, bytes, size, file);
  forget_cells(&reader);
  if (status == STATUS_OK && table->count == 0) status = status_set(STATUS_BAD_FILE, "%s: no rows in it", file);
  return status;
}

static void free_row(TextRow *row) {
  free(row->text);
  free(row->label);
  free(row->pair);
}

static void text_table_release(TextTable *table) {
  for (int64_t i = 0; i < table->count; i++) free_row(&table->rows[i]);
  free(table->rows);
  *table = (TextTable){0};
}

/* ---- The name of a set ---- */

/* The known sets as a table, and the options behind tsv: and csv:. Nothing is opened here. */

typedef struct TextLabelClass {
  const char *label, *name; /* as in the file; "acceptable" */
} TextLabelClass;

/* A set whose files and columns are known. */
typedef struct TextLabelSet {
  const char *name, *title, *folder; /* "cola", "CoLA", the folder its archive leaves */
  const char *train, *test;          /* files */
  TextTableFormat format;
  const char *names_file;        /* of class names, or NULL */
  bool by_hand;                  /* `astra-data get` does not have it */
  bool dividable;                /* without the training file the test file serves for both parts */
  const TextLabelClass *classes; /* [class_count] */
  int class_count;
} TextLabelSet;

/* Any number of {label, name}, in the order of dataset_label_order, in which labels are searched. */
#define TEXT_LABEL_CLASSES(...)                                                                                                            \
  .classes = (const TextLabelClass[]){__VA_ARGS__}, .class_count = sizeof((const TextLabelClass[]){__VA_ARGS__}) / sizeof(TextLabelClass)

typedef struct TextLabelName {
  const TextLabelSet *set; /* NULL: tsv: or csv: */
  char *path;              /* DIR, "" for a set without; or FILE */
  char *test;              /* FILE or NULL */
  TextTableFormat format;
  char *owned; /* what path, test and the columns point into */
} TextLabelName;

static const TextLabelSet sets[] = {{.name = "cola",
                                     .title = "CoLA",
                                     .folder = "CoLA",
                                     .train = "train.tsv",
                                     .test = "dev.tsv",
                                     .format = {.texts = {"4"}, .text_count = 1, .label = "2"},
                                     TEXT_LABEL_CLASSES({"0", "unacceptable"}, {"1", "acceptable"})},
                                    {.name = "sst2",
                                     .title = "SST-2",
                                     .folder = "SST-2",
                                     .train = "train.tsv",
                                     .test = "dev.tsv",
                                     .format = {.header = true, .texts = {"sentence"}, .text_count = 1, .label = "label"},
                                     TEXT_LABEL_CLASSES({"0", "negative"}, {"1", "positive"})},
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
                                     TEXT_LABEL_CLASSES({"0", "not_duplicate"}, {"1", "duplicate"})},
                                    {.name = "mrpc",
                                     .title = "MRPC",
                                     .folder = "MRPC",
                                     .train = "train.tsv",
                                     .test = "dev.tsv",
                                     .format = {.header = true, .texts = {"4"}, .text_count = 1, .pair = "5", .label = "1"},
                                     .by_hand = true,
                                     TEXT_LABEL_CLASSES({"0", "not_equivalent"}, {"1", "equivalent"})},
                                    {.name = "agnews",
                                     .title = "AG News",
                                     .folder = "agnews",
                                     .train = "train.csv",
                                     .test = "test.csv",
                                     .format = {.quoted = true, .texts = {"2", "3"}, .text_count = 2, .label = "1"},
                                     .names_file = "classes.txt",
                                     .dividable = true,
                                     TEXT_LABEL_CLASSES({"1", "World"}, {"2", "Sports"}, {"3", "Business"}, {"4", "Sci/Tech"})}};

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

static bool text_label_name_knows(const char *name) {
  bool csv = strncmp(name, "csv:", 4) == 0 && strstr(name, ":text=");
  return csv || strncmp(name, "tsv:", 4) == 0 || find_set(name);
}

static Status split_columns(TextTableFormat *format, char *list, const char *name) {
  format->text_count = 0;
  for (char *column; (column = strsep(&list, "+"));) {
    if (!*column || format->text_count == TEXT_TABLE_TEXTS)
      return status_set(STATUS_BAD_USAGE, "'%s': text= takes 1 to %d columns, as in text=2 or text=2+3", name, TEXT_TABLE_TEXTS);
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
    return status_set(STATUS_BAD_USAGE, "'%s': header=%s; yes and no are accepted", name, header);
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
    return status_set(STATUS_BAD_USAGE, "'%s': a file is expected behind the first colon, and a value behind each '='", name);
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

/* BAD_USAGE names the option that is wrong. Release also after a failure. */
static Status text_label_name_parse(TextLabelName *parsed, const char *name) {
  char list[TEXT_LABELS_LIST];
  *parsed = (TextLabelName){.set = find_set(name)};
  if (!text_label_name_knows(name))
    return status_set(STATUS_BAD_VALUE, "'%s' is no set of labelled texts; %s, tsv:FILE and csv:FILE:text=COLUMN are", name,
                      text_labels_list(":DIR", list));
  parsed->owned = strdup(name);
  if (!parsed->owned) return status_no_memory(name, "its name");
  parsed->path = parsed->owned + (parsed->set ? behind(name, parsed->set->name) - name : 4);
  if (!parsed->set) return parse_file(parsed, name);
  parsed->format = parsed->set->format;
  return STATUS_OK;
}

static void text_label_name_release(TextLabelName *parsed) {
  free(parsed->owned);
  *parsed = (TextLabelName){0};
}

/* ---- Rows and classes ---- */

static const size_t max_bytes = (size_t)1 << 30;

struct LabelledText {
  TextTable table; /* rows of the part */
  int32_t *labels; /* [rows] */
  char **names;    /* [classes], owned */
  char **keys;     /* [classes], owned: the label as in the file */
  int64_t classes;
  DatasetLabelOrder *order; /* in which the keys are sorted */
  bool grouped;             /* text_labels_are_grouped */
  char *description;
};

void text_labels_close(LabelledText *set) {
  if (!set) return;
  text_table_release(&set->table);
  for (int64_t i = 0; i < set->classes; i++) {
    free(set->names[i]);
    free(set->keys[i]);
  }
  free(set->names);
  free(set->keys);
  free(set->labels);
  free(set->description);
  free(set);
}

bool text_labels_knows(const char *name) { return text_label_name_knows(name); }

const char *text_labels_list(const char *suffix, char list[TEXT_LABELS_LIST]) {
  size_t used = 0;
  for (int i = 0; i < SETS && used < TEXT_LABELS_LIST; i++)
    used += (size_t)snprintf(list + used, TEXT_LABELS_LIST - used, "%s%s%s", i ? ", " : "", sets[i].name, suffix);
  return list;
}
int64_t text_labels_count(const LabelledText *set) { return set->table.count; }
int64_t text_labels_classes(const LabelledText *set) { return set->classes; }
char *const *text_labels_names(const LabelledText *set) { return set->names; }
bool text_labels_are_grouped(const LabelledText *set) { return set->grouped; }
const char *text_labels_describe(const LabelledText *set) { return set->description; }

const char *text_labels_text(const LabelledText *set, int64_t index, int32_t *label) {
  *label = set->labels[index];
  return set->table.rows[index].text;
}

const char *text_labels_pair(const LabelledText *set, int64_t index) { return set->table.rows[index].pair; }

uint64_t text_labels_digest(const LabelledText *set) {
  uint64_t hash = hash_add(HASH_BEGIN, &set->classes, sizeof set->classes);
  for (int64_t i = 0; i < set->table.count; i++) {
    const TextRow *row = &set->table.rows[i];
    hash = hash_add(hash, &set->labels[i], sizeof set->labels[i]);
    hash = hash_add(hash, row->text, strlen(row->text) + 1);
    if (row->pair) hash = hash_add(hash, row->pair, strlen(row->pair) + 1);
  }
  return hash;
}

double text_labels_matthews(const int64_t (*answers)[2]) {
  double tn = (double)answers[0][0], fp = (double)answers[0][1], fn = (double)answers[1][0], tp = (double)answers[1][1];
  double scale = sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn));
  return scale > 0 ? (tp * tn - fp * fn) / scale : 0;
}

/* ---- Files ---- */

/* `path`, or path.gz where only that is there: a fresh string, NULL without memory. */
static char *packed_or_plain(const char *path) {
  char *packed;
  if (files_exists(path)) return strdup(path);
  if (asprintf(&packed, "%s.gz", path) < 0) return NULL;
  if (files_exists(packed)) return packed;
  free(packed);
  return strdup(path);
}

static Status read_table(TextTable *table, const char *path, const TextTableFormat *format) {
  char *text = NULL, *file = packed_or_plain(path);
  size_t size = 0;
  if (!file) return status_no_memory(NULL, "labelled texts");
  Status status = text_source_read_file(file, max_bytes, &text, &size);
  if (status == STATUS_OK) status = text_table_parse(table, text, size, format, file);
  free(text);
  free(file);
  return status;
}

/* Keeps the rows that the rule of every fifth row gives to `part`. */
static void keep_part(TextTable *table, DatasetPart part) {
  int64_t kept = 0;
  for (int64_t i = 0; i < table->count; i++) {
    if (dataset_files_part(i) == part)
      table->rows[kept++] = table->rows[i];
    else
      free_row(&table->rows[i]);
  }
  table->count = kept;
}

/* ---- Classes ---- */

static Status add_class(LabelledText *set, const char *key, const char *name) {
  set->keys[set->classes] = strdup(key);
  set->names[set->classes] = strdup(name);
  set->classes++; /* also when one of them is NULL: it is freed with the rest */
  return set->keys[set->classes - 1] && set->names[set->classes - 1] ? STATUS_OK : status_no_memory(NULL, "labelled texts");
}

static Status make_room(LabelledText *set, int64_t classes) {
  set->keys = calloc((size_t)classes, sizeof *set->keys);
  set->names = calloc((size_t)classes, sizeof *set->names);
  return set->keys && set->names ? STATUS_OK : status_no_memory(NULL, "labelled texts");
}

/* The distinct labels of a table, sorted. */
static Status find_classes(LabelledText *set, const TextTable *table) {
  char **all = malloc((size_t)table->count * sizeof *all);
  if (!all) return status_no_memory(NULL, "labelled texts");
  for (int64_t i = 0; i < table->count; i++) all[i] = table->rows[i].label;
  set->order = dataset_label_order(all, table->count);
  qsort(all, (size_t)table->count, sizeof *all, set->order);
  int64_t distinct = 1;
  for (int64_t i = 1; i < table->count; i++) distinct += strcmp(all[i], all[i - 1]) != 0;
  Status status = make_room(set, distinct);
  for (int64_t i = 0; i < table->count && status == STATUS_OK; i++) {
    if (i == 0 || strcmp(all[i], all[i - 1]) != 0) status = add_class(set, all[i], all[i]);
  }
  free(all);
  return status;
}

/* Replaces the names by the lines of a file, where it is. */
static Status read_names(LabelledText *set, const char *path) {
  char *text, *rest;
  size_t size;
  if (!files_exists(path)) return STATUS_OK;
  TRY(text_source_read_file(path, 1 << 20, &text, &size));
  int64_t lines = 0;
  Status status = STATUS_OK;
  rest = text;
  for (char *line; status == STATUS_OK && (line = strsep(&rest, "\n"));) {
    line[strcspn(line, "\r")] = 0;
    if (!*line) continue;
    if (lines < set->classes) {
      free(set->names[lines]);
      if (!(set->names[lines] = strdup(line))) status = status_no_memory(NULL, "labelled texts");
    }
    lines++;
  }
  free(text);
  if (status != STATUS_OK || lines == set->classes) return status;
  return status_set(STATUS_BAD_FILE, "%s: %lld class names; the set has %lld classes", path, (long long)lines, (long long)set->classes);
}

/* Number of the label that a row has, among the classes, which are sorted; -1: none of them. */
static int32_t class_of(const LabelledText *set, const TextRow *row) {
  char **found = bsearch(&row->label, set->keys, (size_t)set->classes, sizeof *set->keys, set->order);
  return found ? (int32_t)(found - set->keys) : -1;
}

static Status number_labels(LabelledText *set, const char *file) {
  if (set->table.count > INT32_MAX) return status_set(STATUS_BAD_FILE, "%s: more than %d rows", file, INT32_MAX);
  set->labels = malloc((size_t)set->table.count * sizeof *set->labels + 1);
  if (!set->labels) return status_no_memory(NULL, "labelled texts");
  for (int64_t i = 0; i < set->table.count; i++) {
    const TextRow *row = &set->table.rows[i];
    if ((set->labels[i] = class_of(set, row)) < 0)
      return status_set(STATUS_BAD_FILE, "%s, line %lld: label \"%.40s\"; the classes are %lld, from \"%.40s\" to \"%.40s\"", file,
                        (long long)row->line, row->label, (long long)set->classes, set->keys[0], set->keys[set->classes - 1]);
  }
  return STATUS_OK;
}

/* Rows in which classes take turns may give all of a class to the test part, every fifth row: training would never see it. */
static Status check_learnt(const LabelledText *set, const char *file) {
  bool *learnt = calloc((size_t)set->classes, sizeof *learnt);
  if (!learnt) return status_no_memory(NULL, "labelled texts");
  for (int64_t i = 0; i < set->table.count; i++)
    if (dataset_files_part(i) == DATASET_TRAIN) learnt[class_of(set, &set->table.rows[i])] = true;
  int64_t at = 0;
  while (at < set->classes && learnt[at]) at++;
  free(learnt);
  if (at == set->classes) return STATUS_OK;
  return status_set(
      STATUS_BAD_FILE,
      "%s: no text of the class \"%.40s\" is left to learn from, as every fifth row is for the test part: shuffle the rows, or "
      "name a file of test rows with test=FILE",
      file, set->keys[at]);
}

static Status describe(LabelledText *set, const char *title, DatasetPart part, const char *file, const char *remark) {
  if (set->table.count == 0) return status_set(STATUS_BAD_FILE, "%s: too few rows for a %s part", file, dataset_part_name(part));
  char skipped[64] = "";
  if (set->table.skipped > 0)
    snprintf(skipped, sizeof skipped, " (%lld incomplete row%s left out)", (long long)set->table.skipped, text_plural(set->table.skipped));
  int written =
      asprintf(&set->description, "%s %s, %lld %s, %lld classes, from %s%s%s", title, dataset_part_name(part), (long long)set->table.count,
               set->table.rows[0].pair ? "pairs of texts" : "texts", (long long)set->classes, file, remark, skipped);
  if (written < 0) set->description = NULL;
  return written < 0 ? status_no_memory(NULL, "labelled texts") : STATUS_OK;
}

/* ---- tsv: and csv: ---- */

static Status open_file(LabelledText *set, const TextLabelName *name, DatasetPart part) {
  const char *title = name->format.quoted ? "CSV" : "TSV", *file = name->path;
  set->grouped = true;
  TRY(dataset_doubt_file(read_table(&set->table, name->path, &name->format), name->path));
  TRY(find_classes(set, &set->table));
  if (name->test && part == DATASET_TEST) {
    file = name->test;
    text_table_release(&set->table);
    TRY(read_table(&set->table, file, &name->format));
  } else if (!name->test) {
    if (part == DATASET_TRAIN) TRY(check_learnt(set, file));
    keep_part(&set->table, part);
  }
  TRY(number_labels(set, file));
  return describe(set, title, part, file, name->test ? "" : part == DATASET_TEST ? " (every fifth row)" : " (without every fifth row)");
}

/* ---- cola:, sst2:, qqp:, mrpc:, agnews: ---- */

/* The directory that holds the test file: DIR, DIR/FOLDER, or a downloaded set of that name. */
static Status find_directory(const TextLabelName *name, const char *data_dir, char **directory) {
  const TextLabelSet *set = name->set;
  *directory = NULL;
  Status status = *name->path ? STATUS_OK : data_paths_find("datasets", set->name, data_dir, directory);
  if (status == STATUS_NOT_FOUND && set->by_hand)
    return status_set(status, "%s: give the folder of its %s and %s as %s:DIR", set->title, set->train, set->test, set->name);
  if (status == STATUS_NOT_FOUND)
    return status_wrap(status, "%s: fetch it with 'astra-data get %s', or give %s:DIR", set->title, set->name, set->name);
  TRY(status);
  if (*name->path && !(*directory = strdup(name->path))) return status_no_memory(NULL, "labelled texts");
  char *inner = files_join(*directory, set->folder);
  if (!inner) return status_no_memory(NULL, "labelled texts");
  if (!files_is_dir(inner)) {
    free(inner);
    return STATUS_OK;
  }
  free(*directory);
  *directory = inner;
  return STATUS_OK;
}

static Status open_part(LabelledText *set, const TextLabelSet *known, const char *train, const char *test, DatasetPart part) {
  char *packed = packed_or_plain(train);
  bool divide = known->dividable && packed && !files_exists(packed);
  free(packed);
  const char *file = part == DATASET_TEST || divide ? test : train;
  TRY(read_table(&set->table, file, &known->format));
  if (divide) keep_part(&set->table, part);
  TRY(number_labels(set, file));
  const char *remark = !divide                ? ""
                       : part == DATASET_TEST ? " (no train.csv: every fifth row)"
                                              : " (no train.csv: without every fifth row)";
  return describe(set, known->title, part, file, remark);
}

static Status open_known(LabelledText *set, const TextLabelName *name, const char *data_dir, DatasetPart part) {
  const TextLabelSet *known = name->set;
  char *directory, *train = NULL, *test = NULL, *names = NULL;
  Status status = find_directory(name, data_dir, &directory);
  if (status == STATUS_OK) status = make_room(set, known->class_count);
  for (int i = 0; status == STATUS_OK && i < known->class_count; i++)
    status = add_class(set, known->classes[i].label, known->classes[i].name);
  if (status == STATUS_OK) set->order = dataset_label_order(set->keys, set->classes);
  if (status == STATUS_OK && known->names_file) {
    names = files_join(directory, known->names_file);
    status = names ? read_names(set, names) : status_no_memory(NULL, "labelled texts");
  }
  if (status == STATUS_OK) {
    train = files_join(directory, known->train);
    test = files_join(directory, known->test);
    status = train && test ? open_part(set, known, train, test, part) : status_no_memory(NULL, "labelled texts");
  }
  free(names);
  free(train);
  free(test);
  free(directory);
  return status;
}

Status text_labels_open(LabelledText **set, const char *name, const char *data_dir, DatasetPart part) {
  TextLabelName parsed;
  *set = NULL;
  LabelledText *fresh = calloc(1, sizeof *fresh);
  if (!fresh) return status_no_memory(NULL, "labelled texts");
  Status status = text_label_name_parse(&parsed, name);
  if (status == STATUS_OK) status = parsed.set ? open_known(fresh, &parsed, data_dir, part) : open_file(fresh, &parsed, part);
  text_label_name_release(&parsed);
  if (status == STATUS_OK)
    *set = fresh;
  else
    text_labels_close(fresh);
  return status;
}

/* ---- Validation ---- */

static Status keep_share(LabelledText *set, TrainShare share) {
  int64_t count = set->table.count, kept = 0;
  uint8_t *keep = malloc((size_t)count);
  if (!keep) return status_no_memory(NULL, "labelled texts");
  Status status = train_share_choose(set->labels, count, set->classes, share, keep);
  for (int64_t i = 0; status == STATUS_OK && i < count; i++) {
    if (!keep[i]) {
      free_row(&set->table.rows[i]);
      continue;
    }
    set->table.rows[kept] = set->table.rows[i];
    set->labels[kept++] = set->labels[i];
  }
  if (status == STATUS_OK) set->table.count = kept;
  free(keep);
  return status;
}

Status text_labels_open_share(LabelledText **set, const char *name, const char *data_dir, TrainShare share) {
  char text[TRAIN_SHARE_TEXT];
  TRY(text_labels_open(set, name, data_dir, DATASET_TRAIN));
  if (share.of == 0 && share.without == 0) return STATUS_OK;
  Status status = keep_share(*set, share);
  if (status == STATUS_OK) {
    char *whole = (*set)->description;
    int written = asprintf(&(*set)->description, "%s %s", train_share_text(share, (*set)->table.count, "texts", text), whole);
    if (written >= 0) {
      free(whole);
      return STATUS_OK;
    }
    (*set)->description = whole;
    status = status_no_memory(NULL, "labelled texts");
  } else {
    status = status_wrap(status, "%s", (*set)->description);
  }
  text_labels_close(*set);
  *set = NULL;
  return status;
}
