/* What lies in --out already. Leaves out: weights and codebooks, of which out_directory_free knows. */
#include "cli/train_out.h"
#include "base/files.h"
#include "cli/cli.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Status check_other(const Session *session) {
  const char *out = session->options.out;
  Tokenizer *there = NULL;
  if (!files_is_dir(out)) return STATUS_OK;
  Status status = tokenizer_open(&there, out);
  if (status == STATUS_NOT_FOUND) return STATUS_OK;
  if (status == STATUS_OK && strcmp(tokenizer_fingerprint(there), tokenizer_fingerprint(session->tokenizer)) != 0)
    status = status_set(STATUS_BAD_VALUE,
                        "%s holds another tokenizer than the run's, which would be replaced: give another --out, or --overwrite to "
                        "replace it",
                        out);
  tokenizer_close(there);
  return status;
}

Status train_out_check_tokenizer(const Session *session, bool overwrite) {
  if (session->tokenizer == NULL) return STATUS_OK;
  Status status = tokenizer_save_check(session->tokenizer, session->options.out);
  if (status == STATUS_OK && !overwrite) status = check_other(session);
  return status == STATUS_OK ? STATUS_OK : status_wrap(status, "--out");
}

/* Whether a path that may be none is the directory, or names a file in it. */
static bool lies_in(const char *directory, const char *path) {
  char *folder = path != NULL && files_exists(path) ? files_folder(path) : NULL;
  const bool found = folder != NULL && files_same(folder, directory);
  free(folder);
  return found;
}

/* Whether a directory holds what the run starts or learns from, and reads again: for its exports, and when it is resumed. */
static bool is_source(const Session *session, const char *directory) {
  const TrainOptions *options = &session->options;
  const char *const from[] = {options->model, session->origin, options->teacher, session->tokenizer_place};
  bool found = false;
  for (size_t i = 0; i < sizeof from / sizeof *from && !found; i++) found = lies_in(directory, from[i]);
  return found;
}

static Status forget_folder(const Session *session, const char *name) {
  char *folder = files_join(session->options.out, name);
  const Status status = folder == NULL               ? status_no_memory(NULL, "a path")
                        : is_source(session, folder) ? STATUS_OK
                                                     : files_remove_dir(folder);
  free(folder);
  return status;
}

/* Of codebooks alone, which the new checkpoint has in its weights, if it has any. */
static Status forget_codebooks(const Session *session) {
  const char *out = session->options.out;
  if (lies_in(out, session->options.codebooks)) return STATUS_OK; /* those of the run, of which there is no checkpoint yet */
  char *path = files_join(out, "codebooks.safetensors");
  const Status status = path == NULL                           ? status_no_memory(NULL, "a path")
                        : remove(path) == 0 || errno == ENOENT ? STATUS_OK
                                                               : status_set(STATUS_IO, "cannot remove %s: %s", path, strerror(errno));
  free(path);
  return status;
}

/* What TensorBoard would show with the curves of the run, and a table of answers that this run may not make. */
static bool is_measure(const char *name) { return strncmp(name, "events.out.tfevents.", 20) == 0 || strncmp(name, "confusion.", 10) == 0; }

Status train_out_forget(const Session *session) {
  const char *out = session->options.out;
  TRY(files_prune(out, NULL, is_measure));
  if (is_source(session, out)) return STATUS_OK;
  TRY(files_prune(out, NULL, out_directory_companion));
  TRY(forget_codebooks(session));
  TRY(forget_folder(session, "adapter"));
  TRY(forget_folder(session, "best/adapter"));
  return forget_folder(session, "best");
}
