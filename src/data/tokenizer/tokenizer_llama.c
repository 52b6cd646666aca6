/* The forms that Llama's tokenizers come in: tokenizer.model of Llama-3 (ranks), tok*.bin of llama2.c (scores), the metadata of a GGUF
 * file. */
#include "base/files.h"
#include "base/gguf.h"
#include "data/tokenizer/tokenizer_internal.h"
#include <math.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

enum { SPLIT_MAX = 512 };

static Status add_splits_of(Tokenizer *tokenizer, int32_t id, uint32_t rank) {
  size_t size;
  const BpePieces *pieces = &tokenizer->pieces;
  const char *bytes = bpe_pieces_text(pieces, id, &size);
  if (bpe_pieces_find(pieces, bytes, size) != id) return STATUS_OK;
  if (size > SPLIT_MAX)
    return status_set(STATUS_BAD_FILE, "id %d has a piece of %zu bytes; at most %d are accepted", (int)id, size, SPLIT_MAX);
  for (size_t cut = 1; cut < size; cut++) {
    int32_t left = bpe_pieces_find(pieces, bytes, cut);
    int32_t right = left < 0 ? -1 : bpe_pieces_find(pieces, bytes + cut, size - cut);
    bool fresh;
    if (right >= 0) TRY(bpe_pairs_add(&tokenizer->pairs, left, right, rank, id, &fresh));
  }
  return STATUS_OK;
}

/* Adds every pair of findable pieces that joins to a findable piece; its rank is ranks[id of that]. BAD_FILE: a piece is longer than
 * SPLIT_MAX bytes, which would take too long. */
static Status add_splits(Tokenizer *tokenizer, const uint32_t *ranks) {
  for (int32_t id = 0; id < tokenizer->pieces.count; id++) {
    if (tokenizer->pieces.present[id]) TRY(add_splits_of(tokenizer, id, ranks[id]));
  }
  return STATUS_OK;
}

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
    TRY(tokenizer_model_add_special(tokenizer, first + i, text, strlen(text), false));
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
  Status status = add_splits(tokenizer, ranks);
  free(ranks);
  return status;
}

static Status build_ranks(Tokenizer **tokenizer, const char *text, size_t size) {
  int64_t lines = count_lines(text, size);
  TRY(tokenizer_model_new(tokenizer, TOKENIZER_RANKS, lines + SPECIALS));
  (*tokenizer)->pattern = BPE_PATTERN_LLAMA3;
  (*tokenizer)->whole = true;
  TRY(add_lines(*tokenizer, text, size));
  TRY(add_specials(*tokenizer, lines));
  return add_pairs(*tokenizer, lines + SPECIALS);
}

Status tokenizer_llama_ranks(Tokenizer **tokenizer, const char *text, size_t size, const char *path) {
  *tokenizer = NULL;
  Status status = build_ranks(tokenizer, text, size);
  return tokenizer_finish(tokenizer, status, path);
}

static Status write_ranks(const Tokenizer *tokenizer, const char *path) {
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

const TokenizerOutput tokenizer_llama_ranks_files[] = {{"tokenizer.model", write_ranks}, {0}};

/* ---- tok*.bin: scores ---- */

/* The scored vocabulary of small Llama models (tokenizer.bin of llama2.c, here tokN.bin for N pieces): u32 length of the longest piece,
 * then for each id f32 score, u32 length, bytes; little-endian. Ids 0, 1 and 2 are unknown, begin and end and have no text; 3 to 258 are
 * the bytes, written <0x00> to <0xFF>; the others are characters and what they merge to, higher scores first. */

/* A piece of a scored vocabulary. `special`: never made of text, unless its text stands there and special tokens are meant, or in any case
 * where it is `in_text` (not of the bytes). */
typedef struct TokenizerScore {
  float score;
  const char *bytes; /* copied */
  size_t size;
  bool special, in_text;
} TokenizerScore;

enum { FIRST_BYTE = TOKENIZER_FIRST_BYTE, FIRST_PIECE = TOKENIZER_FIRST_PIECE, HEAD = 8 };

static uint32_t read_number(const char *data) {
  const unsigned char *byte = (const unsigned char *)data;
  return (uint32_t)byte[0] | (uint32_t)byte[1] << 8 | (uint32_t)byte[2] << 16 | (uint32_t)byte[3] << 24;
}

/* The entry at *at, which moves behind it. */
static Status read_entry(const char *data, size_t size, size_t *at, int64_t id, TokenizerScore *entry) {
  if (size - *at < HEAD) return status_set(STATUS_BAD_FILE, "ends within the entry of id %lld", (long long)id);
  uint32_t bits = read_number(data + *at);
  memcpy(&entry->score, &bits, sizeof bits);
  entry->special = id < FIRST_BYTE;
  entry->in_text = false;
  entry->size = read_number(data + *at + 4);
  entry->bytes = data + *at + HEAD;
  if (entry->size > size - *at - HEAD)
    return status_set(STATUS_BAD_FILE, "the piece of id %lld extends past the end of the file", (long long)id);
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
  bool is_byte = id >= FIRST_BYTE && id < FIRST_PIECE;
  if (!is_byte && entry->special)
    return tokenizer_model_add_special(tokenizer, id, entry->bytes, entry->size, entry->in_text && id >= FIRST_PIECE);
  if (!is_byte) return bpe_pieces_put(&tokenizer->pieces, id, entry->bytes, entry->size, id >= FIRST_PIECE);
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
static Status add_scored_pairs(Tokenizer *tokenizer) {
  int32_t count = tokenizer->pieces.count;
  float *sorted = malloc((size_t)count * sizeof *sorted);
  uint32_t *ranks = malloc((size_t)count * sizeof *ranks);
  Status status = status_set(STATUS_NO_MEMORY, "no memory for %d scores", (int)count);
  if (sorted && ranks) {
    memcpy(sorted, tokenizer->scores, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, higher_first);
    for (int32_t id = 0; id < count; id++) ranks[id] = rank_of(sorted, count, tokenizer->scores[id]);
    status = add_splits(tokenizer, ranks);
  }
  free(sorted);
  free(ranks);
  return status;
}

/* All of a scored vocabulary but the last step, which is its caller's: ids 0 to 2 have no text, 3 to 258 are the bytes. */
static Status make_scores(Tokenizer **tokenizer, const TokenizerScore *entries, int64_t count) {
  if (count < FIRST_PIECE) return status_set(STATUS_BAD_FILE, "%lld pieces; three without text and 256 bytes come first", (long long)count);
  TRY(tokenizer_model_new(tokenizer, TOKENIZER_SCORES, count));
  (*tokenizer)->scores = malloc((size_t)count * sizeof(float));
  if (!(*tokenizer)->scores) return status_set(STATUS_NO_MEMORY, "no memory for %lld scores", (long long)count);
  for (int32_t id = 0; id < count; id++) TRY(put_entry(*tokenizer, id, &entries[id]));
  return add_scored_pairs(*tokenizer);
}

static Status parse_scores(Tokenizer **tokenizer, const char *data, size_t size) {
  int64_t count;
  size_t at = 4;
  if (size < at) return status_set(STATUS_BAD_FILE, "has no length of the longest piece");
  TRY(count_entries(data, size, &count));
  TokenizerScore *entries = malloc(((size_t)count + 1) * sizeof *entries);
  Status status = entries ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for %lld pieces", (long long)count);
  for (int64_t id = 0; id < count && status == STATUS_OK; id++) status = read_entry(data, size, &at, id, &entries[id]);
  if (status == STATUS_OK) status = make_scores(tokenizer, entries, count);
  free(entries);
  return status;
}

Status tokenizer_llama_scores(Tokenizer **tokenizer, const char *data, size_t size, const char *path) {
  *tokenizer = NULL;
  Status status = parse_scores(tokenizer, data, size);
  return tokenizer_finish(tokenizer, status, path);
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

static Status write_scores(const Tokenizer *tokenizer, const char *path) {
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

const TokenizerOutput tokenizer_llama_scores_files[] = {{"tok%d.bin", write_scores}, {0}};

/* ---- GGUF ---- */

/* The tokenizer in a GGUF file's metadata (keys tokenizer.ggml.*). Model "gpt2" is byte-level BPE with merges in GPT-2's alphabet, split by
 * the expression that "pre" names; model "llama" is a scored vocabulary in which U+2581 stands for a space. What would change the ids and
 * is not understood is refused. */

/* tokenizer.ggml.token_type */
typedef enum TokenType { TYPE_NORMAL = 1, TYPE_USER = 4, TYPE_BYTE = 6 } TokenType; /* the others: unknown, control, unused */

typedef struct Source {
  const GgufFile *file;
  const GgufEntry *tokens;
  const GgufEntry *types; /* NULL: all normal */
  int64_t begin, end;     /* -1: not said */
  bool begins;            /* the token for the beginning stands before each text */
} Source;

static Status missing(const char *key) {
  return status_set(STATUS_NOT_FOUND, "the metadata key %s is missing: the file has no tokenizer", key);
}

static Status half(const char *key) { return status_set(STATUS_BAD_FILE, "it has tokens, but the metadata key %s is missing", key); }

static int64_t type_of(const Source *source, uint64_t id) { return source->types ? gguf_integer_at(source->types, id) : TYPE_NORMAL; }

static bool is_special(int64_t type) { return type != TYPE_NORMAL && type != TYPE_BYTE; }

static Status read_id(const Source *source, const char *key, int64_t *id) {
  TRY(gguf_whole(source->file, key, id));
  if (*id >= -1 && *id < (int64_t)source->tokens->count) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "the metadata key %s is %lld; the ids are 0 to %lld", key, (long long)*id,
                    (long long)source->tokens->count - 1);
}

static Status read_source(Source *source) {
  static const char tokens[] = "tokenizer.ggml.tokens";
  TRY(gguf_array(source->file, tokens, GGUF_STRING, &source->tokens));
  if (!source->tokens) return missing(tokens);
  TRY(gguf_array(source->file, "tokenizer.ggml.token_type", GGUF_I32, &source->types));
  if (source->types && source->types->count != source->tokens->count)
    return status_set(STATUS_BAD_FILE, "%llu types for %llu tokens", (unsigned long long)source->types->count,
                      (unsigned long long)source->tokens->count);
  TRY(read_id(source, "tokenizer.ggml.bos_token_id", &source->begin));
  return read_id(source, "tokenizer.ggml.eos_token_id", &source->end);
}

/* ---- merges */

typedef struct Expression {
  const char *name; /* tokenizer.ggml.pre */
  BpePattern pattern;
  bool whole, begins;
} Expression;

static const Expression expressions[] = {{"gpt-2", BPE_PATTERN_GPT2, false, false},
                                         {"llama-bpe", BPE_PATTERN_LLAMA3, true, true},
                                         {"llama3", BPE_PATTERN_LLAMA3, true, true},
                                         {"llama-v3", BPE_PATTERN_LLAMA3, true, true}};

static Status find_expression(const Source *source, const Expression **found) {
  GgufText pre = {"", 0};
  TRY(gguf_text(source->file, "tokenizer.ggml.pre", &pre));
  for (size_t i = 0; i < sizeof expressions / sizeof *expressions; i++)
    if (gguf_text_is(pre, expressions[i].name)) return *found = &expressions[i], STATUS_OK;
  return status_set(STATUS_UNSUPPORTED,
                    "texts are split as '%.*s' does (tokenizer.ggml.pre); supported are llama-bpe and gpt-2: name the model's own "
                    "tokenizer files, or convert the model with a newer llama.cpp if this is empty or 'default'",
                    pre.size < 40 ? (int)pre.size : 40, pre.bytes);
}

static Status put_pieces(const Source *source, Tokenizer *tokenizer) {
  const uint8_t *at = source->tokens->data;
  for (uint64_t id = 0; id < source->tokens->count; id++) {
    GgufText text = gguf_next_text(&at);
    const int64_t type = type_of(source, id);
    TRY(is_special(type) ? tokenizer_model_add_special(tokenizer, (int64_t)id, text.bytes, text.size, type == TYPE_USER)
                         : tokenizer_model_add_piece(tokenizer, (int64_t)id, text.bytes, text.size));
  }
  return STATUS_OK;
}

static Status put_merges(const Source *source, Tokenizer *tokenizer) {
  const GgufEntry *merges = NULL;
  TRY(gguf_array(source->file, "tokenizer.ggml.merges", GGUF_STRING, &merges));
  if (!merges) return half("tokenizer.ggml.merges");
  const uint8_t *at = merges->data;
  for (uint64_t i = 0; i < merges->count; i++) {
    GgufText text = gguf_next_text(&at);
    const char *space = text.size > 0 ? memchr(text.bytes + 1, ' ', text.size - 1) : NULL; /* a piece has at least one character */
    size_t left = space ? (size_t)(space - text.bytes) : 0;
    Status status = space ? tokenizer_model_add_merge(tokenizer, text.bytes, left, space + 1, text.size - left - 1)
                          : status_set(STATUS_BAD_FILE, "a merge is two pieces with one space between them");
    if (status != STATUS_OK) return status_wrap(status, "merge %llu", (unsigned long long)i);
  }
  return STATUS_OK;
}

static Status build_merges(Source *source, Tokenizer **tokenizer) {
  const Expression *expression = NULL;
  TRY(find_expression(source, &expression));
  TRY(tokenizer_model_new(tokenizer, TOKENIZER_MERGES, (int64_t)source->tokens->count));
  (*tokenizer)->pattern = expression->pattern;
  (*tokenizer)->whole = expression->whole;
  source->begins = expression->begins;
  TRY(put_pieces(source, *tokenizer));
  TRY(bpe_pieces_check_whole(&(*tokenizer)->pieces));
  return put_merges(source, *tokenizer);
}

/* ---- scores */

static Status check_spaces(const Source *source) {
  bool in_front = true, removed = false;
  TRY(gguf_flag(source->file, "tokenizer.ggml.add_space_prefix", &in_front));
  TRY(gguf_flag(source->file, "tokenizer.ggml.remove_extra_whitespaces", &removed));
  if (in_front && !removed) return STATUS_OK;
  return status_set(STATUS_UNSUPPORTED, "tokenizer.ggml.%s is %s; only %s is supported",
                    removed ? "remove_extra_whitespaces" : "add_space_prefix", removed ? "true" : "false", removed ? "false" : "true");
}

/* With spaces for U+2581; `to` has room for text.size bytes. */
static size_t with_spaces(GgufText text, char *to) {
  static const char mark[] = "\xe2\x96\x81";
  size_t size = 0;
  for (size_t at = 0; at < text.size;) {
    bool space = text.size - at >= sizeof mark - 1 && memcmp(text.bytes + at, mark, sizeof mark - 1) == 0;
    to[size++] = space ? ' ' : text.bytes[at];
    at += space ? sizeof mark - 1 : 1;
  }
  return size;
}

static Status put_entries(const Source *source, const GgufEntry *scores, TokenizerScore *entries, char *text) {
  const uint8_t *at = source->tokens->data;
  for (uint64_t id = 0; id < source->tokens->count; id++) {
    GgufText token = gguf_next_text(&at);
    const int64_t type = type_of(source, id);
    entries[id] = (TokenizerScore){gguf_float_at(scores, id), text, with_spaces(token, text), is_special(type), type == TYPE_USER};
    if (!isfinite(entries[id].score))
      return status_set(STATUS_BAD_FILE, "the score of id %llu is not a finite number", (unsigned long long)id);
    text += entries[id].size;
  }
  return STATUS_OK;
}

static size_t text_bytes(const GgufEntry *tokens) {
  const uint8_t *at = tokens->data;
  size_t bytes = 0;
  for (uint64_t id = 0; id < tokens->count; id++) bytes += gguf_next_text(&at).size;
  return bytes;
}

static Status build_gguf_scores(Source *source, Tokenizer **tokenizer) {
  static const char key[] = "tokenizer.ggml.scores";
  const GgufEntry *scores = NULL;
  TRY(check_spaces(source));
  TRY(gguf_array(source->file, key, GGUF_F32, &scores));
  if (!scores) return half(key);
  if (scores->count != source->tokens->count)
    return status_set(STATUS_BAD_FILE, "%llu scores for %llu tokens", (unsigned long long)scores->count,
                      (unsigned long long)source->tokens->count);
  TokenizerScore *entries = malloc(((size_t)scores->count + 1) * sizeof *entries);
  char *text = malloc(text_bytes(source->tokens) + 1);
  Status status = entries && text ? put_entries(source, scores, entries, text) : status_no_memory(NULL, "its tokenizer");
  if (status == STATUS_OK) status = make_scores(tokenizer, entries, (int64_t)scores->count);
  source->begins = true;
  free(entries);
  free(text);
  return status;
}

/* ---- both */

static Status build(Source *source, Tokenizer **tokenizer) {
  GgufText model = {0};
  TRY(gguf_text(source->file, "tokenizer.ggml.model", &model));
  if (!model.bytes) return missing("tokenizer.ggml.model");
  TRY(read_source(source));
  if (gguf_text_is(model, "gpt2")) return build_merges(source, tokenizer);
  if (gguf_text_is(model, "llama")) return build_gguf_scores(source, tokenizer);
  return status_set(STATUS_UNSUPPORTED, "a tokenizer of model '%.*s' (tokenizer.ggml.model); supported are llama and gpt2",
                    model.size < 40 ? (int)model.size : 40, model.bytes);
}

/* What begins and ends a text: as names say, like tokenizer.json's reader, else as the metadata say. A model that was converted without a
 * token for the beginning gets none. */
static Status choose_ends(const Source *source, Tokenizer *tokenizer) {
  bool begins = source->begins;
  TRY(gguf_flag(source->file, "tokenizer.ggml.add_bos_token", &begins));
  if (tokenizer->kind == TOKENIZER_SCORES) {
    if (source->begin >= 0) tokenizer->begin = (int32_t)source->begin;
    if (source->end >= 0) tokenizer->end = (int32_t)source->end;
  }
  if (tokenizer->begin < 0) tokenizer->begin = (int32_t)source->begin;
  if (tokenizer->end < 0) tokenizer->end = (int32_t)source->end;
  if (!begins) tokenizer->begin = -1;
  return tokenizer_model_fingerprint(tokenizer);
}

Status tokenizer_llama_gguf(Tokenizer **tokenizer, const GgufFile *file) {
  Source source = {.file = file, .begin = -1, .end = -1};
  *tokenizer = NULL;
  Status status = build(&source, tokenizer);
  TRY(tokenizer_finish(tokenizer, status, file->path));
  status = choose_ends(&source, *tokenizer);
  if (status == STATUS_OK) return status;
  tokenizer_close(*tokenizer);
  *tokenizer = NULL;
  return status_wrap(status, "%s", file->path);
}
