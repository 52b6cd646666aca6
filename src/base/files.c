/* Files. Leaves out: formats, removal of trees.
 * Invariant: PATH is either the old file or the complete new one; a temporary never outlives its commit or abort, but for a process that is
 * killed. Who writes a temporary holds a lock on it (flock), which goes with the process, however that ends: what is not locked, nobody
 * writes. Numbers of processes say nothing of that, which are given out again and mean another process on another host. */
#include "base/files.h"
#include "base/array.h"
#include "base/order.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static Status fail(const char *action, const char *path, int error) {
  Status code = error == ENOENT ? STATUS_NOT_FOUND : error == ENOMEM ? STATUS_NO_MEMORY : STATUS_IO;
  return status_set(code, "cannot %s %s: %s", action, path, strerror(error));
}

/* O_NONBLOCK: a FIFO must be refused below, not waited for. */
static Status open_regular(const char *path, int *file, size_t *size, struct stat *seen) {
  struct stat info;
  *file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (*file < 0) return fail("open", path, errno);
  int error = fstat(*file, &info) != 0 ? errno : 0;
  if (!error && S_ISREG(info.st_mode)) {
    *size = (size_t)info.st_size;
    if (seen) *seen = info;
    return STATUS_OK;
  }
  close(*file);
  if (error) return fail("examine", path, error);
  return status_set(STATUS_BAD_FILE, "%s is %s, not a regular file", path, S_ISDIR(info.st_mode) ? "a directory" : "a device or a pipe");
}

Status files_map(FileMap *map, const char *path) {
  static const uint8_t nothing;
  int file;
  struct stat info = {0};
  *map = (FileMap){.data = &nothing};
  size_t size = 0;
  TRY(open_regular(path, &file, &size, &info));
  void *data = size ? mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0) : NULL;
  int error = errno;
  close(file);
  if (data == MAP_FAILED) return fail("map", path, error);
  *map = (FileMap){size ? data : &nothing, size, info.st_dev, info.st_ino, info.st_mtim};
  return STATUS_OK;
}

Status files_unchanged(const FileMap *map, const char *path) {
  struct stat now;
  if (stat(path, &now) != 0 || now.st_dev != map->device || now.st_ino != map->number) return STATUS_OK;
  bool same =
      (size_t)now.st_size == map->size && now.st_mtim.tv_sec == map->modified.tv_sec && now.st_mtim.tv_nsec == map->modified.tv_nsec;
  if (same) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s was changed while it was in use: start again (a new file is to be written beside it and renamed)",
                    path);
}

void files_unmap(FileMap *map) {
  if (map->size) munmap((void *)(uintptr_t)map->data, map->size);
  *map = (FileMap){.data = NULL};
}

/* The bytes of an open file into data[0..size); 0 or an errno. A file that shrinks under way is an error. */
static int read_fully(int file, char *data, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t got = read(file, data + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 ? errno : EIO;
    done += (size_t)got;
  }
  return 0;
}

Status files_read(const char *path, size_t limit, char **data, size_t *size) {
  int file;
  *data = NULL;
  *size = 0;
  TRY(open_regular(path, &file, size, NULL));
  if (*size > limit) {
    close(file);
    return status_set(STATUS_BAD_FILE, "%s has %zu bytes; at most %zu are accepted here", path, *size, limit);
  }
  char *buffer = malloc(*size + 1);
  int error = buffer ? read_fully(file, buffer, *size) : ENOMEM;
  close(file);
  if (error) {
    free(buffer);
    return fail("read", path, error);
  }
  buffer[*size] = 0;
  *data = buffer;
  return STATUS_OK;
}

static void forget(FileWriter *writer) {
  free(writer->path);
  free(writer->temporary);
  *writer = (FileWriter){0};
}

static const char MARK[] = ".tmp-";

/* A new, locked file. Its name is taken where an earlier process of this number was killed, one of another host has it, or this one writes
 * the same path twice: then the next is tried. A cleaner may have taken the file away between the creation and the lock. */
static int create_temporary(char *name, size_t room, const char *path) {
  enum { NAMES = 1000 };
  int file = -1;
  for (int i = 0; i < NAMES; i++) {
    struct stat info;
    int used = snprintf(name, room, "%s%s%ld", path, MARK, (long)getpid());
    if (i > 0) snprintf(name + used, room - (size_t)used, "-%d", i);
    file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file < 0 && errno == EEXIST) continue;
    if (file < 0) return -1;
    while (flock(file, LOCK_EX) != 0 && errno == EINTR) continue; /* where there are no locks nothing is cleaned up either */
    if (fstat(file, &info) != 0 || info.st_nlink > 0) return file;
    close(file);
  }
  errno = EEXIST;
  return -1;
}

/* A file that others cannot read stays so when it is replaced, and its owner's, where this process may give it away. Modes are not widened:
 * they are those that the umask leaves and the file before had. */
static void take_mode(int file, const char *path) {
  struct stat before, own;
  if (stat(path, &before) != 0 || !S_ISREG(before.st_mode) || fstat(file, &own) != 0) return;
  if (own.st_uid != before.st_uid || own.st_gid != before.st_gid) (void)!fchown(file, before.st_uid, before.st_gid);
  (void)fchmod(file, own.st_mode & before.st_mode & 0777);
}

/* A rename would put a file in the place of what is no file: as root, in that of /dev/null itself. Onto a directory it would fail, after
 * the work. */
static Status check_replaceable(const char *path) {
  struct stat info;
  if (stat(path, &info) != 0 || S_ISREG(info.st_mode)) return STATUS_OK; /* the creation says why not */
  if (S_ISDIR(info.st_mode)) return status_set(STATUS_IO, "cannot write %s: it is a directory; give the name of a file", path);
  return status_set(STATUS_BAD_FILE, "%s is a device or a pipe, which is not replaced; give a regular file", path);
}

Status files_create(FileWriter *writer, const char *path) {
  *writer = (FileWriter){0};
  TRY(check_replaceable(path));
  size_t room = strlen(path) + 32;
  writer->path = strdup(path);
  writer->temporary = malloc(room);
  if (!writer->path || !writer->temporary) {
    forget(writer);
    return status_no_memory(path, "creating it");
  }
  int file = create_temporary(writer->temporary, room, path);
  if (file >= 0) take_mode(file, path);
  if (file >= 0) writer->stream = fdopen(file, "wb");
  if (writer->stream) return STATUS_OK;
  int error = errno;
  if (file >= 0) {
    close(file);
    unlink(writer->temporary);
  }
  forget(writer);
  return fail("create", path, error);
}

/* Makes the new name survive a power cut; where a directory cannot be flushed, the file itself is safe all the same. */
static void flush_directory(const char *path) {
  char *copy = strdup(path);
  if (!copy) return;
  char *slash = strrchr(copy, '/');
  if (slash) slash[slash == copy] = 0;
  int directory = open(slash ? copy : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  free(copy);
  if (directory < 0) return;
  (void)fsync(directory);
  close(directory);
}

/* stdio keeps that a write failed, but not why, and may have thrown away what it could not write: then another write says why. One that
 * succeeds has found room that there was not. */
static int flush_stream(FILE *stream) {
  int failed = ferror(stream);
  if (fflush(stream) != 0) return errno;
  if (failed) return write(fileno(stream), "", 1) < 0 ? errno : ENOSPC;
  return fsync(fileno(stream)) != 0 && errno != EINVAL ? errno : 0;
}

Status files_commit(FileWriter *writer) {
  int error = flush_stream(writer->stream);
  if (!error && rename(writer->temporary, writer->path) != 0) error = errno;
  fclose(writer->stream); /* with the lock, which the temporary needs as long as it has that name; what it held is on the disk */
  Status status = STATUS_OK;
  if (error) {
    unlink(writer->temporary);
    status = status_set(STATUS_IO, "cannot write %s: %s; nothing was replaced", writer->path, strerror(error));
  } else {
    flush_directory(writer->path);
  }
  forget(writer);
  return status;
}

void files_abort(FileWriter *writer) {
  if (!writer->stream) return;
  fclose(writer->stream);
  unlink(writer->temporary);
  forget(writer);
}

Status files_write(const char *path, const void *data, size_t size) {
  FileWriter writer;
  TRY(files_create(&writer, path));
  if (size) fwrite(data, 1, size, writer.stream); /* commit reports a failure */
  return files_commit(&writer);
}

Status files_copy(const char *from, const char *to) {
  enum { PIECE = 1 << 20 };
  FileWriter writer;
  int file, error = 0;
  size_t left;
  TRY(open_regular(from, &file, &left, NULL));
  char *buffer = malloc(PIECE);
  Status status = buffer ? files_create(&writer, to) : status_no_memory(from, "copying it");
  if (status == STATUS_OK) {
    for (size_t part; left > 0 && !error && !ferror(writer.stream); left -= part) {
      part = left < PIECE ? left : PIECE;
      error = read_fully(file, buffer, part);
      if (!error) fwrite(buffer, 1, part, writer.stream); /* commit reports a failure */
    }
    if (error) files_abort(&writer);
    status = error ? fail("read", from, error) : files_commit(&writer);
  }
  free(buffer);
  close(file);
  return status;
}

Status files_copy_named(const char *from, const char *to, const char *name) {
  char *source = files_join(from, name), *target = files_join(to, name);
  Status status = source && target ? STATUS_OK : status_no_memory(NULL, "a path");
  if (status == STATUS_OK && !files_is_dir(source) && !files_same(source, target)) status = files_copy(source, target);
  free(source);
  free(target);
  return status;
}

/* NAME.tmp-DIGITS or NAME.tmp-DIGITS-DIGITS. */
static bool is_temporary(const char *name) {
  const char *mark = NULL;
  for (const char *at = name; (at = strstr(at, MARK)) != NULL; at++) mark = at;
  if (mark == NULL || mark == name) return false;
  const char *at = mark + sizeof MARK - 1;
  size_t digits = strspn(at, "0123456789"), more = 1;
  at += digits;
  if (*at == '-') more = strspn(++at, "0123456789"), at += more;
  return digits > 0 && more > 0 && *at == 0;
}

/* Removes the file unless somebody writes it; its bytes, or -1. */
static int64_t remove_abandoned(int directory, const char *name) {
  struct stat info, now;
  int64_t bytes = -1;
  int file = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return -1;
  if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) && flock(file, LOCK_EX | LOCK_NB) == 0 &&
      fstatat(directory, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_dev == info.st_dev && now.st_ino == info.st_ino &&
      unlinkat(directory, name, 0) == 0) /* another may have the name now */
    bytes = (int64_t)info.st_size;
  close(file);
  return bytes;
}

int64_t files_clean(const char *path, int *count) {
  char **names;
  size_t listed;
  int64_t total = 0;
  *count = 0;
  int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return 0;
  if (files_list(path, &names, &listed) == STATUS_OK) {
    for (size_t i = 0; i < listed; i++) {
      int64_t bytes = is_temporary(names[i]) ? remove_abandoned(directory, names[i]) : -1;
      if (bytes >= 0) ++*count, total += bytes;
    }
    files_list_free(names, listed);
  }
  close(directory);
  return total;
}

/* ---- links ---- */

/* Where everyone may put names, as in /tmp, a link of somebody else could lead to any file of ours: Linux follows none there
 * (fs.protected_symlinks in proc(5)), where that is switched on. The same rule, for all systems. */
static bool is_trusted(const struct stat *link, const struct stat *folder) {
  const bool shared = (folder->st_mode & S_ISVTX) != 0 && (folder->st_mode & S_IWOTH) != 0;
  return !shared || link->st_uid == geteuid() || link->st_uid == folder->st_uid;
}

/* What the link `path` in `folder` names, in a fresh string. A link of /proc stands for an open file, not for a name: /dev/stdout, sent to
 * a file, would be replaced under the shell that opened it. */
static Status read_link(const char *path, const struct stat *link, const char *folder, char **next) {
  char text[PATH_MAX];
  struct stat info;
  struct statfs system;
  if (stat(folder, &info) != 0 || statfs(folder, &system) != 0) return fail("examine", folder, errno);
  if (system.f_type == PROC_SUPER_MAGIC)
    return status_set(STATUS_BAD_FILE, "%s is an open file without a name of its own; give a regular file", path);
  if (!is_trusted(link, &info))
    return status_set(STATUS_BAD_FILE, "%s is a link of another user in a directory that all may write to; it is not followed", path);
  ssize_t length = readlink(path, text, sizeof text - 1);
  if (length < 0) return fail("read the link", path, errno);
  text[length] = 0;
  *next = files_join(folder, text);
  return *next != NULL ? STATUS_OK : status_no_memory(path, "following it");
}

Status files_follow(const char *path, char **target) {
  enum { MAX_LINKS = 40 }; /* of Linux, path_resolution(7) */
  struct stat info;
  char *at = strdup(path);
  Status status = at ? STATUS_OK : status_no_memory(path, "following it");
  *target = NULL;
  for (int i = 0; status == STATUS_OK && lstat(at, &info) == 0 && S_ISLNK(info.st_mode); i++) {
    char *folder = files_parent(at), *next = NULL;
    if (i == MAX_LINKS)
      status = fail("follow", path, ELOOP);
    else if (!folder)
      status = status_no_memory(path, "following it");
    else
      status = read_link(at, &info, folder, &next);
    free(folder);
    if (status == STATUS_OK) free(at), at = next;
  }
  if (status == STATUS_OK) {
    *target = at;
    return STATUS_OK;
  }
  if (at && strcmp(at, path) != 0) status = status_wrap(status, "%s", path); /* the message names the last link */
  free(at);
  return status;
}

static Status make_dir(const char *path) {
  if (mkdir(path, 0777) == 0 || (errno == EEXIST && files_is_dir(path))) return STATUS_OK;
  return fail("make the directory", path, errno);
}

Status files_make_dirs(const char *path) {
  char *prefix = strdup(path);
  if (!prefix) return status_no_memory(path, "making the directory");
  Status status = STATUS_OK;
  for (char *slash = strchr(prefix + (*prefix == '/'), '/'); slash && status == STATUS_OK; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    status = make_dir(prefix);
    *slash = '/';
  }
  if (status == STATUS_OK) status = make_dir(prefix);
  free(prefix);
  return status;
}

bool files_exists(const char *path) { return access(path, F_OK) == 0; }

Status files_try(const char *path) {
  char *target;
  FileWriter writer;
  TRY(files_follow(path, &target));
  const Status status = files_create(&writer, target);
  if (status == STATUS_OK) files_abort(&writer);
  free(target);
  return status;
}

bool files_same(const char *a, const char *b) {
  char *first = realpath(a, NULL), *second = realpath(b, NULL);
  bool same = first != NULL && second != NULL && strcmp(first, second) == 0;
  free(first);
  free(second);
  return same;
}

/* The real path of `path` or, where it does not exist, of the nearest directory above it that does (caller frees); NULL when out of memory.
 */
static char *nearest_place(const char *path) {
  char *at = strdup(path), *place = NULL;
  while (at != NULL && (place = realpath(at, NULL)) == NULL) {
    char *slash = strrchr(at, '/');
    if (slash == NULL) {
      place = realpath(".", NULL);
      break;
    }
    slash[slash == at] = 0; /* of "/a" the slash stays */
  }
  free(at);
  return place;
}

bool files_within(const char *path, const char *folder) {
  char *inner = nearest_place(path), *outer = realpath(folder, NULL);
  const size_t length = outer != NULL ? strlen(outer) : 0;
  bool within = inner != NULL && outer != NULL && strncmp(inner, outer, length) == 0;
  if (within) within = inner[length] == 0 || inner[length] == '/' || outer[length - 1] == '/'; /* the last: of the root */
  free(inner);
  free(outer);
  return within;
}

bool files_is_dir(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

char *files_join(const char *a, const char *b) {
  if (b[0] == '/' || a[0] == 0) return strdup(b);
  size_t head = strlen(a), room = head + strlen(b) + 2;
  char *joined = malloc(room);
  if (joined) snprintf(joined, room, "%s%s%s", a, a[head - 1] == '/' ? "" : "/", b);
  return joined;
}

char *files_parent(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
}

char *files_folder(const char *path) { return files_is_dir(path) ? strdup(path) : files_parent(path); }

/* Appends a copy of `name`; the list doubles its room when it is full. */
static bool append(char ***names, size_t *count, size_t *room, const char *name) {
  if (ARRAY_RESERVE(*names, *count, 1, *room, "names of files") != STATUS_OK) return false;
  char *copy = strdup(name);
  if (copy) (*names)[(*count)++] = copy;
  return copy != NULL;
}

Status files_list(const char *path, char ***names, size_t *count) {
  size_t room = 0;
  *names = NULL;
  *count = 0;
  DIR *directory = opendir(path);
  if (!directory) return fail("list", path, errno);
  int error = 0;
  for (;;) {
    errno = 0;
    struct dirent *entry = readdir(directory);
    if (!entry) {
      error = errno;
      break;
    }
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
    if (!append(names, count, &room, entry->d_name)) {
      error = ENOMEM;
      break;
    }
  }
  closedir(directory);
  if (error) {
    files_list_free(*names, *count);
    *names = NULL;
    *count = 0;
    return fail("list", path, error);
  }
  if (*count) qsort(*names, *count, sizeof **names, order_by_bytes);
  return STATUS_OK;
}

void files_list_free(char **names, size_t count) {
  for (size_t i = 0; i < count; i++) free(names[i]);
  free(names);
}

Status files_each(const char *path, FilesVisit *visit, void *context) {
  char **names;
  size_t count;
  TRY(files_list(path, &names, &count));
  Status status = STATUS_OK;
  for (size_t i = 0; i < count && status == STATUS_OK; i++) status = visit(context, names[i]);
  files_list_free(names, count);
  return status;
}

typedef struct Copying {
  const char *from, *to;
  FilesChoice *which;
} Copying;

static Status copy_chosen(void *context, const char *name) {
  const Copying *copying = context;
  if (copying->which && !copying->which(name)) return STATUS_OK;
  return files_copy_named(copying->from, copying->to, name);
}

Status files_copy_chosen(const char *from, const char *to, FilesChoice *which) {
  return files_each(from, copy_chosen, &(Copying){from, to, which});
}

typedef struct Pruning {
  const char *path, *original;
  FilesChoice *which;
} Pruning;

static Status prune(void *context, const char *name) {
  const Pruning *pruning = context;
  char *source = pruning->original ? files_join(pruning->original, name) : NULL, *target = files_join(pruning->path, name);
  Status status = target && (source || !pruning->original) ? STATUS_OK : status_no_memory(NULL, "a path");
  const bool removes = status == STATUS_OK && (!pruning->which || pruning->which(name)) && !(source && files_exists(source));
  if (removes && !files_is_dir(target) && remove(target) != 0) status = fail("remove", target, errno);
  free(source);
  free(target);
  return status;
}

Status files_prune(const char *path, const char *original, FilesChoice *which) {
  return files_each(path, prune, &(Pruning){path, original, which});
}

Status files_remove(const char *path) { return unlink(path) == 0 || errno == ENOENT ? STATUS_OK : fail("remove", path, errno); }

Status files_remove_dir(const char *path) {
  struct stat file;
  if (!files_is_dir(path)) return STATUS_OK;
  if (lstat(path, &file) == 0 && S_ISLNK(file.st_mode)) return files_remove(path); /* what it leads to may be kept for something else */
  TRY(files_prune(path, NULL, NULL));
  if (rmdir(path) != 0 && errno != ENOTEMPTY && errno != EEXIST) return fail("remove", path, errno);
  return STATUS_OK;
}

typedef struct Walk {
  const char *folder;
  int depth;
  FilesVisit *visit;
  void *context;
} Walk;

static Status walk_name(void *context, const char *name) {
  const Walk *walk = context;
  if (name[0] == '.') return STATUS_OK;
  char *path = files_join(walk->folder, name);
  if (!path) return status_no_memory(walk->folder, "listing it");
  Status status = STATUS_OK;
  if (!files_is_dir(path))
    status = walk->visit(walk->context, path);
  else if (walk->depth < FILES_MAX_DEPTH)
    status = files_each(path, walk_name, &(Walk){path, walk->depth + 1, walk->visit, walk->context});
  else
    status = status_set(STATUS_BAD_FILE, "%s: folders in folders, more than %d deep; a link in a circle?", path, FILES_MAX_DEPTH);
  free(path);
  return status;
}

Status files_walk(const char *path, FilesVisit *visit, void *context) {
  return files_each(path, walk_name, &(Walk){path, 0, visit, context});
}

Status files_lock(const char *path, int *lock) {
  struct stat info;
  *lock = open(path, O_RDWR | O_CREAT, 0666);
  if (*lock < 0) return status_set(STATUS_IO, "cannot open %s: %s", path, strerror(errno));
  const bool held = flock(*lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  const bool removed = fstat(*lock, &info) == 0 && info.st_nlink == 0; /* by its holder, between the two calls: another may make it anew */
  if (!held && !removed) return STATUS_OK;
  close(*lock);
  *lock = -1;
  return status_set(STATUS_BUSY, "another process holds %s", path);
}
