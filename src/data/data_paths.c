/* The search order for data sets and weights. Leaves out: what lies in them (dataset_*.c, src/nn/checkpoint.c) and downloads
 * (download.c). Invariant: a root that cannot be told (no $HOME) is left out, never guessed. */
#include "data/data_paths.h"
#include "base/files.h"
#include "base/text.h"
#include "data/download.h"
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Appends A/B, or A alone for a NULL B. */
static Status add_root(DataRoots *roots, const char *a, const char *b) {
  char *path = b ? files_join(a, b) : strdup(a);
  if (!path) return status_no_memory(NULL, "a list of folders");
  roots->paths[roots->count++] = path;
  return STATUS_OK;
}

static Status add_cache(DataRoots *roots, const char *kind) {
  const char *home = text_environment("HOME");
  if (!home) return STATUS_OK;
  char *cache = files_join(home, ".cache/astra");
  if (!cache) return status_no_memory(NULL, "a list of folders");
  Status status = add_root(roots, cache, kind);
  free(cache);
  return status;
}

/* The folder N levels above the running program: PREFIX of PREFIX/bin/astra-train, the source tree of TREE/build/bin/astra-train. */
static bool above_program(char path[PATH_MAX], int levels) {
  ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
  if (length <= 0) return false;
  path[length] = 0;
  for (int i = 0; i < levels; i++) {
    char *slash = strrchr(path, '/');
    if (!slash || slash == path) return false;
    *slash = 0;
  }
  return true;
}

static Status add_installed(DataRoots *roots, const char *kind) {
  char path[PATH_MAX], shared[32];
  snprintf(shared, sizeof shared, "share/astra/%s", kind);
  if (above_program(path, 2)) TRY(add_root(roots, path, shared));
  if (above_program(path, 3)) TRY(add_root(roots, path, kind));
  return STATUS_OK;
}

Status data_paths_roots(DataRoots *roots, const char *kind, const char *extra) {
  *roots = (DataRoots){0};
  if (extra && !files_is_dir(extra)) return status_set(STATUS_BAD_USAGE, "--data-dir %s: there is no such directory", extra);
  if (extra) TRY(add_root(roots, extra, NULL));
  if (text_environment("ASTRA_HOME")) TRY(add_root(roots, text_environment("ASTRA_HOME"), kind));
  TRY(add_cache(roots, kind));
  TRY(add_root(roots, kind, NULL));
  return add_installed(roots, kind);
}

void data_paths_release(DataRoots *roots) {
  for (int i = 0; i < roots->count; i++) free(roots->paths[i]);
  *roots = (DataRoots){0};
}

/* Whether a download of something that can be fetched was interrupted here, and has left a part of a file: a whole copy may lie elsewhere.
 */
static bool is_unfinished(const char *relative, const char *path) {
  const DownloadItem *item = download_find(relative);
  char **names;
  size_t count;
  bool found = false;
  if (!item || !files_is_dir(path) || download_present(item, path) || files_list(path, &names, &count) != STATUS_OK) return false;
  for (size_t i = 0; i < count; i++) found = found || text_ends_with(names[i], DATA_PATHS_PART);
  files_list_free(names, count);
  return found;
}

/* The first of ROOT/relative that exists, and is whole; the others are appended to `tried`. */
static Status find_in(const DataRoots *roots, const char *relative, FILE *tried, char **found) {
  for (int i = 0; i < roots->count; i++) {
    char *path = files_join(roots->paths[i], relative);
    if (!path) return status_no_memory(NULL, "a list of folders");
    const bool unfinished = is_unfinished(relative, path);
    if (files_exists(path) && !unfinished) {
      *found = path;
      return STATUS_OK;
    }
    fprintf(tried, "%s%s%s", i ? ", " : "", path, unfinished ? " (an unfinished download: `astra-data get` goes on with it)" : "");
    free(path);
  }
  return STATUS_NOT_FOUND;
}

/* An absolute path is where it says, and nowhere else. */
static Status find_absolute(const char *path, char **found) {
  if (!files_exists(path))
    return status_set(STATUS_NOT_FOUND, "%s not found; give a path that exists, or the name of an installed one", path);
  *found = strdup(path);
  return *found ? STATUS_OK : status_no_memory(NULL, "a list of folders");
}

Status data_paths_find(const char *kind, const char *relative, const char *extra, char **found) {
  *found = NULL;
  if (relative[0] == '/') return find_absolute(relative, found);
  char *text = NULL;
  size_t size = 0;
  FILE *tried = open_memstream(&text, &size);
  if (!tried) return status_no_memory(NULL, "a list of folders");
  DataRoots roots;
  Status status = data_paths_roots(&roots, kind, extra);
  if (status == STATUS_OK) status = find_in(&roots, relative, tried, found);
  data_paths_release(&roots);
  if (fclose(tried) != 0) text = NULL;
  if (status == STATUS_NOT_FOUND) /* experiments are files of their own, which astra-data does not know */
    status_set(status, "%s not found; looked for %s (%s)", relative, text ? text : "it",
               strcmp(kind, "experiments") == 0 ? "a file of your own is given by its path, as in ./mine.json"
                                                : "`astra-data list` shows what is there and what can be fetched");
  free(text);
  return status;
}

Status data_paths_store(const char *kind, char **directory) {
  DataRoots roots = {0};
  Status status = text_environment("ASTRA_HOME") ? add_root(&roots, text_environment("ASTRA_HOME"), kind) : add_cache(&roots, kind);
  if (status == STATUS_OK && roots.count == 0) {
    status = status_set(STATUS_NOT_FOUND, "no folder to store %s in: neither ASTRA_HOME nor HOME is set; set one of them", kind);
  }
  *directory = roots.count ? roots.paths[0] : NULL;
  return status;
}
