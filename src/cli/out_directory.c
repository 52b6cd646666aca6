/* Whether --out can be written: see out_directory.h. */
#include "cli/out_directory.h"
#include "base/files.h"
#include "base/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *inside(const char *out, const char *folder) { return folder != NULL ? files_join(out, folder) : strdup(out); }

static bool ends_with(const char *name, const char *end) {
  size_t length = strlen(name), tail = strlen(end);
  return length >= tail && strcmp(name + length - tail, end) == 0;
}

static bool is_one_of(const char *name, const char *const *list) {
  for (; *list != NULL; list++)
    if (strcmp(name, *list) == 0) return true;
  return false;
}

/* By its name: what a checkpoint or a tokenizer consists of, here and elsewhere. */
static bool is_work(const char *name, OutKind kind) {
  static const char *const checkpoint[] = {"config.json", "pytorch_model.bin", NULL};
  static const char *const tokenizer[] = {"tokenizer.json", "vocab.json", "merges.txt", NULL};
  if (kind == OUT_TOKENIZER) return is_one_of(name, tokenizer);
  return ends_with(name, ".safetensors") || ends_with(name, ".safetensors.index.json") || is_one_of(name, checkpoint);
}

/* The first such file of the directory, copied to found; "" if there is none. */
static Status find_work(const char *directory, OutKind kind, char found[256]) {
  char **names;
  size_t count;
  found[0] = '\0';
  if (!files_is_dir(directory)) return STATUS_OK;
  TRY(files_list(directory, &names, &count));
  for (size_t i = 0; i < count && found[0] == '\0'; i++)
    if (is_work(names[i], kind)) snprintf(found, 256, "%s", names[i]);
  files_list_free(names, count);
  return STATUS_OK;
}

Status out_directory_free(const char *out, OutKind kind, const char *also) {
  char found[256];
  TRY(find_work(out, kind, found));
  if (found[0] == '\0') return STATUS_OK;
  return status_set(
      STATUS_BAD_VALUE,
      "--out %s holds finished work already (%s), which would be replaced: give another --out, or --overwrite to replace it%s%s", out,
      found, also ? "; " : "", also ? also : "");
}

/* Of runs that were killed while they wrote. */
static void clean(const char *place) {
  int count;
  int64_t bytes = files_clean(place, &count);
  if (count > 0)
    log_info("%s: removed %d unfinished file%s (%.1f MB) of a run that was killed", place, count, count == 1 ? "" : "s",
             (double)bytes / 1e6);
}

Status out_directory_try(const char *out, const char *folder, const char *name) {
  char *place = inside(out, folder), *path = place ? files_join(place, name) : NULL;
  FileWriter writer;
  Status status = path != NULL ? files_make_dirs(place) : status_set(STATUS_NO_MEMORY, "no memory");
  if (status == STATUS_OK) clean(place);
  if (status == STATUS_OK && folder != NULL) clean(out);
  if (status == STATUS_OK) status = files_create(&writer, path);
  if (status == STATUS_OK) files_abort(&writer);
  free(path);
  free(place);
  return status == STATUS_OK ? status : status_wrap(status, "--out %s", out);
}

void out_directory_leave(const char *out, const char *folder) {
  char *place = inside(out, folder);
  if (place != NULL && rmdir(place) == 0 && folder != NULL) rmdir(out);
  free(place);
}

/* Whether both are the same directory, once links are followed. */
static bool same_directory(const char *a, const char *b) {
  char *real_a = realpath(a, NULL), *real_b = realpath(b, NULL);
  bool same = real_a != NULL && real_b != NULL && strcmp(real_a, real_b) == 0;
  free(real_a);
  free(real_b);
  return same;
}

Status out_directory_apart(const char *out, const char *base) {
  char *target = realpath(base, NULL); /* a linked file may lie elsewhere than its name */
  char *named = files_folder(base), *linked = target != NULL ? files_folder(target) : NULL;
  bool same = target != NULL && ((named != NULL && same_directory(out, named)) || (linked != NULL && same_directory(out, linked)));
  free(target);
  free(named);
  free(linked);
  if (!same) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--out %s is where the weights lie that --lora keeps as they are; give another directory", out);
}
