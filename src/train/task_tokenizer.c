/* Finding and checking a tokenizer: see task_tokenizer.h. */
#include "train/task_tokenizer.h"
#include "base/gguf.h"
#include "data/data_paths.h"
#include <stdlib.h>
#include <string.h>

enum { PADDING_MOST = 256 }; /* rows by which a token table may be longer than the vocabulary, to fill a multiple of a power of two */

/* Whether the directory has one; *tokenizer stays NULL where it has none. */
static Status try_directory(const char *directory, Tokenizer **tokenizer) {
  if (directory == NULL || !checkpoint_is_path(directory)) return STATUS_OK;
  Status status = tokenizer_open(tokenizer, directory);
  return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

/* Beside weights: in their directory, in that of their file, or within it. */
static Status try_beside(const char *weights, Tokenizer **tokenizer) {
  if (weights == NULL || !files_exists(weights)) return STATUS_OK; /* such as "random" */
  if (gguf_is_file(weights)) return try_directory(weights, tokenizer);
  char *folder = files_folder(weights);
  Status status = folder != NULL ? try_directory(folder, tokenizer) : status_set(STATUS_NO_MEMORY, "no memory");
  free(folder);
  return status;
}

static Status try_installed(const TrainOptions *options, Tokenizer **tokenizer) {
  char *found = NULL;
  if (checkpoint_is_path(options->model)) return STATUS_OK;
  if (data_paths_find("checkpoints", options->model, options->data_dir, &found) != STATUS_OK) return STATUS_OK;
  Status status = try_directory(found, tokenizer);
  free(found);
  return status;
}

Status task_tokenizer_open(const Session *session, Tokenizer **tokenizer) {
  const TrainOptions *options = &session->options;
  *tokenizer = NULL;
  if (options->tokenizer != NULL) {
    Status status = tokenizer_open(tokenizer, options->tokenizer);
    return status == STATUS_OK ? status : status_wrap(status, "--tokenizer %s", options->tokenizer);
  }
  TRY(try_beside(options->init, tokenizer));
  if (*tokenizer == NULL) TRY(try_directory(options->model, tokenizer));
  if (*tokenizer == NULL) TRY(try_installed(options, tokenizer));
  if (*tokenizer != NULL) return STATUS_OK;
  return status_set(
      STATUS_NOT_FOUND,
      "there is no tokenizer beside %s: name one with --tokenizer DIR or FILE, get one with `astra-data get gpt2`, or make one "
      "with `astra-data tokenizer`",
      options->init != NULL && files_exists(options->init) ? options->init : options->model);
}

/* ---------------------------------------------------------------- the model's side */

static bool from_scratch(const TrainOptions *options) {
  return !checkpoint_is_path(options->model) && options->init != NULL && strcmp(options->init, "random") == 0;
}

Status task_tokenizer_configure(const Session *session, const Tokenizer *tokenizer, ModelConfig *config) {
  const TrainOptions *options = &session->options;
  int64_t count = tokenizer_count(tokenizer);
  int32_t begin = tokenizer_begin(tokenizer), end = tokenizer_end(tokenizer);
  if (from_scratch(options)) {
    config->vocabulary = count;
    config->begin_id = -1;
    config->end_ids = 0;
  }
  if (count > config->vocabulary || config->vocabulary - count >= PADDING_MOST)
    return status_set(STATUS_BAD_VALUE,
                      "the tokenizer%s%s has %lld tokens, but the model %s has a vocabulary of %lld: they do not belong together; give the "
                      "model's own with --tokenizer, or train from scratch with --init random",
                      options->tokenizer ? " " : "", options->tokenizer ? options->tokenizer : "", (long long)count, options->model,
                      (long long)config->vocabulary);
  if (config->begin_id < 0) config->begin_id = begin;
  if (config->end_ids > 0) return STATUS_OK;
  config->end_ids = end >= 0;
  config->end_id[0] = end;
  return STATUS_OK;
}

Status task_tokenizer_context(const Session *session, ModelConfig *config, int64_t *context) {
  const TrainOptions *options = &session->options;
  *context = options->context > 0 ? options->context : config->context;
  if (from_scratch(options)) config->context = *context; /* positions that no window reaches would stay as they were drawn */
  if (*context <= config->context) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--context %lld: the model %s takes at most %lld tokens", (long long)*context, options->model,
                    (long long)config->context);
}

Status task_tokenizer_refuse_pictures(const TrainOptions *options) {
  const struct {
    bool given;
    const char *name;
  } list[] = {{options->image_size > 0, "image-size"},
              {options->mixup > 0, "mixup"},
              {options->crop_least > 0, "crop-least"},
              {options->patch_drop > 0, "patch-drop"},
              {options->class_token == CLASS_SINGLE, "class-token"}};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    if (list[i].given)
      return status_set(STATUS_BAD_USAGE, "--%s is for pictures; --model %s learns from texts", list[i].name, options->model);
  return STATUS_OK;
}
