/* Two of the paper's claims, measured on a trained model with emulated devices: accuracy grows with the full-precision attention rate
 * (appendix, heterogeneous settings), and the mean of N class tokens has a smaller error than one of them (theorem 2). Sessions are those
 * of SESSION_EVALUATE, with codebooks. */
#ifndef TRAIN_CLAIMS_H
#define TRAIN_CLAIMS_H
#include "train/session.h"

/* ---- Accuracy by full-precision attention rate */

typedef struct FparBatch {
  double fpar; /* of its shares of tokens (layout_fpar) */
  TaskScore score;
} FparBatch;

/* Each batch of the first `samples` (0: all) of the test part, which is gone through `draws` times, has shares of its own on `devices`
 * devices, from a Dirichlet distribution with this concentration, and of images a permutation of its own; both follow from options.seed.
 * *list [*count] in ascending order of their rates, the caller's to free, also after a failure. INTERRUPTED when a signal asked for it. */
Status claims_fpar(Session *session, int devices, double concentration, int64_t samples, int64_t draws, FparBatch **list, int64_t *count);

/* Batches of one range of rates. */
typedef struct FparBin {
  double low, high;
  TaskScore score;
} FparBin;

/* Cuts the list into `bins` of as many samples, as far as batches allow: bin b begins with the first batch that has b / bins of all samples
 * or more before it. A bin without a batch has no samples. */
void claims_fpar_bins(const FparBatch *list, int64_t count, int bins, FparBin *bin);

/* ---- Error of class tokens */

/* Means over samples of squared distances from the class token that the same weights give on one device, with every token in full
 * precision. */
typedef struct ClassTokenError {
  double one, mean; /* of one device's class token, mean over devices; of the mean of all devices' class tokens */
} ClassTokenError;

/* errors [devices - 1, blocks + 1]: on 2, 3, ... `devices` devices, with even shares as the runner places them; of the rows that block b
 * quantises (or its keys), and at place `blocks` of what the head takes. The first `samples` images of the test part, 0: all. UNSUPPORTED
 * for models without a class token on each device. */
Status claims_class_token(Session *session, int devices, int64_t samples, ClassTokenError *errors);

#endif
