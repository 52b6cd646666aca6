/* Sums and joins of whole tensors over all devices, for strategies that divide a block by heads and columns. Who carries them is
 * src/infer's (strategy/collective.h). All devices call the same ones in the same order. */
#ifndef NN_REDUCE_H
#define NN_REDUCE_H
#include "autograd/tape.h"
#include <stdbool.h>

typedef struct Reduce Reduce;

/* One of the calls below, as it can be known before: whoever carries them refuses all else. */
typedef struct ReduceStep {
  bool sum;            /* else a gather */
  int64_t samples;     /* of a gather: B; a sum takes the rows of all samples together: 1 */
  int64_t rows, width; /* of each sample, over all devices */
} ReduceStep;

struct Reduce {
  int self, devices;
  /* partial [B, rows, W] becomes the sum of all devices' partial tensors, added in the order of the devices: equal bits everywhere. which:
   * a number that tells the sums of one block apart, from 0. */
  Status (*sum)(Reduce *self, Tape *tape, int block, int which, Tensor *partial);
  /* own [B, this device's share of `rows`, W] -> *all [B, rows, W], in the order of the devices, on the tape. The shares are those of
   * layout_even_counts(rows, devices). which: a number that tells the joins of one block apart, from 0. */
  Status (*gather)(Reduce *self, Tape *tape, int block, int which, const Tensor *own, int64_t rows, Tensor **all);
};

#endif
