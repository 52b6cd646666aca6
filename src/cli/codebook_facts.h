/* What can be said of a codebook without data: the lengths of its codewords, and how many say the same. */
#ifndef CLI_CODEBOOK_FACTS_H
#define CLI_CODEBOOK_FACTS_H
#include "autograd/real.h"
#include "base/status.h"
#include <stdint.h>

typedef struct CodebookFacts {
  double norm_least, norm_mean, norm_most; /* |e| over all groups' codewords */
  int64_t duplicates;                      /* codewords equal to another one of their group that was counted before */
} CodebookFacts;

Status codebook_facts(const real *codewords /* [G, K, width] */, int64_t groups, int64_t entries, int64_t width, CodebookFacts *facts);

#endif
