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
