/* The front of all data sets: picks the source by name and keeps what they have in common. Leaves out: files and formats
 * (dataset_cifar.c, dataset_folder.c, dataset_csv.c, dataset_synthetic.c) and everything that changes pictures (loader.c).
 * Invariant: an open set never changes, so that any thread may read it. */
#include "data/dataset.h"
#include "data/dataset_hint.h"
#include "data/dataset_source.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *dataset_part_name(DatasetPart part) { return part == DATASET_TRAIN ? "train" : "test"; }

Status dataset_set_description(Dataset *set, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vasprintf(&set->description, format, arguments);
  va_end(arguments);
  if (length >= 0) return STATUS_OK;
  set->description = NULL;
  return status_set(STATUS_NO_MEMORY, "no memory for a data set's description");
}

static const char *after_prefix(const char *name, const char *prefix) {
  size_t length = strlen(prefix);
  return strncmp(name, prefix, length) == 0 ? name + length : NULL;
}

static Status open_source(Dataset *set, const char *name, const char *data_dir, DatasetPart part) {
  const char *directory = after_prefix(name, "folder:"), *file = after_prefix(name, "csv:");
  if (directory && *directory) return dataset_folder_open(set, directory, part);
  if (file && *file) return dataset_csv_open(set, file, part);
  if (after_prefix(name, "synthetic:")) return dataset_synthetic_open(set, name, part);
  if (dataset_cifar_knows(name)) return dataset_cifar_open(set, name, data_dir, part);
  return dataset_unknown(name, data_dir);
}

bool dataset_knows(const char *name) {
  static const char *const prefixes[] = {"folder:", "csv:", "synthetic:"};
  for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
    if (after_prefix(name, prefixes[i]) && *after_prefix(name, prefixes[i])) return true;
  return dataset_cifar_knows(name);
}

Status dataset_unknown(const char *name, const char *data_dir) {
  char hint[DATASET_HINT];
  return status_set(STATUS_BAD_VALUE,
                    "data set \"%s\" is not known.%s Accepted are cifar100, cifar10, cifar100-sample, folder:DIR, csv:FILE and "
                    "synthetic:WIDTHxHEIGHT:CLASSES; of texts text:PATH, cola, sst2, agnews, tsv:FILE and csv:FILE:text=COLUMN",
                    name, dataset_hint(name, data_dir, hint));
}

Status dataset_open(Dataset **set, const char *name, const char *data_dir, DatasetPart part) {
  *set = NULL;
  Dataset *fresh = calloc(1, sizeof *fresh);
  if (!fresh) return status_set(STATUS_NO_MEMORY, "no memory for a data set");
  for (int c = 0; c < 3; c++) fresh->mean[c] = fresh->std[c] = 0.5;
  Status status = open_source(fresh, name, data_dir, part);
  if (status != STATUS_OK) {
    dataset_close(fresh);
    return status;
  }
  *set = fresh;
  return STATUS_OK;
}

void dataset_close(Dataset *set) {
  if (!set) return;
  if (set->close) set->close(set);
  for (int64_t i = 0; set->labels && i < set->classes; i++) free(set->labels[i]);
  free(set->labels);
  free(set->description);
  free(set);
}

int64_t dataset_count(const Dataset *set) { return set->count; }
int64_t dataset_classes(const Dataset *set) { return set->classes; }
size_t dataset_mapped(const Dataset *set) { return set->mapped; }
char *const *dataset_labels(const Dataset *set) { return set->labels; }
const char *dataset_describe(const Dataset *set) { return set->description; }

bool dataset_fixed_size(const Dataset *set, int *width, int *height) {
  if (!set->fixed_size) return false;
  *width = set->width;
  *height = set->height;
  return true;
}

void dataset_mean_std(const Dataset *set, double mean[3], double std[3]) {
  memcpy(mean, set->mean, sizeof set->mean);
  memcpy(std, set->std, sizeof set->std);
}

Status dataset_read(Dataset *set, int64_t index, Image *image, int32_t *label) {
  if (index < 0 || index >= set->count) {
    return status_set(STATUS_BAD_VALUE, "picture %lld of %s: 0 to %lld are there", (long long)index, set->description,
                      (long long)set->count - 1);
  }
  return set->read(set, index, image, label);
}
