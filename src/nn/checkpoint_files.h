/* Inside the checkpoint code only: the safetensors files of a checkpoint as one set of tensors. */
#ifndef NN_CHECKPOINT_FILES_H
#define NN_CHECKPOINT_FILES_H
#include "base/status.h"
#include "nn/checkpoint.h"
#include "nn/safetensors.h"
#include <stdbool.h>
#include <stddef.h>

/* Inside the checkpoint code only: model.safetensors.index.json, which says in which files the tensors of a checkpoint are. */

enum { SHARD_INDEX_MAX = 1024 };

typedef struct ShardIndex {
  char **names; /* each once; all are files of the index's own directory */
  size_t count;
} ShardIndex;

/* From its text; `path` is for messages. BAD_FILE: no JSON, no weight_map, a name that leads elsewhere, more than SHARD_INDEX_MAX shards;
 * the index is empty then. */
Status shard_index_parse(ShardIndex *index, const char *text, size_t size, const char *path);
void shard_index_release(ShardIndex *index); /* accepts a zeroed one */

typedef struct CheckpointFiles {
  char *path;  /* as the user gave it: for messages */
  char *index; /* the index that named the files, or NULL: for messages */
  SafeFile *list;
  size_t count;
} CheckpointFiles;

enum { SHAPE_TEXT = 200 };

/* The names of one file and of an index of shards; where a directory has both, readers take the first. */
#define CHECKPOINT_WHOLE "model.safetensors"
#define CHECKPOINT_INDEX "model.safetensors.index.json"

/* path: a .safetensors file, or a directory with model.safetensors or with model.safetensors.index.json and the shards that it names.
 * NOT_FOUND when there is none of these; a missing shard is BAD_FILE and is named. */
Status checkpoint_files_open(CheckpointFiles *files, const char *path);
void checkpoint_files_close(CheckpointFiles *files); /* accepts a zeroed one */

/* By its Hugging Face name, or without "vit.", "transformer." or "model." (as the bare models save it). NULL: absent. */
const SafeTensor *checkpoint_files_find(const CheckpointFiles *files, const char *name);

/* BAD_FILE for a tensor that is in none of the shards that the files' index names. */
Status checkpoint_files_incomplete(const CheckpointFiles *files, const Param *param);

/* How many codebooks there are, and how many other tensors that say something. Not counted are what follows from the configuration (masks
 * "attn.bias" and "attn.masked_bias", "rotary_emb.inv_freq") and, of a model whose head is its token table, a second copy of that. */
size_t checkpoint_files_codebooks(const CheckpointFiles *files);
size_t checkpoint_files_parameters(const CheckpointFiles *files, const ModelConfig *config);

/* BAD_FILE when the files hold more blocks than the model: what is left of a deeper model computes nonsense. */
Status checkpoint_files_check_depth(const CheckpointFiles *files, const ModelConfig *config);

bool checkpoint_same_shape(const SafeTensor *tensor, int dims, const int64_t *shape);
const char *checkpoint_shape_text(char text[SHAPE_TEXT], int dims, const int64_t *shape); /* "[197, 768]"; returns text */

/* BAD_FILE that names the tensor when a number is not finite. */
Status checkpoint_check_finite(const char *path, const char *name, const real *value, int64_t count);

/* The tensor as real numbers, all finite; errors name the path. out [tensor->count]. */
Status checkpoint_read(const CheckpointFiles *files, const SafeTensor *tensor, real *out);

#endif
