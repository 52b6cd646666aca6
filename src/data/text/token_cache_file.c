/* One pass over a source for its digest, one for its tokens. Leaves out: where the file lies, reading it back (token_cache.c).
 * Invariant: the header is written last, so that a file that was cut off is never taken for a whole one. */
#include "data/text/token_cache_file.h"
#include "base/progress.h"
#include <endian.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NARROW = 1 << 16 };

static Status digest_failed(void) { return status_set(STATUS_UNSUPPORTED, "OpenSSL on this machine does not offer SHA-256"); }

static bool add_number(EVP_MD_CTX *digest, uint64_t number) {
  uint64_t bytes = htole64(number);
  return EVP_DigestUpdate(digest, &bytes, sizeof bytes) == 1;
}

static Status digest_blocks(EVP_MD_CTX *digest, TokenCacheFacts *facts, TextSource *source) {
  TextFacts text = {0};
  TextBlock block;
  uint64_t document = 0;
  for (bool more;;) {
    TRY(text_source_next(source, &block, &more));
    if (!more) break;
    text_source_count(source, &text, &block);
    document += block.bytes;
    if (EVP_DigestUpdate(digest, block.text, block.bytes) != 1) return digest_failed();
    if (block.ends && !add_number(digest, document)) return digest_failed();
    if (block.ends) document = 0;
  }
  facts->documents = text.documents;
  facts->bytes = text.bytes;
  facts->words = text.words;
  facts->lines = text.lines;
  return STATUS_OK;
}

Status token_cache_file_digest(TokenCacheFacts *facts, TextSource *source) {
  EVP_MD_CTX *digest = EVP_MD_CTX_new();
  if (!digest) return status_set(STATUS_NO_MEMORY, "no memory for a digest");
  text_source_start(source, false);
  Status status = EVP_DigestInit_ex(digest, EVP_sha256(), NULL) == 1 ? digest_blocks(digest, facts, source) : digest_failed();
  if (status == STATUS_OK && EVP_DigestFinal_ex(digest, facts->content, NULL) != 1) status = digest_failed();
  EVP_MD_CTX_free(digest);
  return status;
}

Status token_cache_file_encoder(TokenCacheFacts *facts, const TextEncoder *encoder) {
  char text[160];
  int32_t special[2] = {(int32_t)htole32((uint32_t)encoder->begin), (int32_t)htole32((uint32_t)encoder->separator)};
  size_t length = strlen(encoder->fingerprint);
  if (length > sizeof text - sizeof special)
    return status_set(STATUS_BAD_VALUE, "a tokenizer's fingerprint of %zu characters; 64 are expected", length);
  if (encoder->vocabulary < 1 || encoder->vocabulary > INT32_MAX)
    return status_set(STATUS_BAD_VALUE, "a vocabulary of %lld; 1 to %d ids are expected", (long long)encoder->vocabulary, INT32_MAX);
  memcpy(text, encoder->fingerprint, length);
  memcpy(text + length, special, sizeof special);
  facts->vocabulary = encoder->vocabulary;
  facts->width = encoder->vocabulary <= MOST_NARROW ? 2 : 4;
  return EVP_Digest(text, length + sizeof special, facts->tokenizer, NULL, EVP_sha256(), NULL) == 1 ? STATUS_OK : digest_failed();
}

/* ---- Writing ---- */

typedef struct Writing {
  FILE *stream;
  TokenCacheFacts *facts;
  const TextEncoder *encoder;
  TokenList list;
  bool inside; /* of a document */
} Writing;

static Status put(Writing *writing, const int32_t *ids, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (ids[i] < 0 || ids[i] >= writing->facts->vocabulary)
      return status_set(STATUS_BAD_VALUE, "the tokenizer gave id %d; its vocabulary has 0 to %lld", (int)ids[i],
                        (long long)writing->facts->vocabulary - 1);
    uint16_t narrow = htole16((uint16_t)ids[i]);
    uint32_t wide = htole32((uint32_t)ids[i]);
    fwrite(writing->facts->width == 2 ? (void *)&narrow : (void *)&wide, (size_t)writing->facts->width, 1, writing->stream);
  }
  writing->facts->tokens += (int64_t)count;
  return STATUS_OK;
}

static Status put_block(Writing *writing, const TextBlock *block) {
  const TextEncoder *encoder = writing->encoder;
  if (!writing->inside) {
    if (writing->facts->tokens && encoder->separator >= 0) TRY(put(writing, &encoder->separator, 1));
    if (encoder->begin >= 0) TRY(put(writing, &encoder->begin, 1));
  }
  writing->inside = !block->ends;
  writing->list.count = 0;
  TRY(encoder->encode(encoder->context, block->text, block->bytes, &writing->list));
  return put(writing, writing->list.ids, writing->list.count);
}

static Status put_source(Writing *writing, TextSource *source, bool quiet) {
  Progress progress;
  TextBlock block;
  int64_t bytes = 0;
  text_source_start(source, !writing->encoder->cuttable);
  progress_start(&progress, "tokenising", writing->facts->bytes, quiet);
  for (bool more;;) {
    TRY(text_source_next(source, &block, &more));
    if (!more) break;
    TRY(put_block(writing, &block));
    progress_update(&progress, bytes += (int64_t)block.bytes, NULL);
  }
  if (progress.terminal) progress_finish(&progress, bytes, NULL);
  return STATUS_OK;
}

static void put_header(FILE *stream, const TokenCacheFacts *facts) {
  uint8_t header[TOKEN_CACHE_HEADER] = "ASTRATOK";
  uint32_t small[2] = {htole32(1), htole32((uint32_t)facts->width)};
  int64_t counts[6] = {facts->tokens, facts->vocabulary, facts->documents, facts->bytes, facts->words, facts->lines};
  for (int i = 0; i < 6; i++) counts[i] = (int64_t)htole64((uint64_t)counts[i]);
  memcpy(header + 8, small, sizeof small);
  memcpy(header + 16, counts, sizeof counts);
  memcpy(header + 64, facts->content, TOKEN_CACHE_DIGEST);
  memcpy(header + 96, facts->tokenizer, TOKEN_CACHE_DIGEST);
  fwrite(header, sizeof header, 1, stream);
}

Status token_cache_file_write(FILE *stream, TokenCacheFacts *facts, TextSource *source, const TextEncoder *encoder, bool quiet) {
  static const uint8_t nothing[TOKEN_CACHE_HEADER];
  Writing writing = {.stream = stream, .facts = facts, .encoder = encoder};
  facts->tokens = 0;
  fwrite(nothing, sizeof nothing, 1, stream);
  Status status = put_source(&writing, source, quiet);
  token_list_release(&writing.list);
  TRY(status);
  if (facts->tokens == 0) return status_set(STATUS_BAD_FILE, "%s: its text has no tokens", text_source_describe(source));
  if (fseeko(stream, 0, SEEK_SET) != 0) return status_set(STATUS_IO, "the file of tokens cannot be rewound");
  put_header(stream, facts);
  return STATUS_OK;
}
