/* Digests of what devices must have in common to compute together, short enough to print: the first 8 bytes of SHA-256, big-endian. They do
 * not protect against forgery: devices with the key are trusted. */
#ifndef INFER_FINGERPRINT_H
#define INFER_FINGERPRINT_H
#include "infer/weights.h"

typedef struct Fingerprints {
  uint64_t model;     /* the configuration's part in the computation, and all parameters */
  uint64_t codebook;  /* codewords of all blocks and sites; 0 of a plain model */
  uint64_t partition; /* which device holds which tokens; 0: not agreed on yet */
} Fingerprints;

/* model and codebook; partition becomes 0. Reads all weights, which takes a fraction of a second for 100 million. The same weights in 16
 * bits are another model, since they compute other numbers. IO: OpenSSL has no SHA-256. */
Status fingerprint_weights(const Weights *weights, Fingerprints *fingerprints);

/* counts [nodes] of an image's tokens, order [tokens] or NULL: raster order; of texts weights [nodes] instead, with counts and order NULL.
 */
typedef struct FingerprintShares {
  int nodes;
  int64_t tokens;
  const int64_t *counts;
  const int32_t *order;
  const double *weights;
} FingerprintShares;
Status fingerprint_shares(const FingerprintShares *shares, uint64_t *partition);

#endif
