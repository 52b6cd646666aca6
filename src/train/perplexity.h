/* Perplexity under the conventions that papers use: exp(S / n) with S the sum of -ln p over the predicted tokens and n what the convention
 * counts. Two models with different tokenizers can be compared per word or per byte, not per token. */
#ifndef TRAIN_PERPLEXITY_H
#define TRAIN_PERPLEXITY_H
#include "train/session.h"

typedef enum PerplexityUnit {
  PERPLEXITY_AUTO,      /* per token, beside the bits a byte: what the task tells by itself */
  PERPLEXITY_TOKEN,     /* n: predicted tokens, all of the text but the first */
  PERPLEXITY_WORD,      /* runs of anything but white space in the text as it stands */
  PERPLEXITY_BYTE,      /* bytes of text behind the predicted tokens */
  PERPLEXITY_GPT2_PAPER /* words as above and one unit for each line end, the units of the word-level models that Radford et al. (2019)
                         * compare with (WikiText's <eos>); the text is not detokenised, which the paper does first */
} PerplexityUnit;

typedef struct Perplexity {
  double value;
  double nats;   /* S */
  int64_t units; /* n */
} Perplexity;

/* BAD_USAGE where the options ask for words of a part of the windows alone, as only the whole text's are counted: for before the
 * evaluation. */
Status perplexity_check(const Session *session);

/* Of a score over the test part of a text. BAD_USAGE as above. */
Status perplexity_of(const Session *session, const TaskScore *score, PerplexityUnit unit, Perplexity *result);

const char *perplexity_name(PerplexityUnit unit);   /* "token", "word", "byte", "gpt2-paper"; not of PERPLEXITY_AUTO */
const char *perplexity_counts(PerplexityUnit unit); /* "predicted tokens (...)" */

#endif
