/* Sums and joins (nn/reduce.h) of one device that is measured alone: it adds and copies as many numbers as a device of a real collective
 * does (strategy/collective.h), and notes in a timeline what would have been sent and waited for. What "came" is zeroes. */
#ifndef INFER_VIRTUAL_REDUCE_H
#define INFER_VIRTUAL_REDUCE_H
#include "infer/sim/schedule.h"
#include "infer/wire.h"
#include "nn/reduce.h"

typedef struct VirtualReduce {
  Reduce reduce; /* first: give its address to the blocks */
  Timeline *timeline;
  double since; /* when the present stretch of computation began, on this thread's clock */
  real *came;   /* [rows_most, width] */
  real *own;    /* likewise: what leaves */
} VirtualReduce;

/* rows_most, width: of the largest tensor. */
Status virtual_reduce_init(VirtualReduce *reduce, int self, int devices, int64_t rows_most, int64_t width);
void virtual_reduce_release(VirtualReduce *reduce); /* accepts a zeroed one */

/* Before the forward pass, and after it. timeline is empty. */
void virtual_reduce_start(VirtualReduce *reduce, Timeline *timeline);
Status virtual_reduce_stop(VirtualReduce *reduce);

#endif
