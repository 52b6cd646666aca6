/* Blocks as segments: see recompute.h. A segment's inputs and outputs are the rows and what the exchange carries from block to block. */
#include "nn/recompute.h"
#include "autograd/tape_segment.h"

typedef struct BlockRun {
  BlockContext context;
  const BlockParams *block;
  int index;
  ModelRows rows;
} BlockRun;

static Tensor **carried_by(const BlockContext *context) { return context->exchange ? context->exchange->carried : NULL; }

/* What is carried is exchanged for the segment's own while it runs. */
static void run(Tape *tape, void *data, Tensor *const *input, Tensor **output) {
  BlockRun *job = data;
  Tensor **carried = carried_by(&job->context), *before = carried ? *carried : NULL;
  if (carried) *carried = input[1];
  output[0] = block_forward(&job->context, job->block, job->index, job->rows, tape, input[0]);
  if (!carried) return;
  output[1] = *carried;
  *carried = before;
}

Tensor *recompute_block(const BlockContext *context, const BlockParams *block, int index, ModelRows rows, Tape *tape, Tensor *x) {
  BlockRun *job = tape_alloc(tape, sizeof *job);
  Tensor **carried = carried_by(context), *output[TAPE_SEGMENT_ENDS];
  if (job == NULL) return NULL;
  *job = (BlockRun){*context, block, index, rows};
  tape_segment(tape, &(TapeSegment){.run = run, .context = job, .input = {x, carried ? *carried : NULL}}, output);
  if (carried) *carried = output[1];
  return output[0];
}
