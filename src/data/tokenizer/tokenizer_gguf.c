/* The tokenizer in a GGUF file's metadata (keys tokenizer.ggml.*). Model "gpt2" is byte-level BPE with merges in GPT-2's alphabet, split by
 * the expression that "pre" names; model "llama" is a scored vocabulary in which U+2581 stands for a space. What would change the ids and
 * is not understood is refused. */
#include "base/gguf.h"
#include "data/tokenizer/tokenizer_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* tokenizer.ggml.token_type */
typedef enum TokenType { TYPE_NORMAL = 1, TYPE_BYTE = 6 } TokenType; /* those between: unknown, control, user's, unused */

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
    TRY(is_special(type_of(source, id)) ? tokenizer_model_add_special(tokenizer, (int64_t)id, text.bytes, text.size)
                                        : tokenizer_model_add_piece(tokenizer, (int64_t)id, text.bytes, text.size));
  }
  return STATUS_OK;
}

static Status put_merges(const Source *source, Tokenizer *tokenizer) {
  const GgufEntry *merges = NULL;
  TRY(gguf_array(source->file, "tokenizer.ggml.merges", GGUF_STRING, &merges));
  if (!merges) return missing("tokenizer.ggml.merges");
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
    entries[id] = (TokenizerScore){gguf_float_at(scores, id), text, with_spaces(token, text), is_special(type_of(source, id))};
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

static Status build_scores(Source *source, Tokenizer **tokenizer) {
  static const char key[] = "tokenizer.ggml.scores";
  const GgufEntry *scores = NULL;
  TRY(check_spaces(source));
  TRY(gguf_array(source->file, key, GGUF_F32, &scores));
  if (!scores) return missing(key);
  if (scores->count != source->tokens->count)
    return status_set(STATUS_BAD_FILE, "%llu scores for %llu tokens", (unsigned long long)scores->count,
                      (unsigned long long)source->tokens->count);
  TokenizerScore *entries = malloc(((size_t)scores->count + 1) * sizeof *entries);
  char *text = malloc(text_bytes(source->tokens) + 1);
  Status status =
      entries && text ? put_entries(source, scores, entries, text) : status_set(STATUS_NO_MEMORY, "no memory for its tokenizer");
  if (status == STATUS_OK) status = tokenizer_scores_make(tokenizer, entries, (int64_t)scores->count);
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
  if (gguf_text_is(model, "llama")) return build_scores(source, tokenizer);
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
  return tokenizer_fingerprint_make(tokenizer);
}

Status tokenizer_gguf_read(Tokenizer **tokenizer, const GgufFile *file) {
  Source source = {.file = file, .begin = -1, .end = -1};
  *tokenizer = NULL;
  Status status = build(&source, tokenizer);
  TRY(tokenizer_model_parsed(tokenizer, status, file->path));
  status = choose_ends(&source, *tokenizer);
  if (status == STATUS_OK) return status;
  tokenizer_close(*tokenizer);
  *tokenizer = NULL;
  return status_wrap(status, "%s", file->path);
}

static Status read_into(void *tokenizer, const GgufFile *file) { return tokenizer_gguf_read(tokenizer, file); }

Status tokenizer_gguf_open(Tokenizer **tokenizer, const char *path) {
  *tokenizer = NULL;
  return gguf_read_path(path, read_into, tokenizer);
}
