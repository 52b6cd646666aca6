/* Moves the bytes of one URL into an open file, going on where an earlier try stopped. Knows HTTP through libcurl and nothing about
 * catalogues, checksums or names: those are download.c's. */
#ifndef DATA_DOWNLOAD_INTERNAL_H
#define DATA_DOWNLOAD_INTERNAL_H
#include "data/download.h"

enum { DOWNLOAD_DIGEST_TEXT = 65 }; /* 64 hexadecimal digits and a NUL */

const char *download_digest_name(DownloadCheck check); /* "SHA-256" */

/* Reads fd from its start to its end; path is for messages. check is not DOWNLOAD_UNCHECKED. */
Status download_digest_file(int fd, const char *path, DownloadCheck check, char text[DOWNLOAD_DIGEST_TEXT]);

/* A SHA-256 in an HTTP entity tag: "\"<64 hexadecimal digits>\"" (quotes optional, not weak), as lower-case text; false when it is none. */
bool download_digest_from_tag(const char *tag, char text[DOWNLOAD_DIGEST_TEXT]);

/* Unpacks tar(.gz|.bz2|.xz|.zst) and zip into directory. No entry may leave it: absolute paths, "..", links, devices and names given twice
 * are errors that name the entry. Only regular files and directories are made, beside the directory's own first ("DIR/.unpacking") and
 * moved in when all of them are complete; an archive that swells beyond reason is refused. */
Status download_unpack(const char *archive, const char *directory);

typedef struct TransferLimits {
  int tries;            /* in a row without getting further */
  double wait;          /* seconds before the second try; doubled for each further one */
  long connect_seconds; /* to reach the server */
  long slow_bytes;      /* fewer bytes a second than this ... */
  long slow_seconds;    /* ... for this long: given up */
} TransferLimits;

extern const TransferLimits download_transfer_limits; /* what download_file uses */

typedef struct Transfer {
  const char *url, *title; /* title: shown by the progress bar */
  const char *path;        /* of the file, for messages */
  const char *tag_path;    /* where the validator of a partial file is kept between runs ("NAME.part.etag") */
  int fd;                  /* opened for reading and writing; bytes already in it are resumed from, if the server can show they still fit */
  int64_t max;             /* bytes; more is an error */
  bool quiet;
  char sha256[DOWNLOAD_DIGEST_TEXT]; /* out: what the server says the file's SHA-256 is, or "" */
} Transfer;

/* The file is complete, as far as the transport can tell, when this is OK. After an error what came so far is kept for a later try, unless
 * it is useless. */
Status download_transfer(Transfer *transfer, const TransferLimits *limits);

/* download_file with other limits. */
Status download_fetch(const DownloadFile *file, const char *directory, bool quiet, const TransferLimits *limits);

#endif
