/* A file of text as a stream of bytes, which files a part of a corpus consists of, and the stream of documents over them. Leaves out:
 * tokens (token_cache.c).
 *
 *   buffer:  | delivered | waiting ......... | room |
 *            0           at                  filled
 *
 * Invariant: bytes of the buffer belong to the file `index`; what was delivered is dropped before the next read. The first `scanned` bytes
 * that wait hold no place to cut at, so that each byte is looked at once, however far away such a place is. */
#include "data/text/text_source.h"
#include "base/array.h"
#include "base/files.h"
#include "base/status.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/data_paths.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* ---- One file as a stream of bytes ---- */

/* Unpacked on the way when its name ends in ".gz": plain files through read(2), .gz through zlib, which compares the checksum and the
 * length that end each member; libarchive's raw format looked at neither. What it lets through is text: a NUL byte is refused with the file
 * and the line. Invariant: `line` is the line of the next byte to be delivered; the end of a .gz is reported only when all of its members
 * were found whole. */

enum { READER_BLOCK = 1 << 16 };

/* A .gz: one member or several, one behind the other. */
typedef struct Unpacker {
  z_stream stream;
  bool inside; /* a member has begun and has not ended */
  uint8_t input[READER_BLOCK];
} Unpacker;

typedef struct TextReader {
  char *path;
  int fd;
  Unpacker *unpacker; /* of a .gz; NULL: plain */
  int64_t line;
  char held[3]; /* the first bytes, read ahead to look for a mark; `kept` of them are still to be delivered */
  size_t kept;
} TextReader;

static Status reader_error(const TextReader *reader, int error) {
  Status code = error == ENOENT ? STATUS_NOT_FOUND : STATUS_IO;
  return status_set(code, "%s: cannot be read: %s", reader->path, strerror(error));
}

static Status damaged(const TextReader *reader, const char *reason) {
  return status_set(STATUS_BAD_FILE, "%s, after line %lld: not a whole .gz file: %s; fetch or pack it again", reader->path,
                    (long long)reader->line - 1, reason);
}

static Status read_some(TextReader *reader, void *buffer, size_t room, size_t *got) {
  ssize_t more;
  do more = read(reader->fd, buffer, room);
  while (more < 0 && errno == EINTR);
  *got = more < 0 ? 0 : (size_t)more;
  return more < 0 ? reader_error(reader, errno) : STATUS_OK;
}

static Status unpacker_refill(TextReader *reader, size_t *got) {
  Unpacker *unpacker = reader->unpacker;
  TRY(read_some(reader, unpacker->input, READER_BLOCK, got));
  unpacker->stream.next_in = unpacker->input;
  unpacker->stream.avail_in = (uInt)*got;
  return STATUS_OK;
}

static Status unpacker_begin(TextReader *reader) {
  size_t got;
  Unpacker *unpacker = reader->unpacker = calloc(1, sizeof *unpacker);
  if (!unpacker || inflateInit2(&unpacker->stream, 16 + MAX_WBITS) != Z_OK) /* 16: gzip's header and trailer, nothing else */
    return status_no_memory(reader->path, "unpacking it");
  unpacker->inside = true;
  TRY(unpacker_refill(reader, &got));
  if (got >= 2 && unpacker->input[0] == 0x1f && unpacker->input[1] == 0x8b) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: not packed by gzip, though its name ends in .gz", reader->path);
}

/* At least one byte more, unless the file is at its end. */
static Status unpack(TextReader *reader, char *buffer, size_t room, size_t *got) {
  Unpacker *unpacker = reader->unpacker;
  z_stream *stream = &unpacker->stream;
  stream->next_out = (Bytef *)buffer;
  stream->avail_out = room < READER_BLOCK ? (uInt)room : READER_BLOCK;
  for (*got = 0; *got == 0;) {
    size_t read = stream->avail_in;
    if (read == 0) TRY(unpacker_refill(reader, &read));
    if (read == 0) return unpacker->inside ? damaged(reader, "it ends early") : STATUS_OK;
    if (!unpacker->inside) { /* behind a member: zeroes, with which tapes and disks fill a block, or another member */
      while (stream->avail_in > 0 && *stream->next_in == 0) stream->next_in++, stream->avail_in--;
      if (stream->avail_in == 0) continue;
      inflateReset(stream);
      unpacker->inside = true;
    }
    Bytef *before = stream->next_out;
    int code = inflate(stream, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) return damaged(reader, stream->msg ? stream->msg : "damaged");
    unpacker->inside = code != Z_STREAM_END;
    *got = (size_t)(stream->next_out - before);
  }
  return STATUS_OK;
}

/* Fills the buffer as far as the file reaches: a .gz delivers in small pieces. */
static Status fetch(TextReader *reader, char *buffer, size_t room, size_t *got) {
  *got = room < reader->kept ? room : reader->kept;
  memcpy(buffer, reader->held, *got);
  memmove(reader->held, reader->held + *got, reader->kept -= *got);
  for (size_t more = 1; *got < room && more > 0; *got += more) {
    if (reader->unpacker)
      TRY(unpack(reader, buffer + *got, room - *got, &more));
    else
      TRY(read_some(reader, buffer + *got, room - *got, &more));
  }
  return STATUS_OK;
}

/* O_NONBLOCK: a FIFO must be refused, not waited for. */
static Status reader_begin(TextReader *reader) {
  struct stat file;
  size_t got, length = strlen(reader->path);
  reader->fd = open(reader->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (reader->fd < 0 || fstat(reader->fd, &file) != 0) return reader_error(reader, errno);
  if (!S_ISREG(file.st_mode))
    return status_set(STATUS_BAD_FILE, "%s is %s; a text file is expected", reader->path,
                      S_ISDIR(file.st_mode) ? "a directory" : "a device or a pipe");
  if (length > 3 && strcmp(reader->path + length - 3, ".gz") == 0) TRY(unpacker_begin(reader));
  TRY(fetch(reader, reader->held, sizeof reader->held, &got));
  reader->kept = got - utf8_mark(reader->held, got);
  return STATUS_OK;
}

/* Accepts NULL. */
static void text_reader_close(TextReader *reader) {
  if (!reader) return;
  if (reader->unpacker) inflateEnd(&reader->unpacker->stream);
  free(reader->unpacker);
  if (reader->fd >= 0) close(reader->fd);
  free(reader->path);
  free(reader);
}

/* *reader is NULL after a failure. */
static Status text_reader_open(TextReader **reader, const char *path) {
  *reader = NULL;
  TextReader *fresh = calloc(1, sizeof *fresh);
  char *copy = strdup(path);
  if (!fresh || !copy) {
    free(fresh);
    free(copy);
    return status_no_memory(path, "opening it");
  }
  *fresh = (TextReader){.path = copy, .fd = -1, .line = 1};
  Status status = reader_begin(fresh);
  if (status != STATUS_OK) {
    text_reader_close(fresh);
    return status;
  }
  *reader = fresh;
  return STATUS_OK;
}

/* The next bytes, at least one and at most `room`; *got == 0 at the end. A byte order mark at the start of the file is left out. A .gz
 * whose members' checksums or lengths are wrong, that ends early, or that has anything but zeroes behind its last member is BAD_FILE: at
 * the latest when its end would be reported, so that who stops before the end must have it read to its end elsewhere
 * (text_reader_size). */
static Status text_reader_read(TextReader *reader, char *buffer, size_t room, size_t *got) {
  TRY(fetch(reader, buffer, room, got));
  const char *bad = memchr(buffer, 0, *got), *end = bad ? bad : buffer + *got;
  for (const char *at = buffer; (at = memchr(at, '\n', (size_t)(end - at))); at++) reader->line++;
  if (!bad) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s, line %lld: a NUL byte; text is expected, in UTF-8", reader->path, (long long)reader->line);
}

/* Bytes of a file, unpacked, without a byte order mark; reads it to its end. */
static Status text_reader_size(const char *path, int64_t *bytes) {
  TextReader *reader;
  char block[READER_BLOCK];
  *bytes = 0;
  TRY(text_reader_open(&reader, path));
  Status status = STATUS_OK;
  for (size_t got = 1; status == STATUS_OK && got > 0; *bytes += (int64_t)got)
    if ((status = text_reader_read(reader, block, sizeof block, &got)) != STATUS_OK) break;
  text_reader_close(reader);
  return status;
}

static Status read_whole(TextReader *reader, size_t limit, char **text, size_t *size) {
  size_t room = 0, got = 0;
  do {
    *size += got;
    if (*size > limit)
      return status_set(STATUS_BAD_FILE, "%s: more than %zu bytes; at most that many are accepted here", reader->path, limit);
    if (room - *size < READER_BLOCK) {
      char *grown = realloc(*text, (room = 2 * room + 2 * READER_BLOCK) + 1);
      if (!grown) return status_no_memory(reader->path, "its text");
      *text = grown;
    }
    TRY(text_reader_read(reader, *text + *size, room - *size, &got));
  } while (got > 0);
  (*text)[*size] = 0;
  return STATUS_OK;
}

Status text_source_read_file(const char *path, size_t limit, char **text, size_t *size) {
  TextReader *reader;
  *text = NULL;
  *size = 0;
  TRY(text_reader_open(&reader, path));
  Status status = read_whole(reader, limit, text, size);
  text_reader_close(reader);
  if (status == STATUS_OK) return STATUS_OK;
  free(*text);
  *text = NULL;
  return status;
}

/* ---- Which files, and which bytes of them ---- */

/* Invariant: the training part and the validation part of one path never share a byte. */

typedef struct TextFile {
  char *path;         /* owned */
  int64_t first, end; /* unpacked bytes [first, end) of it; end -1: to its end */
} TextFile;

typedef struct TextFiles {
  TextFile *files;
  int count;
  size_t room;
  bool divided; /* a 5% rule was applied */
} TextFiles;

enum { MAX_FILES = 1 << 20, HELD_OUT_PART = 20, BLOCK = 1 << 16 }; /* a twentieth: 5% */

/* In the order in which they are looked for. */
static const char *const part_names[][8] = {
    [TEXT_TRAIN] = {"train.txt", "wiki.train.tokens", "wiki.train.raw", NULL},
    [TEXT_VALID] = {"valid.txt", "val.txt", "validation.txt", "dev.txt", "wiki.valid.tokens", "wiki.valid.raw", NULL},
    [TEXT_TEST] = {"test.txt", "wiki.test.tokens", "wiki.test.raw", NULL}};

/* "train", "valid", "test", "whole" */
static const char *text_files_part(TextPart part) {
  static const char *const names[] = {[TEXT_TRAIN] = "train", [TEXT_VALID] = "valid", [TEXT_TEST] = "test", [TEXT_WHOLE] = "whole"};
  return names[part];
}

/* Takes `path` over, also on failure. */
static Status append(TextFiles *list, char *path) {
  if (!path) return status_no_memory(NULL, "a list of text files");
  Status status = list->count < MAX_FILES ? ARRAY_RESERVE(list->files, list->count, 1, list->room, "a list of text files")
                                          : status_set(STATUS_BAD_FILE, "more than %d text files; join them", MAX_FILES);
  if (status != STATUS_OK) {
    free(path);
    return status;
  }
  list->files[list->count++] = (TextFile){path, 0, -1};
  return STATUS_OK;
}

static void text_files_release(TextFiles *list) {
  for (int i = 0; i < list->count; i++) free(list->files[i].path);
  free(list->files);
  *list = (TextFiles){0};
}

static Status visit(void *list, const char *path) {
  return text_ends_with(path, ".txt") || text_ends_with(path, ".txt.gz") ? append(list, strdup(path)) : STATUS_OK;
}

/* Where a path leads: itself, or a data set of that name. */
static Status locate(const char *path, const char *data_dir, char **found) {
  *found = files_exists(path) ? strdup(path) : NULL;
  if (*found) return STATUS_OK;
  if (files_exists(path)) return status_no_memory(NULL, "a list of text files");
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
  if (shown == 1 && !inner) return status_no_memory(NULL, "a list of text files");
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
      if (!*found) return status_no_memory(NULL, "a list of text files");
      if (files_exists(*found)) return STATUS_OK;
      free(*found);
    }
  }
  *found = NULL;
  return STATUS_OK;
}

/* The last beginning of a line in the first `limit` bytes, the file's own beginning among them. */
static Status find_cut(const char *path, int64_t limit, int64_t *start) {
  TextReader *reader;
  char block[BLOCK];
  *start = 0;
  TRY(text_reader_open(&reader, path));
  Status status = STATUS_OK;
  size_t got = 1;
  for (int64_t at = 0; got > 0 && at < limit; at += (int64_t)got) {
    size_t room = limit - at < BLOCK ? (size_t)(limit - at) : BLOCK;
    if ((status = text_reader_read(reader, block, room, &got)) != STATUS_OK) break;
    const char *line = got ? memrchr(block, '\n', got) : NULL;
    if (line) *start = at + (line - block) + 1;
  }
  text_reader_close(reader);
  return status;
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
  /* Of the files from `first` on, what is before or behind byte `cut` of file `at` stays. */
  int from = part == TEXT_TRAIN ? (cut ? at + 1 : at) : first, end = part == TEXT_TRAIN ? list->count : at;
  if (part == TEXT_TRAIN)
    list->files[at].end = cut;
  else
    list->files[at].first = cut;
  for (int i = from; i < end; i++) free(list->files[i].path);
  memmove(list->files + from, list->files + end, (size_t)(list->count - end) * sizeof *list->files);
  list->count -= end - from;
  return STATUS_OK;
}

static Status divide(TextFiles *list, int first, const char *origin, TextPart part) {
  list->divided = true;
  int count = list->count - first;
  int64_t *sizes = calloc((size_t)count, sizeof *sizes);
  Status status = sizes ? STATUS_OK : status_no_memory(NULL, "a list of text files");
  for (int i = 0; i < count && status == STATUS_OK; i++) status = text_reader_size(list->files[first + i].path, &sizes[i]);
  if (status == STATUS_OK) status = divide_sizes(list, first, sizes, origin, part);
  free(sizes);
  return status;
}

/* Appends the file of a folder that names its parts; named[] belongs to the caller. */
static Status add_named(TextFiles *list, const char *folder, char *const named[3], TextPart part) {
  if (part == TEXT_TRAIN && !named[TEXT_TRAIN])
    return status_set(STATUS_NOT_FOUND,
                      "%s has %s but no training text; train.txt, train.txt.gz or wiki.train.tokens is expected beside it, or the files to "
                      "train on by name, as text:FILE,FILE",
                      folder, strrchr(named[named[TEXT_VALID] ? TEXT_VALID : TEXT_TEST], '/') + 1);
  TextPart other = part == TEXT_VALID ? TEXT_TEST : TEXT_VALID;
  bool alone = !named[TEXT_VALID] && !named[TEXT_TEST];
  const char *path = part == TEXT_TRAIN || alone ? named[TEXT_TRAIN] : named[part] ? named[part] : named[other];
  int first = list->count;
  TRY(append(list, strdup(path)));
  return alone ? divide(list, first, path, part) : STATUS_OK;
}

static Status add_folder(TextFiles *list, const char *folder, TextPart part) {
  char *named[3] = {NULL, NULL, NULL};
  Status status = STATUS_OK;
  for (int i = 0; i < 3 && status == STATUS_OK; i++) status = named_file(folder, (TextPart)i, &named[i]);
  if (status == STATUS_OK && !named[TEXT_TRAIN] && !named[TEXT_VALID] && !named[TEXT_TEST]) { /* all the texts that it holds */
    int first = list->count;
    status = files_walk(folder, visit, list);
    if (status == STATUS_OK && list->count == first)
      status = status_set(STATUS_NOT_FOUND, "%s: no *.txt and no *.txt.gz in this folder", folder);
    if (status == STATUS_OK && part != TEXT_WHOLE) status = divide(list, first, folder, part);
  } else if (status == STATUS_OK && part != TEXT_WHOLE) {
    status = add_named(list, folder, named, part);
  } else {
    for (int i = 0; i < 3 && status == STATUS_OK; i++)
      if (named[i]) status = append(list, strdup(named[i]));
  }
  for (int i = 0; i < 3; i++) free(named[i]);
  return status;
}

/* Appends what PATH stands for. data_dir: looked at first for a corpus by its name, or NULL. Release also after a failure. */
static Status text_files_add(TextFiles *list, const char *path, const char *data_dir, TextPart part) {
  char *found = NULL;
  TRY(locate(path, data_dir, &found));
  Status status = STATUS_OK;
  if (files_is_dir(found)) status = descend(&found);
  if (status == STATUS_OK && files_is_dir(found)) {
    status = add_folder(list, found, part);
  } else if (status == STATUS_OK) {
    int first = list->count;
    status = append(list, strdup(found));
    if (status == STATUS_OK && part != TEXT_WHOLE) status = divide(list, first, found, part);
  }
  free(found);
  return status;
}

/* ---- The stream of documents ---- */

enum { SOURCE_BLOCK = 1 << 20 };

struct TextSource {
  TextFiles files;
  bool by_line;
  char *description, *name; /* owned */
  bool whole;
  int index;          /* the file being read */
  TextReader *reader; /* of it, or NULL: not open yet */
  int64_t left;       /* bytes of it still to be read; -1: to its end */
  bool drained;       /* nothing left to read in it */
  bool open_document; /* a block was delivered and did not end its document */
  bool any;           /* a block with text was delivered */
  char *buffer;
  size_t at, filled, room, scanned;
};

static const char prefix_text[] = "text:", prefix_lines[] = "text-lines:";

static bool starts(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

bool text_source_knows(const char *name) { return starts(name, prefix_text) || starts(name, prefix_lines); }

/* ---- Opening ---- */

static Status add_list(TextSource *source, const char *paths, const char *data_dir, TextPart part) {
  if (files_exists(paths) || !strchr(paths, ',')) return text_files_add(&source->files, paths, data_dir, part);
  char *copy = strdup(paths), *rest = copy;
  if (!copy) return status_no_memory(paths, "its text");
  Status status = STATUS_OK;
  for (char *path; status == STATUS_OK && (path = strsep(&rest, ","));) {
    status = *path ? text_files_add(&source->files, path, data_dir, part)
                   : status_set(STATUS_BAD_VALUE, "'%s': nothing between two commas; PATH,PATH,... is expected", paths);
  }
  free(copy);
  return status;
}

static Status describe(TextSource *source, const char *paths, TextPart part) {
  const char *division = !source->files.divided ? "" : part == TEXT_TRAIN ? " (without its last 5%)" : " (the last 5%)";
  int written =
      asprintf(&source->description, "%s text, %s%d file%s, from %s%s", text_files_part(part), source->by_line ? "a document a line, " : "",
               source->files.count, text_plural(source->files.count), paths, division);
  if (written < 0) source->description = NULL;
  return written < 0 ? status_no_memory(paths, "its text") : STATUS_OK;
}

static Status open_source(TextSource *source, const char *data_dir, TextPart part) {
  const char *paths = source->name + (source->by_line ? strlen(prefix_lines) : strlen(prefix_text));
  if (!*paths) return status_set(STATUS_BAD_VALUE, "%s needs a path: %sPATH, a file or a folder", source->name, source->name);
  TRY(add_list(source, paths, data_dir, part));
  TRY(describe(source, paths, part));
  source->room = 2 * (size_t)SOURCE_BLOCK;
  source->buffer = malloc(source->room);
  return source->buffer ? STATUS_OK : status_no_memory(paths, "its text");
}

Status text_source_open(TextSource **source, const char *name, const char *data_dir, TextPart part) {
  *source = NULL;
  if (!text_source_knows(name)) return status_set(STATUS_BAD_VALUE, "'%s' is no text corpus; text:PATH and text-lines:PATH are", name);
  TextSource *fresh = calloc(1, sizeof *fresh);
  if (!fresh) return status_no_memory(name, "its text");
  fresh->by_line = starts(name, prefix_lines);
  fresh->name = strdup(name);
  Status status = fresh->name ? open_source(fresh, data_dir, part) : status_no_memory(name, "its text");
  if (status != STATUS_OK) {
    text_source_close(fresh);
    return status;
  }
  *source = fresh;
  return STATUS_OK;
}

/* Whether it leads to a file, also to one among the data sets. */
static bool is_file(const char *path, const char *data_dir) {
  char *found;
  if (locate(path, data_dir, &found) != STATUS_OK) return false;
  const bool file = !files_is_dir(found);
  free(found);
  return file;
}

static bool names_files(const char *name, const char *data_dir) {
  const char *at = strchr(name, ':') + 1;
  if (files_exists(at)) return is_file(at, data_dir);
  for (size_t length; *at; at += length + (at[length] == ',')) {
    char path[4096];
    length = strcspn(at, ",");
    if (length >= sizeof path) return false;
    memcpy(path, at, length);
    path[length] = 0;
    if (!is_file(path, data_dir)) return false;
  }
  return true;
}

TextPart text_source_eval_part(const char *name, const char *data_dir) { return names_files(name, data_dir) ? TEXT_WHOLE : TEXT_VALID; }

void text_source_close(TextSource *source) {
  if (!source) return;
  text_reader_close(source->reader);
  text_files_release(&source->files);
  free(source->description);
  free(source->name);
  free(source->buffer);
  free(source);
}

const char *text_source_describe(const TextSource *source) { return source->description; }

/* ---- Reading ---- */

static void next_file(TextSource *source, int index) {
  text_reader_close(source->reader);
  source->reader = NULL;
  source->index = index;
  source->at = source->filled = source->scanned = 0;
  source->drained = source->open_document = false;
}

void text_source_start(TextSource *source, bool whole) {
  next_file(source, 0);
  source->whole = whole;
  source->any = false;
}

/* Reads over what lies before the part. */
static Status skip_front(TextSource *source, int64_t bytes) {
  size_t got = 1;
  for (; bytes > 0 && got > 0; bytes -= (int64_t)got)
    TRY(text_reader_read(source->reader, source->buffer, bytes < SOURCE_BLOCK ? (size_t)bytes : SOURCE_BLOCK, &got));
  return STATUS_OK;
}

static Status open_file(TextSource *source) {
  const TextFile *file = &source->files.files[source->index];
  TRY(text_reader_open(&source->reader, file->path));
  source->left = file->end < 0 ? -1 : file->end - file->first;
  return skip_front(source, file->first);
}

/* Makes room for another block behind what waits. */
static Status make_room(TextSource *source) {
  memmove(source->buffer, source->buffer + source->at, source->filled -= source->at);
  source->at = 0;
  if (source->room - source->filled >= SOURCE_BLOCK) return STATUS_OK;
  char *grown = source->room <= SIZE_MAX / 2 ? realloc(source->buffer, 2 * source->room) : NULL;
  if (!grown) return status_no_memory(source->files.files[source->index].path, "its text");
  source->buffer = grown;
  source->room *= 2;
  return STATUS_OK;
}

static Status read_more(TextSource *source) {
  if (!source->reader) TRY(open_file(source));
  TRY(make_room(source));
  size_t got = 0, max = SOURCE_BLOCK;
  if (source->left >= 0 && source->left < SOURCE_BLOCK) max = (size_t)source->left;
  if (max) TRY(text_reader_read(source->reader, source->buffer + source->filled, max, &got));
  source->filled += got;
  if (source->left >= 0) source->left -= (int64_t)got;
  source->drained = got == 0;
  return STATUS_OK;
}

/* Hands out `bytes` of what waits and passes over `behind` more. */
static void deliver(TextSource *source, TextBlock *block, size_t bytes, size_t behind, bool ends) {
  *block = (TextBlock){source->buffer + source->at, bytes, ends};
  source->at += bytes + behind;
  source->scanned = 0;
  source->open_document = !ends;
}

/* A Latin letter, or the first byte of a character from U+00C0 to U+07FF (Greek, Cyrillic, Hebrew, Arabic), none of which is a space. */
static bool starts_word(unsigned char c) { return isalpha(c) || (c >= 0xC3 && c <= 0xDF); }

/* A place in text[0..size) before a space and what starts a word, the last one; 0: none. text[0..scanned) is known to hold none; a space at
 * its end had nothing behind it yet. */
static size_t text_source_find_cut(const char *text, size_t scanned, size_t size) {
  size_t from = scanned > 1 ? scanned - 1 : 1;
  for (size_t end = size - 1; end > from;) {
    const char *space = memrchr(text + from, ' ', end - from);
    if (!space) return 0;
    end = (size_t)(space - text);
    if (starts_word((unsigned char)space[1])) return end;
  }
  return 0;
}

/* One line of what waits, if a whole one is there. */
static bool take_line(TextSource *source, TextBlock *block) {
  const char *text = source->buffer + source->at;
  size_t waiting = source->filled - source->at;
  const char *end = memchr(text + source->scanned, '\n', waiting - source->scanned);
  source->scanned = waiting;
  if (!end && !(source->drained && waiting)) return false;
  size_t length = end ? (size_t)(end - text) : waiting, kept = length;
  if (kept && text[kept - 1] == '\r') kept--;
  deliver(source, block, kept, length - kept + (end != NULL), true);
  return true;
}

/* The next piece of a file that is one document. */
static bool take_piece(TextSource *source, TextBlock *block) {
  size_t waiting = source->filled - source->at;
  if (source->drained) {
    if (!waiting && !source->open_document) return false;
    deliver(source, block, waiting, 0, true);
    return true;
  }
  if (source->whole || waiting < SOURCE_BLOCK) return false;
  size_t cut = text_source_find_cut(source->buffer + source->at, source->scanned, waiting);
  source->scanned = waiting;
  if (cut) deliver(source, block, cut, 0, false);
  return cut > 0;
}

static bool take(TextSource *source, TextBlock *block) {
  if (!source->by_line) return take_piece(source, block);
  while (take_line(source, block)) {
    if (block->bytes) return true;
  }
  return false;
}

Status text_source_next(TextSource *source, TextBlock *block, bool *more) {
  *block = (TextBlock){"", 0, false};
  *more = false;
  while (source->index < source->files.count) {
    if (take(source, block)) {
      *more = source->any = true;
      return STATUS_OK;
    }
    if (source->drained)
      next_file(source, source->index + 1);
    else
      TRY(read_more(source));
  }
  return source->any ? STATUS_OK : status_set(STATUS_BAD_FILE, "%s: no text in it", source->description);
}

/* ---- Counting ---- */

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

void text_source_count(const TextSource *source, TextFacts *facts, const TextBlock *block) {
  bool inside = facts->in_word;
  for (size_t i = 0; i < block->bytes; i++) {
    bool space = is_space(block->text[i]);
    facts->words += !space && !inside;
    facts->lines += block->text[i] == '\n';
    inside = !space;
  }
  facts->in_word = inside && !block->ends;
  facts->bytes += (int64_t)block->bytes;
  facts->documents += block->ends;
  facts->lines += source->by_line && block->ends;
}
