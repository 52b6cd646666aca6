/* The samples of a self-test and what training found for them: selftest.safetensors (docs/FORMATS.md), read and checked against the model.
 */
#ifndef INFER_SELFTEST_SAMPLES_H
#define INFER_SELFTEST_SAMPLES_H
#include "infer/weights.h"

typedef struct SelftestSamples {
  int64_t count, tokens, classes; /* B, T, numbers of an answer: classes or, where tokens are predicted, V */
  int64_t pixels;                 /* of an image */
  int64_t length;                 /* of a text in the file without its padding, which is left out here: T; 0 for images */
  int sets;                       /* of codes: blocks * sites; 0 for one node */
  int64_t groups;
  float *pixel_values; /* [count, pixels]; NULL for texts */
  int32_t *ids;        /* [count, tokens]; NULL for images */
  int32_t *labels;     /* [count, tokens], -1: does not count; NULL: there is no loss */
  double loss;         /* mean over the labels that count */
  real *logits;        /* [count, classes] */
  int32_t *device_of;  /* [tokens]; NULL for one node */
  int32_t **codes;     /* [sets] -> [count, tokens, groups] */
} SelftestSamples;

/* NOT_FOUND and BAD_FILE name the file and the tensor. Release whatever comes back. */
Status selftest_samples_read(SelftestSamples *samples, const Weights *weights, const char *path);
void selftest_samples_release(SelftestSamples *samples);

#endif
