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
  const char *leaves; /* with unpack: what is in DIR afterwards ("cifar-100-binary"), by which a finished one is known; or NULL */
  int64_t max;        /* largest size accepted, in bytes; 0: 64 GiB */
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

/* True when every file of the item (or what its archive leaves) lies in directory. Files get their names only when whole and checked. */
bool download_present(const DownloadItem *item, const char *directory);
Status download_item(const DownloadItem *item, const char *directory, bool quiet);

/* Unpacks tar(.gz|.bz2|.xz|.zst) and zip into directory. No entry may leave it: absolute paths, "..", links, devices and names given twice
 * are errors that name the entry. Only regular files and directories are made, beside the directory's own first ("DIR/.unpacking") and
 * moved in when all of them are complete; an archive that swells beyond reason is refused. */
Status download_unpack(const char *archive, const char *directory);

#endif
