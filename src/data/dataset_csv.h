/* A CSV manifest as rows, on its own so that it can be fuzzed from memory. Inside of src/data and its tests only. */
#ifndef DATA_DATASET_CSV_H
#define DATA_DATASET_CSV_H
#include "data/dataset.h"

typedef enum ManifestSplit { MANIFEST_NO_SPLIT = -1, MANIFEST_TRAIN = DATASET_TRAIN, MANIFEST_TEST = DATASET_TEST } ManifestSplit;

typedef struct ManifestRow {
  char *path, *label; /* as written */
  ManifestSplit split;
} ManifestRow;

typedef struct Manifest {
  ManifestRow *rows;
  int64_t count;
  size_t room;
  char **classes; /* the distinct labels, sorted: by value when all are whole numbers, else bytewise */
  int64_t class_count;
} Manifest;

/* Reads the text; errors name `file` and the line. Release also after a failure. */
Status dataset_csv_parse(Manifest *manifest, const char *text, size_t size, const char *file);
void dataset_csv_release(Manifest *manifest);
int32_t dataset_csv_class(const Manifest *manifest, const char *label); /* index of a label that a row has */

#endif
