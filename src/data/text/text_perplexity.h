/* Conventions of a text's perplexity: exp(S / n) with S the sum of -ln p over the predicted tokens and n what the convention counts. Two
 * models with different tokenizers can be compared per word or per byte, not per token. What programs take as --perplexity. */
#ifndef DATA_TEXT_PERPLEXITY_H
#define DATA_TEXT_PERPLEXITY_H
#include "base/status.h"
#include "data/text/text_source.h"
#include "data/text/token_cache.h"
#include "data/tokenizer/tokenizer.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A text as the rolling log-likelihood of EleutherAI's lm-evaluation-harness (lm-eval) sees it: documents by themselves, WikiText's pages
 * among them, detokenised; each token is predicted once, the first of a document from the token for the beginning (of text, or its end
 * where there is none), a window from at least the token before it. A document's last window, where it is not the first, is moved back so
 * that it is full: what an earlier one has counted is context there. */

typedef struct RollingText {
  int64_t context;
  int64_t documents, tokens; /* tokens: predicted ones, in all documents */
  int64_t words, bytes;      /* of the pages as they stand, before they are detokenised */
  int64_t *first;            /* [documents + 1] where the ids of a document begin, one for the beginning in front */
  int64_t *windows;          /* [documents + 1] windows of the documents before it; the last: of all */
  TokenList ids;
} RollingText;

/* All of a source's part, for windows of `context` >= 1 tokens. NO_MEMORY, or the source's and the tokenizer's errors; BAD_VALUE: no token
 * to predict, or a tokenizer that has neither a beginning nor an end. release accepts a zeroed one. */
Status rolling_text_read(RollingText *rolling, TextSource *source, Tokenizer *tokenizer, int64_t context);
void rolling_text_release(RollingText *rolling);

/* Windows over a corpus of tokens for its perplexity, in order: inputs of `context` tokens that advance by `stride`. Every token but the
 * first is a label exactly once, with at least context - stride tokens before it (fewer at the beginning); with stride == context the
 * windows do not overlap. Perplexity = exp(sum of -ln p(label) / n) with n the labels in all windows (per token), or words or bytes of
 * token_cache_facts. A plain value; any thread may fill. */

typedef struct TextWindows {
  const TokenCache *cache;    /* must outlive it; NULL with */
  const RollingText *rolling; /* documents by themselves; likewise */
  int64_t context, stride;
  int64_t count; /* windows */
} TextWindows;

/* BAD_VALUE: a stride outside of 1 to context, or fewer than two tokens. */
Status text_windows_init(TextWindows *windows, const TokenCache *cache, int64_t context, int64_t stride);

/* Of documents by themselves, as rolling_text_read divides them; the stride is the context. rolling must outlive it. */
void text_windows_roll(TextWindows *windows, const RollingText *rolling);

/* Rows of window `index`, 1 to the context: the last window of a corpus may be short, and so is the only one of a short document. */
int64_t text_windows_rows(const TextWindows *windows, int64_t index);

/* How many windows from `index` on, at most `max` >= 1, have as many rows as it. These make a batch: devices share out the rows of a batch,
 * and padding up to a longer window would be all that the last of them hold, so that the first ones exchanged nothing. */
int64_t text_windows_alike(const TextWindows *windows, int64_t index, int64_t max);

/* Window `index`: ids [width], labels [width] (-1: not counted, because an earlier window has counted it or because it is padding). What a
 * width has beyond the window's rows is padded with id 0, which a causal model's counted rows do not see. */
void text_windows_fill(const TextWindows *windows, int64_t index, int64_t width, int32_t *ids, int32_t *labels);

typedef enum PerplexityUnit {
  PERPLEXITY_AUTO,       /* per token, beside the bits a byte: what is told without a convention */
  PERPLEXITY_TOKEN,      /* n: predicted tokens, all of the text but the first */
  PERPLEXITY_WORD,       /* runs of anything but white space in the text as it stands */
  PERPLEXITY_BYTE,       /* bytes of text behind the predicted tokens */
  PERPLEXITY_GPT2_PAPER, /* words as above and one unit for each line end, the units of the word-level models that Radford et al. (2019)
                          * compare with (WikiText's <eos>); the text is not detokenised, which the paper does first */
  PERPLEXITY_LM_EVAL     /* the word perplexity of lm-evaluation-harness on WikiText: RollingText; n: words of the pages */
} PerplexityUnit;

#define PERPLEXITY_CHOICES "auto|token|word|byte|gpt2-paper|lm-eval"

/* None of these is PERPLEXITY_AUTO. */
const char *perplexity_name(PerplexityUnit unit);   /* "token", "word", "byte", "gpt2-paper", "lm-eval" */
const char *perplexity_counts(PerplexityUnit unit); /* "predicted tokens (...)" */

/* A text's perplexity under a convention. */
typedef struct Perplexity {
  PerplexityUnit unit;              /* not PERPLEXITY_AUTO */
  double value;                     /* exp(nats / units); infinite without units */
  double nats;                      /* S; NAN: not known, and nor is what follows from it */
  int64_t units;                    /* n */
  int64_t page_bytes;               /* of PERPLEXITY_LM_EVAL: bytes of the pages as they stand; else 0 */
  double byte_value, bits_per_byte; /* by page_bytes */
} Perplexity;

/* Of windows that predicted `tokens` tokens with `bytes` bytes of text behind them. */
Perplexity perplexity_of(PerplexityUnit unit, const TextWindows *windows, double nats, int64_t tokens, int64_t bytes);

/* BAD_USAGE where the convention needs the whole text and `option` takes `samples` windows alone. */
Status perplexity_check_whole(PerplexityUnit unit, const TextWindows *windows, int64_t samples, const char *option);

#endif
