/* GPT-2's vocab.json with merges.txt, and tokenizer.json of Hugging Face tokenizers, as far as it describes a byte-level BPE with the
 * expression of GPT-2 or Llama-3: the vocabulary, the merges ("LEFT RIGHT" or [LEFT, RIGHT]), ignore_merges, the added tokens. What would
 * change the ids and is not understood is refused: another model, normalizer or expression, a space put in front, added tokens that swallow
 * spaces. Left out: truncation, padding, post-processor and decoder, which do not change the ids of a text. */
#include "base/files.h"
#include "data/tokenizer/bpe_vocab.h"
#include "data/tokenizer/tokenizer_internal.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- vocab.json and merges.txt ---- */

/* GPT-2's two files: vocab.json (encoder.json), an object from pieces to ids, and merges.txt (vocab.bpe), a line "LEFT RIGHT" for each
 * merge in their order, both in GPT-2's alphabet. The special token <|endoftext|> may stand in the vocabulary under its own name. */

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

static char *tokenizer_vocab_spell(const Tokenizer *tokenizer, int32_t id) {
  char *text = malloc(2 * (size_t)tokenizer->pieces.sizes[id] + 1);
  if (text) spell(tokenizer, id, text);
  return text;
}

/* What the two JSON files share: the vocabulary as an object, a merge as "LEFT RIGHT", a piece (fresh; NULL: no memory); writing an object,
 * which is released. */
static json_t *tokenizer_vocab_object(const Tokenizer *tokenizer) {
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

static Status tokenizer_vocab_write_object(json_t *object, size_t flags, const char *path) {
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

/* ---- tokenizer.json ---- */

static bool is_type(json_t *object, const char *type) {
  const char *text = json_string_value(json_object_get(object, "type"));
  return text && strcmp(text, type) == 0;
}

/* Absent, null, false, "" and 0 all say that a feature is not used. */
static bool is_unused(json_t *value) {
  return !value || json_is_null(value) || json_is_false(value) || (json_is_string(value) && json_string_length(value) == 0) ||
         (json_is_number(value) && json_number_value(value) == 0);
}

static Status check_unused(json_t *object, const char *const *names, const char *where) {
  for (; *names; names++) {
    if (!is_unused(json_object_get(object, *names)))
      return status_set(STATUS_UNSUPPORTED, "%s uses %s, which is not supported; byte-level BPE as of GPT-2 and Llama-3 is", where, *names);
  }
  return STATUS_OK;
}

static Status check_model(json_t *model) {
  static const char *const unused[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", NULL};
  if (!json_is_object(model)) return status_set(STATUS_BAD_FILE, "has no object \"model\"");
  if (json_object_get(model, "type") && !is_type(model, "BPE"))
    return status_set(STATUS_UNSUPPORTED, "the model's type is not BPE, the only one that is supported");
  if (!json_is_object(json_object_get(model, "vocab")) || !json_is_array(json_object_get(model, "merges")))
    return status_set(STATUS_BAD_FILE, "the model has no object \"vocab\" or no array \"merges\"");
  return check_unused(model, unused, "the model");
}

/* ---- The expression ---- */

static Status find_pattern(const char *regex, BpePattern *pattern) {
  static const BpePattern known[] = {BPE_PATTERN_GPT2, BPE_PATTERN_LLAMA3};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    *pattern = known[i];
    if (regex && strcmp(regex, bpe_split_published(known[i])) == 0) return STATUS_OK;
  }
  return status_set(STATUS_UNSUPPORTED, "splits text by an expression that is neither GPT-2's nor Llama-3's: %.200s",
                    regex ? regex : "none");
}

static Status check_byte_level(json_t *step, bool own_expression) {
  static const char *const unused[] = {"add_prefix_space", NULL};
  json_t *use_regex = json_object_get(step, "use_regex");
  if (!is_type(step, "ByteLevel")) return status_set(STATUS_UNSUPPORTED, "pre_tokenizer is not ByteLevel, nor a Split and a ByteLevel");
  if (own_expression == json_is_false(use_regex))
    return status_set(STATUS_UNSUPPORTED, "pre_tokenizer splits text %s", own_expression ? "by no expression" : "twice");
  return check_unused(step, unused, "pre_tokenizer");
}

static Status check_split(json_t *step, BpePattern *pattern) {
  const char *behavior = json_string_value(json_object_get(step, "behavior"));
  if (!is_type(step, "Split") || !behavior || strcmp(behavior, "Isolated") != 0 || !is_unused(json_object_get(step, "invert")))
    return status_set(STATUS_UNSUPPORTED, "pre_tokenizer begins with a step that is not an isolating Split");
  return find_pattern(json_string_value(json_object_get(json_object_get(step, "pattern"), "Regex")), pattern);
}

static Status read_pattern(json_t *pre, BpePattern *pattern) {
  *pattern = BPE_PATTERN_GPT2;
  if (!is_type(pre, "Sequence")) return check_byte_level(pre, true);
  json_t *steps = json_object_get(pre, "pretokenizers");
  if (json_array_size(steps) != 2) return status_set(STATUS_UNSUPPORTED, "pre_tokenizer is not a Split and a ByteLevel");
  TRY(check_split(json_array_get(steps, 0), pattern));
  return check_byte_level(json_array_get(steps, 1), false);
}

/* ---- Pieces ---- */

static Status check_added(json_t *token) {
  static const char *const unused[] = {"single_word", "lstrip", "rstrip", NULL};
  if (!json_is_string(json_object_get(token, "content")) || !json_is_integer(json_object_get(token, "id")))
    return status_set(STATUS_BAD_FILE, "an added token has no text \"content\" or no whole number \"id\"");
  return check_unused(token, unused, "an added token");
}

/* The added tokens' ids by their texts, and how many of them the vocabulary lacks. */
static Status gather_added(json_t *added, json_t *vocab, json_t *ids, int64_t *more) {
  size_t i;
  json_t *token;
  *more = 0;
  json_array_foreach(added, i, token) {
    TRY(check_added(token));
    const char *text = json_string_value(json_object_get(token, "content"));
    json_t *id = json_object_get(token, "id"), *known = json_object_get(vocab, text);
    if (json_object_get(ids, text)) return status_set(STATUS_BAD_FILE, "the added token '%.60s' is given twice", text);
    if (known && !json_equal(known, id))
      return status_set(STATUS_BAD_FILE, "the added token '%.60s' has another id in the vocabulary", text);
    if (json_object_set(ids, text, id) != 0) return status_set(STATUS_NO_MEMORY, "no memory for added tokens");
    *more += !known;
  }
  return STATUS_OK;
}

static Status put_pieces(Tokenizer *tokenizer, json_t *vocab, json_t *added) {
  const char *text;
  json_t *id;
  json_object_foreach(vocab, text, id) {
    if (!json_is_integer(id)) return status_set(STATUS_BAD_FILE, "the id of '%.60s' is not a whole number", text);
    if (json_object_get(added, text)) continue;
    TRY(tokenizer_model_add_piece(tokenizer, json_integer_value(id), text, strlen(text)));
  }
  json_object_foreach(added, text, id) { TRY(tokenizer_model_add_special(tokenizer, json_integer_value(id), text, strlen(text))); }
  return bpe_pieces_check_whole(&tokenizer->pieces);
}

/* ---- Merges ---- */

static Status add_merge(Tokenizer *tokenizer, json_t *merge) {
  const char *left = json_string_value(json_array_get(merge, 0)), *right = json_string_value(json_array_get(merge, 1));
  if (json_array_size(merge) == 2 && left && right) return tokenizer_model_add_merge(tokenizer, left, strlen(left), right, strlen(right));
  const char *text = json_string_value(merge), *space = text ? strchr(text, ' ') : NULL;
  if (!space || strchr(space + 1, ' ')) return status_set(STATUS_BAD_FILE, "neither \"LEFT RIGHT\" nor [\"LEFT\", \"RIGHT\"]");
  return tokenizer_model_add_merge(tokenizer, text, (size_t)(space - text), space + 1, strlen(space + 1));
}

static Status add_merges(Tokenizer *tokenizer, json_t *merges) {
  size_t i;
  json_t *merge;
  json_array_foreach(merges, i, merge) {
    Status status = add_merge(tokenizer, merge);
    if (status != STATUS_OK) return status_wrap(status, "merge %zu", i);
  }
  return STATUS_OK;
}

static Status build(Tokenizer **tokenizer, json_t *root, json_t *added) {
  static const char *const unused[] = {"normalizer", NULL};
  json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab");
  BpePattern pattern;
  int64_t more;
  TRY(check_model(model));
  TRY(check_unused(root, unused, "the tokenizer"));
  TRY(read_pattern(json_object_get(root, "pre_tokenizer"), &pattern));
  TRY(gather_added(json_object_get(root, "added_tokens"), vocab, added, &more));
  TRY(tokenizer_model_new(tokenizer, TOKENIZER_MERGES, (int64_t)json_object_size(vocab) + more));
  (*tokenizer)->pattern = pattern;
  (*tokenizer)->whole = json_is_true(json_object_get(model, "ignore_merges"));
  TRY(put_pieces(*tokenizer, vocab, added));
  return add_merges(*tokenizer, json_object_get(model, "merges"));
}

Status tokenizer_json_parse(Tokenizer **tokenizer, const char *text, size_t size, const char *path) {
  *tokenizer = NULL;
  json_error_t error;
  json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error), *added = json_object();
  Status status = !root    ? status_set(STATUS_BAD_FILE, "line %d: %s", error.line, error.text)
                  : !added ? status_set(STATUS_NO_MEMORY, "no memory for added tokens")
                           : build(tokenizer, root, added);
  json_decref(root);
  json_decref(added);
  return tokenizer_model_parsed(tokenizer, status, path);
}

/* ---- Writing. A NULL somewhere inside makes the whole NULL: no memory. ---- */

static json_t *added_token(int32_t id, const char *text, size_t size) {
  return json_pack("{s:i, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", (int)id, "content", text, size, "single_word", 0, "lstrip", 0, "rstrip", 0,
                   "normalized", 0, "special", 1);
}

static json_t *added_object(const Tokenizer *tokenizer) {
  json_t *added = json_array();
  for (int32_t id = 0; id < tokenizer->pieces.count && added; id++) {
    size_t size;
    const char *text = bpe_pieces_text(&tokenizer->pieces, id, &size);
    if (bpe_pieces_find(&tokenizer->pieces, text, size) == id) continue;
    if (json_array_append_new(added, added_token(id, text, size)) == 0) continue;
    json_decref(added);
    added = NULL;
  }
  return added;
}

static json_t *byte_level(bool use_regex) {
  return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", (int)use_regex);
}

static json_t *pre_object(const Tokenizer *tokenizer) {
  if (tokenizer->pattern == BPE_PATTERN_GPT2) return byte_level(true);
  json_t *split = json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex", bpe_split_published(tokenizer->pattern),
                            "behavior", "Isolated", "invert", 0);
  return json_pack("{s:s, s:[o, o]}", "type", "Sequence", "pretokenizers", split, byte_level(false));
}

/* Other programs put the token for the beginning in front, where there is one. */
static json_t *post_object(const Tokenizer *tokenizer) {
  if (tokenizer->begin < 0) return byte_level(true);
  size_t size;
  const char *name = bpe_pieces_text(&tokenizer->pieces, tokenizer->begin, &size);
  json_t *single =
      json_pack("[{s:{s:s, s:i}}, {s:{s:s, s:i}}]", "SpecialToken", "id", name, "type_id", 0, "Sequence", "id", "A", "type_id", 0);
  json_t *pair =
      json_pack("[{s:{s:s, s:i}}, {s:{s:s, s:i}}, {s:{s:s, s:i}}, {s:{s:s, s:i}}]", "SpecialToken", "id", name, "type_id", 0, "Sequence",
                "id", "A", "type_id", 0, "SpecialToken", "id", name, "type_id", 1, "Sequence", "id", "B", "type_id", 1);
  json_t *tokens = json_pack("{s:{s:s, s:[i], s:[s]}}", name, "id", name, "ids", (int)tokenizer->begin, "tokens", name);
  return json_pack("{s:s, s:o, s:o, s:o}", "type", "TemplateProcessing", "single", single, "pair", pair, "special_tokens", tokens);
}

static json_t *merges_object(const Tokenizer *tokenizer) {
  json_t *merges = json_array();
  for (int64_t i = 0; i < tokenizer->merge_count && merges; i++) {
    char *text = tokenizer_vocab_spell_merge(tokenizer, i);
    bool added = text && json_array_append_new(merges, json_string(text)) == 0;
    free(text);
    if (added) continue;
    json_decref(merges);
    merges = NULL;
  }
  return merges;
}

static json_t *model_object(const Tokenizer *tokenizer) {
  return json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token", "continuing_subword_prefix",
                   "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0, "ignore_merges", (int)tokenizer->whole, "vocab",
                   tokenizer_vocab_object(tokenizer), "merges", merges_object(tokenizer));
}

Status tokenizer_json_write(const Tokenizer *tokenizer, const char *path) {
  json_t *root = json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:o, s:o, s:o}", "version", "1.0", "truncation", "padding", "added_tokens",
                           added_object(tokenizer), "normalizer", "pre_tokenizer", pre_object(tokenizer), "post_processor",
                           post_object(tokenizer), "decoder", byte_level(true), "model", model_object(tokenizer));
  return tokenizer_vocab_write_object(root, JSON_INDENT(2), path);
}
