/* Archives into a directory, trusting nothing in them.
 *
 * An entry's name is taken apart into components; each directory on its way is opened from the one above it without following links, so
 * no name can lead out. Everything is written to "DIR/.unpacking" first and moved in when the archive has been read to its end: until then
 * nothing in DIR changes. A lock on DIR keeps two processes apart, so that a ".unpacking" found at the start is a dead one's and is
 * removed. Links, devices, names given twice and archives that swell beyond reason are refused. Filters that would start another program
 * are not enabled. Left out: checking contents. libarchive does not even compare the checksum inside a gzip file; a flipped bit is what the
 * published digest is for (download.c). */
#include "base/files.h"
#include "data/download.h"
#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  UNPACK_BLOCK = 1 << 16,
  UNPACK_NAME = 1024,      /* longest entry name */
  UNPACK_DEPTH = 32,       /* most directories in one name */
  UNPACK_ENTRY_COST = 1024 /* bytes an entry or directory counts for, so that millions of empty ones are seen too */
};
static const int64_t unpack_free = 16 << 20;         /* any archive may grow to this much ... */
static const int64_t unpack_ratio = 200;             /* ... or to this many times its size ... */
static const int64_t unpack_max = (int64_t)64 << 30; /* ... but to no more than this */
static const char unpack_folder[] = ".unpacking";

typedef struct Unpack {
  const char *archive;  /* its path, for messages */
  int root;             /* the directory ".unpacking" */
  int64_t total, limit; /* bytes written so far and accepted */
  int64_t entries;
  char shown[UNPACK_NAME + 4]; /* the entry's name with unprintable characters replaced, for messages */
} Unpack;

static Status unpack_entry_error(const Unpack *unpack, const char *why) {
  return status_set(STATUS_BAD_FILE, "%s: entry '%s' %s; nothing was unpacked", unpack->archive, unpack->shown, why);
}

static Status unpack_io_error(const Unpack *unpack, const char *what) {
  return status_set(STATUS_IO, "%s: cannot %s '%s': %s; nothing was unpacked", unpack->archive, what, unpack->shown, strerror(errno));
}

static Status unpack_count(Unpack *unpack, int64_t bytes) {
  unpack->total += bytes;
  if (unpack->total <= unpack->limit) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: unpacks to more than %lld MB, which is beyond reason for its size; nothing was unpacked",
                    unpack->archive, (long long)(unpack->limit / 1000000));
}

static bool unpack_printable(unsigned char c) { return c >= 0x20 && c != 0x7f; }

/* The entry's name, for messages: control characters could drive the reader's terminal. */
static void unpack_show(Unpack *unpack, const char *name) {
  size_t length = strlen(name), kept = length < UNPACK_NAME ? length : UNPACK_NAME;
  for (size_t i = 0; i < kept; i++) unpack->shown[i] = unpack_printable((unsigned char)name[i]) ? name[i] : '?';
  strcpy(unpack->shown + kept, kept < length ? "..." : "");
}

/* Refuses names that could mean anything outside. */
static Status unpack_check_name(const Unpack *unpack, const char *name) {
  size_t length = strlen(name);
  if (length == 0) return unpack_entry_error(unpack, "has an empty name");
  if (length > UNPACK_NAME) return unpack_entry_error(unpack, "has a name that is too long");
  if (name[0] == '/') return unpack_entry_error(unpack, "has an absolute path");
  for (size_t i = 0; i < length; i++) {
    if (!unpack_printable((unsigned char)name[i])) return unpack_entry_error(unpack, "has control characters in its name");
  }
  int depth = 0;
  for (const char *part = name; *part; depth++) {
    size_t size = strcspn(part, "/");
    if (size == 2 && part[0] == '.' && part[1] == '.') return unpack_entry_error(unpack, "leads out of the directory ('..')");
    if (size > NAME_MAX) return unpack_entry_error(unpack, "has a name that is too long");
    part += size + (part[size] == '/');
  }
  return depth > UNPACK_DEPTH ? unpack_entry_error(unpack, "lies too deep") : STATUS_OK;
}

static Status unpack_check_kind(const Unpack *unpack, struct archive_entry *entry) {
  if (archive_entry_hardlink(entry)) return unpack_entry_error(unpack, "is a hard link, which is not accepted");
  mode_t kind = archive_entry_filetype(entry);
  if (kind == AE_IFLNK || archive_entry_symlink(entry)) return unpack_entry_error(unpack, "is a symbolic link, which is not accepted");
  if (kind != AE_IFREG && kind != AE_IFDIR) return unpack_entry_error(unpack, "is neither a file nor a directory");
  return archive_entry_is_encrypted(entry) ? unpack_entry_error(unpack, "is encrypted, which is not supported") : STATUS_OK;
}

/* The directory `name` in `above`, made when missing. */
static Status unpack_enter(Unpack *unpack, int above, const char *name, int *below) {
  if (mkdirat(above, name, 0777) == 0)
    TRY(unpack_count(unpack, UNPACK_ENTRY_COST));
  else if (errno != EEXIST)
    return unpack_io_error(unpack, "make the directory of");
  *below = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (*below >= 0) return STATUS_OK;
  if (errno == ENOTDIR || errno == ELOOP) return unpack_entry_error(unpack, "needs a directory where an earlier entry is a file");
  return unpack_io_error(unpack, "open the directory of");
}

/* Cuts the first component off *rest (skipping "." and empty ones) into part; false at the end. */
static bool unpack_component(const char **rest, char part[NAME_MAX + 1]) {
  while (**rest) {
    size_t size = strcspn(*rest, "/");
    const char *from = *rest;
    *rest += size + ((*rest)[size] == '/');
    if (size == 0 || (size == 1 && from[0] == '.')) continue;
    memcpy(part, from, size);
    part[size] = '\0';
    return true;
  }
  return false;
}

static Status unpack_data(Unpack *unpack, struct archive *archive, int fd) {
  char block[UNPACK_BLOCK];
  for (;;) {
    la_ssize_t got = archive_read_data(archive, block, sizeof block);
    if (got == 0) return STATUS_OK;
    if (got < 0)
      return status_set(STATUS_BAD_FILE, "%s: damaged in entry '%s': %s; nothing was unpacked", unpack->archive, unpack->shown,
                        archive_error_string(archive) ? archive_error_string(archive) : "cannot be read");
    TRY(unpack_count(unpack, got));
    for (la_ssize_t done = 0; done < got;) {
      ssize_t written = write(fd, block + done, (size_t)(got - done));
      if (written < 0 && errno != EINTR) return unpack_io_error(unpack, "write");
      if (written > 0) done += written;
    }
  }
}

static Status unpack_file(Unpack *unpack, struct archive *archive, int above, const char *name) {
  int fd = openat(above, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0 && errno == EEXIST) return unpack_entry_error(unpack, "is there twice");
  if (fd < 0) return unpack_io_error(unpack, "make");
  Status status = unpack_data(unpack, archive, fd);
  if (status == STATUS_OK && fsync(fd) != 0) status = unpack_io_error(unpack, "write"); /* the archive goes afterwards */
  if (close(fd) != 0 && status == STATUS_OK) status = unpack_io_error(unpack, "write");
  return status;
}

/* Walks down to the entry's directory, making what is missing, and writes it there. */
static Status unpack_place(Unpack *unpack, struct archive *archive, const char *name, bool folder) {
  char part[NAME_MAX + 1], next[NAME_MAX + 1];
  if (!unpack_component(&name, part)) return folder ? STATUS_OK : unpack_entry_error(unpack, "has no name"); /* "./" */
  if (strcmp(part, unpack_folder) == 0) return unpack_entry_error(unpack, "has a name that is reserved for unpacking");
  int above = unpack->root;
  Status status = STATUS_OK;
  for (bool more = true; more && status == STATUS_OK;) {
    more = unpack_component(&name, next);
    if (!more && !folder) {
      status = unpack_file(unpack, archive, above, part);
      break;
    }
    int below = -1;
    status = unpack_enter(unpack, above, part, &below);
    if (above != unpack->root) close(above);
    above = below;
    if (more) memcpy(part, next, sizeof part);
  }
  if (above >= 0 && above != unpack->root) close(above);
  return status;
}

static Status unpack_entry(Unpack *unpack, struct archive *archive, struct archive_entry *entry) {
  const char *name = archive_entry_pathname_utf8(entry);
  if (!name) name = archive_entry_pathname(entry);
  unpack_show(unpack, name ? name : "");
  TRY(unpack_check_name(unpack, name ? name : ""));
  TRY(unpack_check_kind(unpack, entry));
  TRY(unpack_count(unpack, UNPACK_ENTRY_COST));
  return unpack_place(unpack, archive, name, archive_entry_filetype(entry) == AE_IFDIR);
}

static Status unpack_entries(Unpack *unpack, struct archive *archive) {
  for (;;) {
    struct archive_entry *entry = NULL;
    int code = archive_read_next_header(archive, &entry);
    if (code == ARCHIVE_EOF) break;
    if (code != ARCHIVE_OK && code != ARCHIVE_WARN)
      return status_set(STATUS_BAD_FILE, "%s: cannot be unpacked: %s; it may be cut short, download it again", unpack->archive,
                        archive_error_string(archive) ? archive_error_string(archive) : "damaged");
    TRY(unpack_entry(unpack, archive, entry));
    unpack->entries++;
  }
  return unpack->entries ? STATUS_OK : status_set(STATUS_BAD_FILE, "%s: an archive with nothing in it", unpack->archive);
}

static Status unpack_open(Unpack *unpack, struct archive *archive) {
  struct stat file;
  if (stat(unpack->archive, &file) != 0) return status_set(STATUS_NOT_FOUND, "%s: cannot be opened: %s", unpack->archive, strerror(errno));
  int64_t scaled = file.st_size < unpack_max / unpack_ratio ? file.st_size * unpack_ratio : unpack_max;
  unpack->limit = scaled + unpack_free < unpack_max ? scaled + unpack_free : unpack_max;
  int worst = archive_read_support_format_tar(archive) | archive_read_support_format_zip(archive) |
              archive_read_support_filter_gzip(archive) | archive_read_support_filter_bzip2(archive) |
              archive_read_support_filter_xz(archive) | archive_read_support_filter_zstd(archive);
  if (worst != ARCHIVE_OK) return status_set(STATUS_UNSUPPORTED, "libarchive on this machine lacks gzip, bzip2, xz or zstd; reinstall it");
  if (archive_read_open_filename(archive, unpack->archive, UNPACK_BLOCK) == ARCHIVE_OK) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: cannot be opened as an archive: %s", unpack->archive,
                    archive_error_string(archive) ? archive_error_string(archive) : "unknown kind");
}

static Status unpack_read(Unpack *unpack) {
  struct archive *archive = archive_read_new();
  if (!archive) return status_no_memory(unpack->archive, "unpacking it");
  Status status = unpack_open(unpack, archive);
  if (status == STATUS_OK) status = unpack_entries(unpack, archive);
  archive_read_free(archive);
  return status;
}

/* Calls visit for each name in the directory fd, "." and ".." left out. */
typedef Status UnpackVisit(void *context, int fd, const char *name);
static Status unpack_each(int fd, UnpackVisit *visit, void *context) {
  int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* closedir takes its descriptor along */
  DIR *directory = copy >= 0 ? fdopendir(copy) : NULL;
  if (!directory) {
    if (copy >= 0) close(copy);
    return status_set(STATUS_IO, "cannot list a directory that is being unpacked: %s", strerror(errno));
  }
  Status status = STATUS_OK;
  for (struct dirent *item; status == STATUS_OK && (item = readdir(directory));) {
    if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0) status = visit(context, fd, item->d_name);
  }
  closedir(directory);
  return status;
}

/* rm -r, without following links. */
static Status unpack_remove(void *context, int fd, const char *name) {
  if (unlinkat(fd, name, 0) == 0) return STATUS_OK;
  int below = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  Status status = STATUS_OK;
  if (below >= 0) {
    status = unpack_each(below, unpack_remove, context);
    close(below);
  }
  TRY(status);
  if (unlinkat(fd, name, AT_REMOVEDIR) == 0) return STATUS_OK;
  return status_set(STATUS_IO, "%s/%s: cannot be removed: %s", (const char *)context, name, strerror(errno));
}

/* Moving in: where the target has a directory of that name already, what is inside is moved into it. Gone through twice: first only to see
 * that nothing stands in the way, so that all or nothing moves. */
typedef struct Merge {
  const char *place; /* the target's name, for messages */
  int target;
  bool act;
} Merge;

static Status unpack_merge(void *context, int from, const char *name) {
  Merge *merge = context;
  struct stat fresh, old;
  if (fstatat(from, name, &fresh, AT_SYMLINK_NOFOLLOW) != 0) return status_set(STATUS_IO, "%s: %s", name, strerror(errno));
  bool taken = fstatat(merge->target, name, &old, AT_SYMLINK_NOFOLLOW) == 0;
  bool folder = S_ISDIR(fresh.st_mode);
  if (taken && folder != S_ISDIR(old.st_mode))
    return status_set(STATUS_IO, "%s: a %s named '%s' is in the way of unpacking; move it away", merge->place,
                      S_ISDIR(old.st_mode) ? "directory" : "file or link", name);
  if (!taken || !folder) {
    if (!merge->act || renameat(from, name, merge->target, name) == 0) return STATUS_OK;
    return status_set(STATUS_IO, "%s: '%s' cannot be moved there: %s", merge->place, name, strerror(errno));
  }
  Merge inner = {.place = merge->place, .act = merge->act};
  inner.target = openat(merge->target, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  int below = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  Status status = STATUS_OK;
  if (inner.target < 0 || below < 0) status = status_set(STATUS_IO, "%s: '%s' cannot be opened: %s", merge->place, name, strerror(errno));
  if (status == STATUS_OK) status = unpack_each(below, unpack_merge, &inner);
  if (inner.target >= 0) close(inner.target);
  if (below >= 0) close(below);
  return status;
}

static Status unpack_through(Unpack *unpack, int target, const char *directory) {
  if (mkdirat(target, unpack_folder, 0700) != 0)
    return status_set(STATUS_IO, "%s: cannot be written: %s; choose another place with --dir", directory, strerror(errno));
  unpack->root = openat(target, unpack_folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (unpack->root < 0) return status_set(STATUS_IO, "%s/%s: cannot be opened: %s", directory, unpack_folder, strerror(errno));
  Status status = unpack_read(unpack);
  Merge merge = {.place = directory, .target = target};
  if (status == STATUS_OK) status = unpack_each(unpack->root, unpack_merge, &merge);
  merge.act = true;
  if (status == STATUS_OK) status = unpack_each(unpack->root, unpack_merge, &merge);
  close(unpack->root);
  return status;
}

static Status unpack_locked(Unpack *unpack, int target, char *directory) {
  if (flock(target, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return status_set(STATUS_IO, "%s: another process is unpacking there; wait for it to finish", directory);
  struct stat left;
  if (fstatat(target, unpack_folder, &left, AT_SYMLINK_NOFOLLOW) == 0) TRY(unpack_remove(directory, target, unpack_folder));
  Status status = unpack_through(unpack, target, directory);
  if (fstatat(target, unpack_folder, &left, AT_SYMLINK_NOFOLLOW) != 0) return status;
  if (status == STATUS_OK) return unpack_remove(directory, target, unpack_folder);
  char *message = strdup(status_message()); /* the reason, not what happens while tidying up */
  unpack_remove(directory, target, unpack_folder);
  if (message) status_set(status, "%s", message);
  free(message);
  return status;
}

Status download_unpack(const char *archive, const char *directory) {
  TRY(files_make_dirs(directory));
  int target = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (target < 0) return status_set(STATUS_IO, "%s: cannot be opened: %s", directory, strerror(errno));
  Unpack unpack = {.archive = archive, .root = -1};
  char *name = strdup(directory);
  Status status = name ? unpack_locked(&unpack, target, name) : status_no_memory(archive, "unpacking it");
  free(name);
  close(target);
  return status;
}
