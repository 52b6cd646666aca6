/* What must hold of every tokenizer that a parser accepts: a refusal has a message and leaves nothing; all pieces can be read; the input
 * itself, as text, is encoded to ids in range and decoded to the same bytes, or to fewer where special tokens without text were meant. */
#ifndef TOKENIZER_CHECK_H
#define TOKENIZER_CHECK_H
#include "data/tokenizer/tokenizer_internal.h"
#include <stdlib.h>
#include <string.h>

enum { TOKENIZER_CHECK_TEXT = 4096 };

static inline void check_round_trip(Tokenizer *tokenizer, const char *text, size_t size, bool special) {
  TokenList list = {0};
  char *back;
  size_t bytes;
  if (tokenizer_encode(tokenizer, text, size, special, &list) != STATUS_OK) abort();
  if (tokenizer_decode(tokenizer, list.ids, list.count, &back, &bytes) != STATUS_OK) abort();
  bool less = false; /* what the first ids of a scored vocabulary stand for has no text */
  for (size_t i = 0; i < list.count; i++) less |= tokenizer->kind == TOKENIZER_SCORES && list.ids[i] < TOKENIZER_FIRST_BYTE;
  if (less && !special) abort();
  if (less ? bytes > size : bytes != size || memcmp(back, text, size) != 0) abort();
  free(back);
  token_list_release(&list);
}

/* Closes the tokenizer. */
static inline void check_tokenizer(Status status, Tokenizer *tokenizer, const uint8_t *data, size_t size) {
  if (status != STATUS_OK) {
    if (*status_message() == '\0' || tokenizer) abort();
    return;
  }
  for (int64_t id = 0; id < tokenizer_count(tokenizer); id++) {
    size_t bytes;
    const char *piece = tokenizer_piece(tokenizer, (int32_t)id, &bytes);
    if (!piece || piece[bytes] != '\0') abort();
  }
  if (tokenizer_begin(tokenizer) >= tokenizer_count(tokenizer) || tokenizer_end(tokenizer) >= tokenizer_count(tokenizer)) abort();
  if (size > TOKENIZER_CHECK_TEXT) size = TOKENIZER_CHECK_TEXT;
  check_round_trip(tokenizer, (const char *)data, size, false);
  check_round_trip(tokenizer, (const char *)data, size, true);
  tokenizer_close(tokenizer);
}

#endif
