/* Proof that the processes compute what the training emulation computed: a checkpoint carries sample images or texts with the codes and
 * logits of its emulated devices, and the runner repeats them over real sockets.
 *
 * selftest.safetensors (docs/FORMATS.md): pixel_values F32 [B, C, H, W] and logits F32 [B, classes], or ids I32 [B, T] and the logits of
 * the last tokens F32 [B, V], perhaps with labels I32 [B, T] and their mean loss F32 [1], or of texts that are classified F32 [B, classes],
 * perhaps with the one length of all texts where padding follows, I32 [B]; and, for a model with codebooks, device_of I32 [T] and
 * codes.astra.layers.L.<site> I32 [B, T, G]. Other tensors are ignored. Of a text the codes of the last device's tokens are not
 * compared: they are not sent.
 *
 * A code that differs is a tie when both codewords are equally near within rounding. Ties move what later blocks of the image see, so
 * there other codes may follow. Whether each code is the nearest one for what its node saw is checked by an emulation with the
 * codes that were sent, which also gives the logits to compare for such images.
 *
 * In bf16, and with weights of 8 or 4 bits (weights_quantise, or a checkpoint of such), the file's codes and logits belong to other
 * weights: all images are then compared with that emulation, which uses the same rounded products, and nothing with the file. Roundings
 * move all logits of a row alike: there a row deviates by the root mean square of its differences. */
#ifndef INFER_SELFTEST_H
#define INFER_SELFTEST_H
#include "infer/cluster/leader.h"

typedef struct SelftestReport {
  int nodes;
  int64_t images, codes;
  int64_t ties;          /* codes that differ but are equally near */
  double ties_allowed;   /* as a share of the codes */
  int64_t followed;      /* codes that differ in later blocks of an image with a tie */
  int64_t wrong;         /* any other difference */
  int64_t same_images;   /* images where no code differs */
  double worst_same;     /* largest deviation of their logits from the file's, in units of what is allowed: above 1 fails */
  double worst_replayed; /* the same for the other images, compared with the emulation with the codes that were sent */
  int64_t losses;        /* labels whose mean loss was compared: of texts where no code differs, if the file has labels */
  double worst_loss;     /* the same for its distance from the file's */
  double worst_absolute; /* largest |difference| behind worst_same */
  bool passed;
  char reason[160]; /* why not */
} SelftestReport;

/* Starts a cluster with the file's map, compares, ends it. path: NULL means DIRECTORY/selftest.safetensors. options: batch_max and codes
 * are set here. OK with report->passed false when the results differ. */
Status selftest_run(const Weights *weights, const char *directory, const char *path, const LeaderOptions *options, SelftestReport *report);

#endif
