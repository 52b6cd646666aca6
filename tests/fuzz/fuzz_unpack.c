/* Any bytes as an archive. What must hold whatever they are: nothing appears outside the target directory, inside it are only plain files
 * and directories, and after a refusal it is as empty as before. */
#include "base/files.h"
#include "data/download.h"
#include "fuzz/fuzz.h"
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char outer[160], target[176]; /* outer holds the target and nothing else */

static int remove_one(const char *path, const struct stat *file, int kind, struct FTW *walk) {
  (void)file, (void)kind;
  if (walk->level > 0) remove(path);
  return 0;
}

static int check_one(const char *path, const struct stat *file, int kind, struct FTW *walk) {
  (void)path, (void)kind, (void)walk;
  if (!S_ISREG(file->st_mode) && !S_ISDIR(file->st_mode)) abort();
  return 0;
}

static void remove_outer(void) {
  nftw(outer, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  rmdir(outer);
}

static void make_outer(void) {
  const char *parent = getenv("TMPDIR");
  if (!parent && files_is_dir("/dev/shm")) parent = "/dev/shm"; /* in memory: half the time */
  snprintf(outer, sizeof outer, "%s/astra-fuzz-XXXXXX", parent ? parent : "/tmp");
  if (!mkdtemp(outer)) abort();
  snprintf(target, sizeof target, "%s/target", outer);
  atexit(remove_outer);
}

static size_t names_in(const char *path) {
  char **names = NULL;
  size_t count = 0;
  if (files_list(path, &names, &count) != STATUS_OK) abort();
  files_list_free(names, count);
  return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!outer[0]) make_outer();
  int memory = memfd_create("archive", MFD_CLOEXEC);
  if (memory < 0 || (size && write(memory, data, size) != (ssize_t)size)) abort();
  char archive[32];
  snprintf(archive, sizeof archive, "/proc/self/fd/%d", memory);
  Status status = download_unpack(archive, target);
  close(memory);
  if (names_in(outer) != 1) abort();
  if (status != STATUS_OK && names_in(target) != 0) abort();
  if (status != STATUS_OK && !status_message()[0]) abort();
  nftw(target, check_one, 16, FTW_PHYS);
  nftw(target, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  return 0;
}
