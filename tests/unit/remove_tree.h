/* Removes a folder with all that is in it; links are removed, not followed. */
#ifndef UNIT_REMOVE_TREE_H
#define UNIT_REMOVE_TREE_H
#include <ftw.h>
#include <stdio.h>

static inline int remove_tree_entry(const char *path, const struct stat *info, int kind, struct FTW *walk) {
  (void)info, (void)kind, (void)walk;
  return remove(path);
}

/* 0, or not where something could not be removed. */
static inline int remove_tree(const char *path) { return nftw(path, remove_tree_entry, 16, FTW_DEPTH | FTW_PHYS); }

#endif
