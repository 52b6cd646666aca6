/* Which files a tokenizer is kept in. Invariant: tokenizer_open of the directory finds these files and not others that it would prefer. */
#include "base/files.h"
#include "data/tokenizer_model.h"
#include <stdlib.h>

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

/* Another tokenizer that would be found first. */
static Status check_free(const char *directory) {
  static const char *const preferred[] = {"tokenizer.json", "vocab.json", "encoder.json", NULL};
  for (const char *const *name = preferred; *name; name++) {
    char *path = files_join(directory, *name);
    if (!path) return status_set(STATUS_NO_MEMORY, "no memory for a path");
    bool taken = files_exists(path);
    free(path);
    if (taken)
      return status_set(STATUS_BAD_VALUE, "%s: its %s belongs to another tokenizer; move it away or choose another directory", directory,
                        *name);
  }
  return STATUS_OK;
}

Status tokenizer_save(const Tokenizer *tokenizer, const char *directory) {
  TRY(files_make_dirs(directory));
  if (tokenizer->kind != TOKENIZER_MERGES) TRY(check_free(directory));
  if (tokenizer->kind == TOKENIZER_SCORES) {
    char name[32];
    snprintf(name, sizeof name, "tok%d.bin", (int)tokenizer->pieces.count);
    return write_file(tokenizer, directory, name, tokenizer_scores_write);
  }
  bool gpt2 = tokenizer->pattern == BPE_PATTERN_GPT2 && !tokenizer->whole;
  const Output *output = tokenizer->kind == TOKENIZER_RANKS ? ranks_file : gpt2 ? gpt2_files : json_file;
  for (; output->name; output++) TRY(write_file(tokenizer, directory, output->name, output->write));
  return STATUS_OK;
}
