/* DIRECTORY/training/state.safetensors: everything that a run needs to go on bit for bit: weights, optimizer moments, averaged weights,
 * codebooks with their moving averages, noise moments, random states, counters; also which weights adapters stand beside, which a teacher
 * has, and a digest of the data. One file, written atomically: a state is whole or absent.
 */
#ifndef TRAIN_STATE_H
#define TRAIN_STATE_H
#include "train/session.h"

/* selftest.safetensors: a few images, windows or texts of the test part with the codes and logits of the emulated devices, for the runner
 * to check itself against. */

enum { SELFTEST_SAMPLES = 4 }; /* at most */

#define SELFTEST_COVARIANCE NOISE_DIAGONAL /* the self-test draws no noise: the smaller kind of moments */

/* pixel_values F32 [B, 3, H, W] or ids I32 [B, T] (with lengths I32 [B] of texts to classify), device_of I32 [T], codes.astra.layers.L.SITE
 * I32 [B, T, G] (x, or k and v), logits F32 [B, classes] or, of the last token, [B, V], and of next tokens labels I32 [B, T] and loss F32
 * [1], the mean over the labels that count (not -1): even shares over config->astra.devices devices, placed by astra.layout, the exported
 * weights as they are on disk (so that a narrower dtype does not count as a difference). Of a
 * plain model there are neither devices nor codes. */
Status selftest_writer_run(Session *session, const char *directory);

Status state_save(const Session *session, const char *directory);

size_t state_bytes(const Session *session); /* of the numbers in the file */

/* Removes it, and what evaluations were noted beside it, if they are there: a run that begins anew in the directory of another one must not
 * be taken for that one before its first checkpoint. IO names the file that cannot be removed. */
Status state_forget(const char *directory);

/* Into a session opened with the same model and options. NOT_FOUND of a run that had no checkpoint yet. A file that does not fit names the
 * tensor and both shapes; adapters that were trained beside other weights, a run with another teacher, or one with other data, are
 * refused as well. */
Status state_load(Session *session, const char *directory);

#endif
