/* The rows of a run: kept in memory for the plot, appended to metrics.csv and to an event file as they come. Which columns there are is
 * the trainer's choice; how they look is curves.c.
 * Invariant: metrics.csv has a header and complete lines only; every row reaches the file before metrics_row returns. */
#include "train/metrics.h"
#include "base/files.h"
#include "train/curves.h"
#include "train/event_file.h"
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t CSV_LIMIT = (size_t)1 << 30;

struct Metrics {
  char *csv_path, *plot_path;
  FILE *csv;
  EventFile *events;
  char **columns; /* [count], copies */
  size_t count;
  double *steps, **series; /* [rows], [count][rows] */
  size_t rows, capacity;
};

static Status no_memory(void) { return status_set(STATUS_NO_MEMORY, "out of memory for the metrics of the run"); }

static Status copy_columns(Metrics *metrics, const char *const *columns, size_t count) {
  metrics->columns = calloc(count + 1, sizeof *metrics->columns);
  metrics->series = calloc(count + 1, sizeof *metrics->series);
  if (!metrics->columns || !metrics->series) return no_memory();
  for (; metrics->count < count; metrics->count++) {
    const char *name = columns[metrics->count];
    if (!name[0] || strpbrk(name, ",\"\r\n"))
      return status_set(STATUS_BAD_VALUE, "metrics column '%s': a name without commas, quotes and line breaks is accepted", name);
    metrics->columns[metrics->count] = strdup(name);
    if (!metrics->columns[metrics->count]) return no_memory();
  }
  return STATUS_OK;
}

static bool grow(double **list, size_t capacity) {
  double *grown = realloc(*list, capacity * sizeof *grown);
  if (grown) *list = grown;
  return grown != NULL;
}

/* Makes room for one more row. */
static Status make_room(Metrics *metrics) {
  if (metrics->rows < metrics->capacity) return STATUS_OK;
  const size_t capacity = metrics->capacity ? 2 * metrics->capacity : 256;
  if (!grow(&metrics->steps, capacity)) return no_memory();
  for (size_t c = 0; c < metrics->count; c++)
    if (!grow(&metrics->series[c], capacity)) return no_memory();
  metrics->capacity = capacity;
  return STATUS_OK;
}

static void print_header(const Metrics *metrics, FILE *stream) {
  fputs("step,seconds", stream);
  for (size_t c = 0; c < metrics->count; c++) fprintf(stream, ",%s", metrics->columns[c]);
  fputc('\n', stream);
}

/* Whether the line is the header that print_header writes. */
static bool is_header(const Metrics *metrics, const char *line, size_t length) {
  char *text = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  if (!stream) return false;
  print_header(metrics, stream);
  fclose(stream);
  const bool same = text && size == length + 1 && memcmp(text, line, length) == 0;
  free(text);
  return same;
}

/* A field that ends at `stop`; empty is NAN. NULL when it is no number, else the place behind the field and its separator. */
static const char *parse_number(const char *field, char stop, double *number) {
  *number = NAN;
  char *end = (char *)field;
  if (*field != stop) {
    *number = strtod(field, &end);
    if (end == field) return NULL;
  }
  return *end == stop ? end + 1 : NULL;
}

/* Stores a line's numbers behind the rows that are there, without counting the row yet. */
static bool parse_row(Metrics *metrics, const char *line) {
  double seconds, step;
  const char *at = parse_number(line, ',', &step);
  if (!at || !isfinite(step)) return false;
  at = parse_number(at, metrics->count ? ',' : '\n', &seconds);
  for (size_t c = 0; at && c < metrics->count; c++)
    at = parse_number(at, c + 1 < metrics->count ? ',' : '\n', &metrics->series[c][metrics->rows]);
  metrics->steps[metrics->rows] = step;
  return at != NULL;
}

/* Takes the lines up to resume_step from an old file's text and writes them to `writer`. A last line without its end was cut off by
 * whatever ended the run, and is dropped. */
static Status keep_rows(Metrics *metrics, const char *text, int64_t resume_step, FILE *writer) {
  const char *end = strchr(text, '\n');
  if (!end || !is_header(metrics, text, (size_t)(end - text)))
    return status_set(STATUS_BAD_FILE, "%s: its first line does not name the columns of this run; move the file away to go on without it",
                      metrics->csv_path);
  print_header(metrics, writer);
  int64_t number = 2;
  for (const char *line = end + 1; (end = strchr(line, '\n')) != NULL; line = end + 1, number++) {
    TRY(make_room(metrics));
    if (!parse_row(metrics, line))
      return status_set(STATUS_BAD_FILE, "%s, line %lld: not a row of %zu numbers; mend the line or move the file away", metrics->csv_path,
                        (long long)number, metrics->count + 2);
    if (metrics->steps[metrics->rows] > (double)resume_step) continue;
    fwrite(line, 1, (size_t)(end - line) + 1, writer);
    metrics->rows++;
  }
  return STATUS_OK;
}

/* Leaves a metrics.csv with its header and, on resume, the rows to keep. */
static Status prepare_csv(Metrics *metrics, int64_t resume_step) {
  char *text = NULL;
  size_t size;
  if (resume_step >= 0 && files_exists(metrics->csv_path)) TRY(files_read(metrics->csv_path, CSV_LIMIT, &text, &size));
  FileWriter writer;
  Status status = files_create(&writer, metrics->csv_path);
  if (status == STATUS_OK) {
    if (text)
      status = keep_rows(metrics, text, resume_step, writer.stream);
    else
      print_header(metrics, writer.stream);
    if (status == STATUS_OK)
      status = files_commit(&writer);
    else
      files_abort(&writer);
  }
  free(text);
  return status;
}

static Status open_all(Metrics *metrics, const char *directory, const char *const *columns, size_t count, int64_t resume_step) {
  TRY(copy_columns(metrics, columns, count));
  TRY(files_make_dirs(directory));
  metrics->csv_path = files_join(directory, "metrics.csv");
  metrics->plot_path = files_join(directory, "curves.png");
  if (!metrics->csv_path || !metrics->plot_path) return no_memory();
  TRY(prepare_csv(metrics, resume_step));
  metrics->csv = fopen(metrics->csv_path, "ab");
  if (!metrics->csv) return status_set(STATUS_IO, "cannot open %s for writing: %s", metrics->csv_path, strerror(errno));
  return event_file_open(&metrics->events, directory, resume_step);
}

Status metrics_open(Metrics **opened, const char *directory, const char *const *columns, size_t count, int64_t resume_step) {
  *opened = NULL;
  Metrics *metrics = calloc(1, sizeof *metrics);
  if (!metrics) return no_memory();
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

Status metrics_row(Metrics *metrics, int64_t step, double seconds, const double *values) {
  TRY(make_room(metrics));
  metrics->steps[metrics->rows] = (double)step;
  for (size_t c = 0; c < metrics->count; c++) metrics->series[c][metrics->rows] = values[c];
  metrics->rows++;
  fprintf(metrics->csv, "%lld", (long long)step);
  print_number(seconds, metrics->csv);
  for (size_t c = 0; c < metrics->count; c++) print_number(values[c], metrics->csv);
  fputc('\n', metrics->csv);
  if (fflush(metrics->csv) != 0 || ferror(metrics->csv))
    return status_set(STATUS_IO, "cannot write %s: %s; make room and resume the run", metrics->csv_path, strerror(errno));
  return event_file_scalars(metrics->events, step, (const char *const *)metrics->columns, values, metrics->count);
}

Status metrics_draw(Metrics *metrics, const char *title) {
  return curves_draw(metrics->plot_path, title, (const char *const *)metrics->columns, metrics->count, metrics->steps,
                     (const double *const *)metrics->series, metrics->rows);
}

void metrics_close(Metrics *metrics) {
  if (!metrics) return;
  if (metrics->csv) fclose(metrics->csv);
  event_file_close(metrics->events);
  for (size_t c = 0; c < metrics->count; c++) {
    free(metrics->columns[c]);
    free(metrics->series[c]);
  }
  free(metrics->columns);
  free(metrics->series);
  free(metrics->steps);
  free(metrics->csv_path);
  free(metrics->plot_path);
  free(metrics);
}
