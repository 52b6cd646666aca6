/* Gradient checkpointing (Chen et al., 2016, "Training deep nets with sublinear memory cost"): a part of the forward pass whose values are
 * not kept but computed again when its gradients are wanted. It costs one more forward pass, and memory for one segment instead of all.
 *
 *   arena   | in | out 1 | out 2 | ...                 what segments hand on, and what they keep
 *   inner   | values of the segment at work ..... |    released when it ends, filled again in backward
 *
 * The second run has the same inputs and does the same in the same order, so that gradients are the same bits as without segments. What a
 * segment does beside its outputs (statistics, draws) must be done in the first run alone: tape_segment_again. */
#ifndef AUTOGRAD_TAPE_SEGMENT_H
#define AUTOGRAD_TAPE_SEGMENT_H
#include "autograd/tape.h"

enum { TAPE_SEGMENT_ENDS = 2 };

typedef struct TapeSegment {
  /* Fills output from input, entry by entry; NULL: there is none. Reads no other tensor that needs a gradient, but for
   * parameters, whose gradients have memory of their own. */
  void (*run)(Tape *tape, void *context, Tensor *const *input, Tensor **output);
  void *context;                    /* until tape_clear */
  Tensor *input[TAPE_SEGMENT_ENDS]; /* nothing else reads these */
} TapeSegment;

/* From now on segments have their values in `inner`, which stays the caller's and must outlive the tape, and are computed twice where the
 * tape records. NULL, as a tape begins: segments just run. */
void tape_segment_use(Tape *tape, Arena *inner);

/* output[0] must come of it; no gradient flows into another output alone. A segment inside of a segment is a part of it. */
void tape_segment(Tape *tape, const TapeSegment *segment, Tensor *output[TAPE_SEGMENT_ENDS]);

bool tape_segment_inside(const Tape *tape);        /* tape_alloc gives memory that goes when the segment ends */
bool tape_segment_again(const Tape *tape);         /* this is the second run */
void *tape_segment_keep(Tape *tape, size_t bytes); /* as tape_alloc, but until tape_clear, inside of a segment as well */

#endif
