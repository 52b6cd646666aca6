/* Plain files through read(2), .gz through zlib, which compares the checksum and the length that end each member; libarchive's raw format
 * looked at neither. Invariant: `line` is the line of the next byte to be delivered; the end of a .gz is reported only when all of its
 * members were found whole. */
#include "data/text/text_reader.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { READER_BLOCK = 1 << 16 };

/* A .gz: one member or several, one behind the other. */
typedef struct Unpacker {
  z_stream stream;
  bool inside; /* a member has begun and has not ended */
  uint8_t input[READER_BLOCK];
} Unpacker;

struct TextReader {
  char *path;
  int fd;
  Unpacker *unpacker; /* of a .gz; NULL: plain */
  int64_t line;
  char held[3]; /* the first bytes, read ahead to look for a mark; `kept` of them are still to be delivered */
  size_t kept;
};

static Status reader_error(const TextReader *reader, int error) {
  Status code = error == ENOENT ? STATUS_NOT_FOUND : STATUS_IO;
  return status_set(code, "%s: cannot be read: %s", reader->path, strerror(error));
}

/* ---- .gz ---- */

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
    return status_set(STATUS_NO_MEMORY, "%s: no memory to unpack it", reader->path);
  unpacker->inside = true;
  TRY(unpacker_refill(reader, &got));
  if (got >= 2 && unpacker->input[0] == 0x1f && unpacker->input[1] == 0x8b) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: not packed by gzip, though its name ends in .gz", reader->path);
}

/* Behind a member: zeroes, with which tapes and disks fill a block, or another member. */
static void begin_member(Unpacker *unpacker) {
  z_stream *stream = &unpacker->stream;
  while (stream->avail_in > 0 && *stream->next_in == 0) stream->next_in++, stream->avail_in--;
  if (stream->avail_in == 0) return;
  inflateReset(stream);
  unpacker->inside = true;
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
    if (!unpacker->inside) begin_member(unpacker);
    if (!unpacker->inside) continue;
    Bytef *before = stream->next_out;
    int code = inflate(stream, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) return damaged(reader, stream->msg ? stream->msg : "damaged");
    unpacker->inside = code != Z_STREAM_END;
    *got = (size_t)(stream->next_out - before);
  }
  return STATUS_OK;
}

static void unpacker_free(Unpacker *unpacker) {
  if (!unpacker) return;
  inflateEnd(&unpacker->stream);
  free(unpacker);
}

static bool packed(const char *path) {
  size_t length = strlen(path);
  return length > 3 && strcmp(path + length - 3, ".gz") == 0;
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

static Status skip_mark(TextReader *reader) {
  static const char mark[] = "\xef\xbb\xbf"; /* of UTF-8 */
  size_t got;
  TRY(fetch(reader, reader->held, sizeof reader->held, &got));
  bool marked = got == sizeof reader->held && memcmp(reader->held, mark, got) == 0;
  reader->kept = marked ? 0 : got;
  return STATUS_OK;
}

/* O_NONBLOCK: a FIFO must be refused, not waited for. */
static Status reader_begin(TextReader *reader) {
  struct stat file;
  reader->fd = open(reader->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (reader->fd < 0 || fstat(reader->fd, &file) != 0) return reader_error(reader, errno);
  if (!S_ISREG(file.st_mode))
    return status_set(STATUS_BAD_FILE, "%s is %s; a text file is expected", reader->path,
                      S_ISDIR(file.st_mode) ? "a directory" : "a device or a pipe");
  if (packed(reader->path)) TRY(unpacker_begin(reader));
  return skip_mark(reader);
}

Status text_reader_open(TextReader **reader, const char *path) {
  *reader = NULL;
  TextReader *fresh = calloc(1, sizeof *fresh);
  char *copy = strdup(path);
  if (!fresh || !copy) {
    free(fresh);
    free(copy);
    return status_set(STATUS_NO_MEMORY, "%s: no memory to open it", path);
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

void text_reader_close(TextReader *reader) {
  if (!reader) return;
  unpacker_free(reader->unpacker);
  if (reader->fd >= 0) close(reader->fd);
  free(reader->path);
  free(reader);
}

static int64_t count_lines(const char *text, size_t size) {
  int64_t lines = 0;
  for (const char *at = text, *end = text + size; (at = memchr(at, '\n', (size_t)(end - at))); at++) lines++;
  return lines;
}

static Status check_text(TextReader *reader, const char *text, size_t size) {
  const char *bad = memchr(text, 0, size);
  reader->line += count_lines(text, bad ? (size_t)(bad - text) : size);
  if (!bad) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s, line %lld: a NUL byte; text is expected, in UTF-8", reader->path, (long long)reader->line);
}

Status text_reader_read(TextReader *reader, char *buffer, size_t room, size_t *got) {
  TRY(fetch(reader, buffer, room, got));
  return check_text(reader, buffer, *got);
}

static Status measure(TextReader *reader, int64_t *bytes) {
  char block[READER_BLOCK];
  *bytes = 0;
  for (size_t got = 1; got > 0; *bytes += (int64_t)got) TRY(text_reader_read(reader, block, sizeof block, &got));
  return STATUS_OK;
}

Status text_reader_size(const char *path, int64_t *bytes) {
  TextReader *reader;
  TRY(text_reader_open(&reader, path));
  Status status = measure(reader, bytes);
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
      if (!grown) return status_set(STATUS_NO_MEMORY, "%s: no memory for its text", reader->path);
      *text = grown;
    }
    TRY(text_reader_read(reader, *text + *size, room - *size, &got));
  } while (got > 0);
  (*text)[*size] = 0;
  return STATUS_OK;
}

Status text_reader_all(const char *path, size_t limit, char **text, size_t *size) {
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
