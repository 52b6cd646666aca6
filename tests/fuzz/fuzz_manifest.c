/* Any bytes as a CSV manifest. What must hold: of an accepted one every row has a path, a label and a class, the classes are distinct, and
 * either all rows have a split or none has. */
#include "data/dataset_files.c" /* its reader of manifests in memory */
#include "fuzz/fuzz.h"
#include <stdlib.h>
#include <string.h>

static void check_row(const Manifest *manifest, const ManifestRow *row) {
  int32_t class = class_of(manifest, row->label);
  if (!row->path[0] || !row->label[0] || class < 0 || class >= manifest->class_count) abort();
  if (strcmp(manifest->classes[class], row->label) != 0) abort();
  if ((row->split == DATASET_SPLIT_NONE) != (manifest->rows[0].split == DATASET_SPLIT_NONE)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Manifest manifest;
  Status status = parse_manifest(&manifest, (const char *)data, size, "input");
  if (status == STATUS_OK) {
    for (int64_t i = 0; i < manifest.count; i++) check_row(&manifest, &manifest.rows[i]);
    for (int64_t i = 1; i < manifest.class_count; i++) {
      if (strcmp(manifest.classes[i - 1], manifest.classes[i]) == 0) abort();
    }
  } else if (!status_message()[0]) {
    abort();
  }
  release_manifest(&manifest);
  return 0;
}
