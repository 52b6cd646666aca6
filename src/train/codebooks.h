/* Codebooks initialised with K-means: intermediate embeddings of the pretrained model, streamed over the training part, clustered per block
 * and site. */
#ifndef TRAIN_CODEBOOKS_H
#define TRAIN_CODEBOOKS_H
#include "train/session.h"
#include "vq/basis.h"

/* Frequencies, checkpoint_frequencies, [blocks * sites][G, K] of each bit rate, for entropy coding (vq/rans.h): of the codes that the usage
 * of each site of the emulation has counted, or of the moving averages that training keeps. */
Status codebooks_frequencies(const Session *session, bool averaged, uint16_t *frequencies);

/* Takes the codebooks of all bit rates from a file or directory written by astra-kmeans or astra-train. BAD_USAGE where the config.json
 * beside them says that they are of tokens in another basis, or less another prediction, than the session's, or where the weights beside
 * them have another basis of that kind. The session's place in the training part is another afterwards. */
Status codebooks_read(Session *session, const char *path);

/* Whether codebooks_read would find codebooks there that fit, for a plan, which reads no numbers and compares no bases. */
Status codebooks_check(const Session *session, const char *path);

/* Entropy-constrained assignment (codebook_constrain) by these frequencies at every site, in place of any before, until the codewords
 * change.
 */
void codebooks_constrain(Session *session, const uint16_t *frequencies, double weight);

/* The same by the frequencies beside codebooks that were read from `path`, as devices do that entropy-code, and says so. Nothing where
 * there are none, or none with a weight. BAD_FILE as checkpoint_load_frequencies. */
Status codebooks_constrain_as_counted(Session *session, const char *path);

typedef struct CodebookReport {
  int block;
  UsageSummary usage;
  double variance;         /* mean |x - mean x|^2 of the tokens in the basis that they are quantised in, with what predictions and means of
                            * positions tell of them: distortion / variance is the share that quantisation loses */
  ResidualMoments moments; /* where they were asked for: of the same tokens */
} CodebookReport;

/* Fills the emulation's codebooks, of all bit rates, and starts their moving averages; that with the most groups is in use before and
 * afterwards. Samples per site: options.kmeans_samples, or 16 K. reports [rates][blocks * sites]: how they do on those samples, or NULL.
 */
Status codebooks_fit(Session *session, CodebookReport *reports);

/* What codebooks_fit takes: bytes of the samples of all sites, of K-means of one site, of the plain model's pass over a batch; and its work
 * in FLOPs, of K-means at most. The session's step is as it was; its layouts and its place in the data are
 * not: who reads on seeks first. */
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
