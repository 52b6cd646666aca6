/* Rolling windows over documents: see rolling_text.h. The ids of document d are ids[first[d] .. first[d + 1]), of which the first stands
 * for the beginning; its window k predicts the tokens (k context, (k + 1) context] of them. */
#include "data/text/rolling_text.h"
#include "data/text/wikitext.h"
#include <stdlib.h>
#include <string.h>

typedef struct Reading {
  RollingText *rolling;
  Tokenizer *tokenizer;
  int32_t begin;
  int64_t room; /* of first */
} Reading;

static Status add_document(Reading *reading) {
  RollingText *rolling = reading->rolling;
  if (rolling->documents + 2 > reading->room) {
    int64_t *grown = realloc(rolling->first, (size_t)(2 * reading->room + 64) * sizeof *grown);
    if (grown == NULL) return status_set(STATUS_NO_MEMORY, "no memory for %lld documents", (long long)rolling->documents);
    rolling->first = grown;
    reading->room = 2 * reading->room + 64;
  }
  rolling->first[rolling->documents++] = (int64_t)rolling->ids.count;
  return token_list_add(&rolling->ids, reading->begin);
}

static Status add_page(void *context, const char *page, size_t bytes) {
  Reading *reading = context;
  RollingText *rolling = reading->rolling;
  char *plain;
  size_t plain_bytes;
  TRY(add_document(reading));
  TRY(wikitext_detokenise(page, bytes, &plain, &plain_bytes));
  size_t before = rolling->ids.count;
  Status status = tokenizer_encode(reading->tokenizer, plain, plain_bytes, false, &rolling->ids);
  free(plain);
  rolling->tokens += (int64_t)(rolling->ids.count - before);
  rolling->words += wikitext_words(page, bytes);
  rolling->bytes += (int64_t)bytes;
  return status;
}

static Status read_documents(Reading *reading, TextSource *source) {
  TextBlock block;
  bool more = true;
  text_source_start(source, true);
  for (;;) {
    TRY(text_source_next(source, &block, &more));
    if (!more) break;
    TRY(wikitext_pages(block.text, block.bytes, add_page, reading));
  }
  if (reading->rolling->tokens == 0) return status_set(STATUS_BAD_VALUE, "%s: no token to predict", text_source_describe(source));
  reading->rolling->first[reading->rolling->documents] = (int64_t)reading->rolling->ids.count;
  return STATUS_OK;
}

/* Tokens that document d predicts. */
static int64_t length_of(const RollingText *rolling, int64_t d) { return rolling->first[d + 1] - rolling->first[d] - 1; }

static Status count_windows(RollingText *rolling) {
  rolling->windows = malloc((size_t)(rolling->documents + 1) * sizeof *rolling->windows);
  if (rolling->windows == NULL) return status_set(STATUS_NO_MEMORY, "no memory for %lld documents", (long long)rolling->documents);
  rolling->windows[0] = 0;
  for (int64_t d = 0; d < rolling->documents; d++)
    rolling->windows[d + 1] = rolling->windows[d] + (length_of(rolling, d) + rolling->context - 1) / rolling->context;
  return STATUS_OK;
}

Status rolling_text_read(RollingText *rolling, TextSource *source, Tokenizer *tokenizer, int64_t context) {
  Reading reading = {.rolling = rolling, .tokenizer = tokenizer, .begin = tokenizer_begin(tokenizer)};
  *rolling = (RollingText){.context = context};
  if (reading.begin < 0) reading.begin = tokenizer_end(tokenizer);
  if (reading.begin < 0) return status_set(STATUS_BAD_VALUE, "the tokenizer has no token for the beginning or end of a text to start from");
  Status status = read_documents(&reading, source);
  if (status == STATUS_OK) status = count_windows(rolling);
  if (status != STATUS_OK) rolling_text_release(rolling);
  return status;
}

void rolling_text_release(RollingText *rolling) {
  token_list_release(&rolling->ids);
  free(rolling->first);
  free(rolling->windows);
  *rolling = (RollingText){0};
}

int64_t rolling_text_windows(const RollingText *rolling) { return rolling->windows[rolling->documents]; }

/* The document that window `index` belongs to. */
static int64_t document_of(const RollingText *rolling, int64_t index) {
  int64_t low = 0, high = rolling->documents; /* windows[low] <= index < windows[high] */
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (rolling->windows[middle] <= index)
      low = middle;
    else
      high = middle;
  }
  return low;
}

int64_t rolling_text_fill(const RollingText *rolling, int64_t index, int32_t *ids, int32_t *labels) {
  int64_t d = document_of(rolling, index), context = rolling->context, length = length_of(rolling, d);
  const int32_t *document = rolling->ids.ids + rolling->first[d];
  int64_t from = (index - rolling->windows[d]) * context, to = length < from + context ? length : from + context;
  int64_t begin = from == 0 ? 0 : to - context, rows = to - begin;
  for (int64_t i = 0; i < context; i++) {
    bool counted = i < rows && begin + i >= from;
    ids[i] = i < rows ? document[begin + i] : 0;
    labels[i] = counted ? document[begin + i + 1] : -1;
  }
  return rows;
}
