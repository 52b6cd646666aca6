/* CIFAR-10 and CIFAR-100 in their binary layout, read in place from mapped files. Leaves out: the python and matlab layouts.
 * Invariant: sizes and every label are checked when a set is opened; reading a record after that cannot fail but for memory. */
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "data/data_paths.h"
#include "data/dataset_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILES = 5, DIGEST_BYTES = 16 /* of an image */ };
enum { CIFAR_SIDE = 32, CIFAR_PLANE = CIFAR_SIDE * CIFAR_SIDE, CIFAR_IMAGE = 3 * CIFAR_PLANE };

/* A record: one byte for each label (the last one counts), then the R, G and B planes. */
typedef struct CifarRecord {
  int labels;    /* 1 or 2 */
  int limits[2]; /* label i is below limits[i] */
} CifarRecord;

static const size_t max_label_bytes = 1 << 16;

typedef struct CifarLayout {
  const char *name, *title;
  const char *archive;             /* the folder inside the official archive */
  const char *get;                 /* what to do when it is not there */
  bool bare;                       /* also looked for in DATA_DIR itself */
  const char *files[2][MAX_FILES]; /* by DatasetPart */
  const char *label_names;
  CifarRecord record;
  double mean[3], std[3];
} CifarLayout;

#define CIFAR100_FACTS                                                                                                                     \
  .files = {{"train.bin"}, {"test.bin"}}, .label_names = "fine_label_names.txt", .record = {2, {20, 100}},                                 \
  .mean = {0.5071, 0.4865, 0.4409}, .std = {0.2673, 0.2564, 0.2762}

static const CifarLayout layouts[] = {
    {.name = "cifar100",
     .title = "CIFAR-100",
     .archive = "cifar-100-binary",
     .bare = true,
     .get = "`astra-data get cifar100` downloads it",
     CIFAR100_FACTS},
    {.name = "cifar100-sample",
     .title = "CIFAR-100 sample",
     .archive = "cifar-100-binary",
     .bare = false,
     .get = "it comes with the sources in datasets/cifar100-sample",
     CIFAR100_FACTS},
    {.name = "cifar10",
     .title = "CIFAR-10",
     .archive = "cifar-10-batches-bin",
     .bare = true,
     .get = "`astra-data get cifar10` downloads it",
     .files = {{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"}, {"test_batch.bin"}},
     .label_names = "batches.meta.txt",
     .record = {1, {10, 0}},
     .mean = {0.4914, 0.4822, 0.4465},
     .std = {0.2470, 0.2435, 0.2616}},
};

typedef struct CifarFiles {
  const CifarLayout *layout;
  FileMap maps[MAX_FILES];
  int64_t counts[MAX_FILES]; /* records of each */
  int files;
} CifarFiles;

static const CifarLayout *find_layout(const char *name) {
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    if (strcmp(layouts[i].name, name) == 0) return &layouts[i];
  }
  return NULL;
}

static bool knows(const char *name) { return find_layout(name) != NULL; }

static size_t record_bytes(const CifarRecord *record) { return (size_t)record->labels + CIFAR_IMAGE; }

/* Checks a whole file (size, every label); errors name file, record and limits. */
static Status check_file(const CifarRecord *record, const uint8_t *bytes, size_t size, const char *path) {
  size_t step = record_bytes(record);
  if (size == 0 || size % step != 0) {
    return status_set(STATUS_BAD_FILE, "%s: %zu bytes are not a whole number (1 or more) of records of %zu bytes; fetch the file again",
                      path, size, step);
  }
  for (size_t at = 0; at < size; at += step) {
    for (int i = 0; i < record->labels; i++) {
      if (bytes[at + i] < record->limits[i]) continue;
      return status_set(STATUS_BAD_FILE, "%s: record %zu has the %slabel %d; 0 to %d are accepted", path, at / step,
                        record->labels == 1 ? ""
                        : i == 0            ? "coarse "
                                            : "fine ",
                        bytes[at + i], record->limits[i] - 1);
    }
  }
  return STATUS_OK;
}

/* One record of a checked file. */
static Status unpack_record(const CifarRecord *record, const uint8_t *bytes, Image *image, int32_t *label) {
  TRY(image_reshape(image, CIFAR_SIDE, CIFAR_SIDE));
  *label = bytes[record->labels - 1];
  const uint8_t *r = bytes + record->labels, *g = r + CIFAR_PLANE, *b = g + CIFAR_PLANE;
  uint8_t *rgb = image->rgb;
  for (int i = 0; i < CIFAR_PLANE; i++) {
    rgb[3 * i] = r[i];
    rgb[3 * i + 1] = g[i];
    rgb[3 * i + 2] = b[i];
  }
  return STATUS_OK;
}

/* A checked record within its file. */
static const uint8_t *find_record(const Dataset *set, int64_t index) {
  const CifarFiles *files = set->state;
  int file = 0;
  while (index >= files->counts[file]) index -= files->counts[file++];
  return files->maps[file].data + (size_t)index * record_bytes(&files->layout->record);
}

static Status read_record(Dataset *set, int64_t index, Image *image, int32_t *label) {
  return unpack_record(&((const CifarFiles *)set->state)->layout->record, find_record(set, index), image, label);
}

static int32_t label_of(const Dataset *set, int64_t index) {
  return find_record(set, index)[((const CifarFiles *)set->state)->layout->record.labels - 1];
}

/* By some pixels, spread over the image: of pages that were read for the labels. */
static uint64_t identify_record(const Dataset *set, int64_t index, uint64_t hash) {
  const uint8_t *image = find_record(set, index) + ((const CifarFiles *)set->state)->layout->record.labels;
  for (int at = 0; at < CIFAR_IMAGE; at += CIFAR_IMAGE / DIGEST_BYTES) hash = hash_add(hash, image + at, 1);
  return hash;
}

static void close_files(Dataset *set) {
  CifarFiles *files = set->state;
  for (int i = 0; files && i < files->files; i++) files_unmap(&files->maps[i]);
  free(files);
}

/* True when the part's first file lies in ROOT/a/b; then *found is that folder. Otherwise the place is appended to `tried`. */
static bool try_folder(const char *root, const char *a, const char *b, const char *file, FILE *tried, char **found) {
  char *folder = NULL;
  if (asprintf(&folder, "%s%s%s%s%s", root, *a ? "/" : "", a, *b ? "/" : "", b) < 0) return false;
  char *path = files_join(folder, file);
  bool there = path && files_exists(path);
  if (!there) fprintf(tried, "%s%s", ftell(tried) > 0 ? ", " : "", folder);
  free(path);
  if (there)
    *found = folder;
  else
    free(folder);
  return there;
}

static Status find_folder(const CifarLayout *layout, const char *data_dir, DatasetPart part, char **folder) {
  const char *file = layout->files[part][0];
  char *text = NULL;
  size_t size = 0;
  FILE *tried = open_memstream(&text, &size);
  if (!tried) return status_no_memory(NULL, "looking for a data set");
  DataRoots roots;
  Status status = data_paths_roots(&roots, "datasets", data_dir);
  *folder = NULL;
  for (int i = 0; status == STATUS_OK && !*folder && i < roots.count; i++) {
    const char *root = roots.paths[i];
    bool found =
        try_folder(root, layout->name, "", file, tried, folder) || try_folder(root, layout->name, layout->archive, file, tried, folder);
    if (!found && layout->bare && data_dir && i == 0)
      found = try_folder(root, "", "", file, tried, folder) || try_folder(root, layout->archive, "", file, tried, folder);
    if (found) break;
  }
  data_paths_release(&roots);
  bool listed = fclose(tried) == 0;
  if (status == STATUS_OK && !*folder) {
    log_detail("%s: looked for %s in %s", layout->title, file, listed ? text : "all places");
    if (data_dir)
      status = status_set(STATUS_NOT_FOUND, "%s: %s is not in --data-dir %s; %s", layout->title, file, data_dir, layout->get);
    else
      status = status_set(STATUS_NOT_FOUND, "%s is not installed: %s (or --data-dir names where it lies)", layout->title, layout->get);
  }
  free(text);
  return status;
}

static Status open_file(CifarFiles *files, const char *folder, const char *name) {
  const CifarRecord *record = &files->layout->record;
  char *path = files_join(folder, name);
  if (!path) return status_no_memory(NULL, "opening a data set");
  FileMap *map = &files->maps[files->files];
  Status status = files_map(map, path);
  if (status == STATUS_OK) {
    files->files++;
    status = check_file(record, map->data, map->size, path);
    files->counts[files->files - 1] = (int64_t)(map->size / record_bytes(record));
  }
  free(path);
  return status;
}

/* Splits the text at ends of lines into exactly `classes` names; blank lines do not count. */
static Status split_names(char *text, char **names, int classes, const char *path) {
  int count = 0;
  char *rest = NULL;
  for (char *line = strtok_r(text, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest)) {
    if (line[strspn(line, " \t")] == 0) continue;
    if (count < classes && !(names[count] = strdup(line))) return status_no_memory(path, "the labels");
    count++;
  }
  if (count == classes) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: %d label names; this data set has %d classes, one name to a line", path, count, classes);
}

static Status read_names(Dataset *set, const char *folder, const CifarLayout *layout) {
  set->classes = layout->record.limits[layout->record.labels - 1];
  set->labels = calloc((size_t)set->classes, sizeof *set->labels);
  char *path = files_join(folder, layout->label_names), *text = NULL;
  size_t size = 0;
  Status status = set->labels && path ? STATUS_OK : status_no_memory(NULL, "the labels");
  if (status == STATUS_OK && !files_exists(path)) {
    for (int64_t i = 0; status == STATUS_OK && i < set->classes; i++) {
      if (asprintf(&set->labels[i], "LABEL_%lld", (long long)i) >= 0) continue;
      set->labels[i] = NULL;
      status = status_no_memory(NULL, "the labels");
    }
  } else if (status == STATUS_OK) {
    status = files_read(path, max_label_bytes, &text, &size);
    if (status == STATUS_OK) status = split_names(text, set->labels, (int)set->classes, path);
  }
  free(text);
  free(path);
  return status;
}

static Status open_cifar(Dataset *set, const char *name, const char *data_dir, DatasetPart part) {
  const CifarLayout *layout = find_layout(name);
  CifarFiles *files = calloc(1, sizeof *files);
  if (!files) return status_no_memory(NULL, "a data set");
  files->layout = layout;
  set->state = files;
  set->read = read_record;
  set->label = label_of;
  set->identify = identify_record;
  set->close = close_files;
  set->fixed_size = true;
  set->width = set->height = CIFAR_SIDE;
  memcpy(set->mean, layout->mean, sizeof set->mean);
  memcpy(set->std, layout->std, sizeof set->std);
  char *folder = NULL;
  TRY(find_folder(layout, data_dir, part, &folder));
  Status status = STATUS_OK;
  for (int i = 0; status == STATUS_OK && i < MAX_FILES && layout->files[part][i]; i++) {
    status = open_file(files, folder, layout->files[part][i]);
    set->count += files->counts[i];
    set->mapped += files->maps[i].size;
  }
  if (status == STATUS_OK) status = read_names(set, folder, layout);
  if (status == STATUS_OK)
    status = dataset_set_description(set, "%s %s, %lld images of %dx%d, %lld classes, from %s", layout->title, dataset_part_name(part),
                                     (long long)set->count, CIFAR_SIDE, CIFAR_SIDE, (long long)set->classes, folder);
  free(folder);
  return status;
}

const DatasetSource dataset_cifar = {knows, open_cifar};
