/* Inside the checkpoint code only: model.safetensors.index.json, which says in which files the tensors of a checkpoint are. */
#ifndef NN_SHARD_INDEX_H
#define NN_SHARD_INDEX_H
#include "base/status.h"
#include <stddef.h>

enum { SHARD_INDEX_MOST = 1024 };

typedef struct ShardIndex {
  char **names; /* each once; all are files of the index's own directory */
  size_t count;
} ShardIndex;

/* From its text; `path` is for messages. BAD_FILE: no JSON, no weight_map, a name that leads elsewhere, more than SHARD_INDEX_MOST shards;
 * the index is empty then. */
Status shard_index_parse(ShardIndex *index, const char *text, size_t size, const char *path);
void shard_index_release(ShardIndex *index); /* accepts a zeroed one */

#endif
