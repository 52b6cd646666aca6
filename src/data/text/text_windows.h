/* Windows over a corpus of tokens for its perplexity, in order: inputs of `context` tokens that advance by `stride`. Every token but the
 * first is a label exactly once, with at least context - stride tokens before it (fewer at the beginning); with stride == context the
 * windows do not overlap. Perplexity = exp(sum of -ln p(label) / n) with n of text_windows_labels (per token), or words or bytes of
 * token_cache_facts. A plain value; any thread may fill. */
#ifndef DATA_TEXT_WINDOWS_H
#define DATA_TEXT_WINDOWS_H
#include "data/text/rolling_text.h"
#include "data/text/token_cache.h"

typedef struct TextWindows {
  const TokenCache *cache;    /* must outlive it; NULL with */
  const RollingText *rolling; /* documents by themselves; likewise */
  int64_t context, stride;
  int64_t count; /* windows */
} TextWindows;

/* BAD_VALUE: a stride outside of 1 to context, or fewer than two tokens. */
Status text_windows_init(TextWindows *windows, const TokenCache *cache, int64_t context, int64_t stride);

/* Of documents by themselves, as rolling_text.h divides them; the stride is the context. rolling must outlive it. */
void text_windows_roll(TextWindows *windows, const RollingText *rolling);

int64_t text_windows_labels(const TextWindows *windows); /* in all windows together: tokens - 1, or those of the documents */

/* Window `index`: ids [context], labels [context] (-1: not counted, because an earlier window has counted it or because it is padding). The
 * last window may be short; its tail is padded with id 0, which a causal model's counted rows do not see. Returns the rows that are not
 * padding. */
int64_t text_windows_fill(const TextWindows *windows, int64_t index, int32_t *ids, int32_t *labels);

#endif
