/* The files of a checkpoint: one model.safetensors or many shards named by an index, opened and searched as one set of tensors.
 * Leaves out what the tensors mean to a model. Invariant: only names that shard_index.c has let through are opened as shards. */
#include "nn/checkpoint_files.h"
#include "nn/shard_index.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t MOST_INDEX_BYTES = (size_t)64 << 20;
static const char codebook_prefix[] = "astra.layers.";

static Status no_memory(const char *path) { return status_set(STATUS_NO_MEMORY, "no memory to open the checkpoint %s", path); }

static Status add_file(CheckpointFiles *files, const char *path) {
  SafeFile *list = realloc(files->list, (files->count + 1) * sizeof *list);
  if (!list) return no_memory(files->path);
  files->list = list;
  TRY(safetensors_open(&list[files->count], path));
  files->count++;
  return STATUS_OK;
}

/* ---- shards */

static Status add_shard(CheckpointFiles *files, const char *name, const char *index_path) {
  char *path = files_join(files->path, name);
  if (!path) return no_memory(files->path);
  Status status = files_exists(path)
                      ? add_file(files, path)
                      : status_set(STATUS_BAD_FILE, "%s: the shard %s is missing; download the whole checkpoint", index_path, name);
  free(path);
  return status;
}

static Status open_index(CheckpointFiles *files, const char *index_path) {
  char *text = NULL;
  size_t size = 0;
  TRY(files_read(index_path, MOST_INDEX_BYTES, &text, &size));
  ShardIndex index;
  Status status = shard_index_parse(&index, text, size, index_path);
  for (size_t i = 0; status == STATUS_OK && i < index.count; i++) status = add_shard(files, index.names[i], index_path);
  shard_index_release(&index);
  free(text);
  return status;
}

/* ---- opening */

static Status nothing_there(const char *path, bool is_dir) {
  if (!is_dir) return status_set(STATUS_NOT_FOUND, "%s: no such checkpoint directory or .safetensors file", path);
  return status_set(
      STATUS_NOT_FOUND,
      "%s holds no model.safetensors (nor model.safetensors.index.json); PyTorch's .bin files must be saved as safetensors first", path);
}

static Status open_directory(CheckpointFiles *files) {
  char *whole = files_join(files->path, "model.safetensors"), *index = files_join(files->path, "model.safetensors.index.json");
  Status status;
  if (!whole || !index)
    status = no_memory(files->path);
  else if (files_exists(whole))
    status = add_file(files, whole);
  else if (files_exists(index))
    status = open_index(files, index);
  else
    status = nothing_there(files->path, true);
  free(whole);
  free(index);
  return status;
}

Status checkpoint_files_open(CheckpointFiles *files, const char *path) {
  memset(files, 0, sizeof *files);
  files->path = strdup(path);
  Status status;
  if (!files->path)
    status = no_memory(path);
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
  memset(files, 0, sizeof *files);
}

/* ---- tensors */

static const SafeTensor *find_exactly(const CheckpointFiles *files, const char *name) {
  const SafeTensor *found = NULL;
  for (size_t i = 0; i < files->count && !found; i++) found = safetensors_find(&files->list[i], name);
  return found;
}

const SafeTensor *checkpoint_files_find(const CheckpointFiles *files, const char *name) {
  const SafeTensor *found = find_exactly(files, name);
  return !found && strncmp(name, "vit.", 4) == 0 ? find_exactly(files, name + 4) : found;
}

size_t checkpoint_files_tensors(const CheckpointFiles *files, bool codebooks) {
  size_t count = 0;
  for (size_t i = 0; i < files->count; i++)
    for (size_t j = 0; j < files->list[i].count; j++)
      count += (strncmp(files->list[i].list[j].name, codebook_prefix, sizeof codebook_prefix - 1) == 0) == codebooks;
  return count;
}

Status checkpoint_files_check_depth(const CheckpointFiles *files, int64_t blocks) {
  char name[96];
  snprintf(name, sizeof name, "vit.encoder.layer.%lld.layernorm_before.weight", (long long)blocks);
  if (checkpoint_files_find(files, name) == NULL) return STATUS_OK;
  return status_set(STATUS_BAD_FILE,
                    "%s: there are more than the model's %lld blocks (tensor %s); use the model (config.json or --model) "
                    "that the checkpoint was made for",
                    files->path, (long long)blocks, name);
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
