/* The files that a tokenizer is kept in: which they are, GPT-2's vocab.json with merges.txt, tokenizer.json of Hugging Face tokenizers.
 * Leaves out: Llama's forms (tokenizer_llama.c). Invariant: tokenizer_open of the directory finds the files that tokenizer_save wrote and
 * not others that it would prefer. */
#include "base/files.h"
#include "base/utf8.h"
#include "data/tokenizer/tokenizer_internal.h"
#include <fnmatch.h>
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
    TRY(special ? tokenizer_model_add_special(*tokenizer, json_integer_value(id), text, size, false)
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

static Status parse_pair(Tokenizer **tokenizer, const char *vocab, size_t vocab_size, const char *vocab_path, const char *merges,
                         size_t merges_size, const char *merges_path) {
  *tokenizer = NULL;
  Status status = parse_vocab(tokenizer, vocab, vocab_size);
  const char *path = vocab_path;
  if (status == STATUS_OK && (status = parse_merges(*tokenizer, merges, merges_size)) != STATUS_OK) path = merges_path;
  return tokenizer_finish(tokenizer, status, path);
}

/* added_tokens.json, an object from texts to ids, which other programs write beside the two files. It does not say which of the tokens are
 * special or swallow spaces: all but those that are special here already are refused. */
static Status check_more_tokens(const Tokenizer *tokenizer, json_t *more) {
  const char *text;
  json_t *id;
  if (!json_is_object(more)) return status_set(STATUS_BAD_FILE, "is not a JSON object from added tokens to ids");
  json_object_foreach(more, text, id) {
    const int32_t special = tokenizer_model_special(tokenizer, text);
    if (special >= 0 && json_is_integer(id) && json_integer_value(id) == special) continue;
    return status_set(
        STATUS_UNSUPPORTED,
        "the added token '%.60s': added tokens are read from tokenizer.json alone; save the tokenizer as that, in Python with "
        "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) of transformers",
        text);
  }
  return STATUS_OK;
}

static Status parse_more_tokens(const Tokenizer *tokenizer, const char *text, size_t size) {
  json_error_t error;
  json_t *more = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
  Status status = more ? check_more_tokens(tokenizer, more) : status_set(STATUS_BAD_FILE, "line %d: %s", error.line, error.text);
  json_decref(more);
  return status;
}

/* The piece as files spell it: special tokens as they are, others in the alphabet. `text` has room for 2 size + 1. */
static size_t spell(const Tokenizer *tokenizer, int32_t id, char *text) {
  size_t size;
  const char *bytes = bpe_pieces_text(&tokenizer->pieces, id, &size);
  if (bpe_pieces_find(&tokenizer->pieces, bytes, size) == id) return bpe_alphabet_write(bytes, size, text);
  memcpy(text, bytes, size + 1);
  return size;
}

/* Fresh; NULL: no memory. */
static char *spell_piece(const Tokenizer *tokenizer, int32_t id) {
  char *text = malloc(2 * (size_t)tokenizer->pieces.sizes[id] + 1);
  if (text) spell(tokenizer, id, text);
  return text;
}

/* From pieces to ids; NULL: no memory. */
static json_t *vocab_object(const Tokenizer *tokenizer) {
  json_t *vocab = json_object();
  for (int32_t id = 0; id < tokenizer->pieces.count && vocab; id++) {
    char *text = spell_piece(tokenizer, id);
    bool added = text && json_object_set_new(vocab, text, json_integer(id)) == 0;
    free(text);
    if (added) continue;
    json_decref(vocab);
    vocab = NULL;
  }
  return vocab;
}

Status tokenizer_write_json(json_t *json, size_t flags, const char *path) {
  char *text = json ? json_dumps(json, flags) : NULL;
  json_decref(json);
  if (!text) return status_no_memory(path, "writing it");
  Status status = files_write(path, text, strlen(text));
  free(text);
  return status;
}

static Status write_vocab(const Tokenizer *tokenizer, const char *path) { return tokenizer_write_json(vocab_object(tokenizer), 0, path); }

/* "LEFT RIGHT", fresh; NULL: no memory. */
static char *spell_merge(const Tokenizer *tokenizer, int64_t merge) {
  TokenizerMerge pair = tokenizer->merges[merge];
  char *text = malloc(2 * ((size_t)tokenizer->pieces.sizes[pair.left] + tokenizer->pieces.sizes[pair.right]) + 2);
  if (!text) return NULL;
  size_t length = spell(tokenizer, pair.left, text);
  text[length] = ' ';
  spell(tokenizer, pair.right, text + length + 1);
  return text;
}

static Status write_merges(const Tokenizer *tokenizer, const char *path) {
  FileWriter writer;
  TRY(files_create(&writer, path));
  fprintf(writer.stream, "%s: 0.2\n", version_line);
  for (int64_t i = 0; i < tokenizer->merge_count; i++) {
    char *text = spell_merge(tokenizer, i);
    if (!text) {
      files_abort(&writer);
      return status_no_memory(path, "writing it");
    }
    fprintf(writer.stream, "%s\n", text);
    free(text);
  }
  return files_commit(&writer);
}

/* ---- tokenizer.json ---- */

/* As far as it describes a byte-level BPE with the expression of GPT-2 or Llama-3: the vocabulary, the merges ("LEFT RIGHT" or [LEFT,
 * RIGHT]), ignore_merges, the added tokens, of a post-processor what begins and ends a text. What would change the ids and is not
 * understood is refused: another model, normalizer or expression, a space put in front, added tokens that swallow spaces, more around a
 * text than what begins it. Left out: truncation, padding and decoder, which do not change the ids of a text. */

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

/* The added tokens by their texts, and how many of them the vocabulary lacks. */
static Status gather_added(json_t *added, json_t *vocab, json_t *by_text, int64_t *more) {
  size_t i;
  json_t *token;
  *more = 0;
  json_array_foreach(added, i, token) {
    TRY(check_added(token));
    const char *text = json_string_value(json_object_get(token, "content"));
    json_t *id = json_object_get(token, "id"), *known = json_object_get(vocab, text);
    if (json_object_get(by_text, text)) return status_set(STATUS_BAD_FILE, "the added token '%.60s' is given twice", text);
    if (known && !json_equal(known, id))
      return status_set(STATUS_BAD_FILE, "the added token '%.60s' has another id in the vocabulary", text);
    if (json_object_set(by_text, text, token) != 0) return status_no_memory(NULL, "added tokens");
    *more += !known;
  }
  return STATUS_OK;
}

static Status put_pieces(Tokenizer *tokenizer, json_t *vocab, json_t *added) {
  const char *text;
  json_t *id, *token;
  json_object_foreach(vocab, text, id) {
    if (!json_is_integer(id)) return status_set(STATUS_BAD_FILE, "the id of '%.60s' is not a whole number", text);
    if (json_object_get(added, text)) continue;
    TRY(tokenizer_model_add_piece(tokenizer, json_integer_value(id), text, strlen(text)));
  }
  json_object_foreach(added, text, token) {
    const bool in_text = json_is_false(json_object_get(token, "special"));
    id = json_object_get(token, "id");
    TRY(tokenizer_model_add_special(tokenizer, json_integer_value(id), text, strlen(text), in_text));
  }
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

/* ---- Begin and end ---- */

/* The TemplateProcessing that a post_processor is or has into *found, which is NULL before and stays it where there is none. */
static Status find_template(json_t *post, json_t **found) {
  json_t *step;
  size_t i;
  if (!post || json_is_null(post) || is_type(post, "ByteLevel")) return STATUS_OK; /* moves the offsets of pieces, not their ids */
  if (is_type(post, "Sequence")) {
    json_array_foreach(json_object_get(post, "processors"), i, step) TRY(find_template(step, found));
    return STATUS_OK;
  }
  const char *type = json_string_value(json_object_get(post, "type"));
  if (!is_type(post, "TemplateProcessing") || *found)
    return status_set(STATUS_UNSUPPORTED,
                      "post_processor: %s %.40s is not supported; supported are ByteLevel, one TemplateProcessing, or both in "
                      "a Sequence",
                      *found ? "a second step of type" : "the type", type ? type : "(none)");
  *found = post;
  return STATUS_OK;
}

/* The name in a piece of a template, {"SpecialToken": {"id": NAME}} or {"Sequence": {"id": "A"}}; NULL: it is none of that kind. */
static const char *piece_name(json_t *piece, const char *kind) {
  return json_string_value(json_object_get(json_object_get(piece, kind), "id"));
}

/* The special token that the template puts in front of a single text; *name NULL: none. No program here puts more around a text. */
static Status read_single(json_t *template, const char **name) {
  json_t *single = json_object_get(template, "single");
  *name = piece_name(json_array_get(single, 0), "SpecialToken");
  const size_t in_front = *name != NULL;
  const char *text = piece_name(json_array_get(single, in_front), "Sequence");
  if (text && strcmp(text, "A") == 0 && json_array_size(single) == in_front + 1) return STATUS_OK;
  return status_set(STATUS_UNSUPPORTED,
                    "post_processor: \"single\" is not $A, the text, with at most one special token in front of it; others, and "
                    "any behind the text, are not supported");
}

static Status read_special(const Tokenizer *tokenizer, json_t *template, const char *name, int32_t *id) {
  json_t *ids = json_object_get(json_object_get(json_object_get(template, "special_tokens"), name), "ids"), *first = json_array_get(ids, 0);
  if (json_array_size(ids) != 1 || !json_is_integer(first) || json_integer_value(first) < 0 ||
      json_integer_value(first) >= tokenizer->pieces.count)
    return status_set(STATUS_BAD_FILE, "post_processor: the special token '%.60s' has not one id of the vocabulary", name);
  *id = (int32_t)json_integer_value(first);
  return STATUS_OK;
}

/* A template says what stands in front of a text, be it nothing. The end, which it need not have behind one, is the other special token
 * that it lists, unless one has the usual name. */
static Status read_ends(Tokenizer *tokenizer, json_t *template) {
  const char *in_front, *name, *other = NULL;
  json_t *listed = json_object_get(template, "special_tokens"), *token;
  size_t others = 0;
  TRY(read_single(template, &in_front));
  tokenizer->begin = -1;
  if (in_front) TRY(read_special(tokenizer, template, in_front, &tokenizer->begin));
  json_object_foreach(listed, name, token) {
    if (!in_front || strcmp(name, in_front) != 0) other = name, others++;
  }
  if (tokenizer->end < 0 && others == 1) TRY(read_special(tokenizer, template, other, &tokenizer->end));
  return tokenizer_model_fingerprint(tokenizer);
}

static Status read_post(Tokenizer *tokenizer, json_t *post) {
  json_t *template = NULL;
  TRY(find_template(post, &template));
  return template ? read_ends(tokenizer, template) : STATUS_OK;
}

static Status parse_json(Tokenizer **tokenizer, const char *text, size_t size, const char *path) {
  *tokenizer = NULL;
  json_error_t error;
  json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error), *added = json_object();
  Status status = !root    ? status_set(STATUS_BAD_FILE, "line %d: %s", error.line, error.text)
                  : !added ? status_no_memory(NULL, "added tokens")
                           : build(tokenizer, root, added);
  status = tokenizer_finish(tokenizer, status, path);
  if (status == STATUS_OK && (status = read_post(*tokenizer, json_object_get(root, "post_processor"))) != STATUS_OK) {
    tokenizer_close(*tokenizer);
    *tokenizer = NULL;
    status = status_wrap(status, "%s", path);
  }
  json_decref(root);
  json_decref(added);
  return status;
}

/* ---- Writing. A NULL somewhere inside makes the whole NULL: no memory. ---- */

static bool is_in_text(const Tokenizer *tokenizer, int32_t id) {
  for (int32_t i = 0; i < tokenizer->special_count; i++) {
    if (tokenizer->specials[i].id == id) return tokenizer->specials[i].in_text;
  }
  return false;
}

static json_t *added_token(int32_t id, const char *text, size_t size, bool special) {
  return json_pack("{s:i, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", (int)id, "content", text, size, "single_word", 0, "lstrip", 0, "rstrip", 0,
                   "normalized", 0, "special", (int)special);
}

static json_t *added_object(const Tokenizer *tokenizer) {
  json_t *added = json_array();
  for (int32_t id = 0; id < tokenizer->pieces.count && added; id++) {
    size_t size;
    const char *text = bpe_pieces_text(&tokenizer->pieces, id, &size);
    if (bpe_pieces_find(&tokenizer->pieces, text, size) == id) continue;
    if (json_array_append_new(added, added_token(id, text, size, !is_in_text(tokenizer, id))) == 0) continue;
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

/* A failure makes the list NULL. */
static void append_piece(json_t **pieces, const char *kind, const char *name, int type) {
  if (json_array_append_new(*pieces, json_pack("{s:{s:s, s:i}}", kind, "id", name, "type_id", type)) == 0) return;
  json_decref(*pieces);
  *pieces = NULL;
}

/* Of one text or of two; in_front: NULL, or the special token in front of each. */
static json_t *template_of(int texts, const char *in_front) {
  static const char *const names[] = {"A", "B"};
  json_t *pieces = json_array();
  for (int i = 0; i < texts; i++) {
    if (in_front) append_piece(&pieces, "SpecialToken", in_front, i);
    append_piece(&pieces, "Sequence", names[i], i);
  }
  return pieces;
}

/* Puts a special token into the list of a template's; name NULL: there is none. A failure makes the list NULL. */
static void list_special(json_t **listed, const char *name, int32_t id) {
  if (!name || json_object_set_new(*listed, name, json_pack("{s:s, s:[i], s:[s]}", "id", name, "ids", (int)id, "tokens", name)) == 0)
    return;
  json_decref(*listed);
  *listed = NULL;
}

/* Other programs put the token for the beginning in front, where there is one. Where names alone would tell the reader another beginning or
 * end, the template has them: a special token that it lists and does not place changes nothing in other programs. */
static json_t *post_object(const Tokenizer *tokenizer) {
  int32_t begin, end;
  tokenizer_model_usual_ends(tokenizer, &begin, &end);
  bool in_front = tokenizer->begin >= 0, listed_end = tokenizer->end != end;
  if (!in_front && begin < 0 && !listed_end) return byte_level(true);
  char *first = in_front ? spell_piece(tokenizer, tokenizer->begin) : NULL,
       *last = listed_end ? spell_piece(tokenizer, tokenizer->end) : NULL;
  json_t *post = NULL;
  if ((first || !in_front) && (last || !listed_end)) {
    json_t *listed = json_object();
    list_special(&listed, first, tokenizer->begin);
    list_special(&listed, last, tokenizer->end);
    post = json_pack("{s:s, s:o, s:o, s:o}", "type", "TemplateProcessing", "single", template_of(1, first), "pair", template_of(2, first),
                     "special_tokens", listed);
  }
  free(first);
  free(last);
  return post;
}

static json_t *merges_object(const Tokenizer *tokenizer) {
  json_t *merges = json_array();
  for (int64_t i = 0; i < tokenizer->merge_count && merges; i++) {
    char *text = spell_merge(tokenizer, i);
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
                   vocab_object(tokenizer), "merges", merges_object(tokenizer));
}

static Status write_json(const Tokenizer *tokenizer, const char *path) {
  json_t *root = json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:o, s:o, s:o}", "version", "1.0", "truncation", "padding", "added_tokens",
                           added_object(tokenizer), "normalizer", "pre_tokenizer", pre_object(tokenizer), "post_processor",
                           post_object(tokenizer), "decoder", byte_level(true), "model", model_object(tokenizer));
  return tokenizer_write_json(root, JSON_INDENT(2), path);
}

/* ---- Opening ---- */

typedef Status Parse(Tokenizer **tokenizer, const char *text, size_t size, const char *path);

typedef struct Layout {
  const char *name, *partner; /* file names in a directory; the name may be a pattern */
  Parse *parse;               /* NULL: vocabulary and merges */
} Layout;

static const Layout layouts[] = {{"tokenizer.json", NULL, parse_json},
                                 {"vocab.json", "merges.txt", NULL},
                                 {"encoder.json", "vocab.bpe", NULL},
                                 {"tokenizer.model", NULL, tokenizer_llama_ranks},
                                 {"tok*.bin", NULL, tokenizer_llama_scores}};
/* For a file of another name. */
static const Layout endings[] = {
    {"*.json", NULL, parse_json}, {"*.model", NULL, tokenizer_llama_ranks}, {"*.bin", NULL, tokenizer_llama_scores}};
enum { LAYOUTS = sizeof layouts / sizeof *layouts, ENDINGS = sizeof endings / sizeof *endings };

static bool is_of(const Layout *layout, const char *name) {
  return fnmatch(layout->name, name, 0) == 0 || (layout->partner && strcmp(layout->partner, name) == 0);
}

bool tokenizer_is_file(const char *name) {
  for (int i = 0; i < LAYOUTS; i++)
    if (is_of(&layouts[i], name)) return true;
  return false;
}

enum { ACCEPTED = 160 };

/* The layouts in words: "tokenizer.json, vocab.json with merges.txt, ... or tok*.bin"; returns text. */
static const char *accepted(char text[ACCEPTED]) {
  size_t used = 0;
  for (int i = 0; i < LAYOUTS && used < ACCEPTED; i++) {
    const char *before = i == 0 ? "" : i + 1 < LAYOUTS ? ", " : " or ", *partner = layouts[i].partner;
    used += (size_t)snprintf(text + used, ACCEPTED - used, "%s%s%s%s", before, layouts[i].name, partner ? " with " : "",
                             partner ? partner : "");
  }
  return text;
}

static const size_t file_max = (size_t)64 << 20; /* the largest published ones have 35 million bytes */

static Status open_one(Tokenizer **tokenizer, Parse *parse, const char *path) {
  char *text = NULL;
  size_t size;
  TRY(files_read(path, file_max, &text, &size));
  Status status = parse(tokenizer, text, size, path);
  free(text);
  return status;
}

static Status open_pair(Tokenizer **tokenizer, const char *vocab_path, const char *merges_path) {
  char *vocab = NULL, *merges = NULL;
  size_t vocab_size, merges_size;
  TRY(files_read(vocab_path, file_max, &vocab, &vocab_size));
  Status status = files_read(merges_path, file_max, &merges, &merges_size);
  if (status == STATUS_OK) status = parse_pair(tokenizer, vocab, vocab_size, vocab_path, merges, merges_size, merges_path);
  free(vocab);
  free(merges);
  return status;
}

static Status look_for_more(const Tokenizer *tokenizer, const char *folder) {
  char *path = files_join(folder, "added_tokens.json"), *text = NULL;
  size_t size = 0;
  Status status = path ? STATUS_OK : status_no_memory(NULL, "a path");
  if (path && files_exists(path) && (status = files_read(path, file_max, &text, &size)) == STATUS_OK) {
    status = parse_more_tokens(tokenizer, text, size);
    if (status != STATUS_OK) status = status_wrap(status, "%s", path);
  }
  free(text);
  free(path);
  return status;
}

/* name: the file in the folder that the layout's name stands for. */
static Status open_in(Tokenizer **tokenizer, const Layout *layout, const char *folder, const char *name) {
  char *path = files_join(folder, name), *partner = layout->partner ? files_join(folder, layout->partner) : NULL;
  Status status = status_no_memory(NULL, "a path");
  if (path && (partner || !layout->partner))
    status = partner ? open_pair(tokenizer, path, partner) : open_one(tokenizer, layout->parse, path);
  if (status == STATUS_OK && partner && (status = look_for_more(*tokenizer, folder)) != STATUS_OK) {
    tokenizer_close(*tokenizer);
    *tokenizer = NULL;
  }
  free(path);
  free(partner);
  return status;
}

/* The name in a sorted list that fits the pattern; NULL: none does. */
static const char *match(const char *pattern, char *const *names, size_t count, size_t *matches) {
  const char *found = NULL;
  *matches = 0;
  for (size_t i = 0; i < count; i++) {
    if (fnmatch(pattern, names[i], FNM_PERIOD) == 0 && (*matches)++ == 0) found = names[i];
  }
  return found;
}

static Status open_listed(Tokenizer **tokenizer, const char *folder, char *const *names, size_t count) {
  char words[ACCEPTED];
  for (int i = 0; i < LAYOUTS; i++) {
    size_t matches;
    const char *name = match(layouts[i].name, names, count, &matches);
    if (matches > 1)
      return status_set(STATUS_BAD_FILE, "%s: %zu files fit %s; name the one that is meant", folder, matches, layouts[i].name);
    if (!name) continue;
    const Status status = open_in(tokenizer, &layouts[i], folder, name);
    return status == STATUS_NOT_FOUND ? STATUS_BAD_FILE : status; /* there is one, of which a part is missing */
  }
  return status_set(STATUS_NOT_FOUND, "%s: no tokenizer in this directory; looked for %s", folder, accepted(words));
}

static Status open_directory(Tokenizer **tokenizer, const char *path) {
  char **names;
  size_t count;
  TRY(files_list(path, &names, &count));
  Status status = open_listed(tokenizer, path, names, count);
  files_list_free(names, count);
  return status;
}

static Status open_named(Tokenizer **tokenizer, const char *folder, const char *name, const char *path) {
  for (int i = 0; i < LAYOUTS; i++) {
    const Layout *layout = &layouts[i];
    if (!is_of(layout, name)) continue;
    const bool is_partner = layout->partner && strcmp(layout->partner, name) == 0;
    return open_in(tokenizer, layout, folder, is_partner ? layout->name : name);
  }
  for (int i = 0; i < ENDINGS; i++) {
    if (fnmatch(endings[i].name, name, 0) == 0) return open_one(tokenizer, endings[i].parse, path);
  }
  char words[ACCEPTED];
  return status_set(STATUS_BAD_VALUE, "%s: not the name of a tokenizer's file; accepted are a directory, a GGUF file or %s", path,
                    accepted(words));
}

static Status read_gguf(void *tokenizer, const GgufFile *file) { return tokenizer_llama_gguf(tokenizer, file); }

Status tokenizer_open(Tokenizer **tokenizer, const char *path) {
  *tokenizer = NULL;
  if (!files_exists(path)) return status_set(STATUS_NOT_FOUND, "%s: there is no such file or directory to take a tokenizer from", path);
  if (files_is_dir(path)) return open_directory(tokenizer, path);
  if (gguf_is_file(path)) return gguf_read_path(path, read_gguf, tokenizer);
  const char *slash = strrchr(path, '/');
  char *folder = files_parent(path);
  if (!folder) return status_no_memory(NULL, "a path");
  Status status = open_named(tokenizer, folder, slash ? slash + 1 : path, path);
  free(folder);
  return status;
}

/* ---- Saving ---- */

/* Vocabulary and merges alone mean GPT-2's expression. */
static const TokenizerOutput gpt2_files[] = {
    {"vocab.json", write_vocab}, {"merges.txt", write_merges}, {"tokenizer.json", write_json}, {0}};
static const TokenizerOutput json_files[] = {{"tokenizer.json", write_json}, {0}};

static const TokenizerOutput *outputs_of(const Tokenizer *tokenizer) {
  if (tokenizer->kind == TOKENIZER_SCORES) return tokenizer_llama_scores_files;
  if (tokenizer->kind == TOKENIZER_RANKS) return tokenizer_llama_ranks_files;
  return tokenizer->pattern == BPE_PATTERN_GPT2 && !tokenizer->whole ? gpt2_files : json_files;
}

enum { NAME = 32 };

static void name_of(const TokenizerOutput *output, const Tokenizer *tokenizer, char name[NAME]) {
  const char *number = strstr(output->name, "%d");
  if (number)
    snprintf(name, NAME, "%.*s%d%s", (int)(number - output->name), output->name, (int)tokenizer->pieces.count, number + 2);
  else
    snprintf(name, NAME, "%s", output->name);
}

/* Whether tokenizer_open would take `name` before `own`, or could not choose between the two. */
static bool stands_before(const char *name, const char *own) {
  if (strcmp(name, own) == 0) return false;
  for (int i = 0; i < LAYOUTS; i++) {
    if (fnmatch(layouts[i].name, name, FNM_PERIOD) == 0) return true;
    if (fnmatch(layouts[i].name, own, FNM_PERIOD) == 0) return false;
  }
  return false;
}

typedef struct Place {
  const char *directory, *own;
} Place;

/* Another tokenizer would be found instead of the one in the file `own`. */
static Status check_name(void *context, const char *name) {
  const Place *place = context;
  if (!stands_before(name, place->own)) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "%s: its %s belongs to another tokenizer; move it away or choose another directory", place->directory,
                    name);
}

/* The special tokens of a scored vocabulary that are not its first ids: tokN.bin does not tell them from other pieces. */
static int more_specials(const Tokenizer *tokenizer) {
  int more = 0;
  for (int32_t i = 0; i < tokenizer->special_count; i++) more += tokenizer->specials[i].id >= TOKENIZER_FIRST_PIECE;
  return more;
}

/* tokN.bin has ids 1 and 2 for begin and end; tokenizer.json tells two that are not the usual ones apart, but not that one is both. */
static bool keeps_ends(const Tokenizer *tokenizer) {
  int32_t begin, end;
  tokenizer_model_usual_ends(tokenizer, &begin, &end);
  if (tokenizer->kind == TOKENIZER_MERGES) return tokenizer->end == end || tokenizer->end != tokenizer->begin;
  return tokenizer->begin == begin && tokenizer->end == end;
}

/* JSON has special tokens as they are, and names of members that end at a NUL; other pieces stand in GPT-2's alphabet. */
static Status check_specials(const Tokenizer *tokenizer, const char *directory) {
  for (int32_t i = 0; i < tokenizer->special_count; i++) {
    const int32_t id = tokenizer->specials[i].id;
    size_t size;
    const char *text = bpe_pieces_text(&tokenizer->pieces, id, &size);
    if (!utf8_is_whole(text, size) || memchr(text, '\0', size))
      return status_set(STATUS_UNSUPPORTED,
                        "%s: the special token of id %d is not UTF-8, or has a NUL, and fits no file that is written here; use the "
                        "tokenizer from its GGUF file",
                        directory, (int)id);
  }
  return STATUS_OK;
}

/* JSON names a piece by its text alone: of two that share a text one would be kept, and the ids would have a gap. */
static Status check_texts(const Tokenizer *tokenizer, const char *directory) {
  Status status = STATUS_OK;
  json_t *vocab = vocab_object(tokenizer); /* of several ids the last */
  if (!vocab) return status_no_memory(NULL, "a tokenizer");
  for (int32_t id = 0; id < tokenizer->pieces.count && status == STATUS_OK; id++) {
    char *text = spell_piece(tokenizer, id);
    const int64_t last = text ? json_integer_value(json_object_get(vocab, text)) : id;
    if (!text)
      status = status_no_memory(NULL, "a tokenizer");
    else if (last != id)
      status = status_set(STATUS_UNSUPPORTED,
                          "%s: the tokens of ids %d and %lld have the same text, '%.60s', and no file that is written here tells them "
                          "apart; use the tokenizer from its GGUF file",
                          directory, (int)id, (long long)last, text);
    free(text);
  }
  json_decref(vocab);
  return status;
}

/* What is kept in tokenizer.json is found before everything else. */
Status tokenizer_save_check(const Tokenizer *tokenizer, const char *directory) {
  char name[NAME];
  if (tokenizer->kind == TOKENIZER_SCORES && more_specials(tokenizer) > 0)
    return status_set(STATUS_UNSUPPORTED,
                      "%s: a scored vocabulary with %d more special tokens fits no file that is written here; use it from its "
                      "GGUF file",
                      directory, more_specials(tokenizer));
  if (!keeps_ends(tokenizer))
    return status_set(STATUS_UNSUPPORTED,
                      "%s: no file that is written here can say that ids %d and %d begin and end a text (-1: none does) with this "
                      "tokenizer; use it from its GGUF file",
                      directory, (int)tokenizer->begin, (int)tokenizer->end);
  if (tokenizer->kind == TOKENIZER_MERGES) {
    TRY(check_specials(tokenizer, directory));
    return check_texts(tokenizer, directory);
  }
  if (!files_is_dir(directory)) return STATUS_OK;
  name_of(outputs_of(tokenizer), tokenizer, name);
  return files_each(directory, check_name, &(Place){directory, name});
}

Status tokenizer_save(const Tokenizer *tokenizer, const char *directory) {
  TRY(files_make_dirs(directory));
  TRY(tokenizer_save_check(tokenizer, directory));
  Status status = STATUS_OK;
  for (const TokenizerOutput *output = outputs_of(tokenizer); output->name && status == STATUS_OK; output++) {
    char name[NAME];
    name_of(output, tokenizer, name);
    char *path = files_join(directory, name);
    status = path ? output->write(tokenizer, path) : status_no_memory(NULL, "a path");
    free(path);
  }
  return status;
}
