/* selftest.safetensors: a few images, windows or texts of the test part with the codes and logits of the emulated devices, for the runner
 * to check itself against. */
#ifndef TRAIN_SELFTEST_WRITER_H
#define TRAIN_SELFTEST_WRITER_H
#include "train/session.h"

enum { SELFTEST_SAMPLES = 4 }; /* at most */

#define SELFTEST_COVARIANCE NOISE_DIAGONAL /* the self-test draws no noise: the smaller kind of moments */

/* pixel_values F32 [B, 3, H, W] or ids I32 [B, T] (with lengths I32 [B] of texts to classify), device_of I32 [T], codes.astra.layers.L.SITE
 * I32 [B, T, G] (x, or k and v), logits F32 [B, classes] or, of the last token, [B, V], and of next tokens labels I32 [B, T] and loss F32
 * [1], the mean over the labels that count (not -1): even shares over config->astra.devices devices, placed by astra.layout, the exported
 * weights as they are on disk (so that a narrower dtype does not count as a difference). Of a plain model there are neither devices nor
 * codes. */
Status selftest_writer_run(Session *session, const char *directory);

#endif
