/* What lies in --out already. Leaves out: weights and codebooks, of which out_directory_free knows. */
#include "cli/train_out.h"
#include "base/files.h"
#include "cli/cli.h"
#include <stdlib.h>
#include <string.h>

/* What the run starts or learns from, and reads again, for its exports and when it is resumed; then its codebooks, read once. */
enum { SOURCES = 5, SOURCES_AGAIN = 4 };

static void list_sources(const Session *session, const char *sources[SOURCES]) {
  const TrainOptions *options = &session->options;
  const char *const list[SOURCES] = {options->model, session->origin, options->teacher, session->tokenizer_place, options->codebooks};
  memcpy(sources, list, sizeof list);
}

/* Without a tokenizer in OUT there is nothing that what may lie there of one, a chat template say, belongs to. */
static Status check_other(const Session *session) {
  const char *out = session->options.out, *sources[SOURCES];
  Tokenizer *there = NULL;
  list_sources(session, sources);
  if (!files_is_dir(out)) return STATUS_OK;
  Status status = session->tokenizer != NULL ? tokenizer_open(&there, out) : STATUS_NOT_FOUND;
  if (status == STATUS_NOT_FOUND)
    return out_directory_is_source(out, sources, SOURCES_AGAIN) ? STATUS_OK : out_directory_free(out, OUT_TOKENIZER, NULL);
  if (status == STATUS_OK && strcmp(tokenizer_fingerprint(there), tokenizer_fingerprint(session->tokenizer)) != 0)
    status = status_set(STATUS_BAD_VALUE,
                        "%s holds another tokenizer than the run's, which would be replaced: give another --out, or --overwrite to "
                        "replace it",
                        out);
  tokenizer_close(there);
  return status == STATUS_OK ? STATUS_OK : status_wrap(status, "--out");
}

Status train_out_check_tokenizer(const Session *session, bool overwrite) {
  const Status status = session->tokenizer != NULL ? tokenizer_save_check(session->tokenizer, session->options.out) : STATUS_OK;
  if (status != STATUS_OK) return status_wrap(status, "--out");
  return overwrite ? STATUS_OK : check_other(session);
}

static Status check_folder(const char *out, const char *folder) {
  if (!files_is_dir(folder) || !files_within(out, folder)) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--out %s lies in the data set's folder %s, whose files it would join; give one outside", out,
                    folder);
}

/* Each of the paths that stand between commas. */
static Status check_folders(const char *out, const char *paths) {
  char *copy = strdup(paths), *rest = copy, *path;
  if (copy == NULL) return status_no_memory(paths, "its text");
  Status status = check_folder(out, paths); /* a list that exists as one path is one */
  while (status == STATUS_OK && (path = strsep(&rest, ",")) != NULL) status = check_folder(out, path);
  free(copy);
  return status;
}

Status train_out_check_data(const TrainOptions *options) {
  static const char *const kinds[] = {"folder:", "text:", "text-lines:"};
  const char *const sets[] = {options->dataset, options->eval_dataset};
  for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
    for (size_t kind = 0; sets[i] != NULL && kind < sizeof kinds / sizeof *kinds; kind++) {
      const size_t length = strlen(kinds[kind]);
      if (strncmp(sets[i], kinds[kind], length) != 0) continue;
      TRY(kind == 0 ? check_folder(options->out, sets[i] + length) : check_folders(options->out, sets[i] + length));
    }
  return STATUS_OK;
}

/* What TensorBoard would show with the curves of the run, and a table of answers that this run may not make. */
static bool is_measure(const char *name) { return strncmp(name, "events.out.tfevents.", 20) == 0 || strncmp(name, "confusion.", 10) == 0; }

Status train_out_forget(const Session *session) {
  const char *out = session->options.out, *sources[SOURCES];
  list_sources(session, sources);
  TRY(files_prune(out, NULL, is_measure));
  if (out_directory_is_source(out, sources, SOURCES_AGAIN)) return STATUS_OK;
  TRY(files_prune(out, NULL, out_directory_companion));
  return out_directory_forget(out, sources, SOURCES);
}
