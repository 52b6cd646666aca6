/* Decoding: one token after another, by the device that has the last one (paper section 3.1). It sees its own device's tokens in full and
 * those of the others as their codes. */
#ifndef NN_DECODE_H
#define NN_DECODE_H
#include "nn/block.h"
#include "nn/model.h"

/* The next token of the sequence that the cache holds: its row goes through all blocks, its keys and values into the cache -> logits
 * [1, 1, V]. The cache was filled by model_encode with the same cache (ModelInput.cache), or by earlier steps; *token outlives the step.
 * A full cache, or an id outside of the vocabulary, fails the tape. */
Tensor *model_decode_step(Model *model, Tape *tape, KvCache *cache, const int32_t *token);

/* For block.c: attention of q [1, 1, D] over what context->cache holds, the row just stored included. Adapters of the key and value
 * projections must have been folded in where there are remote tokens. */
Tensor *decode_attend(const BlockContext *context, const BlockParams *block, int index, Tape *tape, Tensor *q);

#endif
