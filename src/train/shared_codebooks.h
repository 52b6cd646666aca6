/* Codebooks and noise moments of a job of several ranks: each takes the sums of its share of a batch, these are added up beside the
 * backward pass, and all move codewords and moments by the same numbers: every rank keeps the same codebooks without sending any. What
 * emulate_update does in one process. */
#ifndef TRAIN_SHARED_CODEBOOKS_H
#define TRAIN_SHARED_CODEBOOKS_H
#include "train/all_reduce.h"
#include "train/emulate.h"

typedef struct SharedCodebooks {
  Emulation *emulation;
  AllReduce *reduce;
  real *block;       /* for each site: counts [G, K], sums [G, K, W/G], residual sums; padded */
  int64_t site_size; /* numbers of a site there */
  CodebookEma batch; /* of one site: counts of its share; its sums are in the block */
  uint8_t *dead;     /* [G, K] of all sites */
} SharedCodebooks;

Status shared_codebooks_init(SharedCodebooks *shared, Emulation *emulation, int tag); /* the emulation must not move */
void shared_codebooks_release(SharedCodebooks *shared);                               /* fine on a zeroed one */

/* Before backward: the sums of this rank's share set out. Scratch comes from the tape. */
Status shared_codebooks_begin(SharedCodebooks *shared, Tape *tape);
/* After it: waits for them, moves all codebooks and numbers the step. rng: the same in all ranks. */
Status shared_codebooks_finish(SharedCodebooks *shared, Tape *tape, Rng *rng);

#endif
