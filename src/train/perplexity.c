/* Conventions of perplexity: see perplexity.h. */
#include "train/perplexity.h"
#include "train/task_language.h"
#include <math.h>

static int64_t tokens_of(const TaskScore *score, const TokenCacheFacts *facts) {
  (void)facts;
  return score->items;
}
static int64_t words_of(const TaskScore *score, const TokenCacheFacts *facts) {
  (void)score;
  return facts->words;
}
static int64_t bytes_of(const TaskScore *score, const TokenCacheFacts *facts) {
  (void)facts;
  return score->bytes;
}
static int64_t words_and_lines_of(const TaskScore *score, const TokenCacheFacts *facts) {
  (void)score;
  return facts->words + facts->lines;
}

typedef struct Convention {
  const char *name, *counts;
  bool whole; /* counts the whole text, whatever was evaluated */
  int64_t (*units)(const TaskScore *score, const TokenCacheFacts *facts);
} Convention;

static const Convention conventions[] = {
    [PERPLEXITY_TOKEN] = {"token", "predicted tokens (all but the first, those between documents included)", false, tokens_of},
    [PERPLEXITY_WORD] = {"word", "words of the text as it stands (divided by white space)", true, words_of},
    [PERPLEXITY_BYTE] = {"byte", "bytes of text behind the predicted tokens", false, bytes_of},
    [PERPLEXITY_GPT2_PAPER] = {"gpt2-paper", "words and line ends of the text as it stands (no detokenisation)", true, words_and_lines_of},
};

const char *perplexity_name(PerplexityUnit unit) { return conventions[unit].name; }
const char *perplexity_counts(PerplexityUnit unit) { return conventions[unit].counts; }

static Status check_whole(const Session *session, PerplexityUnit unit, int64_t samples) {
  int64_t windows = session->task->count(session, TASK_TEST);
  if (!conventions[unit].whole || samples >= windows) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--perplexity %s needs the whole text, of which --eval-samples takes %lld of %lld windows",
                    conventions[unit].name, (long long)samples, (long long)windows);
}

Status perplexity_check(const Session *session) {
  int64_t samples = session->options.eval_samples;
  return samples > 0 ? check_whole(session, (PerplexityUnit)session->options.perplexity, samples) : STATUS_OK;
}

Status perplexity_of(const Session *session, const TaskScore *score, PerplexityUnit unit, Perplexity *result) {
  const Convention *convention = &conventions[unit];
  TRY(check_whole(session, unit, score->samples));
  result->nats = score->loss;
  result->units = convention->units(score, task_language_facts(session));
  result->value = result->units > 0 ? exp(score->loss / (double)result->units) : INFINITY;
  return STATUS_OK;
}
