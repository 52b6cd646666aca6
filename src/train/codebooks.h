/* Codebooks initialised with K-means: intermediate embeddings of the pretrained model, streamed over the training part, clustered per block
 * and site. */
#ifndef TRAIN_CODEBOOKS_H
#define TRAIN_CODEBOOKS_H
#include "train/session.h"
#include "vq/residual_moments.h"

/* How often each code comes: counted on data, or taken from the averages that training keeps; for entropy coding (vq/pack.h).
 */

/* Frequencies, checkpoint_frequencies, [blocks * sites][G, K] of each bit rate, of the codes of the first `samples` images, windows or
 * texts of a part (0: all), on the model's number of emulated devices, as the runner places tokens. The counts stay in the usage of each
 * site of the emulation, which is cleared first. UNSUPPORTED where a codebook is too large for frequencies. */
Status code_counts_fit(Session *session, TaskPart part, int64_t samples, uint16_t *frequencies);

/* Counts likewise. bits [rates]: of a token over all blocks, coded with these frequencies; packed they are
 * config_codebooks times config_code_bits. */
Status code_counts_bits(Session *session, TaskPart part, int64_t samples, const uint16_t *frequencies, double *bits);

/* Frequencies of the moving averages, beside the checkpoint in `directory`; none where a codebook is too large. */
Status code_counts_export(const Session *session, const char *directory);

/* Takes the codebooks of all bit rates from a file or directory written by astra-kmeans or astra-train. */
Status codebooks_read(Session *session, const char *path);

typedef struct CodebookReport {
  int block;
  UsageSummary usage;
  double variance;         /* mean |x - mean x|^2 per row: distortion / variance is the share that quantisation loses */
  ResidualMoments moments; /* where they were asked for */
} CodebookReport;

/* Fills the emulation's codebooks, of all bit rates, and starts their moving averages; that with the most groups is in use before and
 * afterwards. Samples per site: options.kmeans_samples, or 16 K. reports [rates][blocks * sites]: how they do on those samples, or NULL.
 */
Status codebooks_fit(Session *session, CodebookReport *reports);

/* What codebooks_fit takes: bytes of the samples of all sites, of K-means of one site, of the plain model's pass over a batch; and its work
 * in FLOPs, of K-means at most. The session's step, layouts and batches are as they were. */
typedef struct CodebooksPlan {
  int64_t count; /* samples of a site */
  double samples, work, activations;
  double batches, batch_flops, kmeans_flops; /* passes over a batch, FLOPs of one; all sites and iterations */
} CodebooksPlan;
Status codebooks_plan(Session *session, CodebooksPlan *plan);

/* How the codebooks do on the plain model's embeddings of the test part: one report for each site, [rates][blocks * sites]. samples:
 * images, windows or texts, 0 for all; up to 64 tokens of each are kept in memory. moments: those of each report are computed, which
 * takes seconds for each site of width 768. */
Status codebooks_evaluate(Session *session, int64_t samples, bool moments, CodebookReport *reports);

#endif
