/* A corpus as token ids in a file that is mapped, made once for each text and tokenizer.
 *
 *   [begin] document [separator] [begin] document ... document        begin, separator: TextEncoder's, where it has them
 *
 * The file is DIR/tokens-CONTENT-TOKENIZER.bin, where CONTENT and TOKENIZER are the first 16 digits of the two digests in its header:
 *
 *   offset  size                                         (docs/FORMATS.md, "Token cache")
 *        0     8  "ASTRATOK"
 *        8     4  version, 1
 *       12     4  bytes of an id: 2 where the vocabulary has at most 65,536 ids, else 4
 *       16    48  tokens, vocabulary, documents, bytes, words, lines: u64 each
 *       64    32  SHA-256 of the content: of each document its bytes, then their number as u64; at the end the lines as u64
 *       96    32  SHA-256 of the tokenizer: its fingerprint's text, then begin and separator as i32
 *      128        ids, then nothing
 *
 * Numbers are little-endian. The file is not trusted: size, counts and every id are checked before use; one that does not hold is made
 * anew. The content is read and digested each time (0.1 s for 14 MB), so that a changed text never meets old tokens. */
#ifndef DATA_TOKEN_CACHE_H
#define DATA_TOKEN_CACHE_H
#include "data/text/text_source.h"
#include "data/tokenizer/tokenizer.h"

enum { TOKEN_CACHE_DIGEST = 32, TOKEN_CACHE_HEADER = 128 };

typedef struct TokenCacheFacts {
  int width; /* bytes of an id: 2 or 4 */
  int64_t tokens, vocabulary, documents;
  int64_t bytes, words, lines; /* of the text, as TextFacts counts them: divisors of a perplexity per byte or word */
  uint8_t content[TOKEN_CACHE_DIGEST], tokenizer[TOKEN_CACHE_DIGEST];
} TokenCacheFacts;

typedef struct TokenCache TokenCache;

typedef struct TokenCacheOptions {
  const char *directory; /* made when missing; NULL: $XDG_CACHE_HOME/astra/tokens or ~/.cache/astra/tokens */
  bool quiet;            /* no progress bar */
} TokenCacheOptions;

/* The tokens of the source's part. Where the directory cannot be written, a warning says so and they are kept in a temporary file for this
 * run. Neither source nor encoder is needed afterwards. Errors: the source's, the encoder's, an id outside of the vocabulary (BAD_VALUE).
 * *cache is NULL after a failure. */
Status token_cache_open(TokenCache **cache, TextSource *source, const TextEncoder *encoder, const TokenCacheOptions *options);
void token_cache_close(TokenCache *cache); /* accepts NULL */

const TokenCacheFacts *token_cache_facts(const TokenCache *cache);
/* Ids [first, first + count) to out; the range must lie within [0, tokens). Any thread. */
void token_cache_copy(const TokenCache *cache, int64_t first, int64_t count, int32_t *out);

#endif
