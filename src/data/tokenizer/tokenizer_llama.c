/* The files that Llama's tokenizers come in: tokenizer.model of Llama-3 (ranks) and tok*.bin of llama2.c (scores). */
#include "base/files.h"
#include "data/tokenizer/tokenizer_internal.h"
#include <math.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

/* ---- tokenizer.model: ranks ---- */

enum { SPECIALS = 256, RANK_LINE_MAX = 4096 };

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
  char bytes[RANK_LINE_MAX], text[RANK_LINE_MAX];
  const char *space = memchr(line, ' ', size);
  size_t count = 0;
  int64_t rank;
  bool whole = space && size < RANK_LINE_MAX;
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
    unsigned char text[RANK_LINE_MAX];
    size_t size;
    const char *bytes = bpe_pieces_text(&tokenizer->pieces, id, &size);
    EVP_EncodeBlock(text, (const unsigned char *)bytes, (int)size);
    fprintf(writer.stream, "%s %d\n", (const char *)text, (int)id);
  }
  return files_commit(&writer);
}

/* ---- tok*.bin: scores ---- */

/* The scored vocabulary of small Llama models (tokenizer.bin of llama2.c, here tokN.bin for N pieces): u32 length of the longest piece,
 * then for each id f32 score, u32 length, bytes; little-endian. Ids 0, 1 and 2 are unknown, begin and end and have no text; 3 to 258 are
 * the bytes, written <0x00> to <0xFF>; the others are characters and what they merge to, higher scores first. */

enum { BEGIN = 1, END = 2, FIRST_BYTE = 3, FIRST_PIECE = FIRST_BYTE + 256, HEAD = 8 };

static uint32_t read_number(const char *data) {
  const unsigned char *byte = (const unsigned char *)data;
  return (uint32_t)byte[0] | (uint32_t)byte[1] << 8 | (uint32_t)byte[2] << 16 | (uint32_t)byte[3] << 24;
}

/* The entry at *at, which moves behind it. */
static Status read_entry(const char *data, size_t size, size_t *at, int64_t id, TokenizerScore *entry) {
  if (size - *at < HEAD) return status_set(STATUS_BAD_FILE, "ends within the entry of id %lld", (long long)id);
  uint32_t bits = read_number(data + *at);
  memcpy(&entry->score, &bits, sizeof bits);
  entry->special = false;
  entry->size = read_number(data + *at + 4);
  entry->bytes = data + *at + HEAD;
  if (entry->size > size - *at - HEAD) return status_set(STATUS_BAD_FILE, "the piece of id %lld ends behind the file", (long long)id);
  if (!isfinite(entry->score)) return status_set(STATUS_BAD_FILE, "the score of id %lld is not a finite number", (long long)id);
  *at += HEAD + entry->size;
  return STATUS_OK;
}

static Status count_entries(const char *data, size_t size, int64_t *count) {
  TokenizerScore entry;
  *count = 0;
  for (size_t at = 4; at < size; ++*count) TRY(read_entry(data, size, &at, *count, &entry));
  return STATUS_OK;
}

static Status put_entry(Tokenizer *tokenizer, int32_t id, const TokenizerScore *entry) {
  tokenizer->scores[id] = entry->score;
  if (id < FIRST_BYTE) return bpe_pieces_put(&tokenizer->pieces, id, entry->bytes, entry->size, false);
  if (id >= FIRST_PIECE && entry->special) return tokenizer_model_add_special(tokenizer, id, entry->bytes, entry->size);
  if (id >= FIRST_PIECE) return bpe_pieces_put(&tokenizer->pieces, id, entry->bytes, entry->size, true);
  char expected[8], byte = (char)(id - FIRST_BYTE);
  snprintf(expected, sizeof expected, "<0x%02X>", id - FIRST_BYTE);
  if (entry->size != strlen(expected) || memcmp(entry->bytes, expected, entry->size) != 0)
    return status_set(STATUS_BAD_FILE, "id %d is not %s: ids 3 to 258 are the bytes", (int)id, expected);
  tokenizer->byte_ids[id - FIRST_BYTE] = id;
  return bpe_pieces_put(&tokenizer->pieces, id, &byte, 1, false);
}

static int higher_first(const void *a, const void *b) {
  float left = *(const float *)a, right = *(const float *)b;
  return left > right ? -1 : left < right;
}

/* The place of a score among the sorted ones; of equal scores the first. */
static uint32_t rank_of(const float *sorted, int32_t count, float score) {
  int32_t low = 0, high = count;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (sorted[middle] > score)
      low = middle + 1;
    else
      high = middle;
  }
  return (uint32_t)low;
}

/* Equal scores have equal rank: the leftmost is merged first. */
static Status scores_add_pairs(Tokenizer *tokenizer) {
  int32_t count = tokenizer->pieces.count;
  float *sorted = malloc((size_t)count * sizeof *sorted);
  uint32_t *ranks = malloc((size_t)count * sizeof *ranks);
  Status status = status_set(STATUS_NO_MEMORY, "no memory for %d scores", (int)count);
  if (sorted && ranks) {
    memcpy(sorted, tokenizer->scores, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, higher_first);
    for (int32_t id = 0; id < count; id++) ranks[id] = rank_of(sorted, count, tokenizer->scores[id]);
    status = tokenizer_model_add_splits(tokenizer, ranks);
  }
  free(sorted);
  free(ranks);
  return status;
}

Status tokenizer_scores_make(Tokenizer **tokenizer, const TokenizerScore *entries, int64_t count) {
  if (count < FIRST_PIECE) return status_set(STATUS_BAD_FILE, "%lld pieces; three without text and 256 bytes come first", (long long)count);
  TRY(tokenizer_model_new(tokenizer, TOKENIZER_SCORES, count));
  (*tokenizer)->scores = malloc((size_t)count * sizeof(float));
  if (!(*tokenizer)->scores) return status_set(STATUS_NO_MEMORY, "no memory for %lld scores", (long long)count);
  (*tokenizer)->begin = BEGIN;
  (*tokenizer)->end = END;
  for (int32_t id = 0; id < count; id++) TRY(put_entry(*tokenizer, id, &entries[id]));
  return scores_add_pairs(*tokenizer);
}

static Status scores_build(Tokenizer **tokenizer, const char *data, size_t size) {
  int64_t count;
  size_t at = 4;
  if (size < at) return status_set(STATUS_BAD_FILE, "has no length of the longest piece");
  TRY(count_entries(data, size, &count));
  TokenizerScore *entries = malloc(((size_t)count + 1) * sizeof *entries);
  Status status = entries ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for %lld pieces", (long long)count);
  for (int64_t id = 0; id < count && status == STATUS_OK; id++) status = read_entry(data, size, &at, id, &entries[id]);
  if (status == STATUS_OK) status = tokenizer_scores_make(tokenizer, entries, count);
  free(entries);
  return status;
}

Status tokenizer_scores_parse(Tokenizer **tokenizer, const char *data, size_t size, const char *path) {
  *tokenizer = NULL;
  Status status = scores_build(tokenizer, data, size);
  return tokenizer_model_parsed(tokenizer, status, path);
}

/* ---- Writing ---- */

/* The piece as the file spells it. */
static const char *spell(const Tokenizer *tokenizer, int32_t id, char byte[8], size_t *size) {
  if (id < FIRST_BYTE || id >= FIRST_PIECE) return bpe_pieces_text(&tokenizer->pieces, id, size);
  *size = (size_t)snprintf(byte, 8, "<0x%02X>", id - FIRST_BYTE);
  return byte;
}

static void write_number(FILE *stream, uint32_t number) {
  fwrite((uint8_t[]){(uint8_t)number, (uint8_t)(number >> 8), (uint8_t)(number >> 16), (uint8_t)(number >> 24)}, 1, 4, stream);
}

static uint32_t longest(const Tokenizer *tokenizer) {
  size_t max = 0;
  for (int32_t id = 0; id < tokenizer->pieces.count; id++) {
    size_t size;
    char byte[8];
    spell(tokenizer, id, byte, &size);
    if (size > max) max = size;
  }
  return (uint32_t)max;
}

Status tokenizer_scores_write(const Tokenizer *tokenizer, const char *path) {
  FileWriter writer;
  TRY(files_create(&writer, path));
  write_number(writer.stream, longest(tokenizer));
  for (int32_t id = 0; id < tokenizer->pieces.count; id++) {
    size_t size;
    char byte[8];
    uint32_t bits;
    const char *text = spell(tokenizer, id, byte, &size);
    memcpy(&bits, &tokenizer->scores[id], sizeof bits);
    write_number(writer.stream, bits);
    write_number(writer.stream, (uint32_t)size);
    fwrite(text, 1, size, writer.stream);
  }
  return files_commit(&writer);
}
