/* Rows of CSV or TSV in memory, handed on field by field with the number of the line. Leaves out: files, headers, what a column means. */
#ifndef DATA_CSV_ROWS_H
#define DATA_CSV_ROWS_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Who takes the rows. The first failure of either function ends the reading and is what csv_rows_read returns. */
typedef struct CsvRows {
  bool quoted; /* CSV, RFC 4180, LF or CRLF; else TSV: a tab ends a field, a line break a row, no quotes */
  /* text [length] without a terminator, NUL bytes among it possible; valid during the call. Lines are counted from 1. */
  Status (*field)(void *context, const char *text, size_t length, int64_t line);
  Status (*row)(void *context, int64_t line); /* after its fields; the line on which it ends */
} CsvRows;

/* Reads all of text [size]; blank lines are passed over. BAD_FILE names `file` and the line: a field of more than 1 MiB, a quote in the
 * middle of a field or one that is not closed. */
Status csv_rows_read(const CsvRows *rows, void *context, const char *text, size_t size, const char *file);

/* A fresh copy of a label without the blanks around it, which are meant neither in TSV nor in quotes: else "1 " would be a class beside
 * "1". NULL: no memory. */
char *csv_rows_label(const char *text, size_t length);

#endif
