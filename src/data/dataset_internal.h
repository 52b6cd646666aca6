/* What a source of labelled images (dataset_cifar.c, dataset_files.c, dataset_synthetic.c) fills in for the front (dataset.c). Inside of
 * src/data only. */
#ifndef DATA_DATASET_INTERNAL_H
#define DATA_DATASET_INTERNAL_H
#include "data/dataset.h"
#include <stddef.h>

DatasetPart dataset_files_part(int64_t index); /* the part of the index-th image or text when there is no split */

/* What a folder or a manifest's row of this name, in either case, belongs to: train, training; test, testing; val, valid, validation. */
typedef enum DatasetSplit { DATASET_SPLIT_NONE, DATASET_SPLIT_TRAIN, DATASET_SPLIT_TEST, DATASET_SPLIT_VALIDATION } DatasetSplit;
DatasetSplit dataset_split_named(const char *name);

bool dataset_holds_classes(const char *path); /* whether it is a folder with folders of images, as far as names tell */

/* How labels are sorted into classes, for qsort and bsearch over pointers to them: by value when all are whole numbers, else bytewise.
 * Equal are equal texts alone. */
typedef int DatasetLabelOrder(const void *a, const void *b);
DatasetLabelOrder *dataset_label_order(char *const *labels, int64_t count);

struct Dataset {
  int64_t count, classes;
  char **labels; /* [classes], owned */
  bool grouped;  /* dataset_is_grouped */
  bool fixed_size;
  int width, height; /* with fixed_size */
  char *description; /* owned */
  double mean[3], std[3];
  size_t mapped; /* bytes of mapped files, all of which are read sooner or later */
  void *state;   /* the source's own, released by `close` */
  Status (*read)(Dataset *set, int64_t index, Image *image, int32_t *label); /* index is within [0, count) */
  int32_t (*label)(const Dataset *set, int64_t index);                       /* the label alone, without its image */
  /* Adds to a digest what tells the record from another one in its place (dataset_digest); NULL: it follows from number and label. */
  uint64_t (*identify)(const Dataset *set, int64_t index, uint64_t hash);
  void (*close)(Dataset *set);
};

/* A source, by the form of its names. */
typedef struct DatasetSource {
  bool (*knows)(const char *name);
  /* `set` comes zeroed but for mean and std (0.5); after a failure dataset_close is called on it. */
  Status (*open)(Dataset *set, const char *name, const char *data_dir, DatasetPart part);
} DatasetSource;

extern const DatasetSource dataset_cifar, dataset_folder, dataset_manifest, dataset_synthetic;

/* Of opening the FILE of "csv:FILE..." or "tsv:FILE...": where it is not there because its name ends with an option that there is not, says
 * which there are. */
Status dataset_doubt_file(Status status, const char *path);

/* Behind the prefix of a name, NULL where it has another one. */
const char *dataset_after_prefix(const char *name, const char *prefix);

const char *dataset_part_name(DatasetPart part); /* "train" or "test" */
Status dataset_set_description(Dataset *set, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
