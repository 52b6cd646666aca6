/* Which files a tokenizer is kept in. Invariant: tokenizer_open of the directory finds these files and not others that it would prefer. */
#include "base/files.h"
#include "data/tokenizer/tokenizer_model.h"
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

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
