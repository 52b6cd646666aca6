/* Lists of picture files, decoded when they are read. Leaves out: where the list comes from (dataset_folder.c, dataset_csv.c). */
#include "data/dataset_files.h"
#include <stdlib.h>

DatasetPart dataset_files_part(int64_t index) {
  return index % DATASET_FILES_FOLD == DATASET_FILES_FOLD - 1 ? DATASET_TEST : DATASET_TRAIN;
}

static Status grow(PictureList *list) {
  if (list->count < list->room) return STATUS_OK;
  int64_t room = list->room ? 2 * list->room : 256;
  PictureFile *files = realloc(list->files, (size_t)room * sizeof *files);
  if (!files) return status_set(STATUS_NO_MEMORY, "no memory for a list of %lld pictures", (long long)room);
  list->files = files;
  list->room = room;
  return STATUS_OK;
}

Status dataset_files_add(PictureList *list, char *path, int32_t label) {
  Status status = path ? grow(list) : status_set(STATUS_NO_MEMORY, "no memory for the name of a picture");
  if (status == STATUS_OK)
    list->files[list->count++] = (PictureFile){path, label};
  else
    free(path);
  return status;
}

void dataset_files_release(PictureList *list) {
  for (int64_t i = 0; i < list->count; i++) free(list->files[i].path);
  free(list->files);
  *list = (PictureList){0};
}

static Status read_file(Dataset *set, int64_t index, Image *image, int32_t *label) {
  const PictureFile *file = &((const PictureList *)set->state)->files[index];
  Image fresh;
  TRY(image_load(&fresh, file->path));
  image_release(image);
  *image = fresh;
  *label = file->label;
  return STATUS_OK;
}

static int32_t label_of(const Dataset *set, int64_t index) { return ((const PictureList *)set->state)->files[index].label; }

static void close_list(Dataset *set) {
  dataset_files_release(set->state);
  free(set->state);
}

Status dataset_files_attach(Dataset *set, PictureList *list) {
  PictureList *kept = malloc(sizeof *kept);
  if (!kept) return status_set(STATUS_NO_MEMORY, "no memory for a data set");
  *kept = *list;
  *list = (PictureList){0};
  set->state = kept;
  set->count = kept->count;
  set->read = read_file;
  set->label = label_of;
  set->close = close_list;
  return STATUS_OK;
}
