/* Files: whole reads, read-only maps, and writes that are either complete or absent (written beside, then renamed). */
#ifndef BASE_FILES_H
#define BASE_FILES_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

/* A read-only shared mapping of a regular file. A process that writes into the file in place changes the bytes under the mapping; one that
 * makes it shorter makes their use a SIGBUS. */
typedef struct FileMap {
  const uint8_t *data;
  size_t size;
  /* The file as it was mapped: */
  dev_t device;
  ino_t number;
  struct timespec modified;
} FileMap;

/* Whether the file that `path` names is still the one that was mapped, and was not written since: BAD_FILE when it was. A path that is gone
 * or names another file now is no harm: the mapping keeps the old one. Costs a stat. */
Status files_unchanged(const FileMap *map, const char *path);

Status files_map(FileMap *map, const char *path);
void files_unmap(FileMap *map);

/* Reads at most `limit` bytes of a regular file into a fresh buffer with a NUL behind it (caller frees); a larger file
 * is an error that names it. */
Status files_read(const char *path, size_t limit, char **data, size_t *size);

/* A file being written: bytes go to "PATH.tmp-PID" (or "PATH.tmp-PID-N" where that name is taken); files_commit flushes to disk and renames
 * it to PATH; files_abort removes it. The first write error is kept and reported by commit. Exactly one of commit and abort must be called.
 * A device or a pipe, and a link to one, is not replaced: BAD_FILE. Nor is a directory: IO. A link to a file is: folders of checkpoints may
 * hold links to files of others, such as the blobs of a download cache, which are not to change. Where the user names the file itself,
 * files_follow comes first.
 */
typedef struct FileWriter {
  FILE *stream;
  char *path, *temporary;
} FileWriter;

Status files_create(FileWriter *writer, const char *path);
Status files_commit(FileWriter *writer);
void files_abort(FileWriter *writer);

/* Writes a whole file as above. */
Status files_write(const char *path, const void *data, size_t size);

/* The bytes of one file into another, as above. */
Status files_copy(const char *from, const char *to);

/* The file `name` of one directory into another, likewise; nothing where both are one place, or where it is a directory. NOT_FOUND: there
 * is none. */
Status files_copy_named(const char *from, const char *to, const char *name);

/* Removes from a directory what writers of this kind left there when they were killed: files of the name above that nobody has locked.
 * *count: how many; their bytes together. Files that cannot be examined or removed are skipped silently. */
int64_t files_clean(const char *path, int *count);

Status files_make_dirs(const char *path); /* mkdir -p */
bool files_exists(const char *path);
bool files_is_dir(const char *path);

/* The name behind all symbolic links that `path` is, in a fresh string (caller frees): `path` itself where it is none. What the last link
 * names need not exist; like a shell's ">", a writer makes it. BAD_FILE for links of other users in directories that all may write to, and
 * for what /proc links to, which are open files, perhaps without a name. */
Status files_follow(const char *path, char **target);

/* Whether a file that the user names could be written there; nothing is. Before work whose result it is to hold. */
Status files_try(const char *path);

bool files_same(const char *a, const char *b); /* one place by two names; false where either is not there */

/* Whether `path`, which need not exist, is the directory `folder` or lies in it, by whatever names; false where `folder` is not there. */
bool files_within(const char *path, const char *folder);

/* "a/b" in a fresh string (caller frees); NULL when out of memory. `b` absolute gives b. */
char *files_join(const char *a, const char *b);

/* The directory that `path` is or that the file of this name lies in, in a fresh string (caller frees); NULL when out of memory. */
char *files_folder(const char *path);

/* The directory that the name stands in, likewise: of a link or a directory, without a slash at its end, the one that holds it. */
char *files_parent(const char *path);

/* The names in a directory but "." and "..", sorted bytewise. Free with files_list_free. */
Status files_list(const char *path, char ***names, size_t *count);
void files_list_free(char **names, size_t count);

/* Calls `visit` for each of these names, up to the first that fails, whose status is returned. */
typedef Status FilesVisit(void *context, const char *name);
Status files_each(const char *path, FilesVisit *visit, void *context);

/* Which of the names in a directory; NULL: all of them. */
typedef bool FilesChoice(const char *name);

/* The files of one directory that `which` accepts into another, as files_copy_named, up to the first that fails. */
Status files_copy_chosen(const char *from, const char *to, FilesChoice *which);

/* Removes from a directory the files that `original`, another one, does not have; NULL: all files. Of these only those that `which`
 * accepts. Directories within it stay. */
Status files_prune(const char *path, const char *original, FilesChoice *which);

/* Removes one file, or the link of that name, but no directory. OK where there is none. */
Status files_remove(const char *path);

/* Removes all files of a directory and, where no others are in it, the directory itself; of a link to one the link alone. OK where there is
 * none. */
Status files_remove_dir(const char *path);

/* Locks a file, which is made where it is not there, until *lock is closed: by the caller, or with the last of this process and those that
 * it starts. BUSY: another process holds it; IO: it cannot be opened. *lock is -1 then. Where files cannot be locked, OK all the same. The
 * file stays behind: another process may have it open already, to lock it. Who removes it does so while holding it. */
Status files_lock(const char *path, int *lock);

/* Calls `visit` with the path of each file in a directory and in those inside it, in bytewise order, up to the first that fails. Links are
 * followed; names that begin with a dot are skipped. BAD_FILE: directories more than FILES_MAX_DEPTH deep in `path`, as where a link leads
 * back to one that it lies in. */
enum { FILES_MAX_DEPTH = 16 };
Status files_walk(const char *path, FilesVisit *visit, void *context);

#endif
