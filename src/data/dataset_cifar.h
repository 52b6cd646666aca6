/* The records of CIFAR's binary files, on their own so that they can be fuzzed from memory. Inside of src/data and its tests only. */
#ifndef DATA_DATASET_CIFAR_H
#define DATA_DATASET_CIFAR_H
#include "data/image.h"

enum { CIFAR_SIDE = 32, CIFAR_PLANE = CIFAR_SIDE * CIFAR_SIDE, CIFAR_IMAGE = 3 * CIFAR_PLANE };

/* A record: one byte for each label (the last one counts), then the R, G and B planes. */
typedef struct CifarRecord {
  int labels;    /* 1 or 2 */
  int limits[2]; /* label i is below limits[i] */
} CifarRecord;

/* Checks a whole file (size, every label); errors name file, record and limits. */
Status dataset_cifar_check(const CifarRecord *record, const uint8_t *bytes, size_t size, const char *path);
/* One record of a checked file. */
Status dataset_cifar_record(const CifarRecord *record, const uint8_t *bytes, Image *image, int32_t *label);

#endif
