/* Inside the checkpoint code only: the tensors of a checkpoint, in one file or in several with an index. */
#ifndef NN_CHECKPOINT_SHARDS_H
#define NN_CHECKPOINT_SHARDS_H
#include "nn/safetensors.h"

/* model.safetensors, or, when the tensors take more than `most` bytes, model-00001-of-0000N.safetensors of at most that (but for a single
 * tensor that is larger) and model.safetensors.index.json. Shards get their names when all are written, and an old index is gone before the
 * first of them does: who stops in between leaves shards that nobody takes for a checkpoint, not a mixture. What the directory held before,
 * in either form, is removed at the end. */
Status checkpoint_shards_save(const char *directory, const SafeItem *items, size_t count, int64_t most);

#endif
