/* The stream of documents over text_reader.c. Leaves out: which files (text_files.c), tokens (token_cache.c).
 *
 *   buffer:  | delivered | waiting ......... | room |
 *            0           at                  filled
 *
 * Invariant: bytes of the buffer belong to the file `index`; what was delivered is dropped before the next read. The first `scanned` bytes
 * that wait hold no place to cut at, so that each byte is looked at once, however long the way to such a place is. */
#include "data/text/text_source.h"
#include "base/files.h"
#include "data/text/text_reader.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static Status no_memory(const char *name) { return status_set(STATUS_NO_MEMORY, "%s: no memory for its text", name); }

/* ---- Opening ---- */

static Status add_list(TextSource *source, const char *paths, const char *data_dir, TextPart part) {
  if (files_exists(paths) || !strchr(paths, ',')) return text_files_add(&source->files, paths, data_dir, part);
  char *copy = strdup(paths), *rest = copy;
  if (!copy) return no_memory(paths);
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
               source->files.count, source->files.count == 1 ? "" : "s", paths, division);
  if (written < 0) source->description = NULL;
  return written < 0 ? no_memory(paths) : STATUS_OK;
}

static Status open_source(TextSource *source, const char *data_dir, TextPart part) {
  const char *paths = source->name + (source->by_line ? strlen(prefix_lines) : strlen(prefix_text));
  if (!*paths) return status_set(STATUS_BAD_VALUE, "%s needs a path: %sPATH, a file or a folder", source->name, source->name);
  TRY(add_list(source, paths, data_dir, part));
  TRY(describe(source, paths, part));
  source->room = 2 * (size_t)SOURCE_BLOCK;
  source->buffer = malloc(source->room);
  return source->buffer ? STATUS_OK : no_memory(paths);
}

Status text_source_open(TextSource **source, const char *name, const char *data_dir, TextPart part) {
  *source = NULL;
  if (!text_source_knows(name)) return status_set(STATUS_BAD_VALUE, "'%s' is no text corpus; text:PATH and text-lines:PATH are", name);
  TextSource *fresh = calloc(1, sizeof *fresh);
  if (!fresh) return no_memory(name);
  fresh->by_line = starts(name, prefix_lines);
  fresh->name = strdup(name);
  Status status = fresh->name ? open_source(fresh, data_dir, part) : no_memory(name);
  if (status != STATUS_OK) {
    text_source_close(fresh);
    return status;
  }
  *source = fresh;
  return STATUS_OK;
}

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
  if (!grown) return no_memory(source->files.files[source->index].path);
  source->buffer = grown;
  source->room *= 2;
  return STATUS_OK;
}

static Status read_more(TextSource *source) {
  if (!source->reader) TRY(open_file(source));
  TRY(make_room(source));
  size_t got = 0, most = SOURCE_BLOCK;
  if (source->left >= 0 && source->left < SOURCE_BLOCK) most = (size_t)source->left;
  if (most) TRY(text_reader_read(source->reader, source->buffer + source->filled, most, &got));
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

/* A place in text[0..size) before a space and a letter, the last one; 0: none. text[0..scanned) is known to hold none; a space at its end
 * had no letter behind it yet. */
static size_t find_cut(const char *text, size_t scanned, size_t size) {
  size_t from = scanned > 1 ? scanned - 1 : 1;
  for (size_t end = size - 1; end > from;) {
    const char *space = memrchr(text + from, ' ', end - from);
    if (!space) return 0;
    end = (size_t)(space - text);
    if (isalpha((unsigned char)space[1])) return end;
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
  size_t cut = find_cut(source->buffer + source->at, source->scanned, waiting);
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
