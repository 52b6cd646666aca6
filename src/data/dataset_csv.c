/* CSV manifests: rows path,label[,split], read through libcsv (quotes, CRLF). Leaves out: decoding (dataset_folder.c), other separators.
 * A first row such as path,label is a header. Either every row has a split (train; test, val, valid or validation) or none has: then
 * every fifth row is for testing. Columns after the third are ignored. */
#include "data/dataset_csv.h"
#include "base/array.h"
#include "base/files.h"
#include "data/dataset_internal.h"
#include <csv.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { COLUMNS = 3, MAX_CELL = 1 << 20, SLICE = 1 << 16 };
static const size_t max_manifest_bytes = (size_t)1 << 28;

typedef struct ManifestReader {
  Manifest *manifest;
  const char *file;
  long line;
  char *fields[COLUMNS]; /* of the row being read, owned */
  int columns;
  size_t unended; /* bytes since the last end of a field */
  bool past_header;
  Status status; /* the first failure; everything after it is passed over */
} ManifestReader;

static bool is_one_of(const char *text, const char *const *list) {
  while (*list && strcasecmp(text, *list) != 0) list++;
  return *list != NULL;
}

static void on_field(void *text, size_t length, void *data) {
  ManifestReader *reader = data;
  int column = reader->columns++;
  reader->unended = 0;
  if (reader->status != STATUS_OK || column >= COLUMNS) return;
  if (memchr(text, 0, length)) {
    reader->status =
        status_set(STATUS_BAD_FILE, "%s, line %ld: a NUL byte; the file must be plain or UTF-8 text", reader->file, reader->line);
    return;
  }
  reader->fields[column] = strndup(text, length);
  if (!reader->fields[column]) reader->status = status_no_memory(reader->file, "the manifest");
}

static Status read_split(ManifestReader *reader, ManifestSplit *split) {
  static const char *const train_names[] = {"train", "training", NULL}, *const test_names[] = {"test", "val", "valid", "validation", NULL};
  const char *text = reader->columns > 2 ? reader->fields[2] : "";
  *split = is_one_of(text, train_names) ? MANIFEST_TRAIN : is_one_of(text, test_names) ? MANIFEST_TEST : MANIFEST_NO_SPLIT;
  if (*split == MANIFEST_NO_SPLIT && *text) {
    return status_set(STATUS_BAD_FILE, "%s, line %ld: split \"%s\"; train, test, val, valid and validation are accepted", reader->file,
                      reader->line, text);
  }
  const Manifest *manifest = reader->manifest;
  if (manifest->count && (manifest->rows[0].split == MANIFEST_NO_SPLIT) != (*split == MANIFEST_NO_SPLIT)) {
    return status_set(STATUS_BAD_FILE, "%s, line %ld: %s; either every row names its split in the third column or none does", reader->file,
                      reader->line, *text ? "a split, where the rows before have none" : "no split, where the rows before have one");
  }
  return STATUS_OK;
}

static bool is_header(const ManifestReader *reader) {
  static const char *const path_names[] = {"path", "file", "filename", "file_name", "image", "picture", NULL};
  static const char *const label_names[] = {"label", "labels", "class", "category", NULL};
  return reader->columns >= 2 && is_one_of(reader->fields[0], path_names) && is_one_of(reader->fields[1], label_names);
}

static Status read_row(ManifestReader *reader) {
  bool first = !reader->past_header;
  reader->past_header = true;
  if (first && is_header(reader)) return STATUS_OK;
  if (reader->columns < 2 || !*reader->fields[0] || !*reader->fields[1]) {
    return status_set(STATUS_BAD_FILE, "%s, line %ld: a row is path,label or path,label,split, and neither path nor label is empty",
                      reader->file, reader->line);
  }
  ManifestRow row = {reader->fields[0], reader->fields[1], MANIFEST_NO_SPLIT};
  TRY(read_split(reader, &row.split));
  TRY(ARRAY_RESERVE(reader->manifest->rows, reader->manifest->count, 1, reader->manifest->room, "the rows of a manifest"));
  reader->manifest->rows[reader->manifest->count++] = row;
  reader->fields[0] = reader->fields[1] = NULL;
  return STATUS_OK;
}

static void forget_fields(ManifestReader *reader) {
  for (int i = 0; i < COLUMNS; i++) {
    free(reader->fields[i]);
    reader->fields[i] = NULL;
  }
  reader->columns = 0;
}

static void on_row(int end, void *data) {
  (void)end;
  ManifestReader *reader = data;
  if (reader->status == STATUS_OK) reader->status = read_row(reader);
  forget_fields(reader);
}

static Status syntax(ManifestReader *reader, struct csv_parser *parser) {
  if (csv_error(parser) == CSV_ENOMEM) return status_no_memory(reader->file, "the manifest");
  return status_set(STATUS_BAD_FILE, "%s, line %ld: malformed CSV (a quote is missing or stands in the middle of a field)", reader->file,
                    reader->line);
}

/* In slices, so that a field without an end is noticed before it is kept whole. */
static Status feed_line(ManifestReader *reader, struct csv_parser *parser, const char *line, size_t length) {
  for (size_t at = 0, slice; at < length && reader->status == STATUS_OK; at += slice) {
    slice = length - at < SLICE ? length - at : SLICE;
    reader->unended += slice;
    if (csv_parse(parser, line + at, slice, on_field, on_row, reader) != slice) return syntax(reader, parser);
    if (reader->unended > MAX_CELL + SLICE)
      return status_set(STATUS_BAD_FILE, "%s, line %ld: a field of more than %d bytes; is a quote not closed?", reader->file, reader->line,
                        (int)MAX_CELL);
  }
  return STATUS_OK;
}

/* Fed line by line, because libcsv does not count them. */
static Status feed(ManifestReader *reader, struct csv_parser *parser, const char *text, size_t size) {
  for (size_t at = 0; at < size && reader->status == STATUS_OK;) {
    const char *end = memchr(text + at, '\n', size - at);
    size_t length = end ? (size_t)(end - text) + 1 - at : size - at;
    reader->line++;
    TRY(feed_line(reader, parser, text + at, length));
    at += length;
  }
  if (reader->status == STATUS_OK && csv_fini(parser, on_field, on_row, reader) != 0) return syntax(reader, parser);
  return reader->status;
}

static bool is_whole_number(const char *text) {
  size_t sign = *text == '-', digits = strspn(text + sign, "0123456789");
  return digits >= 1 && digits <= 18 && text[sign + digits] == 0;
}

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int by_value(const void *a, const void *b) {
  long long x = strtoll(*(char *const *)a, NULL, 10), y = strtoll(*(char *const *)b, NULL, 10);
  return x < y ? -1 : x > y ? 1 : by_bytes(a, b);
}

typedef int Order(const void *a, const void *b);

static Order *label_order(char *const *labels, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    if (!is_whole_number(labels[i])) return by_bytes;
  }
  return by_value;
}

/* The classes point at labels of rows. */
static Status find_classes(Manifest *manifest, const char *file) {
  if (manifest->count == 0) return status_set(STATUS_BAD_FILE, "%s: no rows; expected path,label in each", file);
  if (manifest->count > INT32_MAX) return status_set(STATUS_BAD_FILE, "%s: more than %d rows", file, INT32_MAX);
  manifest->classes = malloc((size_t)manifest->count * sizeof *manifest->classes);
  if (!manifest->classes) return status_no_memory(file, "the manifest");
  for (int64_t i = 0; i < manifest->count; i++) manifest->classes[i] = manifest->rows[i].label;
  qsort(manifest->classes, (size_t)manifest->count, sizeof *manifest->classes, label_order(manifest->classes, manifest->count));
  for (int64_t i = 0; i < manifest->count; i++) {
    if (i > 0 && strcmp(manifest->classes[i], manifest->classes[manifest->class_count - 1]) == 0) continue;
    manifest->classes[manifest->class_count++] = manifest->classes[i];
  }
  return STATUS_OK;
}

int32_t dataset_csv_class(const Manifest *manifest, const char *label) {
  Order *order = label_order(manifest->classes, manifest->class_count);
  char **found = bsearch(&label, manifest->classes, (size_t)manifest->class_count, sizeof *manifest->classes, order);
  return (int32_t)(found - manifest->classes);
}

Status dataset_csv_parse(Manifest *manifest, const char *text, size_t size, const char *file) {
  static const char mark[] = "\xef\xbb\xbf"; /* of UTF-8 */
  *manifest = (Manifest){0};
  ManifestReader reader = {.manifest = manifest, .file = file};
  struct csv_parser parser;
  if (csv_init(&parser, CSV_STRICT | CSV_STRICT_FINI) != 0) return status_no_memory(file, "the manifest");
  size_t skip = size >= 3 && memcmp(text, mark, 3) == 0 ? 3 : 0;
  Status status = feed(&reader, &parser, text + skip, size - skip);
  csv_free(&parser);
  forget_fields(&reader);
  return status == STATUS_OK ? find_classes(manifest, file) : status;
}

void dataset_csv_release(Manifest *manifest) {
  for (int64_t i = 0; i < manifest->count; i++) {
    free(manifest->rows[i].path);
    free(manifest->rows[i].label);
  }
  free(manifest->rows);
  free(manifest->classes);
  *manifest = (Manifest){0};
}

static Status add_rows(ImageList *list, const Manifest *manifest, const char *folder, DatasetPart part) {
  for (int64_t i = 0; i < manifest->count; i++) {
    const ManifestRow *row = &manifest->rows[i];
    DatasetPart own = row->split == MANIFEST_NO_SPLIT ? dataset_files_part(i) : (DatasetPart)row->split;
    if (own == part) TRY(dataset_files_add(list, files_join(folder, row->path), dataset_csv_class(manifest, row->label)));
  }
  return STATUS_OK;
}

static Status copy_classes(Dataset *set, const Manifest *manifest, const char *file) {
  set->labels = calloc((size_t)manifest->class_count, sizeof *set->labels);
  if (!set->labels) return status_no_memory(file, "the manifest");
  set->classes = manifest->class_count;
  for (int64_t i = 0; i < set->classes; i++) {
    if (!(set->labels[i] = strdup(manifest->classes[i]))) return status_no_memory(file, "the manifest");
  }
  return STATUS_OK;
}

static Status take(Dataset *set, const Manifest *manifest, const char *file, DatasetPart part) {
  const char *slash = strrchr(file, '/');
  char *folder = slash ? strndup(file, (size_t)(slash - file) + (slash == file)) : strdup(".");
  ImageList list = {0};
  Status status = folder ? add_rows(&list, manifest, folder, part) : status_no_memory(file, "the manifest");
  free(folder);
  if (status == STATUS_OK && list.count == 0) {
    status =
        status_set(STATUS_BAD_FILE, "%s: no rows for the %s part among %lld", file, dataset_part_name(part), (long long)manifest->count);
  }
  if (status == STATUS_OK) status = copy_classes(set, manifest, file);
  if (status == STATUS_OK) status = dataset_files_attach(set, &list);
  dataset_files_release(&list);
  return status;
}

Status dataset_csv_open(Dataset *set, const char *path, DatasetPart part) {
  char *text = NULL;
  size_t size = 0;
  TRY(files_read(path, max_manifest_bytes, &text, &size));
  Manifest manifest;
  Status status = dataset_csv_parse(&manifest, text, size, path);
  if (status == STATUS_OK) status = take(set, &manifest, path, part);
  dataset_csv_release(&manifest);
  free(text);
  if (status != STATUS_OK) return status;
  return dataset_set_description(set, "manifest %s, %lld images, %lld classes, from %s", dataset_part_name(part), (long long)set->count,
                                 (long long)set->classes, path);
}
