/* The rows of a run: see metrics_table.h. Invariant: a line that is kept has a number or nothing in each of its fields. */
#include "train/metrics_table.h"
#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

Status metrics_table_init(MetricsTable *table, const char *const *columns, size_t count) {
  *table = (MetricsTable){0};
  table->columns = calloc(count + 1, sizeof *table->columns);
  table->series = calloc(count + 1, sizeof *table->series);
  if (!table->columns || !table->series) return status_no_memory(NULL, "the metrics of the run");
  for (; table->count < count; table->count++) {
    const char *name = columns[table->count];
    if (!name[0] || strpbrk(name, ",\"\r\n"))
      return status_set(STATUS_BAD_VALUE, "metrics column '%s': a name without commas, quotes and line breaks is accepted", name);
    table->columns[table->count] = strdup(name);
    if (!table->columns[table->count]) return status_no_memory(NULL, "the metrics of the run");
  }
  return STATUS_OK;
}

static bool grow(double **list, size_t capacity) {
  double *grown = realloc(*list, capacity * sizeof *grown);
  if (grown) *list = grown;
  return grown != NULL;
}

/* Makes room for one more row. */
static Status make_room(MetricsTable *table) {
  if (table->rows < table->capacity) return STATUS_OK;
  const size_t capacity = table->capacity ? 2 * table->capacity : 256;
  if (!grow(&table->steps, capacity)) return status_no_memory(NULL, "the metrics of the run");
  for (size_t c = 0; c < table->count; c++)
    if (!grow(&table->series[c], capacity)) return status_no_memory(NULL, "the metrics of the run");
  table->capacity = capacity;
  return STATUS_OK;
}

Status metrics_table_add(MetricsTable *table, int64_t step, const double *values) {
  TRY(make_room(table));
  table->steps[table->rows] = (double)step;
  for (size_t c = 0; c < table->count; c++) table->series[c][table->rows] = values[c];
  table->rows++;
  return STATUS_OK;
}

void metrics_table_header(const MetricsTable *table, FILE *stream) {
  fputs("step,seconds", stream);
  for (size_t c = 0; c < table->count; c++) fprintf(stream, ",%s", table->columns[c]);
  fputc('\n', stream);
}

/* Whether the line is the header that metrics_table_header writes. */
static bool is_header(const MetricsTable *table, const char *line, size_t length) {
  char *text = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  if (!stream) return false;
  metrics_table_header(table, stream);
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
    if (isspace((unsigned char)*field)) return NULL; /* strtod would skip it, line ends too */
    *number = strtod(field, &end);
    if (end == field) return NULL;
  }
  return *end == stop ? end + 1 : NULL;
}

/* Stores a line's numbers behind the rows that are there, without counting the row yet. */
static bool parse_row(MetricsTable *table, const char *line) {
  double seconds, step;
  const char *at = parse_number(line, ',', &step);
  if (!at || !isfinite(step)) return false;
  at = parse_number(at, table->count ? ',' : '\n', &seconds);
  for (size_t c = 0; at && c < table->count; c++) at = parse_number(at, c + 1 < table->count ? ',' : '\n', &table->series[c][table->rows]);
  table->steps[table->rows] = step;
  return at != NULL;
}

Status metrics_table_read(MetricsTable *table, const char *text, const char *path, int64_t resume_step, FILE *stream) {
  const char *end = strchr(text, '\n');
  if (!end || !is_header(table, text, (size_t)(end - text)))
    return status_set(STATUS_BAD_FILE, "%s: its first line does not name the columns of this run; move the file away to go on without it",
                      path);
  metrics_table_header(table, stream);
  int64_t number = 2;
  for (const char *line = end + 1; (end = strchr(line, '\n')) != NULL; line = end + 1, number++) {
    TRY(make_room(table));
    if (!parse_row(table, line))
      return status_set(STATUS_BAD_FILE, "%s, line %lld: not a row of %zu numbers; mend the line or move the file away", path,
                        (long long)number, table->count + 2);
    if (table->steps[table->rows] > (double)resume_step) continue;
    fwrite(line, 1, (size_t)(end - line) + 1, stream);
    table->rows++;
  }
  return STATUS_OK;
}

void metrics_table_release(MetricsTable *table) {
  for (size_t c = 0; c < table->count; c++) {
    free(table->columns[c]);
    free(table->series[c]);
  }
  free(table->columns);
  free(table->series);
  free(table->steps);
  *table = (MetricsTable){0};
}
