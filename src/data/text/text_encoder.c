/* TextEncoder over the real tokenizers. */
#include "data/text/text_encoder.h"
#include <string.h>

static Status encode(void *context, const char *text, size_t bytes, TokenList *out) {
  return tokenizer_encode(context, text, bytes, false, out);
}

/* Tokenizers that put something before a text, as sentencepiece does with a space, give other tokens for two halves. */
static Status try_cut(Tokenizer *tokenizer, TokenList *whole, TokenList *halves, bool *same) {
  static const char first[] = "The history of the town,", second[] = " which lies in the north, begins in 1206.";
  char both[sizeof first + sizeof second];
  memcpy(both, first, sizeof first - 1);
  memcpy(both + sizeof first - 1, second, sizeof second);
  TRY(tokenizer_encode(tokenizer, both, strlen(both), false, whole));
  TRY(tokenizer_encode(tokenizer, first, strlen(first), false, halves));
  TRY(tokenizer_encode(tokenizer, second, strlen(second), false, halves));
  *same = whole->count == halves->count && (whole->count == 0 || memcmp(whole->ids, halves->ids, whole->count * sizeof *whole->ids) == 0);
  return STATUS_OK;
}

/* ---- texts to classify ---- */

static Status add_text(const TextEncoder *encoder, const char *text, TokenList *out, size_t *count) {
  size_t before = out->count;
  TRY(encoder->encode(encoder->context, text, strlen(text), out));
  *count = out->count - before;
  return STATUS_OK;
}

static Status add_separator(const TextEncoder *encoder, TokenList *out, size_t *count) {
  if (encoder->separator < 0) return add_text(encoder, "\n", out, count);
  *count = 1;
  return token_list_add(out, encoder->separator);
}

/* Takes tokens from the end of the longer text until both fit. out: ... first, separator, second. */
static void cut_pair(TokenList *out, size_t first, size_t separator, size_t second, size_t room) {
  size_t max_first = second < room / 2 ? room - second : room - room / 2, keep_first = first < max_first ? first : max_first;
  size_t keep_second = room - keep_first, at = out->count - second - separator;
  memmove(out->ids + at - first + keep_first, out->ids + at, (separator + keep_second) * sizeof *out->ids);
  out->count = at - first + keep_first + separator + keep_second;
}

static Status check_ids(const TextEncoder *encoder, const TokenList *out, size_t from) {
  if (out->count == from) return status_set(STATUS_BAD_VALUE, "it has no tokens");
  for (size_t i = from; i < out->count; i++) {
    if (out->ids[i] < 0 || out->ids[i] >= encoder->vocabulary)
      return status_set(STATUS_BAD_VALUE, "the tokenizer gave id %d; its vocabulary has 0 to %lld", (int)out->ids[i],
                        (long long)encoder->vocabulary - 1);
  }
  return STATUS_OK;
}

Status text_encoder_sample(const TextEncoder *encoder, const char *text, const char *pair, int64_t context, TokenList *out, bool *cut) {
  size_t from = out->count, max = (size_t)context, begin = encoder->begin >= 0, first, separator = 0, second = 0;
  if (begin) TRY(token_list_add(out, encoder->begin));
  TRY(add_text(encoder, text, out, &first));
  if (pair) TRY(add_separator(encoder, out, &separator));
  if (pair) TRY(add_text(encoder, pair, out, &second));
  TRY(check_ids(encoder, out, from));
  *cut = out->count - from > max;
  if (*cut && pair && max >= begin + separator + 2) cut_pair(out, first, separator, second, max - begin - separator);
  if (out->count - from > max) out->count = from + max;
  return STATUS_OK;
}

/* ---- real tokenizers ---- */

Status text_encoder_of(TextEncoder *encoder, Tokenizer *tokenizer) {
  int32_t begin = tokenizer_begin(tokenizer), end = tokenizer_end(tokenizer);
  *encoder = (TextEncoder){.encode = encode,
                           .context = tokenizer,
                           .vocabulary = tokenizer_count(tokenizer),
                           .begin = begin == end ? -1 : begin,
                           .separator = end,
                           .fingerprint = tokenizer_fingerprint(tokenizer)};
  TokenList whole = {0}, halves = {0};
  Status status = try_cut(tokenizer, &whole, &halves, &encoder->cuttable);
  token_list_release(&whole);
  token_list_release(&halves);
  return status;
}
