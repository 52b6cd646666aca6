/* Llama-3's tokenizer.model: a line for each piece, its bytes in base64, a space, its rank, which is its id and its place in the order of
 * merging. The 256 special tokens are not in the file; they follow behind the last rank. */
#include "base/files.h"
#include "data/tokenizer/tokenizer_model.h"
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

enum { SPECIALS = 256, LINE_MOST = 4096 };

/* Those that have a name; the others are reserved and numbered. As of Llama 3.1. */
static const char *const special_names[] = {"<|begin_of_text|>",
                                            "<|end_of_text|>",
                                            NULL,
                                            NULL,
                                            "<|finetune_right_pad_id|>",
                                            NULL,
                                            "<|start_header_id|>",
                                            "<|end_header_id|>",
                                            "<|eom_id|>",
                                            "<|eot_id|>",
                                            "<|python_tag|>"};
enum { NAMED = sizeof special_names / sizeof *special_names };

static Status add_specials(Tokenizer *tokenizer, int64_t first) {
  for (int i = 0, reserved = 0; i < SPECIALS; i++) {
    char text[64];
    if (i < NAMED && special_names[i])
      snprintf(text, sizeof text, "%s", special_names[i]);
    else
      snprintf(text, sizeof text, "<|reserved_special_token_%d|>", reserved++);
    TRY(tokenizer_model_add_special(tokenizer, first + i, text, strlen(text)));
  }
  return STATUS_OK;
}

/* OpenSSL counts the padding as bytes and passes over what it does not know, hence the checks. */
static bool decode_base64(const char *text, size_t size, char *bytes, size_t *count) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  size_t padding = size > 0 && text[size - 1] == '=' ? 1 + (size > 1 && text[size - 2] == '=') : 0;
  if (size == 0 || size % 4 != 0 || strspn(text, digits) != size - padding) return false;
  if (EVP_DecodeBlock((unsigned char *)bytes, (const unsigned char *)text, (int)size) < 0) return false;
  *count = size / 4 * 3 - padding;
  return true;
}

/* A whole number of at most nine digits that fills [text, end). */
static bool read_rank(const char *text, const char *end, int64_t *rank) {
  *rank = 0;
  if (text == end || end - text > 9) return false;
  for (; text < end; text++) {
    if (*text < '0' || *text > '9') return false;
    *rank = 10 * *rank + (*text - '0');
  }
  return true;
}

static Status add_line(Tokenizer *tokenizer, const char *line, size_t size) {
  char bytes[LINE_MOST], text[LINE_MOST];
  const char *space = memchr(line, ' ', size);
  size_t count = 0;
  int64_t rank;
  bool whole = space && size < LINE_MOST;
  if (whole) memcpy(text, line, (size_t)(space - line));
  if (whole) text[space - line] = '\0';
  if (!whole || !decode_base64(text, (size_t)(space - line), bytes, &count) || !read_rank(space + 1, line + size, &rank))
    return status_set(STATUS_BAD_FILE,
                      "not a piece in base64, a space and a rank, as in Llama-3's tokenizer.model (a sentencepiece model is "
                      "not supported)");
  if (rank >= tokenizer->pieces.count - SPECIALS)
    return status_set(STATUS_BAD_FILE, "rank %lld; a file of %d lines has ranks 0 to %d", (long long)rank,
                      (int)tokenizer->pieces.count - SPECIALS, (int)tokenizer->pieces.count - SPECIALS - 1);
  return bpe_pieces_put(&tokenizer->pieces, rank, bytes, count, true);
}

static int64_t count_lines(const char *text, size_t size) {
  int64_t lines = size > 0 && text[size - 1] != '\n';
  for (const char *at = text, *end = text + size; at < end && (at = memchr(at, '\n', (size_t)(end - at))); at++) lines++;
  return lines;
}

static Status add_lines(Tokenizer *tokenizer, const char *text, size_t size) {
  long number = 1;
  for (size_t at = 0; at < size; number++) {
    const char *end = memchr(text + at, '\n', size - at);
    size_t length = end ? (size_t)(end - text) - at : size - at;
    Status status = add_line(tokenizer, text + at, length);
    if (status != STATUS_OK) return status_wrap(status, "line %ld", number);
    at += length + 1;
  }
  return STATUS_OK;
}

/* What gives the lower id merges first. */
static Status add_pairs(Tokenizer *tokenizer, int64_t count) {
  uint32_t *ranks = malloc((size_t)count * sizeof *ranks);
  if (!ranks) return status_set(STATUS_NO_MEMORY, "no memory for %lld ranks", (long long)count);
  for (int64_t id = 0; id < count; id++) ranks[id] = (uint32_t)id;
  Status status = tokenizer_model_add_splits(tokenizer, ranks);
  free(ranks);
  return status;
}

static Status build(Tokenizer **tokenizer, const char *text, size_t size) {
  int64_t lines = count_lines(text, size);
  TRY(tokenizer_model_new(tokenizer, TOKENIZER_RANKS, lines + SPECIALS));
  (*tokenizer)->pattern = BPE_PATTERN_LLAMA3;
  (*tokenizer)->whole = true;
  TRY(add_lines(*tokenizer, text, size));
  TRY(add_specials(*tokenizer, lines));
  return add_pairs(*tokenizer, lines + SPECIALS);
}

Status tokenizer_ranks_parse(Tokenizer **tokenizer, const char *text, size_t size, const char *path) {
  *tokenizer = NULL;
  Status status = build(tokenizer, text, size);
  return tokenizer_model_parsed(tokenizer, status, path);
}

Status tokenizer_ranks_write(const Tokenizer *tokenizer, const char *path) {
  FileWriter writer;
  TRY(files_create(&writer, path));
  for (int32_t id = 0; id < tokenizer->pieces.count - SPECIALS; id++) {
    unsigned char text[LINE_MOST];
    size_t size;
    const char *bytes = bpe_pieces_text(&tokenizer->pieces, id, &size);
    EVP_EncodeBlock(text, (const unsigned char *)bytes, (int)size);
    fprintf(writer.stream, "%s %d\n", (const char *)text, (int)id);
  }
  return files_commit(&writer);
}
