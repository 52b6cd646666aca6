/* What astra-kmeans prints: how codebooks do on embeddings (init, eval), what they are (show), how few bits their codes take
 * (frequencies). */
#ifndef CLI_CODEBOOK_REPORT_H
#define CLI_CODEBOOK_REPORT_H
#include "autograd/real.h"
#include "base/status.h"
#include "nn/config.h"
#include "train/codebooks.h"
#include <stdbool.h>
#include <stdint.h>

/* What can be said of a codebook without data: the lengths of its codewords, and how many say the same. */

typedef struct CodebookFacts {
  double norm_min, norm_mean, norm_max; /* |e| over all groups' codewords */
  int64_t duplicates;                   /* codewords equal to another one of their group that was counted before */
} CodebookFacts;

Status codebook_facts(const real *codewords /* [G, K, width] */, int64_t groups, int64_t entries, int64_t width, CodebookFacts *facts);

/* reports [blocks * sites]; directory: where the codebooks lie. A table, or one JSON object on one line; moments: with those of each
 * report. */
Status codebook_report_evaluated(const ModelConfig *config, const char *directory, const CodebookReport *reports, bool moments, bool json);

/* codewords [blocks * sites][G, K, W/G]. */
Status codebook_report_shown(const ModelConfig *config, const char *directory, const real *codewords, bool json);

/* bits: of a token over all blocks, entropy-coded; beside what packed codes take. */
Status codebook_report_counted(const ModelConfig *config, const char *directory, double bits, bool json);

#endif
