/* The key that all devices of a cluster share: 32 random bytes, in a file of one line of 64 hexadecimal digits that only its owner can
 * read. */
#ifndef INFER_KEY_FILE_H
#define INFER_KEY_FILE_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

enum { KEY_FILE_BYTES = 32, KEY_FILE_LINE = 2 * KEY_FILE_BYTES + 1 /* digits, newline */ };

typedef struct KeyFile {
  uint8_t bytes[KEY_FILE_BYTES];
  bool open; /* no key at all: known to everybody, for UNIX sockets alone */
} KeyFile;

/* The key of a cluster that has none: zeroes, under another name on the wire, so that a device with a key refuses it. */
KeyFile key_file_open(void);

/* A fresh one; IO when the system has no random numbers. */
Status key_file_random(KeyFile *key);

/* NOT_FOUND; IO; BAD_FILE: no such line; BAD_VALUE: it belongs neither to this user nor to root, or others than its owner may read or
 * write it, with the command that ends that; or it is all zeroes. */
Status key_file_read(KeyFile *key, const char *path);

/* Writes a key, readable for its owner alone. A file that is there already stays as it is: BAD_VALUE. */
Status key_file_write(const KeyFile *key, const char *path);

/* The line of the file, with a NUL behind. */
void key_file_text(const KeyFile *key, char text[KEY_FILE_LINE + 1]);

#endif
