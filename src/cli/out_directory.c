/* Whether --out can be written: see out_directory.h. */
#include "cli/out_directory.h"
#include "base/files.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *inside(const char *out, const char *folder) { return folder != NULL ? files_join(out, folder) : strdup(out); }

Status out_directory_try(const char *out, const char *folder, const char *name) {
  char *place = inside(out, folder), *path = place ? files_join(place, name) : NULL;
  FileWriter writer;
  Status status = path != NULL ? files_make_dirs(place) : status_set(STATUS_NO_MEMORY, "no memory");
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
