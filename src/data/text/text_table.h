/* Rows of a text, or of two, and a label out of TSV or CSV in memory, so that it can be fuzzed. Inside of src/data and its tests only. */
#ifndef DATA_TEXT_TABLE_H
#define DATA_TEXT_TABLE_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TEXT_TABLE_TEXTS = 4 };

typedef struct TextTableFormat {
  bool quoted;                         /* CSV, RFC 4180, LF or CRLF; else TSV: a tab ends a field, a line break a row, no quotes */
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

/* Reads it all; blank lines are passed over, further columns ignored. BAD_FILE names `file`, the line and what is missing: a column, a
 * text, a label, a closing quote, or rows at all. BAD_VALUE: a column's name without a header. Release also after a failure. */
Status text_table_parse(TextTable *table, const char *bytes, size_t size, const TextTableFormat *format, const char *file);
void text_table_release(TextTable *table);

#endif
