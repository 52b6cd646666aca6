/* Finding, making, checking and mapping a cache of tokens: one pass over the source for its digest, one for its tokens.
 * Invariant: every id of an open cache is in [0, vocabulary). */
#include "data/text/token_cache.h"
#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "data/text/text_source.h"
#include "data/tokenizer/tokenizer.h"
#include <endian.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- The passes over a source ---- */

/* Invariant: the header is written last, so that a file that was cut off is never taken for a whole one. */

enum { MAX_NARROW = 1 << 16 };

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
  /* A text without a line feed has none as one document, and one as the document of a line. */
  return add_number(digest, (uint64_t)facts->lines) ? STATUS_OK : digest_failed();
}

/* Goes once through the source: facts->content, documents, bytes, words and lines. */
static Status token_cache_file_digest(TokenCacheFacts *facts, TextSource *source) {
  EVP_MD_CTX *digest = EVP_MD_CTX_new();
  if (!digest) return status_no_memory(NULL, "a digest");
  text_source_start(source, false);
  Status status = EVP_DigestInit_ex(digest, EVP_sha256(), NULL) == 1 ? digest_blocks(digest, facts, source) : digest_failed();
  if (status == STATUS_OK && EVP_DigestFinal_ex(digest, facts->content, NULL) != 1) status = digest_failed();
  EVP_MD_CTX_free(digest);
  return status;
}

/* The rest of what is known before the tokens are: width, vocabulary, tokenizer. */
static Status token_cache_file_encoder(TokenCacheFacts *facts, const TextEncoder *encoder) {
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
  facts->width = encoder->vocabulary <= MAX_NARROW ? 2 : 4;
  return EVP_Digest(text, length + sizeof special, facts->tokenizer, NULL, EVP_sha256(), NULL) == 1 ? STATUS_OK : digest_failed();
}

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

/* Header and ids to a fresh stream, with a bar. Sets facts->tokens. A failed write is the caller's to notice (ferror). */
static Status token_cache_file_write(FILE *stream, TokenCacheFacts *facts, TextSource *source, const TextEncoder *encoder, bool quiet) {
  static const uint8_t nothing[TOKEN_CACHE_HEADER];
  Writing writing = {.stream = stream, .facts = facts, .encoder = encoder};
  facts->tokens = 0;
  fwrite(nothing, sizeof nothing, 1, stream);
  Status status = put_source(&writing, source, quiet);
  token_list_release(&writing.list);
  TRY(status);
  if (facts->tokens == 0) return status_set(STATUS_BAD_FILE, "%s: its text has no tokens", text_source_describe(source));
  TokenCacheFacts after = {0}; /* the digest is that of the tokens' text only where this has not changed meanwhile */
  TRY(token_cache_file_digest(&after, source));
  if (memcmp(after.content, facts->content, TOKEN_CACHE_DIGEST) != 0)
    return status_set(STATUS_BAD_FILE, "%s: the text changed while it was turned into tokens; start again when nothing writes to it",
                      text_source_describe(source));
  if (fseeko(stream, 0, SEEK_SET) != 0) return status_set(STATUS_IO, "the file of tokens cannot be rewound");
  put_header(stream, facts);
  return STATUS_OK;
}

struct TokenCache {
  TokenCacheFacts facts;
  FileMap map;
  const uint8_t *ids;
};

/* ---- Reading ---- */

static int32_t id_at(const uint8_t *ids, int width, int64_t index) {
  uint16_t narrow;
  uint32_t wide;
  if (width == 2) {
    memcpy(&narrow, ids + 2 * index, sizeof narrow);
    return le16toh(narrow);
  }
  memcpy(&wide, ids + 4 * index, sizeof wide);
  return (int32_t)le32toh(wide);
}

static uint64_t number_at(const uint8_t *data, size_t offset) {
  uint64_t number;
  memcpy(&number, data + offset, sizeof number);
  return le64toh(number);
}

static Status read_header(TokenCacheFacts *facts, const uint8_t *data, size_t size, const char *origin) {
  uint32_t small[2];
  if (size < TOKEN_CACHE_HEADER || memcmp(data, "ASTRATOK", 8) != 0)
    return status_set(STATUS_BAD_FILE, "%s: no cache of tokens, or one that is cut short", origin);
  memcpy(small, data + 8, sizeof small);
  uint32_t version = le32toh(small[0]), width = le32toh(small[1]);
  if (version != 1) return status_set(STATUS_BAD_FILE, "%s: version %u of the token cache; this program reads 1", origin, version);
  if (width != 2 && width != 4) return status_set(STATUS_BAD_FILE, "%s: ids of %u bytes; 2 and 4 are possible", origin, width);
  int64_t *const counts[6] = {&facts->tokens, &facts->vocabulary, &facts->documents, &facts->bytes, &facts->words, &facts->lines};
  for (int i = 0; i < 6; i++) {
    uint64_t number = number_at(data, 16 + 8 * (size_t)i);
    if (number > INT64_MAX / 8) return status_set(STATUS_BAD_FILE, "%s: a count in its header is beyond reason", origin);
    *counts[i] = (int64_t)number;
  }
  facts->width = (int)width;
  memcpy(facts->content, data + 64, TOKEN_CACHE_DIGEST);
  memcpy(facts->tokenizer, data + 96, TOKEN_CACHE_DIGEST);
  return STATUS_OK;
}

/* Header and ids of a cache file in memory; BAD_FILE names `origin` and what is wrong. Fuzzed. */
static Status token_cache_check(TokenCacheFacts *facts, const uint8_t *data, size_t size, const char *origin) {
  *facts = (TokenCacheFacts){0};
  TRY(read_header(facts, data, size, origin));
  uint64_t expected = (uint64_t)facts->tokens * (uint64_t)facts->width;
  if (facts->tokens < 1 || size - TOKEN_CACHE_HEADER != expected)
    return status_set(STATUS_BAD_FILE, "%s: %zu bytes after the header; %lld tokens of %d bytes are announced", origin,
                      size - TOKEN_CACHE_HEADER, (long long)facts->tokens, facts->width);
  if (facts->vocabulary < 1 || facts->vocabulary > INT32_MAX)
    return status_set(STATUS_BAD_FILE, "%s: a vocabulary of %lld; 1 to %d is possible", origin, (long long)facts->vocabulary, INT32_MAX);
  for (int64_t i = 0; i < facts->tokens; i++) {
    int32_t id = id_at(data + TOKEN_CACHE_HEADER, facts->width, i);
    if (id < 0 || id >= facts->vocabulary)
      return status_set(STATUS_BAD_FILE, "%s: token %lld is id %d; the vocabulary has 0 to %lld", origin, (long long)i, (int)id,
                        (long long)facts->vocabulary - 1);
  }
  return STATUS_OK;
}

static Status check_mapped(TokenCache *cache, const TokenCacheFacts *wanted, const char *origin) {
  TRY(token_cache_check(&cache->facts, cache->map.data, cache->map.size, origin));
  cache->ids = cache->map.data + TOKEN_CACHE_HEADER;
  const TokenCacheFacts *found = &cache->facts;
  bool same = found->vocabulary == wanted->vocabulary && found->width == wanted->width && found->documents == wanted->documents &&
              found->bytes == wanted->bytes && found->words == wanted->words && found->lines == wanted->lines &&
              memcmp(found->content, wanted->content, TOKEN_CACHE_DIGEST) == 0 &&
              memcmp(found->tokenizer, wanted->tokenizer, TOKEN_CACHE_DIGEST) == 0;
  return same ? STATUS_OK : status_set(STATUS_BAD_FILE, "%s: tokens of another text or tokenizer", origin);
}

static Status load(TokenCache *cache, const char *path, const TokenCacheFacts *wanted) {
  TRY(files_map(&cache->map, path));
  Status status = check_mapped(cache, wanted, path);
  if (status != STATUS_OK) files_unmap(&cache->map);
  return status;
}

/* ---- Making ---- */

static Status make_file(const char *path, TokenCacheFacts *facts, TextSource *source, const TextEncoder *encoder, bool quiet) {
  FileWriter writer;
  TRY(files_create(&writer, path));
  Status status = token_cache_file_write(writer.stream, facts, source, encoder, quiet);
  if (status == STATUS_OK) return files_commit(&writer);
  files_abort(&writer);
  return status;
}

/* A file without a name, gone when it is unmapped. */
static Status make_unnamed(TokenCache *cache, TokenCacheFacts *facts, TextSource *source, const TextEncoder *encoder, bool quiet) {
  FILE *stream = tmpfile();
  if (!stream) return status_set(STATUS_IO, "no temporary file for tokens: %s", strerror(errno));
  Status status = token_cache_file_write(stream, facts, source, encoder, quiet);
  if (status == STATUS_OK && (fflush(stream) != 0 || ferror(stream)))
    status = status_set(STATUS_IO, "the temporary file of tokens cannot be written: %s", strerror(errno));
  size_t size = TOKEN_CACHE_HEADER + (size_t)facts->tokens * (size_t)facts->width;
  void *data = status == STATUS_OK ? mmap(NULL, size, PROT_READ, MAP_SHARED, fileno(stream), 0) : NULL;
  if (data == MAP_FAILED) status = status_set(STATUS_NO_MEMORY, "the temporary file of tokens cannot be mapped: %s", strerror(errno));
  fclose(stream);
  TRY(status);
  cache->map = (FileMap){.data = data, .size = size};
  return check_mapped(cache, facts, "temporary tokens");
}

/* $XDG_CACHE_HOME/astra/tokens or ~/.cache/astra/tokens; NULL when neither variable is set or there is no memory. */
static char *default_directory(void) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  char *path = NULL;
  if (cache && *cache == '/') return files_join(cache, "astra/tokens"); /* others are to be ignored, says the specification */
  if (home && *home && asprintf(&path, "%s/.cache/astra/tokens", home) < 0) path = NULL;
  return path;
}

static char *cache_path(const char *directory, const TokenCacheFacts *facts) {
  char *path, content[17], tokenizer[17];
  text_hex(facts->content, 8, content);
  text_hex(facts->tokenizer, 8, tokenizer);
  return asprintf(&path, "%s/tokens-%s-%s.bin", directory, content, tokenizer) < 0 ? NULL : path;
}

/* The directory is there and a file can be made in it, as far as permissions say. */
static bool writable(const char *directory) { return files_make_dirs(directory) == STATUS_OK && access(directory, W_OK | X_OK) == 0; }

/* For want of permission or, what shows late, of room the tokens have no file there. (Where it is the text that cannot be read, that shows
 * again.) */
static Status make_tokens(TokenCache *cache, const char *directory, const char *path, TokenCacheFacts *facts, TextSource *source,
                          const TextEncoder *encoder, bool quiet) {
  static const char consequence[] = "the tokens are kept for this run only (XDG_CACHE_HOME names another place)";
  Status status = STATUS_IO;
  if (writable(directory)) {
    status = make_file(path, facts, source, encoder, quiet);
    if (status == STATUS_OK) return load(cache, path, facts);
    if (status == STATUS_IO) log_warning("%s; %s", status_message(), consequence);
  } else {
    log_warning("%s cannot be written; %s", directory, consequence);
  }
  return status == STATUS_IO ? make_unnamed(cache, facts, source, encoder, quiet) : status;
}

static Status open_in(TokenCache *cache, const char *directory, TokenCacheFacts *facts, TextSource *source, const TextEncoder *encoder,
                      bool quiet) {
  char *path = cache_path(directory, facts);
  if (!path) return status_no_memory(NULL, "a cache of tokens");
  Status status = load(cache, path, facts);
  if (status == STATUS_BAD_FILE) log_warning("%s; it is made anew", status_message());
  if (status != STATUS_OK && status != STATUS_NO_MEMORY) status = make_tokens(cache, directory, path, facts, source, encoder, quiet);
  free(path);
  return status;
}

static Status open_cache(TokenCache *cache, TextSource *source, const TextEncoder *encoder, const TokenCacheOptions *options) {
  TokenCacheFacts facts = {0};
  TRY(token_cache_file_digest(&facts, source));
  TRY(token_cache_file_encoder(&facts, encoder));
  char *directory = options->directory ? strdup(options->directory) : default_directory();
  if (!directory) {
    log_warning("neither XDG_CACHE_HOME nor HOME is set; the tokens are kept for this run only");
    return make_unnamed(cache, &facts, source, encoder, options->quiet);
  }
  Status status = open_in(cache, directory, &facts, source, encoder, options->quiet);
  free(directory);
  return status;
}

Status token_cache_open(TokenCache **cache, TextSource *source, const TextEncoder *encoder, const TokenCacheOptions *options) {
  *cache = NULL;
  TokenCache *fresh = calloc(1, sizeof *fresh);
  if (!fresh) return status_no_memory(NULL, "a cache of tokens");
  Status status = open_cache(fresh, source, encoder, options);
  if (status == STATUS_OK)
    *cache = fresh;
  else
    token_cache_close(fresh);
  return status;
}

void token_cache_close(TokenCache *cache) {
  if (!cache) return;
  files_unmap(&cache->map);
  free(cache);
}

const TokenCacheFacts *token_cache_facts(const TokenCache *cache) { return &cache->facts; }

void token_cache_copy(const TokenCache *cache, int64_t first, int64_t count, int32_t *out) {
  for (int64_t i = 0; i < count; i++) out[i] = id_at(cache->ids, cache->facts.width, first + i);
}
