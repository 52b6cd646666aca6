/* astra-data get: HTTPS downloads that show progress, resume, are verified against published checksums and are unpacked safely. */
#ifndef DATA_DOWNLOAD_H
#define DATA_DOWNLOAD_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum DownloadCheck { DOWNLOAD_UNCHECKED, DOWNLOAD_SHA256, DOWNLOAD_MD5 } DownloadCheck;

typedef struct DownloadFile {
  const char *url;
  const char *name; /* stored as DIR/name */
  DownloadCheck check;
  const char *digest; /* lower-case hex; NULL with UNCHECKED: then the server's own X-Linked-ETag / ETag SHA-256 is used when it is one */
  bool unpack;        /* an archive: unpacked into DIR and then removed */
} DownloadFile;

typedef struct DownloadItem {
  const char *name; /* "cifar100", "vit-base" */
  const char *kind; /* "datasets" or "checkpoints" */
  const char *about, *licence;
  const DownloadFile *files;
  int count;
} DownloadItem;

const DownloadItem *download_catalogue(int *count);
const DownloadItem *download_find(const char *name); /* NULL: unknown */

/* Fetches one file into directory, resuming a "NAME.part" left by an earlier try, checks and (if so said) unpacks it. */
Status download_file(const DownloadFile *file, const char *directory, bool quiet);
Status download_item(const DownloadItem *item, const char *directory, bool quiet);

/* Unpacks tar(.gz|.xz|.zst), zip... into directory. No entry may leave it: absolute paths, "..", links that point outside, devices are
 * errors. Only regular files and directories are made. */
Status download_unpack(const char *archive, const char *directory);

#endif
