/* The files of a checkpoint: one model.safetensors or many shards named by an index, opened and searched as one set of tensors.
 * Leaves out what the tensors mean to a model. Invariant: only names that parse_index has let through are opened as shards. */
#include "nn/checkpoint_internal.h"
#include "nn/gguf_model.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Index of shards ---- */

/* model.safetensors.index.json, which names the files of a checkpoint. Leaves out which tensor is in which file: the files themselves say
 * that. Invariant: a name is added only when it is a plain file name that does not begin with a dot. */

typedef struct ShardIndex {
  char **names; /* each once; all are files of the index's own directory */
  size_t count;
} ShardIndex;

static Status add(ShardIndex *index, const char *name, const char *path) {
  if (!name || !*name || *name == '.' || strchr(name, '/'))
    return status_set(STATUS_BAD_FILE, "%s: the shard name '%.60s' is not a file of the same directory", path, name ? name : "");
  for (size_t i = 0; i < index->count; i++)
    if (strcmp(index->names[i], name) == 0) return STATUS_OK;
  if (index->count >= SHARD_INDEX_MAX) return status_set(STATUS_BAD_FILE, "%s: names more than %d shards", path, (int)SHARD_INDEX_MAX);
  index->names[index->count] = strdup(name);
  if (!index->names[index->count]) return status_set(STATUS_NO_MEMORY, "no memory to read %s", path);
  index->count++;
  return STATUS_OK;
}

static Status add_all(ShardIndex *index, json_t *map, const char *path) {
  if (!json_is_object(map) || json_object_size(map) == 0)
    return status_set(STATUS_BAD_FILE, "%s: has no weight_map from tensors to files", path);
  index->names = calloc(SHARD_INDEX_MAX, sizeof *index->names);
  if (!index->names) return status_set(STATUS_NO_MEMORY, "no memory to read %s", path);
  const char *tensor;
  json_t *shard;
  json_object_foreach(map, tensor, shard) TRY(add(index, json_string_value(shard), path));
  return STATUS_OK;
}

static void release_index(ShardIndex *index) {
  for (size_t i = 0; i < index->count; i++) free(index->names[i]);
  free(index->names);
  *index = (ShardIndex){0};
}

/* From its text; `path` is for messages. BAD_FILE: no JSON, no weight_map, a name that leads to another directory, more than
 * SHARD_INDEX_MAX shards; the index is empty then. */
static Status parse_index(ShardIndex *index, const char *text, size_t size, const char *path) {
  *index = (ShardIndex){0};
  json_error_t error;
  json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
  Status status = root ? add_all(index, json_object_get(root, "weight_map"), path)
                       : status_set(STATUS_BAD_FILE, "%s: line %d: %s", path, error.line, error.text);
  json_decref(root);
  if (status != STATUS_OK) release_index(index);
  return status;
}

/* ---- Files ---- */

static const size_t MAX_INDEX_BYTES = (size_t)16 << 20; /* the largest published ones have 9 million */

static Status add_file(CheckpointFiles *files, const char *path) {
  SafeFile *list = realloc(files->list, (files->count + 1) * sizeof *list);
  if (!list) return status_no_memory(files->path, "opening the checkpoint");
  files->list = list;
  TRY(gguf_is_file(path) ? gguf_model_open(&list[files->count], path) : safetensors_open(&list[files->count], path));
  files->count++;
  return STATUS_OK;
}

/* ---- shards */

static Status open_index(CheckpointFiles *files, const char *index_path) {
  char *text = NULL;
  size_t size = 0;
  TRY(files_read(index_path, MAX_INDEX_BYTES, &text, &size));
  ShardIndex index;
  Status status = parse_index(&index, text, size, index_path);
  for (size_t i = 0; status == STATUS_OK && i < index.count; i++) {
    char *path = files_join(files->path, index.names[i]);
    if (!path)
      status = status_no_memory(files->path, "opening the checkpoint");
    else if (!files_exists(path))
      status = status_set(STATUS_BAD_FILE, "%s: the shard %s is missing; download the whole checkpoint", index_path, index.names[i]);
    else
      status = add_file(files, path);
    free(path);
  }
  release_index(&index);
  free(text);
  return status;
}

/* ---- opening */

bool checkpoint_is_path(const char *path) { return files_is_dir(path) || gguf_is_file(path); }

static Status nothing_there(const char *path, bool is_dir) {
  if (!is_dir) return status_set(STATUS_NOT_FOUND, "%s: no such checkpoint directory, .safetensors or .gguf file", path);
  return status_set(
      STATUS_NOT_FOUND,
      "%s holds no model.safetensors (nor model.safetensors.index.json); PyTorch's .bin files must be saved as safetensors first", path);
}

Status checkpoint_find_weights(const char *directory, const char **name) {
  static const char *const weights_names[] = {CHECKPOINT_WHOLE, CHECKPOINT_INDEX};
  *name = NULL;
  for (size_t i = 0; i < sizeof weights_names / sizeof *weights_names && !*name; i++) {
    char *path = files_join(directory, weights_names[i]);
    if (!path) return status_no_memory(directory, "opening the checkpoint");
    if (files_exists(path)) *name = weights_names[i];
    free(path);
  }
  return STATUS_OK;
}

static Status open_directory(CheckpointFiles *files) {
  const char *name;
  TRY(checkpoint_find_weights(files->path, &name));
  if (!name) return nothing_there(files->path, true);
  char *path = files_join(files->path, name);
  if (!path) return status_no_memory(files->path, "opening the checkpoint");
  if (strcmp(name, CHECKPOINT_INDEX) == 0) return open_index(files, files->index = path);
  Status status = add_file(files, path);
  free(path);
  return status;
}

Status checkpoint_files_open(CheckpointFiles *files, const char *path) {
  memset(files, 0, sizeof *files);
  files->path = strdup(path);
  Status status;
  if (!files->path)
    status = status_no_memory(path, "opening the checkpoint");
  else if (files_is_dir(path))
    status = open_directory(files);
  else
    status = files_exists(path) ? add_file(files, path) : nothing_there(path, false);
  if (status != STATUS_OK) checkpoint_files_close(files);
  return status;
}

void checkpoint_files_close(CheckpointFiles *files) {
  for (size_t i = 0; i < files->count; i++) safetensors_close(&files->list[i]);
  free(files->list);
  free(files->path);
  free(files->index);
  memset(files, 0, sizeof *files);
}

/* ---- tensors */

static const SafeTensor *find_exactly(const CheckpointFiles *files, const char *name) {
  const SafeTensor *found = NULL;
  for (size_t i = 0; i < files->count && !found; i++) found = safetensors_find(&files->list[i], name);
  return found;
}

const SafeTensor *checkpoint_files_find(const CheckpointFiles *files, const char *name) {
  static const char *const prefixes[] = {"vit.", "transformer.", "model."}; /* absent from the names of a bare model */
  const SafeTensor *found = find_exactly(files, name);
  for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !found; i++)
    if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) return find_exactly(files, name + strlen(prefixes[i]));
  return found;
}

bool checkpoint_same_shape(const SafeTensor *tensor, int dims, const int64_t *shape) {
  return tensor->dims == dims && memcmp(tensor->shape, shape, (size_t)dims * sizeof *shape) == 0;
}

const char *checkpoint_shape_text(char text[SHAPE_TEXT], int dims, const int64_t *shape) {
  int used = snprintf(text, SHAPE_TEXT, "[");
  for (int i = 0; i < dims; i++) used += snprintf(text + used, SHAPE_TEXT - (size_t)used, "%s%lld", i ? ", " : "", (long long)shape[i]);
  snprintf(text + used, SHAPE_TEXT - (size_t)used, "]");
  return text;
}

Status checkpoint_check_finite(const char *path, const char *name, const real *value, int64_t count) {
  int bad = 0; /* no early exit: the loop becomes vector instructions */
  for (int64_t i = 0; i < count; i++) bad |= !isfinite(value[i]);
  return bad ? status_set(STATUS_BAD_FILE, "%s: tensor %.100s holds a NaN or an infinity", path, name) : STATUS_OK;
}

Status checkpoint_read(const CheckpointFiles *files, const SafeTensor *tensor, real *out) {
  Status status = safetensors_to_real(tensor, out);
  if (status != STATUS_OK) return status_wrap(status, "%s", files->path);
  return checkpoint_check_finite(files->path, tensor->name, out, tensor->count);
}
