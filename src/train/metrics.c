/* The rows of a run: kept in memory for the plot (metrics_table.c), appended to metrics.csv and to an event file as they come. Which
 * columns there are is the trainer's choice; how they look is curves.c. Invariant: metrics.csv has a header and complete lines only; every
 * row reaches the file before metrics_row returns, or, where the disk is full, as soon as it is not. */
#include "train/metrics.h"
#include "base/files.h"
#include "base/log.h"
#include "train/append_file.h"
#include "train/curves.h"
#include "train/event_file.h"
#include "train/metrics_table.h"
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t CSV_LIMIT = (size_t)1 << 30;

struct Metrics {
  char *csv_path, *plot_path;
  AppendFile csv;
  EventFile *events;
  MetricsTable table;
  bool undrawn; /* the last plot could not be written */
};

/* Leaves a metrics.csv with its header and, on resume, the rows to keep. */
static Status prepare_csv(Metrics *metrics, int64_t resume_step) {
  char *text = NULL;
  size_t size;
  if (resume_step >= 0 && files_exists(metrics->csv_path)) TRY(files_read(metrics->csv_path, CSV_LIMIT, &text, &size));
  FileWriter writer;
  Status status = files_create(&writer, metrics->csv_path);
  if (status == STATUS_OK) {
    if (text)
      status = metrics_table_read(&metrics->table, text, metrics->csv_path, resume_step, writer.stream);
    else
      metrics_table_header(&metrics->table, writer.stream);
    if (status == STATUS_OK)
      status = files_commit(&writer);
    else
      files_abort(&writer);
  }
  free(text);
  return status;
}

static Status open_all(Metrics *metrics, const char *directory, const char *const *columns, size_t count, int64_t resume_step) {
  TRY(metrics_table_init(&metrics->table, columns, count));
  TRY(files_make_dirs(directory));
  metrics->csv_path = files_join(directory, "metrics.csv");
  metrics->plot_path = files_join(directory, "curves.png");
  if (!metrics->csv_path || !metrics->plot_path) return status_no_memory(NULL, "the metrics of the run");
  TRY(prepare_csv(metrics, resume_step));
  TRY(append_file_open(&metrics->csv, metrics->csv_path, false));
  return event_file_open(&metrics->events, directory, resume_step);
}

Status metrics_open(Metrics **opened, const char *directory, const char *const *columns, size_t count, int64_t resume_step) {
  *opened = NULL;
  Metrics *metrics = calloc(1, sizeof *metrics);
  if (!metrics) return status_no_memory(NULL, "the metrics of the run");
  metrics->csv.fd = -1;
  Status status = open_all(metrics, directory, columns, count, resume_step);
  if (status == STATUS_OK)
    *opened = metrics;
  else
    metrics_close(metrics);
  return status;
}

static void print_number(double number, FILE *stream) {
  if (isnan(number))
    fputc(',', stream);
  else
    fprintf(stream, ",%.9g", number);
}

static Status add_line(Metrics *metrics, int64_t step, double seconds, const double *values) {
  char *line = NULL;
  size_t size;
  FILE *stream = open_memstream(&line, &size);
  if (!stream) return status_no_memory(NULL, "the metrics of the run");
  fprintf(stream, "%lld", (long long)step);
  print_number(seconds, stream);
  for (size_t c = 0; c < metrics->table.count; c++) print_number(values[c], stream);
  fputc('\n', stream);
  Status status = fclose(stream) == 0 ? append_file_add(&metrics->csv, line, size) : status_no_memory(NULL, "the metrics of the run");
  free(line);
  return status;
}

Status metrics_row(Metrics *metrics, int64_t step, double seconds, const double *values) {
  TRY(metrics_table_add(&metrics->table, step, values));
  TRY(add_line(metrics, step, seconds, values));
  return event_file_scalars(metrics->events, step, (const char *const *)metrics->table.columns, values, metrics->table.count);
}

Status metrics_draw(Metrics *metrics, const char *title) {
  Status status = curves_draw(metrics->plot_path, title, (const char *const *)metrics->table.columns, metrics->table.count,
                              metrics->table.steps, (const double *const *)metrics->table.series, metrics->table.rows);
  bool lost = status == STATUS_IO;
  if (lost && !metrics->undrawn) log_warning("%s; the run goes on, and draws again later", status_message());
  metrics->undrawn = lost;
  return lost ? STATUS_OK : status;
}

void metrics_close(Metrics *metrics) {
  if (!metrics) return;
  append_file_close(&metrics->csv);
  event_file_close(metrics->events);
  metrics_table_release(&metrics->table);
  free(metrics->csv_path);
  free(metrics->plot_path);
  free(metrics);
}
