/* The rows of a run: kept in memory for the plot, appended to metrics.csv and to an event file as they come. Which
 * columns there are is the trainer's choice. Invariant: metrics.csv has a header and complete lines only; every
 * row reaches the file before metrics_row returns, or, where the disk is full, as soon as it is not. */
#include "train/metrics.h"
#include "base/array.h"
#include "base/files.h"
#include "base/log.h"
#include "base/status.h"
#include "train/plot.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* ---- Files that grow by records ---- */

/* A file that grows by whole records, on a disk that may be full for a while: a record that cannot be written is kept, said once, and tried
 * again with the next one. Invariant: the file holds whole records only, in order. */

typedef struct AppendFile {
  int fd; /* -1: not open */
  char *path;
  off_t size;    /* of what was written whole */
  uint8_t *kept; /* not written yet */
  size_t kept_bytes, room;
  bool behind; /* the last try failed */
} AppendFile;

/* Opens an existing file, or makes a new one (`fresh`: it must not exist, else errno is EEXIST). IO when that cannot be. Close also then.
 */
static Status append_file_open(AppendFile *file, const char *path, bool fresh) {
  *file = (AppendFile){.fd = -1, .path = strdup(path)};
  if (!file->path) return status_no_memory(path, "its name");
  file->fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | (fresh ? O_CREAT | O_EXCL : 0), 0666);
  if (file->fd >= 0) file->size = lseek(file->fd, 0, SEEK_END);
  if (file->fd >= 0 && file->size >= 0) return STATUS_OK;
  int error = errno;
  status_set(STATUS_IO, "cannot open %s for writing: %s", path, strerror(error));
  errno = error;
  return STATUS_IO;
}

/* All that is kept, or nothing: half a record is taken back. */
static void flush(AppendFile *file) {
  int error = 0;
  for (size_t done = 0; error == 0 && done < file->kept_bytes;) {
    ssize_t n = write(file->fd, file->kept + done, file->kept_bytes - done);
    if (n >= 0)
      done += (size_t)n;
    else if (errno != EINTR)
      error = errno;
  }
  if (error == 0) {
    if (file->behind) log_info("%s can be written again, and is complete", file->path);
    file->size += (off_t)file->kept_bytes;
    file->kept_bytes = 0;
    file->behind = false;
    return;
  }
  if (ftruncate(file->fd, file->size) != 0) error = errno;
  if (!file->behind) log_warning("cannot write %s: %s; the run goes on, and tries again later", file->path, strerror(error));
  file->behind = true;
}

/* Adds a record. A warning, and OK, when the disk is full; NO_MEMORY is the only failure. */
static Status append_file_add(AppendFile *file, const void *record, size_t bytes) {
  TRY(ARRAY_RESERVE(file->kept, file->kept_bytes, bytes, file->room, "a record"));
  memcpy(file->kept + file->kept_bytes, record, bytes);
  file->kept_bytes += bytes;
  flush(file);
  return STATUS_OK;
}

/* Tries once more, warns of what is lost, closes. Accepts one that failed to open, and one that was closed. */
static void append_file_close(AppendFile *file) {
  if (file->path && file->fd >= 0) {
    if (file->kept_bytes > 0) flush(file);
    if (file->kept_bytes > 0) log_warning("%s lacks its last %zu bytes, which could not be written", file->path, file->kept_bytes);
    close(file->fd);
  }
  free(file->path);
  free(file->kept);
  *file = (AppendFile){.fd = -1};
}

/* ---- TensorBoard's event files ---- */

/* TensorBoard event files: a sequence of TFRecords, each an Event message of its protocol (tensorflow/core/util/event.proto), encoded by
 * hand as only four kinds of fields are needed.
 * Record layout: u64 length | u32 masked CRC-32C of the length | data | u32 masked CRC-32C of the data, all little-endian.
 * Leaves out reading. Invariant: a record is encoded in memory and written with one call, so a killed run leaves at most one torn record
 * at the end, which readers skip; one that a full disk tore is taken back. */

typedef struct EventFile EventFile;

/* Bytes under construction; failure to grow is sticky and found at the end. */
typedef struct Bytes {
  uint8_t *data;
  size_t size, capacity;
  bool failed;
} Bytes;

struct EventFile {
  AppendFile file;
  Bytes record, event, summary, value; /* kept from row to row */
};

enum { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5 };                                            /* protobuf wire types */
enum { EVENT_WALL_TIME = 1, EVENT_STEP, EVENT_VERSION, EVENT_SUMMARY = 5, EVENT_SESSION_LOG = 7 }; /* field numbers */
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };

/* CRC-32C (Castagnoli), as TFRecords use it before masking. */
static uint32_t event_file_crc(const void *data, size_t size) {
  const uint8_t *bytes = data; /* bit by bit: a record has a few hundred bytes and is written once in seconds */
  uint32_t crc = ~UINT32_C(0);
  for (size_t i = 0; i < size; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (UINT32_C(0x82F63B78) & (0 - (crc & 1)));
  }
  return ~crc;
}

static uint32_t masked_crc(const void *data, size_t size) {
  uint32_t crc = event_file_crc(data, size);
  return ((crc >> 15) | (crc << 17)) + UINT32_C(0xa282ead8);
}

static void put(Bytes *bytes, const void *data, size_t size) {
  if (bytes->failed) return;
  if (ARRAY_RESERVE(bytes->data, bytes->size, size, bytes->capacity, "an event") != STATUS_OK) {
    bytes->failed = true;
    return;
  }
  memcpy(bytes->data + bytes->size, data, size);
  bytes->size += size;
}

static void put_little_endian(Bytes *bytes, uint64_t number, size_t size) {
  uint8_t out[8];
  for (size_t i = 0; i < size; i++) out[i] = (uint8_t)(number >> (8 * i));
  put(bytes, out, size);
}

static void put_varint(Bytes *bytes, uint64_t number) {
  for (; number >= 128; number >>= 7) put_little_endian(bytes, (number & 127) | 128, 1);
  put_little_endian(bytes, number, 1);
}

static void put_field(Bytes *bytes, unsigned field, unsigned wire) { put_varint(bytes, field << 3 | wire); }

static void put_bytes(Bytes *bytes, unsigned field, const void *data, size_t size) {
  put_field(bytes, field, WIRE_BYTES);
  put_varint(bytes, size);
  put(bytes, data, size);
}

static void put_message(Bytes *bytes, unsigned field, const Bytes *message) {
  bytes->failed = bytes->failed || message->failed;
  put_bytes(bytes, field, message->data, message->size);
}

static void start_event(EventFile *file, int64_t step) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
  uint64_t bits;
  memcpy(&bits, &seconds, sizeof bits);
  file->event.size = 0;
  put_field(&file->event, EVENT_WALL_TIME, WIRE_64);
  put_little_endian(&file->event, bits, 8);
  put_field(&file->event, EVENT_STEP, WIRE_VARINT);
  put_varint(&file->event, (uint64_t)step);
}

static Status write_event(EventFile *file) {
  Bytes *record = &file->record;
  record->size = 0;
  put_little_endian(record, file->event.size, 8);
  if (!record->failed) put_little_endian(record, masked_crc(record->data, 8), 4);
  put(record, file->event.data, file->event.size);
  put_little_endian(record, masked_crc(file->event.data, file->event.size), 4);
  if (record->failed || file->event.failed) return status_no_memory(file->file.path, "a record");
  return append_file_add(&file->file, record->data, record->size);
}

/* A name that no earlier file has, so that TensorBoard reads the files of resumed runs in order. */
static Status create(EventFile *file, const char *directory) {
  enum { ATTEMPTS = 100, NAME = 384 };
  char host[128] = "host", name[NAME];
  if (gethostname(host, sizeof host - 1) != 0 || !host[0]) strcpy(host, "localhost");
  for (char *c = host; *c; c++)
    if (*c == '/') *c = '-';
  long long seconds = (long long)time(NULL);
  for (int i = 0; i < ATTEMPTS; i++) {
    snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%ld.astra", seconds + i, host, (long)getpid());
    char *path = files_join(directory, name);
    if (!path) return status_no_memory(NULL, "the name of an event file");
    Status status = append_file_open(&file->file, path, true);
    bool taken = status == STATUS_IO && errno == EEXIST;
    free(path);
    if (!taken) return status;
    append_file_close(&file->file);
  }
  return status_set(STATUS_IO, "cannot create an event file in %s: %d names are taken", directory, (int)ATTEMPTS);
}

static Status write_head(EventFile *file, int64_t resume_step) {
  static const char version[] = "brain.Event:2";
  start_event(file, 0);
  put_bytes(&file->event, EVENT_VERSION, version, sizeof version - 1);
  TRY(write_event(file));
  if (resume_step < 0) return STATUS_OK;
  start_event(file, resume_step + 1);
  file->value.size = 0;
  put_field(&file->value, SESSION_STATUS, WIRE_VARINT);
  put_varint(&file->value, SESSION_START);
  put_message(&file->event, EVENT_SESSION_LOG, &file->value);
  return write_event(file);
}

/* accepts NULL */
static void event_file_close(EventFile *file) {
  if (!file) return;
  append_file_close(&file->file);
  free(file->record.data);
  free(file->event.data);
  free(file->summary.data);
  free(file->value.data);
  free(file);
}

/* Creates DIRECTORY/events.out.tfevents.SECONDS.HOST.PID.astra with its version record. On resume (resume_step >= 0) a session-start
 * record follows, which makes TensorBoard forget what earlier files of the directory hold beyond that step. */
static Status event_file_open(EventFile **opened, const char *directory, int64_t resume_step) {
  *opened = NULL;
  EventFile *file = calloc(1, sizeof *file);
  if (!file) return status_no_memory(NULL, "an event file");
  file->file.fd = -1;
  Status status = create(file, directory);
  if (status == STATUS_OK) status = write_head(file, resume_step);
  if (status == STATUS_OK)
    *opened = file;
  else
    event_file_close(file);
  return status;
}

/* One event with a scalar for each value that is not NAN; flushed. Nothing is written when all are. */
static Status event_file_scalars(EventFile *file, int64_t step, const char *const *tags, const double *values, size_t count) {
  file->summary.size = 0;
  for (size_t i = 0; i < count; i++)
    if (!isnan(values[i])) {
      float simple = (float)values[i];
      uint32_t bits;
      memcpy(&bits, &simple, sizeof bits);
      file->value.size = 0;
      put_bytes(&file->value, VALUE_TAG, tags[i], strlen(tags[i]));
      put_field(&file->value, VALUE_SIMPLE, WIRE_32);
      put_little_endian(&file->value, bits, 4);
      put_message(&file->summary, SUMMARY_VALUE, &file->value);
    }
  if (file->summary.size == 0 && !file->summary.failed) return STATUS_OK;
  start_event(file, step);
  put_message(&file->event, EVENT_SUMMARY, &file->summary);
  return write_event(file);
}

/* ---- metrics.csv read back ---- */

/* The rows of a run in memory, and how they look as lines of metrics.csv. Invariant: a line that is kept has a number or nothing in each of
 * its fields. */
typedef struct MetricsTable {
  char **columns; /* [count], copies */
  size_t count;
  double *steps, **series; /* [rows], [count][rows] */
  size_t rows, capacity;
} MetricsTable;

/* BAD_VALUE for a name that would need quotes. The table is to be released even after a failure. */
static Status metrics_table_init(MetricsTable *table, const char *const *columns, size_t count) {
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

/* Makes room for one more row. */
static Status make_room(MetricsTable *table) {
  size_t room = table->capacity;
  TRY(ARRAY_RESERVE(table->steps, table->rows, 1, room, "the metrics of the run"));
  for (size_t c = 0; c < table->count; c++) {
    size_t same = table->capacity; /* all of them have as many rows */
    TRY(ARRAY_RESERVE(table->series[c], table->rows, 1, same, "the metrics of the run"));
  }
  table->capacity = room;
  return STATUS_OK;
}

static void metrics_table_header(const MetricsTable *table, FILE *stream) {
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

/* Of an evaluation there is no loss in training, the first column. */
static bool is_evaluation(const MetricsTable *table) { return table->count > 0 && isnan(table->series[0][table->rows]); }

/* Adds the rows up to resume_step of an old file's text, which ends with a NUL, and writes their lines to `stream` behind a header. A last
 * line without its end was cut off by whatever ended the run, and is dropped; of resume_step itself, where `again` says so, the evaluation
 * too. BAD_FILE, naming `path`: other columns, or a line that is no row. */
static Status metrics_table_read(MetricsTable *table, const char *text, const char *path, int64_t resume_step, bool again, FILE *stream) {
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
    if (again && table->steps[table->rows] == (double)resume_step && is_evaluation(table)) continue;
    fwrite(line, 1, (size_t)(end - line) + 1, stream);
    table->rows++;
  }
  return STATUS_OK;
}

static void metrics_table_release(MetricsTable *table) {
  for (size_t c = 0; c < table->count; c++) {
    free(table->columns[c]);
    free(table->series[c]);
  }
  free(table->columns);
  free(table->series);
  free(table->steps);
  *table = (MetricsTable){0};
}

/* ---- curves.png ---- */

/* Sorts columns into panels by what their names contain. One table says it; quantities of different size get panels of their own, as one
 * would flatten the other. */

enum { PANEL_WIDTH = 560, PANEL_HEIGHT = 380, MARKED = 40 /* points of a series up to which each is marked */ };

/* A column goes to the first row whose word its name contains. */
static const struct {
  const char *word, *title, *y_label;
} panels[] = {
    {"commitment", "Commitment loss", "squared distance"},
    {"loss", "Loss", "loss"},
    {"accuracy", "Accuracy", "accuracy"},
    {"codebook_perplexity", "Codebook perplexity", "perplexity"},
    {"perplexity", "Perplexity", "perplexity"},
    {"bits_per_byte", "Bits per byte", "bits"},
    {"matthews", "Matthews correlation", "correlation"},
    {"dead", "Dead codes", "share"},
    {"learning_rate", "Learning rate", "learning rate"},
};
enum { PANELS = sizeof panels / sizeof *panels };
static const int drawing_order[PANELS] = {1, 2, 4, 5, 6, 0, 3, 7, 8};

static int panel_of(const char *name) {
  for (int p = 0; p < PANELS; p++)
    if (strstr(name, panels[p].word)) return p;
  return -1;
}

/* names [count]; series [count][rows] over steps [rows], NAN where a row has no value. Atomic write of `path`. */
static Status curves_draw(const char *path, const char *title, const char *const *names, size_t count, const double *steps,
                          const double *const *series, size_t rows) {
  PlotSeries *lines = calloc(count + 1, sizeof *lines);
  if (!lines) return status_no_memory(path, "its curves");
  PlotPanel drawn[PANELS] = {{.title = "", .x_label = "step", .y_label = ""}};
  size_t line = 0, used = 0;
  for (int p = 0; p < PANELS; p++) {
    const int kind = drawing_order[p];
    const size_t first = line;
    for (size_t c = 0; c < count; c++) {
      size_t finite = 0;
      for (size_t i = 0; i < rows; i++) finite += isfinite(series[c][i]) != 0;
      if (panel_of(names[c]) == kind && (finite > 0 || rows == 0)) /* what a run never has (a plain one no codebooks) is not drawn */
        lines[line++] = (PlotSeries){.name = names[c], .x = steps, .y = series[c], .count = rows, .points = finite <= MARKED};
    }
    if (line == first) continue;
    drawn[used++] = (PlotPanel){
        .title = panels[kind].title, .x_label = "step", .y_label = panels[kind].y_label, .series = lines + first, .count = line - first};
  }
  Status status = plot_save(path, title, drawn, used ? used : 1, PANEL_WIDTH, PANEL_HEIGHT);
  free(lines);
  return status;
}

/* ---- Metrics of a run ---- */

static const size_t CSV_LIMIT = (size_t)1 << 30;

struct Metrics {
  char *csv_path, *plot_path;
  AppendFile csv;
  EventFile *events;
  MetricsTable table;
  bool undrawn; /* the last plot could not be written */
};

/* Leaves a metrics.csv with its header and, on resume, the rows to keep. */
static Status prepare_csv(Metrics *metrics, int64_t resume_step, bool again) {
  char *text = NULL;
  size_t size;
  if (resume_step >= 0 && files_exists(metrics->csv_path)) TRY(files_read(metrics->csv_path, CSV_LIMIT, &text, &size));
  FileWriter writer;
  Status status = files_create(&writer, metrics->csv_path);
  if (status == STATUS_OK) {
    if (text)
      status = metrics_table_read(&metrics->table, text, metrics->csv_path, resume_step, again, writer.stream);
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

static Status open_all(Metrics *metrics, const char *directory, const char *const *columns, size_t count, int64_t resume_step, bool again) {
  TRY(metrics_table_init(&metrics->table, columns, count));
  TRY(files_make_dirs(directory));
  metrics->csv_path = files_join(directory, "metrics.csv");
  metrics->plot_path = files_join(directory, "curves.png");
  if (!metrics->csv_path || !metrics->plot_path) return status_no_memory(NULL, "the metrics of the run");
  TRY(prepare_csv(metrics, resume_step, again));
  TRY(append_file_open(&metrics->csv, metrics->csv_path, false));
  return event_file_open(&metrics->events, directory, resume_step);
}

Status metrics_open(Metrics **opened, const char *directory, const char *const *columns, size_t count, int64_t resume_step, bool again) {
  *opened = NULL;
  Metrics *metrics = calloc(1, sizeof *metrics);
  if (!metrics) return status_no_memory(NULL, "the metrics of the run");
  metrics->csv.fd = -1;
  Status status = open_all(metrics, directory, columns, count, resume_step, again);
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
  MetricsTable *table = &metrics->table;
  TRY(make_room(table));
  table->steps[table->rows] = (double)step;
  for (size_t c = 0; c < table->count; c++) table->series[c][table->rows] = values[c];
  table->rows++;
  char *line = NULL;
  size_t size;
  FILE *stream = open_memstream(&line, &size);
  if (!stream) return status_no_memory(NULL, "the metrics of the run");
  fprintf(stream, "%lld", (long long)step);
  print_number(seconds, stream);
  for (size_t c = 0; c < table->count; c++) print_number(values[c], stream);
  fputc('\n', stream);
  Status status = fclose(stream) == 0 ? append_file_add(&metrics->csv, line, size) : status_no_memory(NULL, "the metrics of the run");
  free(line);
  TRY(status);
  return event_file_scalars(metrics->events, step, (const char *const *)table->columns, values, table->count);
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

/* ---- Which class is taken for which ---- */

Status metrics_confusion_new(uint32_t **counts, int64_t classes) {
  *counts = NULL;
  if (classes < 2 || classes > METRICS_CLASSES) return STATUS_OK;
  *counts = calloc((size_t)(classes * classes), sizeof **counts);
  return *counts ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for a matrix of %lld classes", (long long)classes);
}

/* In quotes where it holds what CSV obeys. */
static void write_name(FILE *stream, const char *name) {
  if (strpbrk(name, ",\"\r\n") == NULL) {
    fputs(name, stream);
    return;
  }
  fputc('"', stream);
  for (; *name; name++) {
    if (*name == '"') fputc('"', stream);
    fputc(*name, stream);
  }
  fputc('"', stream);
}

static Status save_counts(const uint32_t *counts, int64_t classes, char *const *names, const char *path) {
  FileWriter writer;
  TRY(files_create(&writer, path));
  fputs("label", writer.stream);
  for (int64_t j = 0; j < classes; j++) {
    fputc(',', writer.stream);
    write_name(writer.stream, names[j]);
  }
  for (int64_t i = 0; i < classes; i++) {
    fputc('\n', writer.stream);
    write_name(writer.stream, names[i]);
    for (int64_t j = 0; j < classes; j++) fprintf(writer.stream, ",%u", (unsigned)counts[i * classes + j]);
  }
  fputc('\n', writer.stream);
  return files_commit(&writer);
}

Status metrics_confusion_save(const uint32_t *counts, int64_t classes, char *const *names, const char *directory) {
  if (counts == NULL) return STATUS_OK;
  char *csv = files_join(directory, "confusion.csv"), *png = files_join(directory, "confusion.png");
  Status status = csv != NULL && png != NULL ? save_counts(counts, classes, names, csv) : status_no_memory(directory, "a path");
  if (status == STATUS_OK) status = plot_matrix(png, counts, classes, names);
  free(csv);
  free(png);
  return status;
}
