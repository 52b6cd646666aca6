/* Suggestions for names of data sets: see dataset_hint.h. A place is judged by the names in it, nothing is opened.
 * Invariant: what is suggested is a name that data sets of that kind accept, and not the one that was given. */
#include "data/dataset_hint.h"
#include "base/files.h"
#include "data/data_paths.h"
#include "data/download.h"
#include "data/image.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef bool Judge(const char *folder, const char *name);

/* Whether one of the names in the folder is such a one. */
static bool any_name(const char *folder, Judge *judge) {
  char **names;
  size_t count;
  bool found = false;
  if (files_list(folder, &names, &count) != STATUS_OK) return false;
  for (size_t i = 0; i < count && !found; i++) found = names[i][0] != '.' && judge(folder, names[i]);
  files_list_free(names, count);
  return found;
}

static bool with_join(const char *folder, const char *name, bool (*ask)(const char *path)) {
  char *path = files_join(folder, name);
  bool answer = path != NULL && ask(path);
  free(path);
  return answer;
}

static bool is_picture(const char *folder, const char *name) { return folder != NULL && image_has_extension(name); }
static bool holds_pictures(const char *path) { return files_is_dir(path) && any_name(path, is_picture); }
static bool is_class(const char *folder, const char *name) { return with_join(folder, name, holds_pictures); }
static bool holds_classes(const char *path) { return files_is_dir(path) && any_name(path, is_class); }

static bool ends_with(const char *name, const char *end) {
  size_t length = strlen(name), tail = strlen(end);
  return length > tail && strcmp(name + length - tail, end) == 0;
}

static bool is_text_name(const char *name) {
  static const char *const ends[] = {".txt", ".txt.gz", ".tokens", ".raw"};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (ends_with(name, ends[i])) return true;
  return false;
}

static bool is_text(const char *folder, const char *name) { return folder != NULL && is_text_name(name); }
static bool is_cifar(const char *folder, const char *name) { return folder != NULL && strcmp(name, "train.bin") == 0; }

/* The prefix under which a file or folder is a data set, or NULL. */
static const char *prefix_of(const char *path) {
  if (!files_is_dir(path)) return ends_with(path, ".csv") ? "csv:" : ends_with(path, ".tsv") ? "tsv:" : is_text_name(path) ? "text:" : NULL;
  if (holds_classes(path) || with_join(path, "train", holds_classes)) return "folder:";
  return any_name(path, is_text) ? "text:" : NULL;
}

static bool suggest_path(const char *given, const char *path, char text[DATASET_HINT]) {
  char meant[DATASET_HINT - 32];
  if (!files_exists(path)) return false;
  if (files_is_dir(path) && any_name(path, is_cifar)) {
    snprintf(text, DATASET_HINT, " Did you mean cifar100 with --data-dir %.400s?", path);
    return true;
  }
  const char *prefix = prefix_of(path);
  if (prefix == NULL) return false;
  snprintf(meant, sizeof meant, "%s%.500s", prefix, path);
  if (strcmp(meant, given) == 0) return false;
  snprintf(text, DATASET_HINT, " Did you mean %s?", meant);
  return true;
}

static bool suggest_installed(const char *given, const char *name, const char *data_dir, char text[DATASET_HINT]) {
  DataRoots roots;
  bool found = false;
  if (name[0] == '/' || data_paths_roots(&roots, "datasets", data_dir) != STATUS_OK) return false;
  for (int i = 0; i < roots.count && !found; i++) {
    char *path = files_join(roots.paths[i], name);
    found = path != NULL && suggest_path(given, path, text);
    free(path);
  }
  data_paths_release(&roots);
  return found;
}

/* "CIFAR-100" is spelt like "cifar100". */
static bool spelt_alike(const char *a, const char *b) {
  for (;; a++, b++) {
    while (*a == '-' || *a == '_' || *a == ' ') a++;
    while (*b == '-' || *b == '_' || *b == ' ') b++;
    if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
    if (*a == '\0') return true;
  }
}

static bool suggest_known(const char *given, const char *name, char text[DATASET_HINT]) {
  int count;
  const DownloadItem *items = download_catalogue(&count);
  for (int i = 0; i < count; i++) {
    const char *prefix = strncmp(items[i].about, "text:", 5) == 0 ? "text:" : "";
    char meant[96];
    if (strcmp(items[i].kind, "datasets") != 0 || !spelt_alike(name, items[i].name)) continue;
    snprintf(meant, sizeof meant, "%s%s", prefix, items[i].name);
    if (strcmp(meant, given) == 0) return false;
    snprintf(text, DATASET_HINT, " Did you mean %s? `astra-data get %s` downloads it.", meant, items[i].name);
    return true;
  }
  return false;
}

const char *dataset_hint(const char *name, const char *data_dir, char text[DATASET_HINT]) {
  static const char *const prefixes[] = {"folder:", "csv:", "tsv:", "text:", "text-lines:"};
  const char *rest = name;
  for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
    if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) rest = name + strlen(prefixes[i]);
  text[0] = '\0';
  if (*rest == '\0' || suggest_path(name, rest, text) || suggest_installed(name, rest, data_dir, text)) return text;
  suggest_known(name, rest, text);
  return text;
}
