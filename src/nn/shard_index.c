/* model.safetensors.index.json: see shard_index.h. Leaves out which tensor is in which file: the files themselves say that.
 * Invariant: a name is added only when it is a plain file name that does not begin with a dot. */
#include "nn/shard_index.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool known(const ShardIndex *index, const char *name) {
  for (size_t i = 0; i < index->count; i++)
    if (strcmp(index->names[i], name) == 0) return true;
  return false;
}

static Status add(ShardIndex *index, const char *name, const char *path) {
  if (!name || !*name || *name == '.' || strchr(name, '/'))
    return status_set(STATUS_BAD_FILE, "%s: the shard name '%.60s' is not a file of the same directory", path, name ? name : "");
  if (known(index, name)) return STATUS_OK;
  if (index->count >= SHARD_INDEX_MOST) return status_set(STATUS_BAD_FILE, "%s: names more than %d shards", path, (int)SHARD_INDEX_MOST);
  index->names[index->count] = strdup(name);
  if (!index->names[index->count]) return status_set(STATUS_NO_MEMORY, "no memory to read %s", path);
  index->count++;
  return STATUS_OK;
}

static Status add_all(ShardIndex *index, json_t *map, const char *path) {
  if (!json_is_object(map) || json_object_size(map) == 0)
    return status_set(STATUS_BAD_FILE, "%s: has no weight_map from tensors to files", path);
  index->names = calloc(SHARD_INDEX_MOST, sizeof *index->names);
  if (!index->names) return status_set(STATUS_NO_MEMORY, "no memory to read %s", path);
  const char *tensor;
  json_t *shard;
  json_object_foreach(map, tensor, shard) TRY(add(index, json_string_value(shard), path));
  return STATUS_OK;
}

Status shard_index_parse(ShardIndex *index, const char *text, size_t size, const char *path) {
  *index = (ShardIndex){0};
  json_error_t error;
  json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
  Status status = root ? add_all(index, json_object_get(root, "weight_map"), path)
                       : status_set(STATUS_BAD_FILE, "%s: line %d: %s", path, error.line, error.text);
  json_decref(root);
  if (status != STATUS_OK) shard_index_release(index);
  return status;
}

void shard_index_release(ShardIndex *index) {
  for (size_t i = 0; i < index->count; i++) free(index->names[i]);
  free(index->names);
  *index = (ShardIndex){0};
}
