/* Conventions of perplexity: see text_perplexity.h. */
#include "data/text/text_perplexity.h"
#include <math.h>

static int64_t words_of(const TextWindows *windows) { return token_cache_facts(windows->cache)->words; }
static int64_t words_and_lines_of(const TextWindows *windows) { return words_of(windows) + token_cache_facts(windows->cache)->lines; }
static int64_t page_words_of(const TextWindows *windows) { return windows->rolling->words; }

typedef struct Convention {
  const char *name, *counts;
  int64_t (*whole)(const TextWindows *windows); /* counted in the whole text; NULL: in what was evaluated */
} Convention;

static const Convention conventions[] = {
    [PERPLEXITY_TOKEN] = {"token", "predicted tokens (all but the first, those between documents included)", NULL},
    [PERPLEXITY_WORD] = {"word", "words of the text as it stands (divided by white space)", words_of},
    [PERPLEXITY_BYTE] = {"byte", "bytes of text behind the predicted tokens", NULL},
    [PERPLEXITY_GPT2_PAPER] = {"gpt2-paper", "words and line ends of the text as it stands (no detokenisation)", words_and_lines_of},
    [PERPLEXITY_LM_EVAL] = {"lm-eval", "words of the pages before they were detokenised, page by page", page_words_of},
};

const char *perplexity_name(PerplexityUnit unit) { return conventions[unit].name; }
const char *perplexity_counts(PerplexityUnit unit) { return conventions[unit].counts; }
bool perplexity_whole(PerplexityUnit unit) { return conventions[unit].whole != NULL; }

int64_t perplexity_units(PerplexityUnit unit, const TextWindows *windows, int64_t tokens, int64_t bytes) {
  if (conventions[unit].whole != NULL) return conventions[unit].whole(windows);
  return unit == PERPLEXITY_BYTE ? bytes : tokens;
}

Status perplexity_check_whole(PerplexityUnit unit, const TextWindows *windows, int64_t samples, const char *option) {
  if (!perplexity_whole(unit) || samples >= windows->count) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--perplexity %s needs the whole text, of which %s takes %lld of %lld windows",
                    conventions[unit].name, option, (long long)samples, (long long)windows->count);
}

double perplexity_value(double nats, int64_t units) { return units > 0 ? exp(nats / (double)units) : INFINITY; }
