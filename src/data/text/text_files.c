/* From a path to the files of a part. Leaves out: documents and their text (text_source.c).
 * Invariant: the training part and the validation part of one path never share a byte. */
#include "data/text/text_files.h"
#include "base/files.h"
#include "data/data_paths.h"
#include "data/text/text_reader.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 16, MOST_FILES = 1 << 20, HELD_OUT_PART = 20, BLOCK = 1 << 16 }; /* a twentieth: 5% */

/* In the order in which they are looked for. */
static const char *const part_names[][8] = {
    [TEXT_TRAIN] = {"train.txt", "wiki.train.tokens", "wiki.train.raw", NULL},
    [TEXT_VALID] = {"valid.txt", "val.txt", "validation.txt", "dev.txt", "wiki.valid.tokens", "wiki.valid.raw", NULL},
    [TEXT_TEST] = {"test.txt", "wiki.test.tokens", "wiki.test.raw", NULL}};

const char *text_files_part(TextPart part) {
  static const char *const names[] = {[TEXT_TRAIN] = "train", [TEXT_VALID] = "valid", [TEXT_TEST] = "test", [TEXT_WHOLE] = "whole"};
  return names[part];
}

static Status no_memory(void) { return status_set(STATUS_NO_MEMORY, "no memory for a list of text files"); }

/* Takes `path` over, also on failure. */
static Status append(TextFiles *list, char *path) {
  if (!path) return no_memory();
  if (list->count == list->room) {
    int room = list->room ? 2 * list->room : 16;
    TextFile *files = room <= MOST_FILES ? realloc(list->files, (size_t)room * sizeof *files) : NULL;
    if (!files) {
      free(path);
      return room <= MOST_FILES ? no_memory() : status_set(STATUS_BAD_FILE, "more than %d text files; join them", MOST_FILES);
    }
    list->files = files;
    list->room = room;
  }
  list->files[list->count++] = (TextFile){path, 0, -1};
  return STATUS_OK;
}

void text_files_release(TextFiles *list) {
  for (int i = 0; i < list->count; i++) free(list->files[i].path);
  free(list->files);
  *list = (TextFiles){0};
}

static bool ends_with(const char *name, const char *end) {
  size_t length = strlen(name), tail = strlen(end);
  return length > tail && strcmp(name + length - tail, end) == 0;
}

static Status walk(TextFiles *list, const char *folder, int depth);

static Status visit(TextFiles *list, const char *folder, const char *name, int depth) {
  if (name[0] == '.') return STATUS_OK;
  char *path = files_join(folder, name);
  if (!path) return no_memory();
  if (files_is_dir(path)) {
    Status status = walk(list, path, depth + 1);
    free(path);
    return status;
  }
  if (ends_with(name, ".txt") || ends_with(name, ".txt.gz")) return append(list, path);
  free(path);
  return STATUS_OK;
}

static Status walk(TextFiles *list, const char *folder, int depth) {
  if (depth > MOST_DEPTH)
    return status_set(STATUS_BAD_FILE, "%s: folders in folders, more than %d deep; a link in a circle?", folder, MOST_DEPTH);
  char **names;
  size_t count;
  TRY(files_list(folder, &names, &count));
  Status status = STATUS_OK;
  for (size_t i = 0; i < count && status == STATUS_OK; i++) status = visit(list, folder, names[i], depth);
  files_list_free(names, count);
  return status;
}

/* Where a path leads: itself, or a data set of that name. */
static Status locate(const char *path, const char *data_dir, char **found) {
  *found = files_exists(path) ? strdup(path) : NULL;
  if (*found) return STATUS_OK;
  if (files_exists(path)) return no_memory();
  if (strchr(path, '/')) return status_set(STATUS_NOT_FOUND, "no text at %s: there is no such file or folder", path);
  Status status = data_paths_find("datasets", path, data_dir, found);
  return status == STATUS_OK ? status : status_wrap(status, "no text at %s, and no data set of that name", path);
}

/* The only entry of *folder when that is a folder itself, as archives leave it; replaces *folder. */
static Status descend(char **folder) {
  char **names;
  size_t count, shown = 0;
  const char *only = NULL;
  TRY(files_list(*folder, &names, &count));
  for (size_t i = 0; i < count; i++) {
    if (names[i][0] != '.') only = names[i], shown++;
  }
  char *inner = shown == 1 ? files_join(*folder, only) : NULL;
  files_list_free(names, count);
  if (shown == 1 && !inner) return no_memory();
  if (!inner || !files_is_dir(inner)) {
    free(inner);
    return STATUS_OK;
  }
  free(*folder);
  *folder = inner;
  return STATUS_OK;
}

/* The folder's file for a part, a fresh string, or NULL in *found. */
static Status named_file(const char *folder, TextPart part, char **found) {
  char name[64];
  for (int i = 0; part_names[part][i]; i++) {
    for (int packed = 0; packed < 2; packed++) {
      snprintf(name, sizeof name, "%s%s", part_names[part][i], packed ? ".gz" : "");
      *found = files_join(folder, name);
      if (!*found) return no_memory();
      if (files_exists(*found)) return STATUS_OK;
      free(*found);
    }
  }
  *found = NULL;
  return STATUS_OK;
}

/* ---- The last 5% ---- */

static Status last_line_start(TextReader *reader, int64_t limit, int64_t *start) {
  char block[BLOCK];
  size_t got = 1;
  *start = 0;
  for (int64_t at = 0; got > 0 && at < limit; at += (int64_t)got) {
    size_t room = limit - at < BLOCK ? (size_t)(limit - at) : BLOCK;
    TRY(text_reader_read(reader, block, room, &got));
    const char *line = got ? memrchr(block, '\n', got) : NULL;
    if (line) *start = at + (line - block) + 1;
  }
  return STATUS_OK;
}

/* The last beginning of a line in the first `limit` bytes, the file's own beginning among them. */
static Status find_cut(const char *path, int64_t limit, int64_t *start) {
  TextReader *reader;
  TRY(text_reader_open(&reader, path));
  Status status = last_line_start(reader, limit, start);
  text_reader_close(reader);
  return status;
}

static void drop_front(TextFiles *list, int first, int count) {
  for (int i = first; i < first + count; i++) free(list->files[i].path);
  memmove(list->files + first, list->files + first + count, (size_t)(list->count - first - count) * sizeof *list->files);
  list->count -= count;
}

static void drop_back(TextFiles *list, int from) {
  for (int i = from; i < list->count; i++) free(list->files[i].path);
  list->count = from;
}

/* Keeps of the files from `first` on what is before or behind byte `cut` of file `at`. */
static void keep_side(TextFiles *list, int first, int at, int64_t cut, TextPart part) {
  if (part == TEXT_TRAIN) {
    list->files[at].end = cut;
    drop_back(list, cut ? at + 1 : at);
  } else {
    list->files[at].first = cut;
    drop_front(list, first, at - first);
  }
}

static Status divide_sizes(TextFiles *list, int first, const int64_t *sizes, const char *origin, TextPart part) {
  int64_t total = 0, before = 0, cut = 0;
  for (int i = first; i < list->count; i++) total += sizes[i - first];
  int64_t limit = total - (total + HELD_OUT_PART - 1) / HELD_OUT_PART;
  if (total == 0) return status_set(STATUS_BAD_FILE, "%s: no text in it", origin);
  int at = first;
  while (at < list->count - 1 && before + sizes[at - first] <= limit) before += sizes[at++ - first];
  TRY(find_cut(list->files[at].path, limit - before, &cut));
  if (before + cut == 0)
    return status_set(STATUS_BAD_FILE,
                      "%s: no line but the first begins in the first 95%% of it, so no validation part can be cut off; give a folder with "
                      "train.txt and valid.txt",
                      origin);
  keep_side(list, first, at, cut, part);
  return STATUS_OK;
}

static Status divide(TextFiles *list, int first, const char *origin, TextPart part) {
  list->divided = true;
  int count = list->count - first;
  int64_t *sizes = calloc((size_t)count, sizeof *sizes);
  Status status = sizes ? STATUS_OK : no_memory();
  for (int i = 0; i < count && status == STATUS_OK; i++) status = text_reader_size(list->files[first + i].path, &sizes[i]);
  if (status == STATUS_OK) status = divide_sizes(list, first, sizes, origin, part);
  free(sizes);
  return status;
}

/* ---- Folders ---- */

static Status add_all_texts(TextFiles *list, const char *folder, TextPart part) {
  int first = list->count;
  TRY(walk(list, folder, 0));
  if (list->count == first) return status_set(STATUS_NOT_FOUND, "%s: no *.txt and no *.txt.gz in this folder", folder);
  return part == TEXT_WHOLE ? STATUS_OK : divide(list, first, folder, part);
}

/* Appends the file of a folder that names its parts; named[] belongs to the caller. */
static Status add_named(TextFiles *list, const char *folder, char *const named[3], TextPart part) {
  if (part == TEXT_TRAIN && !named[TEXT_TRAIN])
    return status_set(STATUS_NOT_FOUND,
                      "%s has %s but no training text; train.txt, train.txt.gz or wiki.train.tokens is expected beside it", folder,
                      strrchr(named[TEXT_VALID], '/') + 1);
  TextPart other = part == TEXT_VALID ? TEXT_TEST : TEXT_VALID;
  bool alone = !named[TEXT_VALID] && !named[TEXT_TEST];
  const char *path = part == TEXT_TRAIN || alone ? named[TEXT_TRAIN] : named[part] ? named[part] : named[other];
  int first = list->count;
  TRY(append(list, strdup(path)));
  return alone ? divide(list, first, path, part) : STATUS_OK;
}

static Status add_every_part(TextFiles *list, char *const named[3]) {
  for (int i = 0; i < 3; i++) {
    if (named[i]) TRY(append(list, strdup(named[i])));
  }
  return STATUS_OK;
}

static Status add_folder(TextFiles *list, const char *folder, TextPart part) {
  char *named[3] = {NULL, NULL, NULL};
  Status status = STATUS_OK;
  for (int i = 0; i < 3 && status == STATUS_OK; i++) status = named_file(folder, (TextPart)i, &named[i]);
  bool known = named[TEXT_TRAIN] || named[TEXT_VALID];
  if (status == STATUS_OK)
    status = !known               ? add_all_texts(list, folder, part)
             : part == TEXT_WHOLE ? add_every_part(list, named)
                                  : add_named(list, folder, named, part);
  for (int i = 0; i < 3; i++) free(named[i]);
  return status;
}

static Status add_file(TextFiles *list, const char *path, TextPart part) {
  int first = list->count;
  TRY(append(list, strdup(path)));
  return part == TEXT_WHOLE ? STATUS_OK : divide(list, first, path, part);
}

Status text_files_add(TextFiles *list, const char *path, const char *data_dir, TextPart part) {
  char *found = NULL;
  TRY(locate(path, data_dir, &found));
  Status status = STATUS_OK;
  if (files_is_dir(found)) status = descend(&found);
  if (status == STATUS_OK) status = files_is_dir(found) ? add_folder(list, found, part) : add_file(list, found, part);
  free(found);
  return status;
}
