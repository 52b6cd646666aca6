/* Fuzz target: the metrics.csv that a resumed run goes on with. What is kept of an accepted text is complete lines with as many fields as
 * there are columns, and is kept whole when it is read again. */
#include "fuzz/fuzz.h"
#include "train/metrics.c"
#include <stdlib.h>
#include <string.h>

enum { RESUME_STEP = 1000 };

/* What is kept of `text`, or NULL. */
static char *kept(const char *text, size_t *size, size_t *rows) {
  MetricsTable table;
  char *out = NULL;
  FILE *stream = open_memstream(&out, size);
  if (!stream || metrics_table_init(&table, (const char *[]){"loss", "accuracy"}, 2) != STATUS_OK) abort();
  Status status = metrics_table_read(&table, text, "fuzz", RESUME_STEP, true, stream);
  *rows = table.rows;
  for (size_t i = 0; status == STATUS_OK && i < table.rows; i++)
    if (!(table.steps[i] <= RESUME_STEP)) abort();
  metrics_table_release(&table);
  fclose(stream);
  if (status == STATUS_OK) return out;
  if (*status_message() == '\0') abort();
  free(out);
  return NULL;
}

static void check_lines(const char *text, size_t size, size_t rows) {
  size_t lines = 0, fields = 0;
  for (size_t i = 0; i < size; i++) {
    fields += text[i] == ',' || text[i] == '\n';
    if (text[i] != '\n') continue;
    if (fields != 4) abort();
    fields = 0;
    lines++;
  }
  if (fields != 0 || lines != rows + 1) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1), *once, *twice = NULL;
  size_t once_size, twice_size, rows, rows_again;
  if (!text) abort();
  if (size) memcpy(text, data, size);
  text[size] = '\0';
  once = kept(text, &once_size, &rows);
  if (once) {
    check_lines(once, once_size, rows);
    twice = kept(once, &twice_size, &rows_again);
    if (!twice || twice_size != once_size || memcmp(once, twice, once_size) != 0 || rows != rows_again) abort();
  }
  free(twice);
  free(once);
  free(text);
  return 0;
}
