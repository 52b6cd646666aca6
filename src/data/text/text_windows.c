/* Which labels a window counts. Invariant: window i counts the labels at positions (end of window i - 1, end of window i]. */
#include "data/text/text_windows.h"

Status text_windows_init(TextWindows *windows, const TokenCache *cache, int64_t context, int64_t stride) {
  int64_t tokens = token_cache_facts(cache)->tokens;
  if (context < 1) return status_set(STATUS_BAD_VALUE, "a context of %lld tokens; at least 1 is needed", (long long)context);
  if (stride < 1 || stride > context)
    return status_set(STATUS_BAD_VALUE, "a stride of %lld; 1 to the context, %lld, is possible", (long long)stride, (long long)context);
  if (tokens < 2) return status_set(STATUS_BAD_VALUE, "a text of %lld token; a perplexity needs two", (long long)tokens);
  int64_t labels = tokens - 1, beyond = labels > context ? labels - context : 0;
  *windows = (TextWindows){.cache = cache, .context = context, .stride = stride, .count = 1 + (beyond + stride - 1) / stride};
  return STATUS_OK;
}

void text_windows_roll(TextWindows *windows, const RollingText *rolling) {
  *windows =
      (TextWindows){.rolling = rolling, .context = rolling->context, .stride = rolling->context, .count = rolling_text_windows(rolling)};
}

int64_t text_windows_labels(const TextWindows *windows) {
  return windows->rolling ? windows->rolling->tokens : token_cache_facts(windows->cache)->tokens - 1;
}

int64_t text_windows_fill(const TextWindows *windows, int64_t index, int32_t *ids, int32_t *labels) {
  if (windows->rolling) return rolling_text_fill(windows->rolling, index, ids, labels);
  int64_t begin = index * windows->stride, all = text_windows_labels(windows), left = all - begin;
  int64_t rows = left < windows->context ? left : windows->context;
  int64_t counted_from = index == 0 ? 0 : windows->context - windows->stride;
  token_cache_copy(windows->cache, begin, rows, ids);
  token_cache_copy(windows->cache, begin + 1, rows, labels);
  for (int64_t i = rows; i < windows->context; i++) ids[i] = 0;
  for (int64_t i = 0; i < windows->context; i++) {
    if (i < counted_from || i >= rows) labels[i] = -1;
  }
  return rows;
}
