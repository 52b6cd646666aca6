/* Lists of labelled image files, decoded when they are read: image folders, CSV manifests.
 *
 *   DIR/train/CLASS/...  and  DIR/test/CLASS/... or DIR/val/CLASS/...     a split of its own
 *   DIR/train/CLASS/...  or   DIR/CLASS/...                               every fifth image of a class is the test part
 *
 * The folders of a split may have other names (dataset_split_named). A folder is a class, its name the label. Classes are the folders of
 * the training part, sorted bytewise; images may lie deeper inside a class. Names that begin with a dot are passed over. Invariant: the
 * order is that of sorted names, so the same folder gives the same set on every machine.
 *
 * A manifest has rows path,label[,split], read as CSV (csv_rows.h). Leaves out: other separators. A first row such as path,label
 * is a header; so is one that names no image where the second row does, or where one of its words is that of a header. Either every row has
 * a split or none has: then every fifth row is for testing. As of folders, rows for validation are for testing only where no others are.
 * Columns after the third are ignored. */
#include "base/array.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/order.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/csv_rows.h"
#include "data/dataset.h"
#include "data/dataset_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- Lists of image files ---- */

typedef struct ImageFile {
  char *path; /* owned */
  int32_t label;
} ImageFile;

typedef struct ImageList {
  ImageFile *files;
  int64_t count;
  size_t room;
  int64_t others; /* files in folders that are no images by their names */
} ImageList;

enum { FOLD = 5 }; /* with no split given, image 4, 9, 14... of a class or manifest is for testing */

DatasetPart dataset_files_part(int64_t index) { return index % FOLD == FOLD - 1 ? DATASET_TEST : DATASET_TRAIN; }

/* Appends a file; takes `path` over, also on failure. A NULL path is out of memory. */
static Status add_file(ImageList *list, char *path, int32_t label) {
  Status status =
      path ? ARRAY_RESERVE(list->files, list->count, 1, list->room, "a list of images") : status_no_memory(NULL, "the name of an image");
  if (status == STATUS_OK)
    list->files[list->count++] = (ImageFile){path, label};
  else
    free(path);
  return status;
}

static void release_files(ImageList *list) {
  for (int64_t i = 0; i < list->count; i++) free(list->files[i].path);
  free(list->files);
  *list = (ImageList){0};
}

static Status read_file(Dataset *set, int64_t index, Image *image, int32_t *label) {
  const ImageFile *file = &((const ImageList *)set->state)->files[index];
  Image fresh;
  TRY(image_load(&fresh, file->path));
  image_release(image);
  *image = fresh;
  *label = file->label;
  return STATUS_OK;
}

static int32_t label_of(const Dataset *set, int64_t index) { return ((const ImageList *)set->state)->files[index].label; }

/* By the file's own name: what it is called from elsewhere does not count. */
static uint64_t identify_file(const Dataset *set, int64_t index, uint64_t hash) {
  const char *path = ((const ImageList *)set->state)->files[index].path, *folders = strrchr(path, '/');
  const char *name = folders ? folders + 1 : path;
  return hash_add(hash, name, strlen(name) + 1);
}

static void close_list(Dataset *set) {
  release_files(set->state);
  free(set->state);
}

/* Makes the list the set's source: takes it over, sets count and the functions. */
static Status attach_files(Dataset *set, ImageList *list) {
  ImageList *kept = malloc(sizeof *kept);
  if (!kept) return status_no_memory(NULL, "a data set");
  *kept = *list;
  *list = (ImageList){0};
  set->state = kept;
  set->count = kept->count;
  set->grouped = true;
  set->read = read_file;
  set->label = label_of;
  set->identify = identify_file;
  set->close = close_list;
  return STATUS_OK;
}

/* ---- Names of splits ---- */

DatasetSplit dataset_split_named(const char *name) {
  static const struct {
    const char *name;
    DatasetSplit split;
  } names[] = {{"train", DATASET_SPLIT_TRAIN},          {"training", DATASET_SPLIT_TRAIN}, {"test", DATASET_SPLIT_TEST},
               {"testing", DATASET_SPLIT_TEST},         {"val", DATASET_SPLIT_VALIDATION}, {"valid", DATASET_SPLIT_VALIDATION},
               {"validation", DATASET_SPLIT_VALIDATION}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcasecmp(name, names[i].name) == 0) return names[i].split;
  return DATASET_SPLIT_NONE;
}

/* ---- Folders ---- */

static const char *hint_for(const char *directory, char hint[DATASET_HINT]) {
  char name[512];
  snprintf(name, sizeof name, "folder:%s", directory);
  return dataset_hint(name, NULL, DATASET_ANY, hint);
}

typedef struct ClassImages {
  ImageList *list;
  int32_t label;
} ClassImages;

static Status visit(void *context, const char *path) {
  const ClassImages *images = context;
  if (image_has_extension(path)) return add_file(images->list, strdup(path), images->label);
  images->list->others++;
  return STATUS_OK;
}

/* The names of the folders in a directory, sorted bytewise, without those that begin with a dot. Free with files_list_free. */
static Status list_folders(const char *directory, char ***names, size_t *count) {
  size_t listed, kept = 0;
  bool no_memory = false;
  TRY(files_list(directory, names, &listed));
  for (size_t i = 0; i < listed; i++) {
    char *path = files_join(directory, (*names)[i]);
    no_memory |= !path;
    if (path && (*names)[i][0] != '.' && files_is_dir(path))
      (*names)[kept++] = (*names)[i];
    else
      free((*names)[i]);
    free(path);
  }
  *count = kept;
  if (!no_memory) return STATUS_OK;
  files_list_free(*names, kept);
  *names = NULL;
  return status_no_memory(directory, "listing it");
}

/* The class folders of `directory` become the set's labels. */
static Status read_classes(Dataset *set, const char *directory) {
  size_t count;
  char hint[DATASET_HINT];
  TRY(list_folders(directory, &set->labels, &count));
  set->classes = (int64_t)count;
  return count ? STATUS_OK
               : status_set(STATUS_BAD_FILE, "%s: no class folders; expected %s/CLASS/image.jpg or %s/train/CLASS/image.jpg.%s", directory,
                            directory, directory, hint_for(directory, hint));
}

/* One class of one part. In a test folder of its own a class may be absent; without images to train on it is a mistake. */
static Status read_class(ImageList *list, const char *directory, const char *label, int32_t index, DatasetPart part, bool split) {
  char *path = files_join(directory, label);
  if (!path) return status_no_memory(directory, "listing it");
  int64_t first = list->count;
  bool optional = split && part == DATASET_TEST;
  Status status = optional && !files_is_dir(path) ? STATUS_OK : files_walk(path, visit, &(ClassImages){list, index});
  if (status == STATUS_OK && list->count == first && !optional) {
    status = status_set(STATUS_BAD_FILE, "%s: a class without images (%s); add some or remove it", path, image_extensions());
  }
  free(path);
  if (status != STATUS_OK || split) return status;
  int64_t kept = first; /* without a split, only what belongs to the part stays */
  for (int64_t i = first; i < list->count; i++) {
    if (dataset_files_part(i - first) == part)
      list->files[kept++] = list->files[i];
    else
      free(list->files[i].path);
  }
  list->count = kept;
  return STATUS_OK;
}

/* Every class folder of the test part must be a class of the training part. */
static Status check_classes(const Dataset *set, const char *train, const char *test) {
  Dataset other = {0};
  Status status = read_classes(&other, test);
  for (int64_t i = 0, j = 0; status == STATUS_OK && i < other.classes; i++) {
    while (j < set->classes && strcmp(set->labels[j], other.labels[i]) < 0) j++;
    if (j < set->classes && strcmp(set->labels[j], other.labels[i]) == 0) continue;
    status = status_set(STATUS_BAD_FILE, "%s: class \"%s\" is not among the %lld classes of %s", test, other.labels[i],
                        (long long)set->classes, train);
  }
  files_list_free(other.labels, (size_t)other.classes);
  return status;
}

static Status read_part(Dataset *set, const char *train, const char *test, const char *directory, DatasetPart part) {
  ImageList list = {0};
  TRY(read_classes(set, train));
  if (test) TRY(check_classes(set, train, test));
  const char *from = test && part == DATASET_TEST ? test : train;
  Status status = STATUS_OK;
  for (int64_t i = 0; status == STATUS_OK && i < set->classes; i++) {
    status = read_class(&list, from, set->labels[i], (int32_t)i, part, test != NULL);
  }
  if (status == STATUS_OK && list.count == 0) {
    status = status_set(STATUS_BAD_FILE, "%s: no images for the %s part; without a %s folder a class needs %d images to hold one out", from,
                        dataset_part_name(part), "test", FOLD);
  }
  char others[64] = "";
  if (list.others > 0)
    snprintf(others, sizeof others, " (%lld other file%s passed over)", (long long)list.others, text_plural(list.others));
  if (status == STATUS_OK) status = attach_files(set, &list);
  release_files(&list);
  if (status != STATUS_OK) return status;
  return dataset_set_description(set, "image folder %s, %lld image%s%s, %lld class%s, from %s%s", dataset_part_name(part),
                                 (long long)set->count, text_plural(set->count), others, (long long)set->classes,
                                 set->classes == 1 ? "" : "es", directory,
                                 test                   ? ""
                                 : part == DATASET_TEST ? " (the held-out fifth)"
                                                        : " (every fifth image held out for testing)");
}

/* The folder of a split among those of `directory`, in a fresh string, or NULL. Two are an error: one would be left out. */
static Status find_split(const char *directory, char *const *names, size_t count, DatasetSplit split, char **folder) {
  size_t at = count;
  for (size_t i = 0; i < count; i++) {
    if (dataset_split_named(names[i]) != split) continue;
    if (at < count)
      return status_set(STATUS_BAD_FILE, "%s: the folders \"%s\" and \"%s\" are of the same part; join them or rename one", directory,
                        names[at], names[i]);
    at = i;
  }
  if (at == count) return STATUS_OK;
  *folder = files_join(directory, names[at]);
  return *folder ? STATUS_OK : status_no_memory(directory, "listing it");
}

/* Without a training part all folders are classes, unless all have the names of a split's other parts, or one of them holds classes. */
static Status check_not_parts(const char *directory, char *const *names, size_t count) {
  const char *part = NULL;
  size_t parts = 0;
  for (size_t i = 0; i < count; i++) {
    if (dataset_split_named(names[i]) == DATASET_SPLIT_NONE) continue;
    char *path = files_join(directory, names[i]);
    if (!path) return status_no_memory(directory, "listing it");
    if (!part && dataset_holds_classes(path)) part = names[i];
    free(path);
    parts++;
  }
  if (!part && parts == count && count > 0) part = names[0];
  if (!part) return STATUS_OK;
  return status_set(STATUS_BAD_FILE,
                    "%s: a part \"%s\" without one to train on; expected %s/train/CLASS/image.jpg beside it: move the classes to train on "
                    "into %s/train, or rename \"%s\" if it is a class",
                    directory, part, directory, directory, part);
}

/* The folders of the training and of the test part: both of a split, or only the first, which may be `directory` itself. */
static Status find_parts(const char *directory, char **train, char **test) {
  char **names;
  size_t count;
  TRY(list_folders(directory, &names, &count));
  Status status = find_split(directory, names, count, DATASET_SPLIT_TRAIN, train);
  if (status == STATUS_OK && *train) status = find_split(directory, names, count, DATASET_SPLIT_TEST, test);
  if (status == STATUS_OK && *train && !*test) status = find_split(directory, names, count, DATASET_SPLIT_VALIDATION, test);
  if (status == STATUS_OK && !*train) status = check_not_parts(directory, names, count);
  files_list_free(names, count);
  return status;
}

static bool knows_folder(const char *name) {
  const char *directory = dataset_after_prefix(name, "folder:");
  return directory && *directory;
}

static Status open_folder(Dataset *set, const char *name, const char *data_dir, DatasetPart part) {
  const char *directory = dataset_after_prefix(name, "folder:");
  (void)data_dir;
  char hint[DATASET_HINT];
  if (!files_is_dir(directory))
    return status_set(STATUS_NOT_FOUND, "folder:%s: there is no such folder.%s", directory, hint_for(directory, hint));
  char *train = NULL, *test = NULL;
  Status status = find_parts(directory, &train, &test);
  if (status == STATUS_OK) status = read_part(set, train ? train : directory, test, directory, part);
  free(train);
  free(test);
  return status;
}

const DatasetSource dataset_folder = {knows_folder, open_folder};

/* ---- Order of labels ---- */

static int by_value(const void *a, const void *b) {
  long long x = strtoll(*(char *const *)a, NULL, 10), y = strtoll(*(char *const *)b, NULL, 10);
  return x < y ? -1 : x > y ? 1 : order_by_bytes(a, b);
}

DatasetLabelOrder *dataset_label_order(char *const *labels, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    size_t sign = labels[i][0] == '-', digits = strspn(labels[i] + sign, "0123456789");
    if (digits < 1 || digits > 18 || labels[i][sign + digits] != '\0') return order_by_bytes; /* no whole number */
  }
  return by_value;
}

/* ---- Manifests ---- */

typedef struct ManifestRow {
  char *path, *label; /* as written */
  DatasetSplit split;
} ManifestRow;

typedef struct Manifest {
  char *folder; /* that paths are relative to */
  ManifestRow *rows;
  int64_t count;
  size_t room;
  char **classes; /* the distinct labels, sorted in `order` */
  int64_t class_count;
  DatasetLabelOrder *order;
  DatasetSplit test_split; /* whose rows are the test part, where rows have splits */
} Manifest;

enum { COLUMNS = 3 };
static const size_t max_manifest_bytes = (size_t)1 << 28;

typedef struct ManifestCells {
  char *fields[COLUMNS]; /* owned */
  int columns;
  int64_t line; /* of the row's end */
} ManifestCells;

typedef struct ManifestReader {
  Manifest *manifest;
  const char *file;
  ManifestCells row;   /* the one being read */
  ManifestCells first; /* the first row while only the second can tell whether it is a header; else without columns */
  bool past_first;
} ManifestReader;

static bool is_header_word(const char *text) {
  static const char *const words[] = {"path", "file", "filename", "file_name", "image", "picture", "label", "labels", "class", "category"};
  size_t at = 0, count = sizeof words / sizeof *words;
  while (at < count && strcasecmp(text, words[at]) != 0) at++;
  return at < count;
}

static Status on_field(void *context, const char *text, size_t length, int64_t line) {
  ManifestReader *reader = context;
  int column = reader->row.columns++;
  if (column >= COLUMNS) return STATUS_OK;
  if (memchr(text, 0, length))
    return status_set(STATUS_BAD_FILE, "%s, line %lld: a NUL byte; the file must be plain or UTF-8 text", reader->file, (long long)line);
  reader->row.fields[column] = column == 0 ? strndup(text, length) : csv_rows_label(text, length);
  return reader->row.fields[column] ? STATUS_OK : status_no_memory(reader->file, "the manifest");
}

static bool has_path_and_label(const ManifestCells *row) { return row->columns >= 2 && *row->fields[0] && *row->fields[1]; }

static Status read_split(const ManifestReader *reader, const ManifestCells *row, DatasetSplit *split) {
  const char *text = row->columns > 2 ? row->fields[2] : "";
  *split = dataset_split_named(text);
  if (*split == DATASET_SPLIT_NONE && *text) {
    return status_set(STATUS_BAD_FILE,
                      "%s, line %lld: split \"%s\"; train, training, test, testing, val, valid and validation are accepted", reader->file,
                      (long long)row->line, text);
  }
  const Manifest *manifest = reader->manifest;
  if (manifest->count && (manifest->rows[0].split == DATASET_SPLIT_NONE) != (*split == DATASET_SPLIT_NONE)) {
    return status_set(STATUS_BAD_FILE, "%s, line %lld: %s; either every row names its split in the third column or none does", reader->file,
                      (long long)row->line,
                      *text ? "a split, where the rows before have none" : "no split, where the rows before have one");
  }
  return STATUS_OK;
}

static void forget_cells(ManifestCells *row) {
  for (int i = 0; i < COLUMNS; i++) free(row->fields[i]);
  *row = (ManifestCells){0};
}

static Status find_file(const ManifestReader *reader, const ManifestCells *row, bool *there) {
  char *path = files_join(reader->manifest->folder, row->fields[0]);
  if (!path) return status_no_memory(reader->file, "the manifest");
  *there = files_exists(path) && !files_is_dir(path);
  free(path);
  return STATUS_OK;
}

/* Without this, columns the other way round would make a class of each image. */
static Status check_order(const ManifestReader *reader, const ManifestCells *row) {
  bool is_file = false;
  if (image_has_extension(row->fields[0]) || !image_has_extension(row->fields[1])) return STATUS_OK;
  TRY(find_file(reader, row, &is_file));
  if (is_file) return STATUS_OK;
  return status_set(STATUS_BAD_FILE,
                    "%s, line %lld: \"%.40s\" in the place of the label, after \"%.40s\", which is no file: the columns are "
                    "the other way round; a row is path,label or path,label,split",
                    reader->file, (long long)row->line, row->fields[1], row->fields[0]);
}

static Status add_row(ManifestReader *reader, ManifestCells *cells) {
  if (!has_path_and_label(cells)) {
    return status_set(STATUS_BAD_FILE, "%s, line %lld: a row is path,label or path,label,split, and neither path nor label is empty",
                      reader->file, (long long)cells->line);
  }
  TRY(check_order(reader, cells));
  ManifestRow row = {cells->fields[0], cells->fields[1], DATASET_SPLIT_NONE};
  TRY(read_split(reader, cells, &row.split));
  TRY(ARRAY_RESERVE(reader->manifest->rows, reader->manifest->count, 1, reader->manifest->room, "the rows of a manifest"));
  reader->manifest->rows[reader->manifest->count++] = row;
  cells->fields[0] = cells->fields[1] = NULL;
  if (row.split == DATASET_SPLIT_TEST) reader->manifest->test_split = DATASET_SPLIT_TEST;
  return STATUS_OK;
}

/* A row with the words of a header is one, also with only one of them where its first cell names no file. One that names no image by its
 * extension and no file may be one with other words. */
static Status read_first(ManifestReader *reader) {
  ManifestCells *row = &reader->row;
  bool is_file = false;
  if (!has_path_and_label(row) || image_has_extension(row->fields[0])) return add_row(reader, row);
  const int words = is_header_word(row->fields[0]) + is_header_word(row->fields[1]);
  if (words == 2) return STATUS_OK;
  TRY(find_file(reader, row, &is_file));
  if (is_file) return add_row(reader, row);
  if (words == 1) return STATUS_OK;
  reader->first = *row;
  *row = (ManifestCells){0};
  return STATUS_OK;
}

/* Adds a first row that was kept back, unless it is a header: unless the second row names a file. NULL: there is no second one. */
static Status settle_first(ManifestReader *reader, const ManifestCells *second) {
  if (!reader->first.columns) return STATUS_OK;
  bool is_header = false;
  if (second && has_path_and_label(second)) TRY(find_file(reader, second, &is_header));
  Status status = is_header ? STATUS_OK : add_row(reader, &reader->first);
  forget_cells(&reader->first);
  return status;
}

static Status read_row(ManifestReader *reader) {
  if (!reader->past_first) {
    reader->past_first = true;
    return read_first(reader);
  }
  TRY(settle_first(reader, &reader->row));
  return add_row(reader, &reader->row);
}

static Status on_row(void *context, int64_t line) {
  ManifestReader *reader = context;
  reader->row.line = line;
  Status status = read_row(reader);
  forget_cells(&reader->row);
  return status;
}

/* The classes point at labels of rows. */
static Status find_classes(Manifest *manifest, const char *file) {
  if (manifest->count == 0) return status_set(STATUS_BAD_FILE, "%s: no rows; expected path,label in each", file);
  if (manifest->count > INT32_MAX) return status_set(STATUS_BAD_FILE, "%s: more than %d rows", file, INT32_MAX);
  manifest->classes = malloc((size_t)manifest->count * sizeof *manifest->classes);
  if (!manifest->classes) return status_no_memory(file, "the manifest");
  for (int64_t i = 0; i < manifest->count; i++) manifest->classes[i] = manifest->rows[i].label;
  manifest->order = dataset_label_order(manifest->classes, manifest->count);
  qsort(manifest->classes, (size_t)manifest->count, sizeof *manifest->classes, manifest->order);
  for (int64_t i = 0; i < manifest->count; i++) {
    if (i > 0 && strcmp(manifest->classes[i], manifest->classes[manifest->class_count - 1]) == 0) continue;
    manifest->classes[manifest->class_count++] = manifest->classes[i];
  }
  return STATUS_OK;
}

/* Index of a label that a row has. */
static int32_t class_of(const Manifest *manifest, const char *label) {
  char **found = bsearch(&label, manifest->classes, (size_t)manifest->class_count, sizeof *manifest->classes, manifest->order);
  return (int32_t)(found - manifest->classes);
}

/* Reads the text of `file`, which errors name, with the line. Release also after a failure. */
static Status parse_manifest(Manifest *manifest, const char *text, size_t size, const char *file) {
  *manifest = (Manifest){.folder = files_folder(file), .test_split = DATASET_SPLIT_VALIDATION};
  if (!manifest->folder) return status_no_memory(file, "the manifest");
  ManifestReader reader = {.manifest = manifest, .file = file};
  const size_t skip = utf8_mark(text, size);
  Status status = csv_rows_read(&(CsvRows){true, on_field, on_row}, &reader, text + skip, size - skip, file);
  if (status == STATUS_OK) status = settle_first(&reader, NULL);
  forget_cells(&reader.row);
  forget_cells(&reader.first);
  return status == STATUS_OK ? find_classes(manifest, file) : status;
}

static void release_manifest(Manifest *manifest) {
  for (int64_t i = 0; i < manifest->count; i++) {
    free(manifest->rows[i].path);
    free(manifest->rows[i].label);
  }
  free(manifest->folder);
  free(manifest->rows);
  free(manifest->classes);
  *manifest = (Manifest){0};
}

static bool is_in_part(const Manifest *manifest, int64_t row, DatasetPart part) {
  const DatasetSplit split = manifest->rows[row].split;
  if (split == DATASET_SPLIT_NONE) return dataset_files_part(row) == part;
  return split == (part == DATASET_TRAIN ? DATASET_SPLIT_TRAIN : manifest->test_split);
}

/* Rows in which classes take turns may give all of a class to the test part, every fifth row: training would never see it. */
static Status check_learnt(const Manifest *manifest, const char *file) {
  bool *learnt = calloc((size_t)manifest->class_count, sizeof *learnt);
  if (!learnt) return status_no_memory(file, "the manifest");
  for (int64_t i = 0; i < manifest->count; i++)
    if (is_in_part(manifest, i, DATASET_TRAIN)) learnt[class_of(manifest, manifest->rows[i].label)] = true;
  int64_t at = 0;
  while (at < manifest->class_count && learnt[at]) at++;
  free(learnt);
  if (at == manifest->class_count) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: no image of the class \"%.40s\" is left to learn from%s", file, manifest->classes[at],
                    manifest->rows[0].split != DATASET_SPLIT_NONE
                        ? ": none of its rows is of the training part"
                        : ", as every fifth row is for the test part: shuffle the rows, or divide them in a third column, split");
}

static Status take(Dataset *set, const Manifest *manifest, const char *file, DatasetPart part) {
  ImageList list = {0};
  Status status = STATUS_OK;
  for (int64_t i = 0; status == STATUS_OK && i < manifest->count; i++) {
    const ManifestRow *row = &manifest->rows[i];
    if (!is_in_part(manifest, i, part)) continue;
    status = add_file(&list, files_join(manifest->folder, row->path), class_of(manifest, row->label));
  }
  if (status == STATUS_OK && list.count == 0) {
    status =
        status_set(STATUS_BAD_FILE, "%s: no rows for the %s part among %lld", file, dataset_part_name(part), (long long)manifest->count);
  }
  if (status == STATUS_OK && !(set->labels = calloc((size_t)manifest->class_count, sizeof *set->labels)))
    status = status_no_memory(file, "the manifest");
  if (status == STATUS_OK) set->classes = manifest->class_count;
  for (int64_t i = 0; status == STATUS_OK && i < set->classes; i++)
    if (!(set->labels[i] = strdup(manifest->classes[i]))) status = status_no_memory(file, "the manifest");
  if (status == STATUS_OK && part == DATASET_TRAIN) status = check_learnt(manifest, file);
  if (status == STATUS_OK) status = attach_files(set, &list);
  release_files(&list);
  return status;
}

static bool knows_manifest(const char *name) {
  const char *path = dataset_after_prefix(name, "csv:");
  return path && *path;
}

static Status open_manifest(Dataset *set, const char *name, const char *data_dir, DatasetPart part) {
  const char *path = dataset_after_prefix(name, "csv:");
  (void)data_dir;
  char *text = NULL;
  size_t size = 0;
  TRY(dataset_doubt_file(files_read(path, max_manifest_bytes, &text, &size), path));
  Manifest manifest;
  Status status = parse_manifest(&manifest, text, size, path);
  if (status == STATUS_OK) status = take(set, &manifest, path, part);
  release_manifest(&manifest);
  free(text);
  if (status != STATUS_OK) return status;
  return dataset_set_description(set, "manifest %s, %lld image%s, %lld class%s, from %s", dataset_part_name(part), (long long)set->count,
                                 text_plural(set->count), (long long)set->classes, set->classes == 1 ? "" : "es", path);
}

const DatasetSource dataset_manifest = {knows_manifest, open_manifest};
