/* TextEncoder over the real tokenizers. */
#include "data/text_encoder.h"
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
