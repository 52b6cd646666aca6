/* Inside of the checkpoint code and its tests only.*/
#ifndef NN_CHECKPOINT_INTERNAL_H
#define NN_CHECKPOINT_INTERNAL_H
#include "nn/checkpoint.h"
#include "nn/checkpoint_files.h"

/* model.safetensors, or, when the tensors take more than `most` bytes, model-00001-of-0000N.safetensors of at most that (but for a single
 * tensor that is larger) and model.safetensors.index.json. Shards get their names when all are written, and an old index is gone before the
 * first of them does: who stops in between leaves shards that nobody takes for a checkpoint, not a mixture. What the directory held before,
 * in either form, is removed at the end. */
Status checkpoint_shards_save(const char *directory, const SafeItem *items, size_t count, int64_t max);

enum { LOWBIT_SCALE_NAME = PARAM_NAME + 8 };

/* The entries of a matrix: 1 or 2 of them in items. scale_name: where its name stands. Returns how many. */
size_t lowbit_checkpoint_items(const Param *param, char scale_name[LOWBIT_SCALE_NAME], SafeItem items[2]);

#endif
