/* Writing a checkpoint's tensors in one file or in shards: see checkpoint_shards.h. */
#include "nn/checkpoint_shards.h"
#include "nn/checkpoint_files.h"
#include "nn/json_build.h"
#include "nn/safetensors_convert.h"
#include "nn/shard_index.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME = 64 };
static const char *const metadata[] = {"format", "pt", NULL};

static int64_t item_bytes(const SafeItem *item) {
  int64_t bytes = (int64_t)safe_dtype_bytes(item->dtype);
  for (int i = 0; i < item->dims; i++) bytes *= item->shape[i];
  return bytes;
}

static int64_t total_bytes(const SafeItem *items, size_t count) {
  int64_t total = 0;
  for (size_t i = 0; i < count; i++) total += item_bytes(&items[i]);
  return total;
}

/* How many of the items go into the next shard: at least one. */
static size_t shard_length(const SafeItem *items, size_t count, int64_t most) {
  int64_t bytes = item_bytes(&items[0]);
  size_t length = 1;
  while (length < count && bytes + item_bytes(&items[length]) <= most) bytes += item_bytes(&items[length++]);
  return length;
}

static size_t count_shards(const SafeItem *items, size_t count, int64_t most) {
  size_t shards = 0;
  for (size_t at = 0; at < count; at += shard_length(items + at, count - at, most)) shards++;
  return shards;
}

static void shard_name(char name[NAME], size_t shard, size_t shards) {
  snprintf(name, NAME, "model-%05zu-of-%05zu.safetensors", shard + 1, shards);
}

static Status save_file(const char *directory, const char *name, const SafeItem *items, size_t count) {
  char *path = files_join(directory, name);
  if (!path) return status_no_memory(directory, "saving a checkpoint");
  Status status = safetensors_save(path, items, count, metadata);
  free(path);
  return status;
}

static Status remove_file(const char *directory, const char *name) {
  char *path = files_join(directory, name);
  if (!path) return status_no_memory(directory, "saving a checkpoint");
  Status status = STATUS_OK;
  if (unlink(path) != 0 && errno != ENOENT) status = status_set(STATUS_IO, "cannot remove %s: %s", path, strerror(errno));
  free(path);
  return status;
}

/* ---- what an earlier checkpoint left */

/* A shard's name, but not of one of the `shards` new ones. */
static bool is_old_shard(const char *name, size_t shards) {
  size_t shard, of;
  char same[NAME];
  if (sscanf(name, "model-%5zu-of-%5zu.", &shard, &of) != 2) return false;
  shard_name(same, shard - 1, of);
  return strcmp(name, same) == 0 && !(of == shards && shard >= 1 && shard <= shards);
}

/* Those who have them mapped keep them. */
static Status remove_old_shards(const char *directory, size_t shards) {
  char **names;
  size_t count;
  TRY(files_list(directory, &names, &count));
  Status status = STATUS_OK;
  for (size_t i = 0; i < count && status == STATUS_OK; i++)
    if (is_old_shard(names[i], shards)) status = remove_file(directory, names[i]);
  files_list_free(names, count);
  return status;
}

/* ---- shards: first NAME.part, so that no shard of the old checkpoint is replaced before all of the new one are on the disk */

static Status save_parts(const char *directory, const SafeItem *items, size_t count, int64_t most, size_t shards) {
  for (size_t at = 0, shard = 0, length; at < count; at += length, shard++) {
    char name[NAME], part[NAME + 8];
    length = shard_length(items + at, count - at, most);
    shard_name(name, shard, shards);
    snprintf(part, sizeof part, "%s.part", name);
    TRY(save_file(directory, part, items + at, length));
  }
  return STATUS_OK;
}

static Status name_part(const char *directory, const char *name) {
  char part[NAME + 8];
  snprintf(part, sizeof part, "%s.part", name);
  char *from = files_join(directory, part), *to = files_join(directory, name);
  Status status = from && to ? STATUS_OK : status_no_memory(directory, "saving a checkpoint");
  if (status == STATUS_OK && rename(from, to) != 0) status = status_set(STATUS_IO, "cannot rename %s: %s", from, strerror(errno));
  free(from);
  free(to);
  return status;
}

static void remove_parts(const char *directory, size_t shards) {
  for (size_t shard = 0; shard < shards; shard++) {
    char name[NAME], part[NAME + 8];
    shard_name(name, shard, shards);
    snprintf(part, sizeof part, "%s.part", name);
    remove_file(directory, part);
  }
}

static json_t *weight_map(const SafeItem *items, size_t count, int64_t most, size_t shards) {
  json_t *map = json_object();
  for (size_t at = 0, shard = 0, length; at < count; at += length, shard++) {
    char name[NAME];
    length = shard_length(items + at, count - at, most);
    shard_name(name, shard, shards);
    for (size_t i = at; i < at + length; i++) json_build_put(&map, items[i].name, json_string(name));
  }
  return map;
}

static Status save_index(const char *directory, const SafeItem *items, size_t count, int64_t most, size_t shards) {
  json_t *root = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total_bytes(items, count), "weight_map",
                           weight_map(items, count, most, shards));
  return json_build_save(root, directory, CHECKPOINT_INDEX);
}

static Status save_shards(const char *directory, const SafeItem *items, size_t count, int64_t most) {
  size_t shards = count_shards(items, count, most);
  if (shards > SHARD_INDEX_MOST)
    return status_set(STATUS_BAD_VALUE, "%s: %zu shards, where at most %d are accepted; choose larger ones", directory, shards,
                      (int)SHARD_INDEX_MOST);
  Status status = save_parts(directory, items, count, most, shards);
  if (status == STATUS_OK) status = remove_file(directory, CHECKPOINT_INDEX); /* half renamed, it would name shards of two checkpoints */
  for (size_t shard = 0; shard < shards && status == STATUS_OK; shard++) {
    char name[NAME];
    shard_name(name, shard, shards);
    status = name_part(directory, name);
  }
  if (status != STATUS_OK) remove_parts(directory, shards);
  TRY(status);
  TRY(save_index(directory, items, count, most, shards));
  TRY(remove_file(directory, CHECKPOINT_WHOLE)); /* a reader would take it first */
  return remove_old_shards(directory, shards);
}

Status checkpoint_shards_save(const char *directory, const SafeItem *items, size_t count, int64_t most) {
  if (total_bytes(items, count) > most) return save_shards(directory, items, count, most);
  TRY(save_file(directory, CHECKPOINT_WHOLE, items, count));
  TRY(remove_file(directory, CHECKPOINT_INDEX));
  return remove_old_shards(directory, 0);
}
