/* Conventions of a text's perplexity: exp(S / n) with S the sum of -ln p over the predicted tokens and n what the convention counts. Two
 * models with different tokenizers can be compared per word or per byte, not per token. What programs take as --perplexity. */
#ifndef DATA_TEXT_PERPLEXITY_H
#define DATA_TEXT_PERPLEXITY_H
#include "data/text/text_windows.h"
#include <stdbool.h>

typedef enum PerplexityUnit {
  PERPLEXITY_AUTO,       /* per token, beside the bits a byte: what is told without a convention */
  PERPLEXITY_TOKEN,      /* n: predicted tokens, all of the text but the first */
  PERPLEXITY_WORD,       /* runs of anything but white space in the text as it stands */
  PERPLEXITY_BYTE,       /* bytes of text behind the predicted tokens */
  PERPLEXITY_GPT2_PAPER, /* words as above and one unit for each line end, the units of the word-level models that Radford et al. (2019)
                          * compare with (WikiText's <eos>); the text is not detokenised, which the paper does first */
  PERPLEXITY_LM_EVAL     /* the word perplexity of lm-evaluation-harness on WikiText: rolling_text.h; n: wikitext_words of the pages */
} PerplexityUnit;

#define PERPLEXITY_CHOICES "auto|token|word|byte|gpt2-paper|lm-eval"

/* None of these is PERPLEXITY_AUTO. */
const char *perplexity_name(PerplexityUnit unit);   /* "token", "word", "byte", "gpt2-paper", "lm-eval" */
const char *perplexity_counts(PerplexityUnit unit); /* "predicted tokens (...)" */
bool perplexity_whole(PerplexityUnit unit);         /* counts the whole text, whatever was evaluated */

/* n, of windows that predicted `tokens` tokens with `bytes` bytes of text behind them. */
int64_t perplexity_units(PerplexityUnit unit, const TextWindows *windows, int64_t tokens, int64_t bytes);

/* BAD_USAGE where the convention needs the whole text and `option` takes `samples` windows alone. */
Status perplexity_check_whole(PerplexityUnit unit, const TextWindows *windows, int64_t samples, const char *option);

double perplexity_value(double nats, int64_t units); /* exp(nats / units); infinite without units */

#endif
