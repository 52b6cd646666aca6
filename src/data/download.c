/* The way of one file: into NAME.part (resumed, locked), checked against its digest, renamed to NAME, unpacked if it is an archive.
 * Invariant: what bears its final name is complete and has passed its check. The bytes are moved by download_transfer.c, digests are
 * computed by download_digest.c, archives opened by download_unpack.c; names come from the catalogue, never from a server. */
#include "data/download.h"
#include "base/files.h"
#include "base/log.h"
#include "data/download_transfer.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const int64_t download_most = (int64_t)64 << 30;

/* Where the file lives while and after it is fetched. */
typedef struct Place {
  char *final, *part, *tag; /* DIR/NAME, DIR/NAME.part, DIR/NAME.part.etag */
  int fd;                   /* of part, locked; -1 */
} Place;

static void place_release(Place *place) {
  if (place->fd >= 0) close(place->fd);
  free(place->final);
  free(place->part);
  free(place->tag);
}

static Status download_check_name(const char *name) {
  if (name[0] && name[0] != '.' && !strchr(name, '/')) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "'%s' is no name for a downloaded file: a plain name is needed, without '/' and not hidden", name);
}

static Status place_name(Place *place, const DownloadFile *file, const char *directory) {
  place->final = files_join(directory, file->name);
  if (!place->final || asprintf(&place->part, "%s.part", place->final) < 0) place->part = NULL;
  if (!place->part || asprintf(&place->tag, "%s.part.etag", place->final) < 0) place->tag = NULL;
  return place->tag ? STATUS_OK : status_set(STATUS_NO_MEMORY, "out of memory for the name of %s", file->name);
}

/* Another process may have finished and renamed the file between our open and our lock: then the lock is on the wrong file. */
static bool place_still_there(const Place *place) {
  struct stat ours, named;
  return fstat(place->fd, &ours) == 0 && lstat(place->part, &named) == 0 && ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

static Status place_open(Place *place) {
  place->fd = open(place->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (place->fd < 0)
    return status_set(STATUS_IO, "%s: cannot be written: %s; choose another place with --dir", place->part, strerror(errno));
  bool busy = flock(place->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; /* file systems without locks: go on */
  if (busy || !place_still_there(place))
    return status_set(STATUS_IO, "%s: another process is downloading it; wait for it to finish", place->part);
  return STATUS_OK;
}

static Status download_mismatch(const Place *place, const char *url, DownloadCheck check, const char *expected, const char *found) {
  unlink(place->part);
  unlink(place->tag);
  return status_set(
      STATUS_BAD_FILE,
      "%s: the downloaded file is not the published one and was removed: %s expected %s, found %s. Download it again; if that "
      "does not help, the file on the server was replaced or the line is tampered with",
      url, download_digest_name(check), expected, found);
}

/* Nothing to compare with: size and digest are told, so that they can be compared by hand or with another machine's. */
static Status download_tell(const Place *place, const DownloadFile *file, bool quiet) {
  char found[DOWNLOAD_DIGEST_TEXT];
  struct stat part;
  if (quiet) return STATUS_OK;
  TRY(download_digest_file(place->fd, place->part, DOWNLOAD_SHA256, found));
  if (fstat(place->fd, &part) != 0) return status_set(STATUS_IO, "%s: cannot be examined: %s", place->part, strerror(errno));
  log_info("%s: not checked, because no checksum is published: %lld bytes, SHA-256 %s", file->name, (long long)part.st_size, found);
  return STATUS_OK;
}

/* Against the digest in the catalogue, else against the one the server published. */
static Status download_verify(const Place *place, const DownloadFile *file, const char *served, bool quiet) {
  DownloadCheck check = file->check;
  const char *expected = file->digest;
  if (check == DOWNLOAD_UNCHECKED && served[0]) check = DOWNLOAD_SHA256, expected = served;
  if (check == DOWNLOAD_UNCHECKED) return download_tell(place, file, quiet);
  char found[DOWNLOAD_DIGEST_TEXT];
  TRY(download_digest_file(place->fd, place->part, check, found));
  if (strcmp(found, expected) != 0) return download_mismatch(place, file->url, check, expected, found);
  if (!quiet)
    log_info("%s: %s is as %s (%s)", file->name, download_digest_name(check), file->digest ? "published" : "the server says", found);
  return STATUS_OK;
}

static Status download_to_part(Place *place, const DownloadFile *file, bool quiet, const TransferLimits *limits) {
  TRY(place_open(place));
  Transfer transfer = {.url = file->url,
                       .title = file->name,
                       .path = place->part,
                       .tag_path = place->tag,
                       .fd = place->fd,
                       .most = file->most ? file->most : download_most,
                       .quiet = quiet};
  Status status = download_transfer(&transfer, limits);
  struct stat part;
  if (status != STATUS_OK && fstat(place->fd, &part) == 0 && part.st_size == 0) unlink(place->part); /* nothing came: leave nothing */
  if (status != STATUS_OK) return status;
  TRY(download_verify(place, file, transfer.sha256, quiet));
  if (rename(place->part, place->final) != 0)
    return status_set(STATUS_IO, "%s: cannot be renamed to %s: %s", place->part, file->name, strerror(errno));
  unlink(place->tag);
  return STATUS_OK;
}

static bool download_file_present(const DownloadFile *file, const char *directory) {
  if (file->unpack && !file->leaves) return false;
  char *path = files_join(directory, file->unpack ? file->leaves : file->name);
  bool present = path && files_exists(path);
  free(path);
  return present;
}

bool download_present(const DownloadItem *item, const char *directory) {
  for (int i = 0; i < item->count; i++) {
    if (!download_file_present(&item->files[i], directory)) return false;
  }
  return true;
}

static Status download_into(Place *place, const DownloadFile *file, const char *directory, bool quiet, const TransferLimits *limits) {
  TRY(place_name(place, file, directory));
  TRY(files_make_dirs(directory));
  if (!files_exists(place->final)) TRY(download_to_part(place, file, quiet, limits)); /* else: a checked archive, not unpacked yet */
  if (!file->unpack) return STATUS_OK;
  if (!quiet) log_info("unpacking %s", place->final);
  Status status = download_unpack(place->final, directory);
  if (status == STATUS_BAD_FILE) {
    unlink(place->final);
    return status_wrap(status, "%s does not hold a usable archive, the downloaded file was removed", file->url);
  }
  TRY(status);
  if (unlink(place->final) != 0) return status_set(STATUS_IO, "%s: cannot be removed after unpacking: %s", place->final, strerror(errno));
  return STATUS_OK;
}

Status download_fetch(const DownloadFile *file, const char *directory, bool quiet, const TransferLimits *limits) {
  TRY(download_check_name(file->name));
  if (download_file_present(file, directory)) {
    if (!quiet) log_info("%s is there already; remove it to download it again", file->unpack ? file->leaves : file->name);
    return STATUS_OK;
  }
  Place place = {.fd = -1};
  Status status = download_into(&place, file, directory, quiet, limits);
  place_release(&place);
  return status;
}

Status download_file(const DownloadFile *file, const char *directory, bool quiet) {
  return download_fetch(file, directory, quiet, &download_transfer_limits);
}

Status download_item(const DownloadItem *item, const char *directory, bool quiet) {
  for (int i = 0; i < item->count; i++) TRY(download_file(&item->files[i], directory, quiet));
  return STATUS_OK;
}
