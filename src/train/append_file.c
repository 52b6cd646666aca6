/* See append_file.h. */
#include "train/append_file.h"
#include "base/array.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Status append_file_open(AppendFile *file, const char *path, bool fresh) {
  *file = (AppendFile){.fd = -1, .path = strdup(path)};
  if (!file->path) return status_set(STATUS_NO_MEMORY, "out of memory for the name %s", path);
  file->fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | (fresh ? O_CREAT | O_EXCL : 0), 0666);
  if (file->fd >= 0) file->size = lseek(file->fd, 0, SEEK_END);
  if (file->fd >= 0 && file->size >= 0) return STATUS_OK;
  int error = errno;
  status_set(STATUS_IO, "cannot open %s for writing: %s", path, strerror(error));
  errno = error;
  return STATUS_IO;
}

static int write_kept(const AppendFile *file) {
  for (size_t done = 0; done < file->kept_bytes;) {
    ssize_t n = write(file->fd, file->kept + done, file->kept_bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    done += (size_t)n;
  }
  return 0;
}

/* All that is kept, or nothing: half a record is taken back. */
static void flush(AppendFile *file) {
  int error = write_kept(file);
  if (error == 0) {
    if (file->behind) log_info("%s can be written again, and is complete", file->path);
    file->size += (off_t)file->kept_bytes;
    file->kept_bytes = 0;
    file->behind = false;
    return;
  }
  if (ftruncate(file->fd, file->size) != 0) error = errno;
  if (!file->behind) log_warning("cannot write %s: %s; the run goes on, and tries again later", file->path, strerror(error));
  file->behind = true;
}

static Status keep(AppendFile *file, const void *record, size_t bytes) {
  TRY(ARRAY_RESERVE(file->kept, file->kept_bytes, bytes, file->room, "a record"));
  memcpy(file->kept + file->kept_bytes, record, bytes);
  file->kept_bytes += bytes;
  return STATUS_OK;
}

Status append_file_add(AppendFile *file, const void *record, size_t bytes) {
  TRY(keep(file, record, bytes));
  flush(file);
  return STATUS_OK;
}

void append_file_close(AppendFile *file) {
  if (file->path && file->fd >= 0) {
    if (file->kept_bytes > 0) flush(file);
    if (file->kept_bytes > 0) log_warning("%s lacks its last %zu bytes, which could not be written", file->path, file->kept_bytes);
    close(file->fd);
  }
  free(file->path);
  free(file->kept);
  *file = (AppendFile){.fd = -1};
}
