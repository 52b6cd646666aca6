/* The emulation of all nodes in one process with given codes: what every node must have seen at each quantisation site, if those codes
 * are what it sent. */
#ifndef INFER_REPLAY_H
#define INFER_REPLAY_H
#include "infer/partition.h"
#include "infer/weights.h"

/* Called for each site with x [B, T, W], the content tokens' activations in the picture's order. */
typedef void ReplaySee(void *context, int block, int site, const real *x);

/* pixels [B, C, H, W]; codes [blocks * sites][B, T, G] -> logits [B, classes]. */
Status replay_run(const Weights *weights, const Partition *partition, const float *pixels, int64_t batch, const int32_t *codes,
                  ReplaySee *see, void *context, real *logits);

#endif
