/* GPT-2's two files: vocab.json (encoder.json), an object from pieces to ids, and merges.txt (vocab.bpe), a line "LEFT RIGHT" for each
 * merge in their order, both in GPT-2's alphabet. The special token <|endoftext|> may stand in the vocabulary under its own name. */
#include "base/files.h"
#include "data/tokenizer/bpe_alphabet.h"
#include "data/tokenizer/tokenizer_model.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char end_of_text[] = "<|endoftext|>", version_line[] = "#version";

static Status read_vocab(Tokenizer **tokenizer, json_t *vocab) {
  if (!json_is_object(vocab)) return status_set(STATUS_BAD_FILE, "is not a JSON object from pieces to ids");
  TRY(tokenizer_model_new(tokenizer, TOKENIZER_MERGES, (int64_t)json_object_size(vocab)));
  const char *text;
  json_t *id;
  json_object_foreach(vocab, text, id) {
    size_t size = strlen(text);
    if (!json_is_integer(id)) return status_set(STATUS_BAD_FILE, "the id of '%.60s' is not a whole number", text);
    bool special = strcmp(text, end_of_text) == 0;
    TRY(special ? tokenizer_model_add_special(*tokenizer, json_integer_value(id), text, size)
                : tokenizer_model_add_piece(*tokenizer, json_integer_value(id), text, size));
  }
  return bpe_pieces_check_whole(&(*tokenizer)->pieces);
}

static Status parse_vocab(Tokenizer **tokenizer, const char *text, size_t size) {
  json_error_t error;
  json_t *vocab = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
  Status status = vocab ? read_vocab(tokenizer, vocab) : status_set(STATUS_BAD_FILE, "line %d: %s", error.line, error.text);
  json_decref(vocab);
  return status;
}

/* One line without its end. */
static Status add_line(Tokenizer *tokenizer, const char *line, size_t size, long number) {
  if (number == 1 && size >= sizeof version_line - 1 && memcmp(line, version_line, sizeof version_line - 1) == 0) return STATUS_OK;
  const char *space = memchr(line, ' ', size);
  size_t left = space ? (size_t)(space - line) : 0;
  Status status = !space || memchr(space + 1, ' ', size - left - 1)
                      ? status_set(STATUS_BAD_FILE, "a merge is two pieces with one space between them")
                      : tokenizer_model_add_merge(tokenizer, line, left, space + 1, size - left - 1);
  return status == STATUS_OK ? STATUS_OK : status_wrap(status, "line %ld", number);
}

static Status parse_merges(Tokenizer *tokenizer, const char *text, size_t size) {
  long number = 1;
  for (size_t at = 0; at < size; number++) {
    const char *line = text + at, *end = memchr(line, '\n', size - at);
    size_t length = end ? (size_t)(end - line) : size - at;
    at += length + 1;
    if (length > 0 && line[length - 1] == '\r') length--;
    if (length > 0) TRY(add_line(tokenizer, line, length, number));
  }
  return STATUS_OK;
}

Status tokenizer_vocab_parse(Tokenizer **tokenizer, const char *vocab, size_t vocab_size, const char *vocab_path, const char *merges,
                             size_t merges_size, const char *merges_path) {
  *tokenizer = NULL;
  Status status = parse_vocab(tokenizer, vocab, vocab_size);
  const char *path = vocab_path;
  if (status == STATUS_OK && (status = parse_merges(*tokenizer, merges, merges_size)) != STATUS_OK) path = merges_path;
  return tokenizer_model_parsed(tokenizer, status, path);
}

/* The piece as files spell it: special tokens as they are, others in the alphabet. `text` has room for 2 size + 1. */
static size_t spell(const Tokenizer *tokenizer, int32_t id, char *text) {
  size_t size;
  const char *bytes = bpe_pieces_text(&tokenizer->pieces, id, &size);
  if (bpe_pieces_find(&tokenizer->pieces, bytes, size) == id) return bpe_alphabet_write(bytes, size, text);
  memcpy(text, bytes, size + 1);
  return size;
}

char *tokenizer_vocab_spell(const Tokenizer *tokenizer, int32_t id) {
  char *text = malloc(2 * (size_t)tokenizer->pieces.sizes[id] + 1);
  if (text) spell(tokenizer, id, text);
  return text;
}

json_t *tokenizer_vocab_object(const Tokenizer *tokenizer) {
  json_t *vocab = json_object();
  for (int32_t id = 0; id < tokenizer->pieces.count && vocab; id++) {
    char *text = tokenizer_vocab_spell(tokenizer, id);
    bool added = text && json_object_set_new(vocab, text, json_integer(id)) == 0;
    free(text);
    if (added) continue;
    json_decref(vocab);
    vocab = NULL;
  }
  return vocab;
}

Status tokenizer_vocab_write_object(json_t *object, size_t flags, const char *path) {
  char *text = object ? json_dumps(object, flags) : NULL;
  json_decref(object);
  if (!text) return status_set(STATUS_NO_MEMORY, "no memory to write %s", path);
  Status status = files_write(path, text, strlen(text));
  free(text);
  return status;
}

Status tokenizer_vocab_write(const Tokenizer *tokenizer, const char *path) {
  return tokenizer_vocab_write_object(tokenizer_vocab_object(tokenizer), 0, path);
}

char *tokenizer_vocab_spell_merge(const Tokenizer *tokenizer, int64_t merge) {
  TokenizerMerge pair = tokenizer->merges[merge];
  char *text = malloc(2 * ((size_t)tokenizer->pieces.sizes[pair.left] + tokenizer->pieces.sizes[pair.right]) + 2);
  if (!text) return NULL;
  size_t length = spell(tokenizer, pair.left, text);
  text[length] = ' ';
  spell(tokenizer, pair.right, text + length + 1);
  return text;
}

Status tokenizer_vocab_write_merges(const Tokenizer *tokenizer, const char *path) {
  FileWriter writer;
  TRY(files_create(&writer, path));
  fprintf(writer.stream, "%s: 0.2\n", version_line);
  for (int64_t i = 0; i < tokenizer->merge_count; i++) {
    char *text = tokenizer_vocab_spell_merge(tokenizer, i);
    if (!text) {
      files_abort(&writer);
      return status_set(STATUS_NO_MEMORY, "no memory to write %s", path);
    }
    fprintf(writer.stream, "%s\n", text);
    free(text);
  }
  return files_commit(&writer);
}
