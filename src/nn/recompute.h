/* Inside src/nn only: a block as a segment of the tape, so that its values need not be kept (autograd/tape_segment.h). */
#ifndef NN_RECOMPUTE_H
#define NN_RECOMPUTE_H
#include "nn/block.h"

/* As block_forward; on a tape that uses segments, a block is one. */
Tensor *recompute_block(const BlockContext *context, const BlockParams *block, int index, ModelRows rows, Tape *tape, Tensor *x);

#endif
