/* Which files a tokenizer is kept in. Invariant: tokenizer_open of the directory finds these files and not others that it would prefer. */
#include "base/files.h"
#include "data/tokenizer/tokenizer_internal.h"
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

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
  TRY(files_read(path, tokenizer_file_max, &text, &size));
  Status status = parse(tokenizer, text, size, path);
  free(text);
  return status;
}

static Status open_pair(Tokenizer **tokenizer, const char *vocab_path, const char *merges_path) {
  char *vocab = NULL, *merges = NULL;
  size_t vocab_size, merges_size;
  TRY(files_read(vocab_path, tokenizer_file_max, &vocab, &vocab_size));
  Status status = files_read(merges_path, tokenizer_file_max, &merges, &merges_size);
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

/* ---- Saving ---- */

typedef Status Write(const Tokenizer *tokenizer, const char *path);

typedef struct Output {
  const char *name;
  Write *write;
} Output;

/* Vocabulary and merges alone mean GPT-2's expression. */
static const Output gpt2_files[] = {
    {"vocab.json", tokenizer_vocab_write}, {"merges.txt", tokenizer_vocab_write_merges}, {"tokenizer.json", tokenizer_json_write}, {0}};
static const Output json_file[] = {{"tokenizer.json", tokenizer_json_write}, {0}};
static const Output ranks_file[] = {{"tokenizer.model", tokenizer_ranks_write}, {0}};

static Status write_file(const Tokenizer *tokenizer, const char *directory, const char *name, Write *write) {
  char *path = files_join(directory, name);
  Status status = path ? write(tokenizer, path) : status_set(STATUS_NO_MEMORY, "no memory for a path");
  free(path);
  return status;
}

/* Whether tokenizer_open would take `name` before `own`, or could not choose between the two. */
static bool stands_before(const char *name, const char *own) {
  static const char *const order[] = {"tokenizer.json", "vocab.json", "encoder.json", "tokenizer.model", "tok*.bin", NULL};
  if (strcmp(name, own) == 0) return false;
  for (const char *const *pattern = order; *pattern; pattern++) {
    if (fnmatch(*pattern, name, FNM_PERIOD) == 0) return true;
    if (fnmatch(*pattern, own, FNM_PERIOD) == 0) return false;
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

static Status check_free(const char *directory, const char *own) { return files_each(directory, check_name, &(Place){directory, own}); }

enum { NAME = 32 };

static void scores_name(const Tokenizer *tokenizer, char name[NAME]) { snprintf(name, NAME, "tok%d.bin", (int)tokenizer->pieces.count); }

/* What is kept in tokenizer.json is found before everything else. */
Status tokenizer_save_check(const Tokenizer *tokenizer, const char *directory) {
  char name[NAME];
  if (tokenizer->kind == TOKENIZER_SCORES && tokenizer->special_count > 0)
    return status_set(STATUS_UNSUPPORTED,
                      "%s: a scored vocabulary with %d more special tokens fits no file that is written here; use it from its "
                      "GGUF file",
                      directory, (int)tokenizer->special_count);
  if (!files_is_dir(directory)) return STATUS_OK;
  scores_name(tokenizer, name);
  if (tokenizer->kind == TOKENIZER_SCORES) return check_free(directory, name);
  return tokenizer->kind == TOKENIZER_RANKS ? check_free(directory, ranks_file->name) : STATUS_OK;
}

static Status save_scores(const Tokenizer *tokenizer, const char *directory) {
  char name[NAME];
  scores_name(tokenizer, name);
  return write_file(tokenizer, directory, name, tokenizer_scores_write);
}

Status tokenizer_save(const Tokenizer *tokenizer, const char *directory) {
  TRY(files_make_dirs(directory));
  TRY(tokenizer_save_check(tokenizer, directory));
  if (tokenizer->kind == TOKENIZER_SCORES) return save_scores(tokenizer, directory);
  bool gpt2 = tokenizer->pattern == BPE_PATTERN_GPT2 && !tokenizer->whole;
  const Output *output = tokenizer->kind == TOKENIZER_RANKS ? ranks_file : gpt2 ? gpt2_files : json_file;
  for (; output->name; output++) TRY(write_file(tokenizer, directory, output->name, output->write));
  return STATUS_OK;
}
