/* What the sources of samples have in common (task.h): options that are for some of them, and the tokenizer of a run on texts. */
#include "base/files.h"
#include "base/gguf.h"
#include "base/printable.h"
#include "data/data_paths.h"
#include "data/tokenizer/tokenizer_config.h"
#include "nn/checkpoint.h"
#include "train/task_source_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *task_source_option_of_windows(const TrainOptions *options) {
  if (options->perplexity != 0) return "perplexity";
  if (options->stride > 0) return "stride";
  if (options->test_part != SESSION_PART_AUTO) return "eval-part";
  return options->eval_dataset != NULL ? "eval-dataset" : NULL;
}

int64_t task_source_width(const Session *session, int64_t longest) {
  const int64_t width = session->options.groups > 0 ? session->options.devices[1] : 1;
  if (tape_planning(session->tape)) return session->tokens;
  return longest > width ? longest : width;
}

bool task_source_drops_last(const Session *session, int64_t samples) {
  return session->use != SESSION_LOOK && samples >= session->options.batch;
}

Status task_source_check_parts(const TrainOptions *options) {
  if (options->train_part == 0 || options->train_part > options->validation_part) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE,
                    "--train-part %lld: --validation-part %lld leaves nothing of it to learn from; more than that is accepted",
                    (long long)options->train_part, (long long)options->validation_part);
}

Status task_source_refuse_image_options(const TrainOptions *options) {
  const struct {
    bool given;
    const char *name;
  } list[] = {{options->image_size > 0, "image-size"},
              {options->mixup > 0, "mixup"},
              {options->cutmix > 0, "cutmix"},
              {strcmp(options->augment, "crop") != 0 && strcmp(options->augment, "none") != 0 && !options->resumed, "augment"},
              {options->erase > 0, "random-erasing"},
              {options->crop_min > 0, "crop-min"},
              {options->patch_drop > 0, "patch-drop"},
              {options->class_token == CLASS_SINGLE, "class-token"},
              {options->exchange_blocks > 0, "exchange-blocks"},
              {session_class_bias(options) != 0, "class-bias"},
              {options->class_mean_power > 0, "class-mean-power"}};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    if (list[i].given)
      return status_set(STATUS_BAD_USAGE, "--%s is for images; --model %s learns from texts", list[i].name, options->model);
  return STATUS_OK;
}

Status task_source_show_excerpt(const char *what, const char *text, size_t size, size_t max) {
  char *excerpt = printable_excerpt(text, size, max);
  if (excerpt == NULL) return status_set(STATUS_NO_MEMORY, "no memory for the %s", what);
  printf("%s: \"%s\"\n", what, excerpt);
  free(excerpt);
  return STATUS_OK;
}

/* ---- the tokenizer of a run */

/* The tokenizer at a path, and of a GGUF file what a chat needs: read now, so that a template that cannot be kept is refused before the
 * work. */
static Status open_at(Session *session, const char *path) {
  TRY(tokenizer_open(&session->tokenizer, path));
  session->tokenizer_place = strdup(path);
  if (session->tokenizer_place == NULL) return status_no_memory(NULL, "a path");
  return gguf_is_file(path) ? tokenizer_config_of_gguf(&session->chat, path) : STATUS_OK;
}

/* Whether the directory has one; session->tokenizer stays NULL where it has none. */
static Status try_directory(Session *session, const char *directory) {
  if (directory == NULL || !checkpoint_is_path(directory)) return STATUS_OK;
  Status status = open_at(session, directory);
  return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

/* Beside weights: in their directory, in that of their file, or within it. */
static Status try_beside(Session *session, const char *weights) {
  if (weights == NULL || !files_exists(weights)) return STATUS_OK; /* such as "random" */
  if (gguf_is_file(weights)) return try_directory(session, weights);
  char *folder = files_folder(weights);
  Status status = folder != NULL ? try_directory(session, folder) : status_no_memory(NULL, "a path");
  free(folder);
  return status;
}

/* That of an installed checkpoint; session->tokenizer stays NULL where none has this name. */
static Status try_installed(Session *session, const char *name) {
  char *found = NULL;
  if (checkpoint_is_path(name) || data_paths_find("checkpoints", name, session->options.data_dir, &found) != STATUS_OK) return STATUS_OK;
  Status status = try_directory(session, found);
  free(found);
  return status;
}

/* --tokenizer: a path, or the name of an installed checkpoint. */
static Status open_named(Session *session, const char *name) {
  char *found = NULL;
  if (files_exists(name) || data_paths_find("checkpoints", name, session->options.data_dir, &found) != STATUS_OK)
    return open_at(session, name);
  Status status = open_at(session, found);
  free(found);
  return status;
}

Status task_source_open_tokenizer(Session *session) {
  const TrainOptions *options = &session->options;
  if (options->tokenizer != NULL) {
    Status status = open_named(session, options->tokenizer);
    return status == STATUS_OK ? status : status_wrap(status, "--tokenizer %s", options->tokenizer);
  }
  TRY(try_beside(session, options->init));
  if (session->tokenizer == NULL) TRY(try_directory(session, options->model));
  if (session->tokenizer == NULL) TRY(try_installed(session, options->model));
  if (session->tokenizer != NULL) return STATUS_OK;
  const bool any = options->init != NULL && session_is_scratch(options->init); /* weights are for the tokens of their own tokenizer */
  return status_set(
      STATUS_NOT_FOUND, "there is no tokenizer beside %s: name %s with --tokenizer DIR or FILE%s",
      options->init != NULL && files_exists(options->init) ? options->init : options->model, any ? "one" : "that of its weights",
      any ? ", get one with `astra-data get gpt2`, or make one with `astra-data tokenizer`"
          : ", or give --model the directory or GGUF file of a checkpoint that has one; `astra-data get` has gpt2 and gpt2-medium");
}

static bool from_scratch(const TrainOptions *options) { return !checkpoint_is_path(options->model) && session_is_scratch(options->init); }

Status task_source_configure_tokens(const Session *session, ModelConfig *config) {
  const TrainOptions *options = &session->options;
  const Tokenizer *tokenizer = session->tokenizer;
  int64_t count = tokenizer_count(tokenizer);
  int32_t begin = tokenizer_begin(tokenizer), end = tokenizer_end(tokenizer);
  if (from_scratch(options)) {
    config->vocabulary = count;
    config->begin_id = -1;
    config->end_ids = 0;
  }
  if (!tokenizer_fits(tokenizer, config->vocabulary))
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

Status task_source_choose_context(const Session *session, ModelConfig *config, int64_t *context) {
  const TrainOptions *options = &session->options;
  *context = options->context > 0 ? options->context : config->context;
  if (from_scratch(options)) config->context = *context; /* positions that no window reaches would stay as they were drawn */
  if (*context <= config->context) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--context %lld: the model %s takes at most %lld tokens", (long long)*context, options->model,
                    (long long)config->context);
}
