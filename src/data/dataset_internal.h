/* What a source of labelled images (dataset_cifar.c, dataset_folder.c, dataset_csv.c, dataset_synthetic.c) fills in for the front
 * (dataset.c), and the lists of files that folders and manifests come down to. Inside of src/data only. */
#ifndef DATA_DATASET_INTERNAL_H
#define DATA_DATASET_INTERNAL_H
#include "data/dataset.h"
#include <stddef.h>

typedef struct ImageFile {
  char *path; /* owned */
  int32_t label;
} ImageFile;

typedef struct ImageList {
  ImageFile *files;
  int64_t count;
  size_t room;
} ImageList;

DatasetPart dataset_files_part(int64_t index); /* the part of the index-th image when there is no split */

/* Appends a file; takes `path` over, also on failure. A NULL path is out of memory. */
Status dataset_files_add(ImageList *list, char *path, int32_t label);
void dataset_files_release(ImageList *list);

/* Makes the list the set's source: takes it over, sets count, read, label and close. */
Status dataset_files_attach(Dataset *set, ImageList *list);

struct Dataset {
  int64_t count, classes;
  char **labels; /* [classes], owned */
  bool fixed_size;
  int width, height; /* with fixed_size */
  char *description; /* owned */
  double mean[3], std[3];
  size_t mapped; /* bytes of mapped files, all of which are read sooner or later */
  void *state;   /* the source's own, released by `close` */
  Status (*read)(Dataset *set, int64_t index, Image *image, int32_t *label); /* index is within [0, count) */
  int32_t (*label)(const Dataset *set, int64_t index);                       /* the label alone, without its image */
  void (*close)(Dataset *set);
};

/* The sources. `set` comes zeroed but for mean and std (0.5); after a failure dataset_close is called on it. */
bool dataset_cifar_knows(const char *name);
Status dataset_cifar_open(Dataset *set, const char *name, const char *data_dir, DatasetPart part);
Status dataset_folder_open(Dataset *set, const char *directory, DatasetPart part);
Status dataset_csv_open(Dataset *set, const char *path, DatasetPart part);
Status dataset_synthetic_open(Dataset *set, const char *name, DatasetPart part); /* with its prefix */

const char *dataset_part_name(DatasetPart part); /* "train" or "test" */
Status dataset_set_description(Dataset *set, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
