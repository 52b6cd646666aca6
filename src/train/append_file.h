/* A file that grows by whole records, on a disk that may be full for a while: a record that cannot be written is kept, said once, and tried
 * again with the next one. Invariant: the file holds whole records only, in order. Private to metrics.c and event_file.c. */
#ifndef TRAIN_APPEND_FILE_H
#define TRAIN_APPEND_FILE_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct AppendFile {
  int fd; /* -1: not open */
  char *path;
  off_t size;    /* of what was written whole */
  uint8_t *kept; /* not written yet */
  size_t kept_bytes, room;
  bool behind; /* the last try failed */
} AppendFile;

/* Opens an existing file, or makes a new one (`fresh`: it must not exist, else errno is EEXIST). IO when that cannot be. Close also then.
 */
Status append_file_open(AppendFile *file, const char *path, bool fresh);

/* Adds a record. A warning, and OK, when the disk is full; NO_MEMORY is the only failure. */
Status append_file_add(AppendFile *file, const void *record, size_t bytes);

/* Tries once more, warns of what is lost, closes. Accepts one that failed to open, and one that was closed. */
void append_file_close(AppendFile *file);

#endif
