/* The blocks of a node, part by part, so that codes are under way while the node still computes. A node's rows are cut into S parts
 * (layout_part); what follows a block's attention, the next block's norm and its quantisation run for one part after another, and each
 * part's codes leave at once. Whole blocks (block_forward) take the same steps with one part. */
#ifndef NN_PIPELINE_H
#define NN_PIPELINE_H
#include "nn/block_internal.h"

/* x [B, S, D], the input of block 0, through all `count` blocks -> as block_forward of the last one with these rows. context->exchange has
 * several parts; nothing is recorded, nobody watches, and the cache, if any, is empty. One sample (B = 1) on one node, else BAD_VALUE. A
 * part without rows is neither begun nor computed. */
Tensor *pipeline_encode(const BlockContext *context, const BlockParams *blocks, int count, ModelRows rows, Tape *tape, Tensor *x);

#endif
