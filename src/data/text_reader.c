/* Plain files through read(2), .gz through libarchive's raw format. Invariant: `line` is the line of the next byte to be delivered. */
#include "data/text_reader.h"
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READER_BLOCK = 1 << 16 };

struct TextReader {
  char *path;
  int fd;
  struct archive *archive; /* of a .gz; NULL: plain */
  bool empty;              /* a .gz with nothing in it */
  int64_t line;
  char held[3]; /* the first bytes, read ahead to look for a mark; `kept` of them are still to be delivered */
  size_t kept;
};

static Status reader_error(const TextReader *reader, int error) {
  Status code = error == ENOENT ? STATUS_NOT_FOUND : STATUS_IO;
  return status_set(code, "%s: cannot be read: %s", reader->path, strerror(error));
}

static Status archive_fault(const TextReader *reader) {
  const char *reason = archive_error_string(reader->archive);
  return status_set(STATUS_BAD_FILE, "%s, after line %lld: not a whole .gz file: %s; fetch or pack it again", reader->path,
                    (long long)reader->line - 1, reason ? reason : "damaged");
}

static Status archive_begin(TextReader *reader) {
  struct archive *archive = reader->archive = archive_read_new();
  if (!archive) return status_set(STATUS_NO_MEMORY, "%s: no memory to unpack it", reader->path);
  if ((archive_read_support_filter_gzip(archive) | archive_read_support_format_raw(archive) | archive_read_support_format_empty(archive)) !=
      ARCHIVE_OK)
    return status_set(STATUS_UNSUPPORTED, "%s: libarchive on this machine lacks gzip", reader->path);
  struct archive_entry *entry;
  if (archive_read_open_fd(archive, reader->fd, READER_BLOCK) != ARCHIVE_OK) return archive_fault(reader);
  int code = archive_read_next_header(archive, &entry);
  if (archive_filter_code(archive, 0) != ARCHIVE_FILTER_GZIP)
    return status_set(STATUS_BAD_FILE, "%s: not packed by gzip, though its name ends in .gz", reader->path);
  reader->empty = code == ARCHIVE_EOF;
  return code == ARCHIVE_OK || code == ARCHIVE_WARN || code == ARCHIVE_EOF ? STATUS_OK : archive_fault(reader);
}

static bool packed(const char *path) {
  size_t length = strlen(path);
  return length > 3 && strcmp(path + length - 3, ".gz") == 0;
}

/* Fills the buffer as far as the file reaches: an archive delivers in small pieces. */
static Status fetch(TextReader *reader, char *buffer, size_t room, size_t *got) {
  *got = room < reader->kept ? room : reader->kept;
  memcpy(buffer, reader->held, *got);
  memmove(reader->held, reader->held + *got, reader->kept -= *got);
  while (*got < room && !reader->empty) {
    ssize_t more =
        reader->archive ? archive_read_data(reader->archive, buffer + *got, room - *got) : read(reader->fd, buffer + *got, room - *got);
    if (more < 0 && !reader->archive && errno == EINTR) continue;
    if (more < 0) return reader->archive ? archive_fault(reader) : reader_error(reader, errno);
    if (more == 0) break;
    *got += (size_t)more;
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
  if (packed(reader->path)) TRY(archive_begin(reader));
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
  archive_read_free(reader->archive);
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
