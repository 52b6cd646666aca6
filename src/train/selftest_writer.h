/* selftest.safetensors: a few test pictures with the codes and logits of the emulated devices, for the runner to check itself against. */
#ifndef TRAIN_SELFTEST_WRITER_H
#define TRAIN_SELFTEST_WRITER_H
#include "train/session.h"

#define SELFTEST_COVARIANCE NOISE_DIAGONAL /* the self-test draws no noise: the smaller kind of moments */

/* pixel_values F32 [B, 3, H, W], device_of I32 [T], codes.astra.layers.L.x I32 [B, T, G], logits F32 [B, classes]: even contiguous spans
 * over config->astra.devices devices, the exported weights as they are on disk (so that a narrower dtype does not count as a difference).
 */
Status selftest_writer_run(Session *session, const char *directory);

#endif
