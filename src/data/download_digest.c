/* Digests of files through OpenSSL's EVP, read in blocks: nothing is kept in memory, whatever the file's size. */
#include "data/download_digest.h"
#include <ctype.h>
#include <errno.h>
#include <openssl/evp.h>
#include <string.h>
#include <unistd.h>

enum { DIGEST_BLOCK = 1 << 16 };

const char *download_digest_name(DownloadCheck check) { return check == DOWNLOAD_MD5 ? "MD5" : "SHA-256"; }

static void digest_hex(const unsigned char *bytes, unsigned size, char text[DOWNLOAD_DIGEST_TEXT]) {
  static const char digits[] = "0123456789abcdef";
  for (unsigned i = 0; i < size; i++) {
    text[2 * i] = digits[bytes[i] >> 4];
    text[2 * i + 1] = digits[bytes[i] & 15];
  }
  text[2 * size] = '\0';
}

static Status digest_stream(EVP_MD_CTX *context, int fd, const char *path) {
  unsigned char block[DIGEST_BLOCK];
  for (off_t at = 0;;) {
    ssize_t got = pread(fd, block, sizeof block, at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return status_set(STATUS_IO, "%s: cannot be read: %s", path, strerror(errno));
    if (got == 0) return STATUS_OK;
    if (!EVP_DigestUpdate(context, block, (size_t)got)) return status_set(STATUS_UNSUPPORTED, "%s: computing its digest failed", path);
    at += got;
  }
}

Status download_digest_file(int fd, const char *path, DownloadCheck check, char text[DOWNLOAD_DIGEST_TEXT]) {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  if (!context) return status_set(STATUS_NO_MEMORY, "out of memory for the digest of %s", path);
  Status status = STATUS_OK;
  if (!EVP_DigestInit_ex(context, check == DOWNLOAD_MD5 ? EVP_md5() : EVP_sha256(), NULL))
    status =
        status_set(STATUS_UNSUPPORTED, "OpenSSL on this machine does not offer %s, needed to check %s", download_digest_name(check), path);
  if (status == STATUS_OK) status = digest_stream(context, fd, path);
  if (status == STATUS_OK && (!EVP_DigestFinal_ex(context, bytes, &size) || size > (DOWNLOAD_DIGEST_TEXT - 1) / 2))
    status = status_set(STATUS_UNSUPPORTED, "%s: computing its digest failed", path);
  EVP_MD_CTX_free(context);
  if (status == STATUS_OK) digest_hex(bytes, size, text);
  return status;
}

bool download_digest_from_tag(const char *tag, char text[DOWNLOAD_DIGEST_TEXT]) {
  const size_t digits = DOWNLOAD_DIGEST_TEXT - 1;
  bool quoted = tag[0] == '"';
  tag += quoted;
  if (strlen(tag) != digits + quoted || (quoted && tag[digits] != '"')) return false;
  for (size_t i = 0; i < digits; i++) {
    if (!isxdigit((unsigned char)tag[i])) return false;
    text[i] = (char)tolower((unsigned char)tag[i]);
  }
  text[digits] = '\0';
  return true;
}
