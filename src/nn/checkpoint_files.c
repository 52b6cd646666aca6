/* The files of a checkpoint: one model.safetensors or many shards named by an index, opened and searched as one set of tensors.
 * Leaves out what the tensors mean to a model. Invariant: only names that parse_index has let through are opened as shards. */
#include "base/array.h"
#include "nn/checkpoint_internal.h"
#include "nn/gguf_model.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Index of shards ---- */

/* model.safetensors.index.json, which names the files of a checkpoint. Leaves out whether all of its tensors are there: which ones a model
 * needs is not known here. Invariant: a name is added only when it is a plain file name that does not begin with a dot. */

typedef struct ShardIndex {
  char **names; /* each once; all are files of the index's own directory */
  size_t count;
  json_t *shard_of; /* object, owned: the shard's name by that of the tensor */
} ShardIndex;

static Status add(ShardIndex *index, const char *name, const char *path) {
  if (!name || !*name || *name == '.' || strchr(name, '/'))
    return status_set(STATUS_BAD_FILE, "%s: the shard name '%.60s' is not a file of the same directory", path, name ? name : "");
  for (size_t i = 0; i < index->count; i++)
    if (strcmp(index->names[i], name) == 0) return STATUS_OK;
  if (index->count >= SHARD_INDEX_MAX) return status_set(STATUS_BAD_FILE, "%s: names more than %d shards", path, (int)SHARD_INDEX_MAX);
  index->names[index->count] = strdup(name);
  if (!index->names[index->count]) return status_no_memory(path, "reading it");
  index->count++;
  return STATUS_OK;
}

static Status add_all(ShardIndex *index, json_t *map, const char *path) {
  if (!json_is_object(map) || json_object_size(map) == 0)
    return status_set(STATUS_BAD_FILE, "%s: has no weight_map from tensors to files", path);
  index->names = calloc(SHARD_INDEX_MAX, sizeof *index->names);
  if (!index->names) return status_no_memory(path, "reading it");
  const char *tensor;
  json_t *shard;
  json_object_foreach(map, tensor, shard) TRY(add(index, json_string_value(shard), path));
  index->shard_of = json_incref(map);
  return STATUS_OK;
}

static void release_index(ShardIndex *index) {
  for (size_t i = 0; i < index->count; i++) free(index->names[i]);
  free(index->names);
  json_decref(index->shard_of);
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
  if (ARRAY_RESERVE(files->list, files->count, 1, files->room, "opening the checkpoint") != STATUS_OK)
    return status_no_memory(files->path, "opening the checkpoint");
  SafeFile *file = &files->list[files->count];
  TRY(gguf_is_file(path) ? gguf_model_open(file, path) : safetensors_open(file, path));
  files->count++;
  return STATUS_OK;
}

/* ---- shards */

/* Of two tensors of one name, as in a shard that is left of an older checkpoint, only one can be meant. Those that the index does not know
 * are added to it, with the number of their shard. */
static Status check_places(const CheckpointFiles *files, const ShardIndex *index, size_t shard, const char *index_path) {
  const SafeFile *file = &files->list[shard];
  for (size_t i = 0; i < file->count; i++) {
    const char *name = file->list[i].name;
    const json_t *known = json_object_get(index->shard_of, name);
    if (json_is_string(known) && strcmp(json_string_value(known), index->names[shard]) != 0)
      return status_set(STATUS_BAD_FILE, "%s: tensor %.100s lies in the shard %s, where the index has it in %s", index_path, name,
                        index->names[shard], json_string_value(known));
    if (json_is_integer(known))
      return status_set(STATUS_BAD_FILE, "%s: tensor %.100s lies in two shards, %s and %s", index_path, name,
                        index->names[json_integer_value(known)], index->names[shard]);
    if (!known && json_object_set_new_nocheck(index->shard_of, name, json_integer((json_int_t)shard)) != 0)
      return status_no_memory(files->path, "opening the checkpoint");
  }
  return STATUS_OK;
}

/* The index and whether all of its shards are there. Release it also after a failure. */
static Status read_index(ShardIndex *index, const char *directory, const char *index_path) {
  char *text = NULL;
  size_t size = 0;
  *index = (ShardIndex){0};
  TRY(files_read(index_path, MAX_INDEX_BYTES, &text, &size));
  Status status = parse_index(index, text, size, index_path);
  free(text);
  for (size_t i = 0; status == STATUS_OK && i < index->count; i++) {
    char *path = files_join(directory, index->names[i]);
    if (!path)
      status = status_no_memory(directory, "opening the checkpoint");
    else if (!files_exists(path))
      status = status_set(STATUS_BAD_FILE, "%s: the shard %s is missing; download the whole checkpoint", index_path, index->names[i]);
    free(path);
  }
  return status;
}

static Status open_index(CheckpointFiles *files, const char *index_path) {
  ShardIndex index;
  Status status = read_index(&index, files->path, index_path);
  for (size_t i = 0; status == STATUS_OK && i < index.count; i++) {
    char *path = files_join(files->path, index.names[i]);
    status = path ? add_file(files, path) : status_no_memory(files->path, "opening the checkpoint");
    if (status == STATUS_OK) status = check_places(files, &index, i, index_path);
    free(path);
  }
  release_index(&index);
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

Status checkpoint_check_shards(const char *directory, char **index) {
  const char *name;
  ShardIndex shards;
  *index = NULL;
  TRY(checkpoint_find_weights(directory, &name));
  if (!name || strcmp(name, CHECKPOINT_INDEX) != 0) return STATUS_OK;
  *index = files_join(directory, name);
  if (!*index) return status_no_memory(directory, "opening the checkpoint");
  Status status = read_index(&shards, directory, *index);
  release_index(&shards);
  return status;
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

/* ---- which model it is */

/* Bytes of each tensor, of which a training changes some in one tensor at least; of a GGUF file, whose tensors would have to be converted,
 * at both of its ends. */
enum { DIGEST_TENSOR = 4096, DIGEST_GGUF = 1 << 20 };

static void describe_files(const CheckpointFiles *files, FILE *out) {
  for (size_t i = 0; i < files->count; i++)
    for (size_t t = 0; t < files->list[i].count; t++) {
      const SafeTensor *tensor = &files->list[i].list[t];
      char shape[SHAPE_TEXT], digest[SAFE_DIGEST_TEXT];
      safe_digest_text(safe_digest_of(tensor->data, tensor->bytes < DIGEST_TENSOR ? tensor->bytes : DIGEST_TENSOR), digest);
      fprintf(out, "%s %d %s %s\n", tensor->name, (int)tensor->dtype, checkpoint_shape_text(shape, tensor->dims, tensor->shape), digest);
    }
}

/* Nothing of a file that is not there or cannot be read. */
static Status describe_file(const char *directory, const char *name, FILE *out) {
  static const size_t max_bytes = (size_t)8 << 20;
  char *path = files_join(directory, name), *text = NULL;
  size_t size = 0;
  if (path == NULL) return status_no_memory(directory, "its files");
  Status status = files_exists(path) ? files_read(path, max_bytes, &text, &size) : STATUS_OK;
  if (text) fwrite(text, 1, size, out);
  free(path), free(text);
  return status == STATUS_NO_MEMORY ? status : STATUS_OK;
}

static void describe_gguf(const FileMap *map, FILE *out) {
  const size_t bytes = map->size < DIGEST_GGUF ? map->size : DIGEST_GGUF;
  fprintf(out, "%zu\n", map->size);
  fwrite(map->data, 1, bytes, out);
  fwrite(map->data + map->size - bytes, 1, bytes, out);
}

static Status describe_tensors(const char *path, FILE *out) {
  CheckpointFiles files;
  FileMap map;
  const bool gguf = gguf_is_file(path);
  const Status status = gguf ? files_map(&map, path) : checkpoint_files_open(&files, path);
  if (status == STATUS_OK && gguf) {
    describe_gguf(&map, out);
    files_unmap(&map);
  } else if (status == STATUS_OK) {
    describe_files(&files, out);
    checkpoint_files_close(&files);
  }
  return status == STATUS_NO_MEMORY ? status : STATUS_OK;
}

Status checkpoint_digest(const char *path, char digest[SAFE_DIGEST_TEXT]) {
  char *text = NULL, *codebooks = files_join(path, CHECKPOINT_CODEBOOKS);
  size_t size = 0;
  digest[0] = '\0';
  FILE *out = codebooks ? open_memstream(&text, &size) : NULL;
  Status status = out ? STATUS_OK : status_no_memory(path, "its files");
  if (status == STATUS_OK) status = describe_tensors(path, out);
  if (status == STATUS_OK && files_exists(codebooks)) status = describe_tensors(codebooks, out);
  if (status == STATUS_OK && ftello(out) > 0) status = describe_file(path, "config.json", out);
  if (out && fclose(out) != 0 && status == STATUS_OK) status = status_no_memory(path, "its files");
  if (status == STATUS_OK && size > 0) safe_digest_text(safe_digest_of(text, size), digest);
  free(text), free(codebooks);
  return status;
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
  if (tensor_all_finite(value, count)) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: tensor %.100s holds a NaN or an infinity", path, name);
}

Status checkpoint_read(const CheckpointFiles *files, const SafeTensor *tensor, real *out) {
  Status status = safetensors_to_real(tensor, out);
  if (status != STATUS_OK) return status_wrap(status, "%s", files->path);
  return checkpoint_check_finite(files->path, tensor->name, out, tensor->count);
}
