/* Reading, writing and generating keys. Where a key may be missing is decided by the listener. */
#include "infer/cluster/key_file.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

KeyFile key_file_open(void) { return (KeyFile){.open = true}; }

static int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The newline, LF or CRLF, may be missing. */
static bool parse(KeyFile *key, const char *text, size_t size) {
  for (int i = 0; i < KEY_FILE_BYTES && size >= 2 * KEY_FILE_BYTES; i++) {
    int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    key->bytes[i] = (uint8_t)(high << 4 | low);
  }
  size_t rest = size - 2 * KEY_FILE_BYTES;
  const char *end = text + 2 * KEY_FILE_BYTES;
  return size >= 2 * KEY_FILE_BYTES && (rest == 0 || (rest == 1 && end[0] == '\n') || (rest == 2 && memcmp(end, "\r\n", 2) == 0));
}

/* Of systemd, for this service. */
static bool is_credential(const char *path) {
  const char *folder = getenv("CREDENTIALS_DIRECTORY");
  size_t length = folder ? strlen(folder) : 0;
  return length > 1 && strncmp(path, folder, length) == 0 && path[length] == '/' && !strstr(path + length, "/..");
}

mode_t key_file_exposed(const char *path, mode_t mode) { return mode & (S_IRWXG | S_IRWXO) & ~(is_credential(path) ? (mode_t)S_IRGRP : 0); }

static Status read_key(KeyFile *key, int fd, const char *path) {
  static const uint8_t zeroes[KEY_FILE_BYTES];
  char text[KEY_FILE_LINE + 2]; /* one byte more than any key has, to detect a longer file */
  size_t size = 0;
  ssize_t n = 1;
  Status status = STATUS_OK;
  struct stat file; /* of the open file, so that it cannot be replaced between the check and the reading */
  if (fstat(fd, &file) != 0) return status_set(STATUS_IO, "%s: %s", path, strerror(errno));
  if (!S_ISREG(file.st_mode)) return status_set(STATUS_BAD_FILE, "%s: a key file must be a regular file", path);
  if (key_file_exposed(path, file.st_mode))
    return status_set(STATUS_BAD_VALUE, "%s: others may read or change this key (mode %03o); run: chmod 600 %s", path,
                      (unsigned)(file.st_mode & 0777), path);
  if (file.st_uid != geteuid() && file.st_uid != 0)
    return status_set(STATUS_BAD_VALUE, "%s: this key belongs to another user (%ld), who may change it; run: chown %ld %s", path,
                      (long)file.st_uid, (long)geteuid(), path);
  while (size < sizeof text && n != 0 && status == STATUS_OK) {
    n = read(fd, text + size, sizeof text - size);
    if (n > 0) size += (size_t)n;
    if (n < 0 && errno != EINTR) status = status_set(STATUS_IO, "%s: cannot read the key: %s", path, strerror(errno));
  }
  if (status == STATUS_OK && !parse(key, text, size))
    status = status_set(STATUS_BAD_FILE, "%s: a key file is one line of %d hexadecimal digits; astra-infer keygen makes one", path,
                        2 * KEY_FILE_BYTES);
  OPENSSL_cleanse(text, sizeof text);
  if (status == STATUS_OK && memcmp(key->bytes, zeroes, KEY_FILE_BYTES) == 0)
    status = status_set(STATUS_BAD_VALUE, "%s: a key of zeroes is no secret; astra-infer keygen makes one", path);
  return status;
}

Status key_file_read(KeyFile *key, const char *path) {
  *key = (KeyFile){.open = false};
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a named pipe must not block */
  if (fd < 0)
    return status_set(errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, "%s: cannot open the key file: %s; astra-infer keygen makes one",
                      path, strerror(errno));
  Status status = read_key(key, fd, path);
  close(fd);
  if (status != STATUS_OK) OPENSSL_cleanse(key, sizeof *key);
  return status;
}

Status key_file_make(const char *path, char text[KEY_FILE_LINE + 1]) {
  uint8_t key[KEY_FILE_BYTES];
  if (RAND_priv_bytes(key, sizeof key) != 1) return status_set(STATUS_IO, "no random numbers from the system for a key");
  text_hex(key, KEY_FILE_BYTES, text);
  OPENSSL_cleanse(key, sizeof key);
  memcpy(text + KEY_FILE_LINE - 1, "\n", 2);
  if (!path) return STATUS_OK;
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd < 0 && errno == EEXIST)
    return status_set(STATUS_BAD_VALUE, "%s: already exists; a lost key cannot be recovered, so delete the file yourself first", path);
  if (fd < 0) return status_set(STATUS_IO, "%s: cannot make the key file: %s", path, strerror(errno));
  bool whole = write(fd, text, KEY_FILE_LINE) == KEY_FILE_LINE && fsync(fd) == 0;
  int fault = errno;
  whole = close(fd) == 0 && whole;
  if (whole) return STATUS_OK;
  unlink(path);
  return status_set(STATUS_IO, "%s: cannot write the key: %s", path, strerror(fault));
}
