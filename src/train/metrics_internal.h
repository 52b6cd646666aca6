/* Inside of metrics.c and its tests only: checksums of event files, and the rows that a resumed run keeps. */
#ifndef TRAIN_METRICS_INTERNAL_H
#define TRAIN_METRICS_INTERNAL_H
#include "train/metrics.h"
#include <stdint.h>
#include <stdio.h>

/* CRC-32C (Castagnoli), as TFRecords use it before masking. */
uint32_t event_file_crc(const void *data, size_t size);

typedef struct MetricsTable {
  char **columns; /* [count], copies */
  size_t count;
  double *steps, **series; /* [rows], [count][rows] */
  size_t rows, capacity;
} MetricsTable;

/* BAD_VALUE for a name that would need quotes. The table is to be released even after a failure. */
Status metrics_table_init(MetricsTable *table, const char *const *columns, size_t count);
void metrics_table_release(MetricsTable *table); /* accepts a zeroed one */

/* Adds the rows up to resume_step of an old file's text, which ends with a NUL, and writes their lines to `stream` behind a header. A last
 * line without its end was cut off by whatever ended the run, and is dropped. BAD_FILE, naming `path`: other columns, or a line that is no
 * row. */
Status metrics_table_read(MetricsTable *table, const char *text, const char *path, int64_t resume_step, FILE *stream);

#endif
