/* The cluster's shared key: 32 random bytes, stored as one line of 64 hexadecimal digits in a file that only its owner can read. */
#ifndef INFER_KEY_FILE_H
#define INFER_KEY_FILE_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { KEY_FILE_BYTES = 32, KEY_FILE_LINE = 2 * KEY_FILE_BYTES + 1 /* digits, newline */ };

typedef struct KeyFile {
  uint8_t bytes[KEY_FILE_BYTES];
  bool open; /* no key: allowed on UNIX sockets only */
} KeyFile;

/* The key of a cluster without one: zeroes, with another TLS identity, so that devices with a key reject it. */
KeyFile key_file_open(void);

/* NOT_FOUND; IO; BAD_FILE: not one line of hexadecimal digits; BAD_VALUE: owned by neither this user nor root, or accessible to others (the
 * message has the command that fixes it), or all zeroes. */
Status key_file_read(KeyFile *key, const char *path);

/* The bits of the mode of the file at `path`, with keys of whatever kind, by which others than its owner may use it; 0: nobody else may.
 * systemd passes credentials in a folder that the service's user alone can enter, as files of root with an access list for that user, which
 * shows in the mode as if the group could read. */
mode_t key_file_exposed(const char *path, mode_t mode);

/* A fresh key as the line of its file, text, and in a new file of mode 0600 where path is not NULL. BAD_VALUE: the file exists; it is never
 * overwritten. IO: it cannot be written, or the system has no random numbers. */
Status key_file_make(const char *path, char text[KEY_FILE_LINE + 1]);

#endif
