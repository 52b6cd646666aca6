/* Lists of labelled image files, decoded when they are read, and image folders: a folder is a class, its name the label.
 *
 *   DIR/train/CLASS/...  and  DIR/test|val|validation|valid/CLASS/...     a split of its own
 *   DIR/train/CLASS/...  or   DIR/CLASS/...                               every fifth image of a class is the test part
 *
 * Classes are the folders of the training part, sorted bytewise; images may lie deeper inside a class. Names that begin with a dot are
 * passed over. Invariant: the order is that of sorted names, so the same folder gives the same set on every machine. */
#include "base/array.h"
#include "base/files.h"
#include "data/dataset.h"
#include "data/dataset_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Lists of image files ---- */

enum { DATASET_FILES_FOLD = 5 }; /* with no split given, image 4, 9, 14... of a class or manifest is for testing */

DatasetPart dataset_files_part(int64_t index) {
  return index % DATASET_FILES_FOLD == DATASET_FILES_FOLD - 1 ? DATASET_TEST : DATASET_TRAIN;
}

Status dataset_files_add(ImageList *list, char *path, int32_t label) {
  Status status = path ? ARRAY_RESERVE(list->files, list->count, 1, list->room, "a list of images")
                       : status_set(STATUS_NO_MEMORY, "no memory for the name of an image");
  if (status == STATUS_OK)
    list->files[list->count++] = (ImageFile){path, label};
  else
    free(path);
  return status;
}

void dataset_files_release(ImageList *list) {
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

static void close_list(Dataset *set) {
  dataset_files_release(set->state);
  free(set->state);
}

Status dataset_files_attach(Dataset *set, ImageList *list) {
  ImageList *kept = malloc(sizeof *kept);
  if (!kept) return status_set(STATUS_NO_MEMORY, "no memory for a data set");
  *kept = *list;
  *list = (ImageList){0};
  set->state = kept;
  set->count = kept->count;
  set->read = read_file;
  set->label = label_of;
  set->close = close_list;
  return STATUS_OK;
}

enum { DEEPEST = 6 }; /* folders inside a class; also ends a walk through links that lead in circles */

static const char *hint_for(const char *directory, char hint[DATASET_HINT]) {
  char name[512];
  snprintf(name, sizeof name, "folder:%s", directory);
  return dataset_hint(name, NULL, hint);
}

static Status walk(ImageList *list, const char *directory, int32_t label, int depth);

static Status walk_entry(ImageList *list, const char *directory, const char *name, int32_t label, int depth) {
  if (name[0] == '.') return STATUS_OK;
  char *path = files_join(directory, name);
  if (!path) return status_no_memory(directory, "listing it");
  if (files_is_dir(path)) {
    Status status = depth < DEEPEST ? walk(list, path, label, depth + 1) : STATUS_OK;
    free(path);
    return status;
  }
  if (image_has_extension(name)) return dataset_files_add(list, path, label);
  free(path);
  return STATUS_OK;
}

/* Appends all images of a class. */
static Status walk(ImageList *list, const char *directory, int32_t label, int depth) {
  char **names;
  size_t count;
  TRY(files_list(directory, &names, &count));
  Status status = STATUS_OK;
  for (size_t i = 0; status == STATUS_OK && i < count; i++) status = walk_entry(list, directory, names[i], label, depth);
  files_list_free(names, count);
  return status;
}

/* Keeps of list->files[first...] what belongs to `part` when there is no split. */
static void keep_part(ImageList *list, int64_t first, DatasetPart part) {
  int64_t kept = first;
  for (int64_t i = first; i < list->count; i++) {
    if (dataset_files_part(i - first) == part)
      list->files[kept++] = list->files[i];
    else
      free(list->files[i].path);
  }
  list->count = kept;
}

/* The sorted class folders of `directory` become the set's labels. */
static Status read_classes(Dataset *set, const char *directory) {
  char **names;
  size_t count;
  TRY(files_list(directory, &names, &count));
  set->labels = calloc(count ? count : 1, sizeof *set->labels);
  Status status = set->labels ? STATUS_OK : status_no_memory(directory, "listing it");
  for (size_t i = 0; status == STATUS_OK && i < count; i++) {
    char *path = files_join(directory, names[i]);
    if (!path) status = status_no_memory(directory, "listing it");
    if (path && names[i][0] != '.' && files_is_dir(path)) {
      char *label = strdup(names[i]);
      if (label)
        set->labels[set->classes++] = label;
      else
        status = status_no_memory(directory, "listing it");
    }
    free(path);
  }
  files_list_free(names, count);
  if (status == STATUS_OK && set->classes == 0) {
    char hint[DATASET_HINT];
    status = status_set(STATUS_BAD_FILE, "%s: no class folders; expected %s/CLASS/image.jpg or %s/train/CLASS/image.jpg.%s", directory,
                        directory, directory, hint_for(directory, hint));
  }
  return status;
}

/* One class of one part. In a test folder of its own a class may be absent; without images to train on it is a mistake. */
static Status read_class(ImageList *list, const char *directory, const char *label, int32_t index, DatasetPart part, bool split) {
  char *path = files_join(directory, label);
  if (!path) return status_no_memory(directory, "listing it");
  int64_t first = list->count;
  bool optional = split && part == DATASET_TEST;
  Status status = optional && !files_is_dir(path) ? STATUS_OK : walk(list, path, index, 0);
  if (status == STATUS_OK && list->count == first && !optional) {
    status = status_set(STATUS_BAD_FILE, "%s: a class without images (%s); add some or remove it", path, image_extensions());
  }
  free(path);
  if (status == STATUS_OK && !split) keep_part(list, first, part);
  return status;
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
  for (int64_t i = 0; i < other.classes; i++) free(other.labels[i]);
  free(other.labels);
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
                        dataset_part_name(part), "test", DATASET_FILES_FOLD);
  }
  if (status == STATUS_OK) status = dataset_files_attach(set, &list);
  dataset_files_release(&list);
  if (status != STATUS_OK) return status;
  return dataset_set_description(set, "image folder %s, %lld images, %lld classes, from %s%s", dataset_part_name(part),
                                 (long long)set->count, (long long)set->classes, directory,
                                 test                   ? ""
                                 : part == DATASET_TEST ? " (every fifth image)"
                                                        : " (but every fifth image)");
}

/* DIR/name when that is a folder, in a fresh string. */
static char *subfolder(const char *directory, const char *name) {
  char *path = files_join(directory, name);
  if (path && files_is_dir(path)) return path;
  free(path);
  return NULL;
}

Status dataset_folder_open(Dataset *set, const char *directory, DatasetPart part) {
  static const char *const test_names[] = {"test", "val", "validation", "valid"};
  char hint[DATASET_HINT];
  if (!files_is_dir(directory))
    return status_set(STATUS_NOT_FOUND, "folder:%s: there is no such folder.%s", directory, hint_for(directory, hint));
  char *train = subfolder(directory, "train"), *test = NULL;
  for (size_t i = 0; train && !test && i < sizeof test_names / sizeof *test_names; i++) test = subfolder(directory, test_names[i]);
  Status status = read_part(set, train ? train : directory, test, directory, part);
  free(train);
  free(test);
  return status;
}
