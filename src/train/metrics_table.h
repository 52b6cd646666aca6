/* Inside the metrics code only: the rows of a run in memory, and how they look as lines of metrics.csv. */
#ifndef TRAIN_METRICS_TABLE_H
#define TRAIN_METRICS_TABLE_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct MetricsTable {
  char **columns; /* [count], copies */
  size_t count;
  double *steps, **series; /* [rows], [count][rows] */
  size_t rows, capacity;
} MetricsTable;

/* BAD_VALUE for a name that would need quotes. The table is to be released even after a failure. */
Status metrics_table_init(MetricsTable *table, const char *const *columns, size_t count);
void metrics_table_release(MetricsTable *table); /* accepts a zeroed one */

Status metrics_table_add(MetricsTable *table, int64_t step, const double *values);
void metrics_table_header(const MetricsTable *table, FILE *stream);

/* Adds the rows up to resume_step of an old file's text, which ends with a NUL, and writes their lines to `stream` behind a header. A last
 * line without its end was cut off by whatever ended the run, and is dropped. BAD_FILE, naming `path`: other columns, or a line that is no
 * row. */
Status metrics_table_read(MetricsTable *table, const char *text, const char *path, int64_t resume_step, FILE *stream);

#endif
