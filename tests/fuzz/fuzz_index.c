/* Fuzz target: model.safetensors.index.json. Of an accepted one every shard is a file of the same directory, and is named once. */
#include "fuzz/fuzz.h"
#include "nn/checkpoint_files.c"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  ShardIndex index;
  if (parse_index(&index, (const char *)data, size, "fuzz") != STATUS_OK) {
    if (*status_message() == '\0' || index.count != 0 || index.names) abort();
    return 0;
  }
  if (index.count < 1 || index.count > SHARD_INDEX_MAX) abort();
  for (size_t i = 0; i < index.count; i++) {
    if (index.names[i][0] == '\0' || index.names[i][0] == '.' || strchr(index.names[i], '/')) abort();
    for (size_t j = 0; j < i; j++)
      if (strcmp(index.names[i], index.names[j]) == 0) abort();
  }
  release_index(&index);
  return 0;
}
