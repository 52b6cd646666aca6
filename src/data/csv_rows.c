/* The reader of CSV, through libcsv, and of TSV. Invariant: after a failure nothing more is handed on. */
#include "data/csv_rows.h"
#include <csv.h>
#include <ctype.h>
#include <string.h>

enum { MAX_FIELD = 1 << 20, SLICE = 1 << 16 };

typedef struct CsvReader {
  const CsvRows *rows;
  void *context;
  const char *file;
  int64_t line;
  size_t unended; /* bytes of CSV since the last end of a field */
  Status status;  /* the first failure */
} CsvReader;

static Status too_long(const CsvReader *reader) {
  return status_set(STATUS_BAD_FILE, "%s, line %lld: a field of more than %d bytes%s", reader->file, (long long)reader->line,
                    (int)MAX_FIELD, reader->rows->quoted ? "; is a quote not closed?" : "");
}

static void end_field(CsvReader *reader, const char *text, size_t length) {
  reader->unended = 0;
  if (reader->status == STATUS_OK)
    reader->status = length > MAX_FIELD ? too_long(reader) : reader->rows->field(reader->context, text, length, reader->line);
}

static void end_row(CsvReader *reader) {
  if (reader->status == STATUS_OK) reader->status = reader->rows->row(reader->context, reader->line);
}

static void on_field(void *text, size_t length, void *reader) { end_field(reader, text ? text : "", length); }

static void on_row(int end, void *reader) {
  (void)end;
  end_row(reader);
}

static void read_tsv_line(CsvReader *reader, const char *line, size_t length) {
  if (length && line[length - 1] == '\n') length--;
  if (length && line[length - 1] == '\r') length--;
  if (length == 0) return;
  for (size_t at = 0; at <= length;) {
    const char *tab = memchr(line + at, '\t', length - at);
    size_t end = tab ? (size_t)(tab - line) : length;
    end_field(reader, line + at, end - at);
    at = end + 1;
  }
  end_row(reader);
}

static Status syntax(const CsvReader *reader, struct csv_parser *parser, const char *fault) {
  if (csv_error(parser) == CSV_ENOMEM) return status_no_memory(reader->file, "its rows");
  return status_set(STATUS_BAD_FILE, "%s, line %lld: malformed CSV (%s)", reader->file, (long long)reader->line, fault);
}

/* In slices, so that a field without an end is noticed before it is kept whole. */
static void read_csv_line(CsvReader *reader, struct csv_parser *parser, const char *line, size_t length) {
  for (size_t at = 0, slice; at < length && reader->status == STATUS_OK; at += slice) {
    slice = length - at < SLICE ? length - at : SLICE;
    reader->unended += slice;
    bool whole = csv_parse(parser, line + at, slice, on_field, on_row, reader) == slice;
    if (reader->status != STATUS_OK) return;
    if (!whole)
      reader->status = syntax(reader, parser, "a quote is in the middle of a field");
    else if (reader->unended > MAX_FIELD + SLICE)
      reader->status = too_long(reader);
  }
}

/* Line by line for both, because libcsv does not count them. */
static void read_lines(CsvReader *reader, struct csv_parser *parser, const char *text, size_t size) {
  for (size_t at = 0, length; at < size && reader->status == STATUS_OK; at += length) {
    const char *end = memchr(text + at, '\n', size - at);
    length = end ? (size_t)(end - text) + 1 - at : size - at;
    reader->line++;
    if (parser)
      read_csv_line(reader, parser, text + at, length);
    else
      read_tsv_line(reader, text + at, length);
  }
}

Status csv_rows_read(const CsvRows *rows, void *context, const char *text, size_t size, const char *file) {
  CsvReader reader = {.rows = rows, .context = context, .file = file};
  struct csv_parser parser;
  if (!rows->quoted) {
    read_lines(&reader, NULL, text, size);
    return reader.status;
  }
  if (csv_init(&parser, CSV_STRICT | CSV_STRICT_FINI) != 0) return status_no_memory(file, "its rows");
  csv_set_blk_size(&parser, SLICE); /* cells grow by that; libcsv's 128 bytes would copy a long one thousands of times */
  read_lines(&reader, &parser, text, size);
  if (reader.status == STATUS_OK && csv_fini(&parser, on_field, on_row, &reader) != 0)
    reader.status = syntax(&reader, &parser, "a quote is not closed");
  csv_free(&parser);
  return reader.status;
}

char *csv_rows_label(const char *text, size_t length) {
  while (length > 0 && isblank((unsigned char)text[length - 1])) length--;
  size_t blanks = 0;
  while (blanks < length && isblank((unsigned char)text[blanks])) blanks++;
  return strndup(text + blanks, length - blanks);
}
