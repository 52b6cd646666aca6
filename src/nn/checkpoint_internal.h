/* Inside the checkpoint code only: the safetensors files of a checkpoint as one set of tensors (checkpoint_files.c). */
#ifndef NN_CHECKPOINT_INTERNAL_H
#define NN_CHECKPOINT_INTERNAL_H
#include "nn/checkpoint.h"
#include "nn/safetensors.h"

enum { SHARD_INDEX_MAX = 1024 };

typedef struct CheckpointFiles {
  char *path;  /* as the user gave it: for messages */
  char *index; /* the index that named the files, or NULL: for messages */
  SafeFile *list;
  size_t count, room;
} CheckpointFiles;

enum { SHAPE_TEXT = 200 };

/* path: a .safetensors file, or a directory with model.safetensors or with model.safetensors.index.json and the shards that it names.
 * NOT_FOUND when there is none of these; BAD_FILE names a shard that is missing, and a tensor that lies in another shard than the index
 * says, or in two. */
Status checkpoint_files_open(CheckpointFiles *files, const char *path);
void checkpoint_files_close(CheckpointFiles *files); /* accepts a zeroed one */

/* By its Hugging Face name, or without "vit.", "transformer." or "model." (as the bare models save it). NULL: absent. */
const SafeTensor *checkpoint_files_find(const CheckpointFiles *files, const char *name);

bool checkpoint_same_shape(const SafeTensor *tensor, int dims, const int64_t *shape);
const char *checkpoint_shape_text(char text[SHAPE_TEXT], int dims, const int64_t *shape); /* "[197, 768]"; returns text */

/* The tensor as real numbers, all finite; errors name the path. out [tensor->count]. */
Status checkpoint_read(const CheckpointFiles *files, const SafeTensor *tensor, real *out);

/* value [count] of the tensor of this name may be saved: they are finite. NUMERIC: they are not, and nothing has been saved. */
Status checkpoint_save_check(const char *name, const real *value, int64_t count);

enum { LOWBIT_SCALE_NAME = PARAM_NAME + 8 };

/* "NAME_scale", the tensor of the scales of an 8-bit matrix; returns text. */
const char *checkpoint_scale_name(char text[LOWBIT_SCALE_NAME], const Param *param);

#endif
