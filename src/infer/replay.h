/* The emulation of all nodes in one process with given codes: what every node must have seen at each quantisation site, if those codes
 * are what it sent. */
#ifndef INFER_REPLAY_H
#define INFER_REPLAY_H
#include "infer/partition.h"
#include "infer/token_split.h"
#include "infer/weights.h"

/* Called for each site with x [B, T, W], the content tokens' activations in their order. */
typedef void ReplaySee(void *context, int block, int site, const real *x);

/* Images and how they are divided, or texts and how these are. */
typedef struct ReplayInput {
  int64_t batch, tokens;      /* B, T */
  const Partition *partition; /* of images; else NULL */
  const float *pixels;        /* [B, C, H, W] */
  const TokenSplit *split;    /* of texts; else NULL */
  const int32_t *ids;         /* [B, T] */
} ReplayInput;

/* codes [blocks * sites][B, T, G], -1: of a token that nobody was sent -> logits [B, classes], or after the last tokens of texts
 * that go on [B, V]. */
Status replay_run(const Weights *weights, const ReplayInput *input, const int32_t *codes, ReplaySee *see, void *context, real *logits);

#endif
