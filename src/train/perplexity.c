/* Conventions of perplexity on scores: see perplexity.h. */
#include "train/perplexity.h"
#include "train/task_language.h"

Status perplexity_check(const Session *session) {
  PerplexityUnit unit = (PerplexityUnit)session->options.perplexity;
  int64_t samples = session->options.eval_samples;
  if (unit == PERPLEXITY_AUTO || samples <= 0) return STATUS_OK;
  return perplexity_check_whole(unit, task_language_windows(session), samples, "--eval-samples");
}

Status perplexity_of(const Session *session, const TaskScore *score, PerplexityUnit unit, Perplexity *result) {
  const TextWindows *windows = task_language_windows(session);
  TRY(perplexity_check_whole(unit, windows, score->samples, "--eval-samples"));
  *result = (Perplexity){.nats = score->loss, .units = perplexity_units(unit, windows, score->items, score->bytes)};
  result->value = perplexity_value(result->nats, result->units);
  if (windows->rolling) result->page_bytes = windows->rolling->bytes;
  return STATUS_OK;
}
