/* A directory for one test program's files, removed with all that is in it; and the place of the golden cases. */
#ifndef TESTS_NN_SCRATCH_H
#define TESTS_NN_SCRATCH_H
#include "base/files.h"
#include "unit/remove_tree.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch[TEMPORARY_PATH];

static int scratch_make(void **state) {
  (void)state;
  return make_temporary_folder(scratch);
}

static int scratch_remove(void **state) {
  (void)state;
  return remove_tree(scratch);
}

/* "SCRATCH/name"; valid until the fourth call after this one. */
static inline const char *scratch_path(const char *name) {
  static char paths[4][256];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
  return path;
}

/* "tests/golden/name"; valid until the next call. */
static inline const char *golden_path(const char *name) {
  static char path[256];
  snprintf(path, sizeof path, "tests/golden/%s", name);
  return path;
}

#endif
