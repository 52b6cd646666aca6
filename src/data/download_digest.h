/* SHA-256 and MD5 of files, as lower-case hexadecimal text. MD5 only finds accidents; it is here because some data sets publish no other.
 */
#ifndef DATA_DOWNLOAD_DIGEST_H
#define DATA_DOWNLOAD_DIGEST_H
#include "data/download.h"

enum { DOWNLOAD_DIGEST_TEXT = 65 }; /* 64 hexadecimal digits and a NUL */

const char *download_digest_name(DownloadCheck check); /* "SHA-256" */

/* Reads fd from its start to its end; path is for messages. check is not DOWNLOAD_UNCHECKED. */
Status download_digest_file(int fd, const char *path, DownloadCheck check, char text[DOWNLOAD_DIGEST_TEXT]);

/* A SHA-256 in an HTTP entity tag: "\"<64 hexadecimal digits>\"" (quotes optional, not weak), as lower-case text; false when it is none. */
bool download_digest_from_tag(const char *tag, char text[DOWNLOAD_DIGEST_TEXT]);

#endif
