/* A text as the rolling log-likelihood of EleutherAI's lm-evaluation-harness sees it: documents by themselves, WikiText's pages among them
 * (wikitext.h), detokenised; each token is predicted once, the first of a document from the token for the beginning (of text, or its end
 * where there is none), a window from at least the token before it. A document's last window, where it is not the first, is moved back so
 * that it is full: what an earlier one has counted is context there. */
#ifndef DATA_ROLLING_TEXT_H
#define DATA_ROLLING_TEXT_H
#include "data/text/text_source.h"
#include "data/tokenizer/tokenizer.h"

typedef struct RollingText {
  int64_t context;
  int64_t documents, tokens; /* tokens: predicted ones, in all documents */
  int64_t words, bytes;      /* of the pages as they stand, before they are detokenised (wikitext_words) */
  int64_t *first;            /* [documents + 1] where the ids of a document begin, one for the beginning in front */
  int64_t *windows;          /* [documents + 1] windows of the documents before it; the last: of all */
  TokenList ids;
} RollingText;

/* All of a source's part, for windows of `context` >= 1 tokens. NO_MEMORY, or the source's and the tokenizer's errors; BAD_VALUE: no token
 * to predict, or a tokenizer that has neither a beginning nor an end. release accepts a zeroed one. */
Status rolling_text_read(RollingText *rolling, TextSource *source, Tokenizer *tokenizer, int64_t context);
void rolling_text_release(RollingText *rolling);

int64_t rolling_text_windows(const RollingText *rolling);

/* As text_windows_fill. */
int64_t rolling_text_fill(const RollingText *rolling, int64_t index, int32_t *ids, int32_t *labels);

#endif
