/* One row reader for TSV and CSV: both hand it fields and ends of rows. Leaves out: files, classes (text_labels.c).
 * Invariant: of a row only the wanted fields are kept; the first failure is kept and everything after it passed over. */
#include "data/text/text_table.h"
#include "base/array.h"
#include <csv.h>
#include <stdlib.h>
#include <string.h>

/* Cell text_count is the label's, the one behind it the second text's. */
enum { CELLS = TEXT_TABLE_TEXTS + 2, MAX_NAMES = 160, MAX_CELL = 1 << 20, SLICE = 1 << 16 };

typedef struct TableReader {
  TextTable *table;
  const TextTableFormat *format;
  const char *file;
  int64_t line;
  int64_t columns[CELLS]; /* which column a cell is, from 0; -1: not found yet */
  char *cells[CELLS];     /* of the row being read, owned */
  int64_t fields;         /* of it so far */
  size_t unended;         /* bytes of CSV since the last end of a field */
  bool in_header;
  char names[MAX_NAMES]; /* of the header, for messages */
  Status status;
} TableReader;

static const char *wanted(const TextTableFormat *format, int cell) {
  return cell < format->text_count ? format->texts[cell] : cell == format->text_count ? format->label : format->pair;
}

static int cells_of(const TextTableFormat *format) { return format->text_count + 1 + (format->pair != NULL); }

/* ---- Columns ---- */

/* A number from 1 as an index from 0; -1 for a name. */
static int64_t column_number(const char *text) {
  size_t digits = strspn(text, "0123456789");
  if (digits == 0 || digits > 9 || text[digits]) return -1;
  return strtol(text, NULL, 10) - 1;
}

static Status set_columns(TableReader *reader) {
  for (int i = 0; i < cells_of(reader->format); i++) {
    const char *name = wanted(reader->format, i);
    reader->columns[i] = column_number(name);
    if (strcmp(name, "0") == 0) return status_set(STATUS_BAD_VALUE, "%s: column 0; columns are counted from 1", reader->file);
    if (reader->columns[i] < 0 && !reader->format->header)
      return status_set(STATUS_BAD_VALUE, "%s: column \"%s\" needs a header; without one, columns are numbers from 1", reader->file, name);
  }
  return STATUS_OK;
}

static void match_name(TableReader *reader, const char *name, size_t length, int64_t column) {
  size_t used = strlen(reader->names);
  snprintf(reader->names + used, sizeof reader->names - used, "%s%.*s", used ? ", " : "", (int)(length < 64 ? length : 64), name);
  for (int i = 0; i < cells_of(reader->format); i++) {
    const char *looked_for = wanted(reader->format, i);
    if (reader->columns[i] < 0 && strlen(looked_for) == length && memcmp(looked_for, name, length) == 0) reader->columns[i] = column;
  }
}

static Status end_header(TableReader *reader) {
  reader->in_header = false;
  for (int i = 0; i < cells_of(reader->format); i++) {
    if (reader->columns[i] < 0)
      return status_set(STATUS_BAD_FILE, "%s, line %lld: no column \"%s\" in the header; it has %s", reader->file, (long long)reader->line,
                        wanted(reader->format, i), reader->names);
  }
  return STATUS_OK;
}

/* ---- Fields and rows ---- */

static Status keep_field(TableReader *reader, const char *text, size_t length, int64_t column) {
  if (memchr(text, 0, length))
    return status_set(STATUS_BAD_FILE, "%s, line %lld: a NUL byte; text is expected, in UTF-8", reader->file, (long long)reader->line);
  for (int i = 0; i < cells_of(reader->format); i++) {
    if (reader->columns[i] == column && !(reader->cells[i] = strndup(text, length))) return status_no_memory(reader->file, "its rows");
  }
  return STATUS_OK;
}

static Status too_long(const TableReader *reader) {
  return status_set(STATUS_BAD_FILE, "%s, line %lld: a field of more than %d bytes; is a quote not closed?", reader->file,
                    (long long)reader->line, (int)MAX_CELL);
}

static void on_field(void *text, size_t length, void *data) {
  TableReader *reader = data;
  int64_t column = reader->fields++;
  reader->unended = 0;
  if (reader->status == STATUS_OK && length > MAX_CELL) reader->status = too_long(reader);
  if (reader->status != STATUS_OK) return;
  if (reader->in_header)
    match_name(reader, text ? text : "", length, column);
  else
    reader->status = keep_field(reader, text ? text : "", length, column);
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
static Status check_row(const TableReader *reader) {
  const TextTableFormat *format = reader->format;
  int label = format->text_count;
  bool empty = true;
  for (int i = 0; i < cells_of(format); i++) {
    if (!reader->cells[i])
      return status_set(STATUS_BAD_FILE, "%s, line %lld: a row of %lld columns; the %s is expected in column %lld", reader->file,
                        (long long)reader->line, (long long)reader->fields, i == label ? "label" : "text",
                        (long long)reader->columns[i] + 1);
    empty = empty && (i == label || !*reader->cells[i]);
  }
  if (!*reader->cells[label]) return status_set(STATUS_BAD_FILE, "%s, line %lld: an empty label", reader->file, (long long)reader->line);
  if (!empty) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s, line %lld: an empty text; remove the row", reader->file, (long long)reader->line);
}

static char *take_cell(TableReader *reader, int cell) {
  char *text = reader->cells[cell];
  reader->cells[cell] = NULL;
  return text;
}

static Status end_row(TableReader *reader) {
  int label = reader->format->text_count;
  Status status = check_row(reader);
  if (status != STATUS_OK && reader->format->skip_incomplete) return reader->table->skipped++, STATUS_OK;
  TRY(status);
  TRY(ARRAY_RESERVE(reader->table->rows, reader->table->count, 1, reader->table->room, "the rows of a table"));
  TextRow row = {.text = join_texts(reader), .line = reader->line};
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

static void on_row(int end, void *data) {
  (void)end;
  TableReader *reader = data;
  if (reader->status == STATUS_OK) reader->status = reader->in_header ? end_header(reader) : end_row(reader);
  forget_cells(reader);
}

/* ---- The two kinds ---- */

static void read_tsv_line(TableReader *reader, const char *line, size_t length) {
  if (length && line[length - 1] == '\r') length--;
  if (length == 0) return;
  for (size_t at = 0; at <= length;) {
    const char *tab = memchr(line + at, '\t', length - at);
    size_t end = tab ? (size_t)(tab - line) : length;
    on_field((void *)(uintptr_t)(line + at), end - at, reader); /* libcsv's signature */
    at = end + 1;
  }
  on_row('\n', reader);
}

/* In slices, so that a field without an end is noticed before it is kept whole. */
static Status read_csv_line(TableReader *reader, struct csv_parser *parser, const char *line, size_t length) {
  size_t at = 0, slice = 0;
  for (; at < length && reader->status == STATUS_OK; at += slice) {
    slice = length - at < SLICE ? length - at : SLICE;
    reader->unended += slice;
    if (csv_parse(parser, line + at, slice, on_field, on_row, reader) != slice) break;
    if (reader->unended > MAX_CELL + SLICE) return too_long(reader);
  }
  if (at >= length || reader->status != STATUS_OK) return STATUS_OK;
  if (csv_error(parser) == CSV_ENOMEM) return status_no_memory(reader->file, "its rows");
  return status_set(STATUS_BAD_FILE, "%s, line %lld: malformed CSV (a quote stands in the middle of a field)", reader->file,
                    (long long)reader->line);
}

/* Line by line for both, because libcsv does not count them. */
static Status read_lines(TableReader *reader, struct csv_parser *parser, const char *bytes, size_t size) {
  for (size_t at = 0; at < size && reader->status == STATUS_OK;) {
    const char *end = memchr(bytes + at, '\n', size - at);
    size_t length = end ? (size_t)(end - bytes) - at : size - at;
    reader->line++;
    if (parser)
      TRY(read_csv_line(reader, parser, bytes + at, length + (end != NULL)));
    else
      read_tsv_line(reader, bytes + at, length);
    at += length + (end != NULL);
  }
  return reader->status;
}

static Status read_csv(TableReader *reader, const char *bytes, size_t size) {
  struct csv_parser parser;
  if (csv_init(&parser, CSV_STRICT | CSV_STRICT_FINI) != 0) return status_no_memory(reader->file, "its rows");
  Status status = read_lines(reader, &parser, bytes, size);
  if (status == STATUS_OK && csv_fini(&parser, on_field, on_row, reader) != 0)
    status = status_set(STATUS_BAD_FILE, "%s, line %lld: malformed CSV (a quote is not closed)", reader->file, (long long)reader->line);
  csv_free(&parser);
  return status == STATUS_OK ? reader->status : status;
}

Status text_table_parse(TextTable *table, const char *bytes, size_t size, const TextTableFormat *format, const char *file) {
  *table = (TextTable){0};
  TableReader reader = {.table = table, .format = format, .file = file, .in_header = format->header};
  TRY(set_columns(&reader));
  Status status = format->quoted ? read_csv(&reader, bytes, size) : read_lines(&reader, NULL, bytes, size);
  forget_cells(&reader);
  if (status == STATUS_OK && table->count == 0) status = status_set(STATUS_BAD_FILE, "%s: no rows in it", file);
  return status;
}

void text_table_release(TextTable *table) {
  for (int64_t i = 0; i < table->count; i++) {
    free(table->rows[i].text);
    free(table->rows[i].label);
    free(table->rows[i].pair);
  }
  free(table->rows);
  *table = (TextTable){0};
}
