/* Inside the checkpoint code only: the tensors of a checkpoint, in one file or in several with an index. */
#ifndef NN_CHECKPOINT_SHARDS_H
#define NN_CHECKPOINT_SHARDS_H
#include "nn/safetensors.h"

/* model.safetensors, or, when the tensors take more than `most` bytes, model-00001-of-0000N.safetensors of at most that (but for a single
 * tensor that is larger) and model.safetensors.index.json. What the directory held before in the other form is removed. Shards get their
 * names when all are written. */
Status checkpoint_shards_save(const char *directory, const SafeItem *items, size_t count, int64_t most);

#endif
