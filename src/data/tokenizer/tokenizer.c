/* The tokenizer as its users see it: opening by the names of files, decoding, facts. Encoding is in tokenizer_encode.c, the formats in
 * tokenizer_json.c, _vocab.c, _ranks.c, _scores.c and _gguf.c. */
#include "data/tokenizer/tokenizer.h"
#include "base/files.h"
#include "data/tokenizer/tokenizer_model.h"
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BYTE_ID = 3 }; /* of a scored vocabulary: those before it have no text */

void tokenizer_close(Tokenizer *tokenizer) {
  if (!tokenizer) return;
  tokenizer_states_free(tokenizer->states);
  bpe_split_free(tokenizer->split);
  bpe_pieces_release(&tokenizer->pieces);
  bpe_pairs_release(&tokenizer->pairs);
  free(tokenizer->merges);
  free(tokenizer->scores);
  free(tokenizer->specials);
  free(tokenizer);
}

int64_t tokenizer_count(const Tokenizer *tokenizer) { return tokenizer->pieces.count; }

int32_t tokenizer_begin(const Tokenizer *tokenizer) { return tokenizer->begin; }

int32_t tokenizer_end(const Tokenizer *tokenizer) { return tokenizer->end; }

const char *tokenizer_fingerprint(const Tokenizer *tokenizer) { return tokenizer->fingerprint; }

/* ---- Decoding ---- */

const char *tokenizer_piece(const Tokenizer *tokenizer, int32_t id, size_t *bytes) {
  *bytes = 0;
  if (id < 0 || id >= tokenizer->pieces.count) return NULL;
  if (tokenizer->kind == TOKENIZER_SCORES && id < FIRST_BYTE_ID) return "";
  return bpe_pieces_text(&tokenizer->pieces, id, bytes);
}

static bool divides(const Tokenizer *tokenizer, int32_t id) { return id < 0 || id == tokenizer->begin || id == tokenizer->end; }

size_t tokenizer_text_bytes(const Tokenizer *tokenizer, int32_t before, int32_t id) {
  size_t bytes;
  const char *piece = tokenizer_piece(tokenizer, id, &bytes);
  if (!piece || divides(tokenizer, id)) return 0;
  bool first = tokenizer->kind == TOKENIZER_SCORES && divides(tokenizer, before);
  return bytes - (first && bytes > 0 && *piece == ' ');
}

static Status measure(const Tokenizer *tokenizer, const int32_t *ids, size_t count, size_t *bytes) {
  *bytes = 0;
  for (size_t i = 0; i < count; i++) {
    size_t size;
    if (!tokenizer_piece(tokenizer, ids[i], &size))
      return status_set(STATUS_BAD_VALUE, "token %zu of %zu has id %d; the tokenizer's ids are 0 to %d", i + 1, count, (int)ids[i],
                        (int)tokenizer->pieces.count - 1);
    if (size > SIZE_MAX / 2 - *bytes) return status_set(STATUS_BAD_VALUE, "%zu tokens have more text than fits in memory", count);
    *bytes += size;
  }
  return STATUS_OK;
}

/* The space that encoding puts in front, not one of a special token's text. */
static bool begins_with_space(const Tokenizer *tokenizer, int32_t id) {
  if (tokenizer->kind != TOKENIZER_SCORES) return false;
  for (int32_t i = 0; i < tokenizer->special_count; i++)
    if (tokenizer->specials[i] == id) return false;
  return true;
}

Status tokenizer_decode(const Tokenizer *tokenizer, const int32_t *ids, size_t count, char **text, size_t *bytes) {
  *text = NULL;
  size_t total;
  Status status = measure(tokenizer, ids, count, &total);
  *bytes = 0;
  TRY(status);
  char *buffer = malloc(total + 1);
  if (!buffer) return status_set(STATUS_NO_MEMORY, "no memory for a text of %zu bytes", total);
  for (size_t i = 0, size; i < count; i++, *bytes += size) {
    const char *piece = tokenizer_piece(tokenizer, ids[i], &size);
    memcpy(buffer + *bytes, piece, size);
  }
  if (total > 0 && *buffer == ' ' && begins_with_space(tokenizer, ids[0])) memmove(buffer, buffer + 1, --*bytes);
  buffer[*bytes] = '\0';
  *text = buffer;
  return STATUS_OK;
}

/* ---- Opening ---- */

typedef Status Parse(Tokenizer **tokenizer, const char *text, size_t size, const char *path);

typedef struct Layout {
  const char *name, *partner; /* file names in a directory; the name may be a pattern */
  Parse *parse;               /* NULL: vocabulary and merges */
} Layout;

static const Layout layouts[] = {{"tokenizer.json", NULL, tokenizer_json_parse},
                                 {"vocab.json", "merges.txt", NULL},
                                 {"encoder.json", "vocab.bpe", NULL},
                                 {"tokenizer.model", NULL, tokenizer_ranks_parse},
                                 {"tok*.bin", NULL, tokenizer_scores_parse}};
/* For a file of another name. */
static const Layout endings[] = {
    {"*.json", NULL, tokenizer_json_parse}, {"*.model", NULL, tokenizer_ranks_parse}, {"*.bin", NULL, tokenizer_scores_parse}};
enum { LAYOUTS = sizeof layouts / sizeof *layouts, ENDINGS = sizeof endings / sizeof *endings };
static const char accepted[] = "tokenizer.json, vocab.json with merges.txt, encoder.json with vocab.bpe, tokenizer.model or tok*.bin";

static Status open_one(Tokenizer **tokenizer, Parse *parse, const char *path) {
  char *text = NULL;
  size_t size;
  TRY(files_read(path, tokenizer_file_most, &text, &size));
  Status status = parse(tokenizer, text, size, path);
  free(text);
  return status;
}

static Status open_pair(Tokenizer **tokenizer, const char *vocab_path, const char *merges_path) {
  char *vocab = NULL, *merges = NULL;
  size_t vocab_size, merges_size;
  TRY(files_read(vocab_path, tokenizer_file_most, &vocab, &vocab_size));
  Status status = files_read(merges_path, tokenizer_file_most, &merges, &merges_size);
  if (status == STATUS_OK) status = tokenizer_vocab_parse(tokenizer, vocab, vocab_size, vocab_path, merges, merges_size, merges_path);
  free(vocab);
  free(merges);
  return status;
}

/* name: the file in the folder that the layout's name stands for. */
static Status open_in(Tokenizer **tokenizer, const Layout *layout, const char *folder, const char *name) {
  char *path = files_join(folder, name), *partner = layout->partner ? files_join(folder, layout->partner) : NULL;
  Status status = status_set(STATUS_NO_MEMORY, "no memory for a path");
  if (path && (partner || !layout->partner))
    status = partner ? open_pair(tokenizer, path, partner) : open_one(tokenizer, layout->parse, path);
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
  for (int i = 0; i < LAYOUTS; i++) {
    size_t matches;
    const char *name = match(layouts[i].name, names, count, &matches);
    if (matches > 1)
      return status_set(STATUS_BAD_FILE, "%s: %zu files fit %s; name the one that is meant", folder, matches, layouts[i].name);
    if (name) return open_in(tokenizer, &layouts[i], folder, name);
  }
  return status_set(STATUS_NOT_FOUND, "%s: no tokenizer in this directory; looked for %s", folder, accepted);
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
    if (layout->partner && strcmp(layout->partner, name) == 0) return open_in(tokenizer, layout, folder, layout->name);
    if (fnmatch(layout->name, name, 0) == 0) return open_in(tokenizer, layout, folder, name);
  }
  for (int i = 0; i < ENDINGS; i++) {
    if (fnmatch(endings[i].name, name, 0) == 0) return open_one(tokenizer, endings[i].parse, path);
  }
  return status_set(STATUS_BAD_VALUE, "%s: not the name of a tokenizer's file; accepted are a directory, a GGUF file or %s", path,
                    accepted);
}

Status tokenizer_open(Tokenizer **tokenizer, const char *path) {
  *tokenizer = NULL;
  if (!files_exists(path)) return status_set(STATUS_NOT_FOUND, "%s: there is no such file or directory to take a tokenizer from", path);
  if (files_is_dir(path)) return open_directory(tokenizer, path);
  if (gguf_is_file(path)) return tokenizer_gguf_open(tokenizer, path);
  const char *slash = strrchr(path, '/');
  char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
  if (!folder) return status_set(STATUS_NO_MEMORY, "no memory for a path");
  Status status = open_named(tokenizer, folder, slash ? slash + 1 : path, path);
  free(folder);
  return status;
}
