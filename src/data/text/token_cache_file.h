/* Inside of src/data only: how a cache of tokens is written (token_cache_file.c), apart from when (token_cache.c). */
#ifndef DATA_TOKEN_CACHE_FILE_H
#define DATA_TOKEN_CACHE_FILE_H
#include "data/text/token_cache.h"
#include <stdio.h>

/* Goes once through the source: facts->content, documents, bytes, words and lines. */
Status token_cache_file_digest(TokenCacheFacts *facts, TextSource *source);
/* The rest of what is known before the tokens are: width, vocabulary, tokenizer. */
Status token_cache_file_encoder(TokenCacheFacts *facts, const TextEncoder *encoder);

/* Header and ids to a fresh stream, with a bar. Sets facts->tokens. A failed write is the caller's to notice (ferror). */
Status token_cache_file_write(FILE *stream, TokenCacheFacts *facts, TextSource *source, const TextEncoder *encoder, bool quiet);

#endif
