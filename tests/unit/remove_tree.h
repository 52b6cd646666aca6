/* Folders for a test's files, in TMPDIR: tests/run.sh gives each test a TMPDIR of its own and fails those that leave something in it.
 * Removal takes all that is in a folder; links are removed, not followed. */
#ifndef UNIT_REMOVE_TREE_H
#define UNIT_REMOVE_TREE_H
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TEMPORARY_PATH = 80 };

static inline int remove_tree_entry(const char *path, const struct stat *info, int kind, struct FTW *walk) {
  (void)info, (void)kind, (void)walk;
  return remove(path);
}

/* 0, or not where something could not be removed. */
static inline int remove_tree(const char *path) { return nftw(path, remove_tree_entry, 16, FTW_DEPTH | FTW_PHYS); }

static char temporary_root[TEMPORARY_PATH];
static pid_t temporary_owner;

/* A child that ends takes nothing away from its parent. */
static inline void temporary_remove_root(void) {
  if (getpid() == temporary_owner) remove_tree(temporary_root);
}

/* One folder in TMPDIR (/tmp) for each test program, which goes at its end: also when a test has failed before it could clear up. */
static inline bool temporary_make_root(void) {
  const char *parent = getenv("TMPDIR");
  if (!parent || !parent[0]) parent = "/tmp";
  if (snprintf(temporary_root, TEMPORARY_PATH, "%s/astra-test-XXXXXX", parent) >= TEMPORARY_PATH || !mkdtemp(temporary_root)) return false;
  temporary_owner = getpid();
  return atexit(temporary_remove_root) == 0;
}

/* A new folder, which the caller may remove: its path in `path` [TEMPORARY_PATH]. 0, or -1. */
static inline int make_temporary_folder(char *path) {
  if (temporary_owner == 0 && !temporary_make_root()) return -1;
  if (snprintf(path, TEMPORARY_PATH, "%s/XXXXXX", temporary_root) >= TEMPORARY_PATH) return -1;
  return mkdtemp(path) ? 0 : -1;
}

#endif
