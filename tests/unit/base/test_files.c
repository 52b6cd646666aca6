/* Files: maps, whole reads, atomic writes, failing writes, directories, names. */
#include "base/files.h"
#include "unit/obey_modes.h"
#include "unit/remove_tree.h"
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[TEMPORARY_PATH];

static const char *in(const char *name) {
  static char path[4][256];
  static int next;
  char *own = path[next++ % 4];
  snprintf(own, 256, "%s/%s", folder, name);
  return own;
}

static void check_content(const char *path, const char *expected) {
  char *data;
  size_t size;
  assert_int_equal(files_read(path, 1000, &data, &size), STATUS_OK);
  assert_int_equal(size, strlen(expected));
  assert_memory_equal(data, expected, size + 1); /* with the NUL behind it */
  free(data);
}

static size_t entries(void) {
  char **names;
  size_t count;
  assert_int_equal(files_list(folder, &names, &count), STATUS_OK);
  files_list_free(names, count);
  return count;
}

static void check_message(const char *part) {
  if (!strstr(status_message(), part)) fail_msg("'%s' is not in '%s'", part, status_message());
}

static void maps_hold_the_bytes(void **state) {
  (void)state;
  FileMap map;
  assert_int_equal(files_write(in("map"), "abc\0def", 7), STATUS_OK);
  assert_int_equal(files_map(&map, in("map")), STATUS_OK);
  assert_int_equal(map.size, 7);
  assert_memory_equal(map.data, "abc\0def", 7);
  files_unmap(&map);
  assert_int_equal(map.size, 0);
  files_unmap(&map);
}

static void an_empty_file_maps_to_nothing(void **state) {
  (void)state;
  FileMap map;
  assert_int_equal(files_write(in("empty"), NULL, 0), STATUS_OK);
  assert_int_equal(files_map(&map, in("empty")), STATUS_OK);
  assert_int_equal(map.size, 0);
  assert_non_null(map.data);
  files_unmap(&map);
  check_content(in("empty"), "");
}

static void what_is_no_regular_file_is_refused(void **state) {
  (void)state;
  FileMap map;
  char *data;
  size_t size;
  assert_int_equal(mkfifo(in("fifo"), 0600), 0);
  assert_int_equal(files_map(&map, in("absent")), STATUS_NOT_FOUND);
  check_message("absent");
  assert_int_equal(files_map(&map, folder), STATUS_BAD_FILE);
  check_message("a directory");
  assert_int_equal(files_map(&map, in("fifo")), STATUS_BAD_FILE); /* and does not wait for a writer */
  assert_int_equal(files_read("/dev/zero", 100, &data, &size), STATUS_BAD_FILE);
  assert_null(data);
}

static void a_file_over_the_limit_is_named(void **state) {
  (void)state;
  char *data;
  size_t size;
  files_write(in("big"), "0123456789", 10);
  assert_int_equal(files_read(in("big"), 9, &data, &size), STATUS_BAD_FILE);
  check_message("/big has 10 bytes; at most 9");
  assert_null(data);
  check_content(in("big"), "0123456789");
}

static void the_old_file_stays_until_commit(void **state) {
  (void)state;
  FileWriter writer;
  files_write(in("kept"), "old", 3);
  size_t before = entries();
  assert_int_equal(files_create(&writer, in("kept")), STATUS_OK);
  fputs("new text", writer.stream);
  fflush(writer.stream);
  check_content(in("kept"), "old");
  assert_int_equal(entries(), before + 1);
  files_abort(&writer);
  check_content(in("kept"), "old");
  assert_int_equal(entries(), before);
  assert_int_equal(files_create(&writer, in("kept")), STATUS_OK);
  fputs("new text", writer.stream);
  assert_int_equal(files_commit(&writer), STATUS_OK);
  check_content(in("kept"), "new text");
  assert_int_equal(entries(), before);
}

/* The stream writes to /dev/full: what a full disk looks like to it. */
static void check_full_disk(size_t bytes) {
  FileWriter writer;
  files_write(in("safe"), "old", 3);
  size_t before = entries();
  assert_int_equal(files_create(&writer, in("safe")), STATUS_OK);
  int full = open("/dev/full", O_WRONLY);
  assert_true(full >= 0 && dup2(full, fileno(writer.stream)) >= 0);
  close(full);
  for (size_t i = 0; i < bytes; i++) fputc('x', writer.stream);
  assert_int_equal(files_commit(&writer), STATUS_IO);
  check_message("/safe: No space left on device");
  check_content(in("safe"), "old");
  assert_int_equal(entries(), before);
}

static void a_full_disk_replaces_nothing(void **state) {
  (void)state;
  check_full_disk(10);     /* found by the last flush */
  check_full_disk(100000); /* found by a write on the way */
}

static void a_size_limit_replaces_nothing(void **state) {
  (void)state;
  struct rlimit old, tight;
  char *block = calloc(1, 1 << 20);
  files_write(in("limited"), "old", 3);
  size_t before = entries();
  signal(SIGXFSZ, SIG_IGN);
  getrlimit(RLIMIT_FSIZE, &old);
  tight = (struct rlimit){100000, old.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
  Status status = files_write(in("limited"), block, 1 << 20);
  setrlimit(RLIMIT_FSIZE, &old);
  free(block);
  assert_int_equal(status, STATUS_IO);
  check_message("/limited: File too large");
  check_content(in("limited"), "old");
  assert_int_equal(entries(), before);
}

static void a_private_file_stays_private(void **state) {
  (void)state;
  struct stat info;
  assert_int_equal(files_write(in("private"), "old", 3), STATUS_OK);
  assert_int_equal(chmod(in("private"), 0600), 0);
  assert_int_equal(files_write(in("private"), "new", 3), STATUS_OK);
  assert_int_equal(stat(in("private"), &info), 0);
  assert_int_equal(info.st_mode & 0777, 0600);
  assert_int_equal(chmod(in("private"), 0666), 0);
  const mode_t usual = umask(077); /* which a wider file does not undo */
  assert_int_equal(files_write(in("private"), "newer", 5), STATUS_OK);
  umask(usual);
  assert_int_equal(stat(in("private"), &info), 0);
  assert_int_equal(info.st_mode & 0777, 0600);
}

static void an_unwritable_place_is_named(void **state) {
  (void)state;
  FileWriter writer;
  assert_int_equal(files_write(in("no/such/file"), "x", 1), STATUS_NOT_FOUND);
  check_message("no/such/file");
  assert_int_equal(files_write("/proc/file", "x", 1), STATUS_NOT_FOUND);
  assert_int_equal(files_create(&writer, "/dev/null/x"), STATUS_IO);
  assert_null(writer.stream);
  files_abort(&writer); /* nothing to do */
  mkdir(in("locked"), 0500);
  assert_true(obey_modes(true));
  Status status = files_write(in("locked/file"), "x", 1);
  assert_true(obey_modes(false));
  assert_int_equal(status, STATUS_IO);
  check_message("Permission denied");
}

static void a_directory_in_the_way_is_kept(void **state) {
  (void)state;
  assert_int_equal(files_make_dirs(in("way/inner")), STATUS_OK);
  size_t before = entries();
  assert_int_equal(files_write(in("way"), "x", 1), STATUS_IO);
  check_message("it is a directory");
  assert_true(files_is_dir(in("way/inner")));
  assert_int_equal(entries(), before);
}

static void make_dirs_makes_the_whole_path(void **state) {
  (void)state;
  assert_int_equal(files_make_dirs(in("a/b//c/")), STATUS_OK);
  assert_true(files_is_dir(in("a/b/c")));
  assert_int_equal(files_make_dirs(in("a/b/c")), STATUS_OK);
  assert_int_equal(files_make_dirs("/"), STATUS_OK);
  files_write(in("plain"), "x", 1);
  assert_int_equal(files_make_dirs(in("plain")), STATUS_IO);
  assert_int_equal(files_make_dirs(in("plain/below")), STATUS_IO);
  check_message("plain");
  assert_true(files_exists(in("plain")) && !files_is_dir(in("plain")) && !files_exists(in("nowhere")));
}

static void names_come_sorted(void **state) {
  (void)state;
  char **names, name[32];
  size_t count;
  files_make_dirs(in("many"));
  for (int i = 150; i-- > 0;) {
    snprintf(name, sizeof name, "many/%03d", i);
    files_write(in(name), "", 0);
  }
  files_write(in("many/.hidden"), "", 0);
  files_write(in("many/B"), "", 0);
  files_write(in("many/a"), "", 0);
  assert_int_equal(files_list(in("many"), &names, &count), STATUS_OK);
  assert_int_equal(count, 153);
  assert_string_equal(names[0], ".hidden");
  assert_string_equal(names[1], "000");
  assert_string_equal(names[150], "149");
  assert_string_equal(names[151], "B");
  assert_string_equal(names[152], "a");
  files_list_free(names, count);
  assert_int_equal(files_list(in("absent"), &names, &count), STATUS_NOT_FOUND);
  assert_null(names);
}

typedef struct Visits {
  char seen[64];
  const char *refused;
} Visits;

static Status visit(void *context, const char *name) {
  Visits *visits = context;
  strcat(visits->seen, name);
  return strcmp(name, visits->refused) == 0 ? STATUS_BAD_VALUE : STATUS_OK;
}

static Status visit_file(void *context, const char *path) { return visit(context, strrchr(path, '/') + 1); }

static void each_name_is_visited_up_to_a_failure(void **state) {
  (void)state;
  files_make_dirs(in("few/b"));
  files_write(in("few/c"), "", 0);
  files_write(in("few/a"), "", 0);
  Visits all = {.refused = ""}, some = {.refused = "b"};
  assert_int_equal(files_each(in("few"), visit, &all), STATUS_OK);
  assert_string_equal(all.seen, "abc");
  assert_int_equal(files_each(in("few"), visit, &some), STATUS_BAD_VALUE);
  assert_string_equal(some.seen, "ab");
  assert_int_equal(files_each(in("absent"), visit, &all), STATUS_NOT_FOUND);
}

static bool is_no_b(const char *name) { return name[0] != 'b'; }

static void pruning_leaves_what_the_original_has(void **state) {
  (void)state;
  Visits rest = {.refused = ""}, none = {.refused = ""};
  files_make_dirs(in("pruned/directory"));
  files_make_dirs(in("original"));
  files_write(in("pruned/a"), "", 0);
  files_write(in("pruned/b"), "", 0);
  files_write(in("pruned/c"), "", 0);
  files_write(in("original/a"), "", 0);
  assert_int_equal(files_prune(in("pruned"), in("original"), is_no_b), STATUS_OK);
  assert_int_equal(files_each(in("pruned"), visit, &rest), STATUS_OK);
  assert_string_equal(rest.seen, "abdirectory");
  assert_int_equal(files_prune(in("pruned"), NULL, NULL), STATUS_OK);
  assert_int_equal(files_each(in("pruned"), visit, &none), STATUS_OK);
  assert_string_equal(none.seen, "directory");
  assert_int_equal(files_prune(in("absent"), NULL, NULL), STATUS_NOT_FOUND);
  assert_int_equal(symlink("original", in("link")), 0);
  assert_int_equal(files_remove_dir(in("link")), STATUS_OK);
  assert_false(files_is_dir(in("link")));
  assert_true(files_exists(in("original/a"))); /* which is not the link's to remove */
  assert_int_equal(files_remove_dir(in("pruned")), STATUS_OK);
  assert_true(files_is_dir(in("pruned/directory")));
  assert_int_equal(files_remove_dir(in("original")), STATUS_OK);
  assert_false(files_exists(in("original")));
  assert_int_equal(files_remove_dir(in("original")), STATUS_OK);
}

static void a_copy_has_the_bytes(void **state) {
  (void)state;
  enum { SIZE = (2 << 20) + 5 }; /* more than are read at once */
  char *data = calloc(SIZE, 1), *copied;
  size_t size;
  data[0] = 'a', data[SIZE - 1] = 'z';
  assert_int_equal(files_write(in("source"), data, SIZE), STATUS_OK);
  assert_int_equal(files_copy(in("source"), in("copy")), STATUS_OK);
  assert_int_equal(files_read(in("copy"), SIZE, &copied, &size), STATUS_OK);
  assert_int_equal(size, SIZE);
  assert_memory_equal(copied, data, SIZE);
  free(copied);
  free(data);
  assert_int_equal(files_copy(in("absent"), in("copy")), STATUS_NOT_FOUND);
  assert_int_equal(files_copy(in("."), in("copy")), STATUS_BAD_FILE);
  assert_true(files_exists(in("copy")));
}

static bool is_letter(const char *name) { return name[1] == 0; }

static void a_named_file_goes_to_another_folder(void **state) {
  (void)state;
  char *from = strdup(in("from")), *to = strdup(in("to"));
  files_make_dirs(in("from/inner"));
  files_make_dirs(to);
  files_write(in("from/a"), "1", 1);
  assert_int_equal(files_copy_named(from, to, "a"), STATUS_OK);
  check_content(in("to/a"), "1");
  assert_int_equal(files_copy_named(from, to, "inner"), STATUS_OK);
  assert_false(files_exists(in("to/inner")));
  assert_int_equal(files_copy_named(from, to, "b"), STATUS_NOT_FOUND);
  assert_int_equal(symlink("nowhere", in("from/dangling")), 0);
  assert_int_equal(files_copy_named(from, to, "dangling"), STATUS_NOT_FOUND);
  /* A link to the source stays one, by whichever name its folder goes. */
  files_write(in("to/b"), "2", 1);
  assert_int_equal(symlink("../to/b", in("from/b")), 0);
  assert_int_equal(files_copy_named(to, from, "b"), STATUS_OK);
  struct stat info;
  assert_int_equal(lstat(in("from/b"), &info), 0);
  assert_true(S_ISLNK(info.st_mode));
  assert_int_equal(symlink("to", in("other")), 0);
  assert_int_equal(lstat(in("to/b"), &info), 0);
  const ino_t number = info.st_ino;
  assert_int_equal(files_copy_named(to, in("other"), "b"), STATUS_OK);
  assert_int_equal(lstat(in("to/b"), &info), 0);
  assert_true(info.st_ino == number);
  /* All that are chosen, up to a failure. */
  files_write(in("from/c"), "3", 1);
  files_write(in("from/more"), "4", 1);
  assert_int_equal(files_copy_chosen(from, to, is_letter), STATUS_OK);
  check_content(in("to/c"), "3");
  assert_false(files_exists(in("to/more")));
  assert_int_equal(symlink("nowhere", in("from/d")), 0);
  assert_int_equal(files_copy_chosen(from, to, is_letter), STATUS_NOT_FOUND);
  free(from);
  free(to);
}

static void a_name_stands_in_its_parent(void **state) {
  (void)state;
  char *joined = files_join(folder, "a_directory");
  assert_int_equal(files_make_dirs(joined), STATUS_OK);
  char *found = files_parent(joined);
  assert_int_equal(strncmp(found, folder, strlen(folder)), 0);
  assert_string_equal(found + strlen(folder), "/");
  free(found);
  free(joined);
  const char *cases[][2] = {{"file", "."}, {"/file", "/"}, {"no/such/file", "no/such/"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    found = files_parent(cases[i][0]);
    assert_string_equal(found, cases[i][1]);
    free(found);
  }
}

static void an_absent_file_counts_as_removed(void **state) {
  (void)state;
  files_make_dirs(in("removed"));
  files_write(in("removed/a"), "", 0);
  assert_int_equal(files_remove(in("removed/a")), STATUS_OK);
  assert_false(files_exists(in("removed/a")));
  assert_int_equal(files_remove(in("removed/a")), STATUS_OK);
  assert_int_equal(files_remove(in("absent/a")), STATUS_OK);
  assert_int_equal(files_remove(in("removed")), STATUS_IO);
  assert_non_null(strstr(status_message(), "cannot remove "));
  assert_non_null(strstr(status_message(), "removed: "));
  assert_true(files_is_dir(in("removed")));
}

static void a_walk_visits_files_in_folders_and_ends_in_circles(void **state) {
  (void)state;
  char deepest[128];
  files_make_dirs(in("tree/b/deeper"));
  files_make_dirs(in("tree/.hidden"));
  files_write(in("tree/c"), "", 0);
  files_write(in("tree/b/deeper/a"), "", 0);
  files_write(in("tree/.hidden/d"), "", 0);
  Visits all = {.refused = ""};
  assert_int_equal(files_walk(in("tree"), visit_file, &all), STATUS_OK);
  assert_string_equal(all.seen, "ac");
  Visits some = {.refused = "a"};
  assert_int_equal(files_walk(in("tree"), visit_file, &some), STATUS_BAD_VALUE);
  assert_string_equal(some.seen, "a");
  size_t used = (size_t)snprintf(deepest, sizeof deepest, "chain");
  for (int i = 0; i < FILES_MAX_DEPTH; i++) used += (size_t)snprintf(deepest + used, sizeof deepest - used, "/d");
  files_make_dirs(in(deepest));
  assert_int_equal(files_walk(in("chain"), visit_file, &all), STATUS_OK);
  assert_int_equal(symlink(".", in("tree/b/loop")), 0);
  assert_int_equal(files_walk(in("tree"), visit_file, &(Visits){.refused = ""}), STATUS_BAD_FILE);
  assert_non_null(strstr(status_message(), "a link in a circle?"));
}

static void one_place_may_have_two_names(void **state) {
  (void)state;
  files_make_dirs(in("place/inner"));
  files_write(in("place/file"), "", 0);
  files_write(in("place/other"), "", 0);
  assert_int_equal(symlink("file", in("place/link")), 0);
  assert_true(files_same(in("place/file"), in("place/inner/../link")));
  assert_true(files_same(in("place"), in("place/inner/..")));
  assert_false(files_same(in("place/file"), in("place/other")));
  assert_false(files_same(in("place/file"), in("place/absent")));
  assert_false(files_same(in("place/absent"), in("place/file")));
  assert_false(files_same(in("place/absent"), in("place/absent")));
}

static void tells_what_lies_within(void **state) {
  (void)state;
  files_make_dirs(in("data/inner"));
  files_make_dirs(in("data-too"));
  assert_int_equal(symlink("data/inner", in("linked")), 0);
  assert_true(files_within(in("data"), in("data/")));
  assert_true(files_within(in("data/inner"), in("data")));
  assert_true(files_within(in("data//absent/deeper/"), in("data")));
  assert_true(files_within(in("linked/absent"), in("data")));
  assert_true(files_within(in("data/absent"), "/"));
  assert_true(files_within("/absent/deeper", "/"));
  assert_true(files_within("absent/deeper", "."));
  assert_true(files_within("absent", "."));
  assert_false(files_within(in("data-too/absent"), in("data")));
  assert_false(files_within(in("data/../absent"), in("data")));
  assert_false(files_within(in("absent"), in("data/inner")));
  assert_false(files_within(in("absent/deeper"), in("absent")));
}

static bool is_link(const char *path) {
  struct stat info;
  return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

static void a_pipe_is_not_replaced(void **state) {
  (void)state;
  struct stat info;
  FileWriter writer;
  assert_int_equal(mkfifo(in("pipe"), 0600), 0);
  assert_int_equal(symlink("pipe", in("to-pipe")), 0);
  size_t before = entries();
  assert_int_equal(files_write(in("pipe"), "x", 1), STATUS_BAD_FILE);
  check_message("/pipe is a device or a pipe");
  assert_int_equal(files_create(&writer, in("to-pipe")), STATUS_BAD_FILE);
  check_message("/to-pipe is a device or a pipe");
  assert_null(writer.stream);
  files_abort(&writer); /* nothing to do */
  assert_int_equal(stat(in("pipe"), &info), 0);
  assert_true(S_ISFIFO(info.st_mode) && is_link(in("to-pipe")));
  assert_int_equal(entries(), before);
}

/* Writes behind the links of `name`; the status of what failed. */
static Status write_behind(const char *name, const char *text) {
  char *target;
  TRY(files_follow(in(name), &target));
  Status status = files_write(target, text, strlen(text));
  free(target);
  return status;
}

static void a_named_link_stays_and_its_file_is_written(void **state) {
  (void)state;
  files_make_dirs(in("aim"));
  assert_int_equal(symlink("second", in("first")), 0);
  assert_int_equal(symlink(in("aim/file"), in("second")), 0);
  assert_int_equal(write_behind("first", "new"), STATUS_OK); /* it does not exist yet */
  check_content(in("aim/file"), "new");
  assert_int_equal(write_behind("first", "newer"), STATUS_OK);
  check_content(in("aim/file"), "newer");
  assert_true(is_link(in("first")) && is_link(in("second")) && !is_link(in("aim/file")));
  assert_int_equal(write_behind("aim/file", "direct"), STATUS_OK);
  check_content(in("first"), "direct");
  assert_int_equal(files_write(in("second"), "own", 3), STATUS_OK); /* as one of a folder's files */
  check_content(in("aim/file"), "direct");
  assert_false(is_link(in("second")));
}

static void links_that_lead_nowhere_safe_are_refused(void **state) {
  (void)state;
  char *target;
  assert_int_equal(symlink("loop", in("loop")), 0);
  assert_int_equal(write_behind("loop", "x"), STATUS_IO);
  check_message("symbolic links");
  assert_int_equal(symlink("no/such/folder", in("dangling")), 0);
  assert_int_equal(write_behind("dangling", "x"), STATUS_NOT_FOUND);
  assert_int_equal(files_follow("/proc/self/fd/0", &target), STATUS_BAD_FILE);
  assert_null(target);
  check_message("an open file");
  mkdir(in("shared"), 0777);
  assert_int_equal(chmod(in("shared"), 01777), 0);
  assert_int_equal(symlink("../victim", in("shared/own")), 0);
  assert_int_equal(write_behind("shared/own", "x"), STATUS_OK);
  assert_int_equal(symlink("../victim", in("shared/trap")), 0);
  if (lchown(in("shared/trap"), 12345, 12345) != 0) return; /* only root may */
  assert_int_equal(write_behind("shared/trap", "y"), STATUS_BAD_FILE);
  check_message("a link of another user");
  check_content(in("victim"), "x");
}

static void join_puts_one_slash(void **state) {
  (void)state;
  const char *cases[][3] = {{"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"a", "/b", "/b"}, {"", "b", "b"}, {"/", "b", "/b"}};
  for (int i = 0; i < 5; i++) {
    char *joined = files_join(cases[i][0], cases[i][1]);
    assert_string_equal(joined, cases[i][2]);
    free(joined);
  }
}

static void a_folder_is_itself_or_a_files(void **state) {
  (void)state;
  char *joined = files_join(folder, "model.safetensors");
  const char *cases[][2] = {{folder, folder}, {"file", "."}, {"/file", "/"}, {"no/such/file", "no/such/"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *found = files_folder(cases[i][0]);
    assert_string_equal(found, cases[i][1]);
    free(found);
  }
  char *found = files_folder(joined);
  assert_int_equal(strncmp(found, folder, strlen(folder)), 0);
  assert_string_equal(found + strlen(folder), "/");
  free(found);
  free(joined);
}

static void a_map_knows_whether_its_file_was_written(void **state) {
  (void)state;
  FileMap map;
  files_write(in("mapped"), "12345", 5);
  struct timespec yesterday[2] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}};
  assert_int_equal(utimensat(AT_FDCWD, in("mapped"), yesterday, 0), 0);
  assert_int_equal(files_map(&map, in("mapped")), STATUS_OK);
  assert_int_equal(files_unchanged(&map, in("mapped")), STATUS_OK);
  int file = open(in("mapped"), O_WRONLY);
  assert_int_equal(write(file, "6", 1), 1);
  close(file);
  assert_int_equal(files_unchanged(&map, in("mapped")), STATUS_BAD_FILE);
  check_message("mapped was changed while it was in use");
  files_unmap(&map);
  assert_int_equal(files_map(&map, in("mapped")), STATUS_OK);
  files_write(in("mapped"), "another", 7); /* beside it, and renamed */
  assert_int_equal(files_unchanged(&map, in("mapped")), STATUS_OK);
  assert_memory_equal(map.data, "62345", 5);
  unlink(in("mapped"));
  assert_int_equal(files_unchanged(&map, in("mapped")), STATUS_OK);
  files_unmap(&map);
}

/* A process that writes `name` until it is killed; returns when the file is there. */
static pid_t start_writer(const char *name) {
  int ends[2];
  char byte;
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    FileWriter writer;
    if (files_create(&writer, in(name)) != STATUS_OK) _exit(1);
    fputs("half of it", writer.stream);
    fflush(writer.stream);
    if (write(ends[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  assert_int_equal(read(ends[0], &byte, 1), 1);
  close(ends[0]);
  close(ends[1]);
  return child;
}

static void end_writer(pid_t child) {
  assert_int_equal(kill(child, SIGKILL), 0);
  assert_int_equal(waitpid(child, NULL, 0), child);
}

static void what_the_killed_leave_is_removed(void **state) {
  (void)state;
  char living[64], dead[64];
  int count;
  pid_t killed = start_writer("weights"), alive = start_writer("weights");
  end_writer(killed);
  snprintf(dead, sizeof dead, "weights.tmp-%ld", (long)killed);
  snprintf(living, sizeof living, "weights.tmp-%ld", (long)alive);
  assert_true(files_exists(in(dead)));
  char reused[64]; /* of a process that lives, but does not write it */
  snprintf(reused, sizeof reused, "old.tmp-%ld-2", (long)getpid());
  files_write(in(reused), "12345", 5);
  files_write(in("empty.tmp-1"), "", 0);
  static const char *const others[] = {"notes.tmp-12a", ".tmp-12", "x.tmp-", "x.tmp-12-", "x.tmp", "x.tmp-12.gz", "tmp-12"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) files_write(in(others[i]), "", 0);
  assert_int_equal(symlink(in("x.tmp"), in("link.tmp-3")), 0);
  files_make_dirs(in("folder.tmp-4"));
  size_t before = entries();
  assert_int_equal(files_clean(folder, &count), 15);
  assert_int_equal(count, 3);
  assert_int_equal(entries(), before - 3);
  assert_true(files_exists(in(living)) && !files_exists(in(dead)) && !files_exists(in(reused)));
  end_writer(alive);
  assert_int_equal(files_clean(folder, &count), 10);
  assert_int_equal(count, 1);
  assert_int_equal(files_clean(in("absent"), &count), 0);
  assert_int_equal(count, 0);
}

/* A name that is taken, as by an earlier process of this number. */
static void a_name_that_is_taken_is_left_alone(void **state) {
  (void)state;
  char name[64];
  snprintf(name, sizeof name, "again.tmp-%ld", (long)getpid());
  files_write(in(name), "another's", 9);
  FileWriter first, second;
  assert_int_equal(files_create(&first, in("again")), STATUS_OK);
  assert_int_equal(files_create(&second, in("again")), STATUS_OK);
  fputs("first", first.stream);
  fputs("second", second.stream);
  assert_int_equal(files_commit(&first), STATUS_OK);
  check_content(in("again"), "first");
  assert_int_equal(files_commit(&second), STATUS_OK);
  check_content(in("again"), "second");
  check_content(in(name), "another's");
}

/* What all of them leave open, that of listing itself among them. */
static size_t descriptors(void) {
  char **names;
  size_t count = 0;
  if (files_list("/proc/self/fd", &names, &count) == STATUS_OK) files_list_free(names, count);
  return count;
}
static size_t open_at_first;

static int make_folder(void **state) {
  (void)state;
  open_at_first = descriptors();
  return make_temporary_folder(folder);
}

static void one_at_a_time_holds_a_lock(void **state) {
  (void)state;
  char *path = files_join(folder, "lock"), *nowhere = files_join(folder, "nowhere/lock");
  int first, second;
  assert_int_equal(files_lock(path, &first), STATUS_OK);
  assert_int_equal(files_lock(path, &second), STATUS_BUSY);
  assert_non_null(strstr(status_message(), path));
  assert_int_equal(second, -1);
  close(first);
  assert_int_equal(files_lock(path, &second), STATUS_OK);
  close(second);
  assert_int_equal(files_lock(nowhere, &first), STATUS_IO);
  assert_int_equal(first, -1);
  free(path);
  free(nowhere);
}

static void nothing_stays_open(void **state) {
  (void)state;
  assert_int_equal(descriptors(), open_at_first);
}

static int remove_folder(void **state) {
  (void)state;
  return remove_tree(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(maps_hold_the_bytes),
      cmocka_unit_test(an_empty_file_maps_to_nothing),
      cmocka_unit_test(what_is_no_regular_file_is_refused),
      cmocka_unit_test(a_file_over_the_limit_is_named),
      cmocka_unit_test(the_old_file_stays_until_commit),
      cmocka_unit_test(a_full_disk_replaces_nothing),
      cmocka_unit_test(a_size_limit_replaces_nothing),
      cmocka_unit_test(a_private_file_stays_private),
      cmocka_unit_test(an_unwritable_place_is_named),
      cmocka_unit_test(a_directory_in_the_way_is_kept),
      cmocka_unit_test(make_dirs_makes_the_whole_path),
      cmocka_unit_test(names_come_sorted),
      cmocka_unit_test(each_name_is_visited_up_to_a_failure),
      cmocka_unit_test(pruning_leaves_what_the_original_has),
      cmocka_unit_test(a_copy_has_the_bytes),
      cmocka_unit_test(a_named_file_goes_to_another_folder),
      cmocka_unit_test(an_absent_file_counts_as_removed),
      cmocka_unit_test(a_walk_visits_files_in_folders_and_ends_in_circles),
      cmocka_unit_test(one_place_may_have_two_names),
      cmocka_unit_test(a_pipe_is_not_replaced),
      cmocka_unit_test(a_named_link_stays_and_its_file_is_written),
      cmocka_unit_test(links_that_lead_nowhere_safe_are_refused),
      cmocka_unit_test(join_puts_one_slash),
      cmocka_unit_test(a_map_knows_whether_its_file_was_written),
      cmocka_unit_test(what_the_killed_leave_is_removed),
      cmocka_unit_test(a_name_that_is_taken_is_left_alone),
      cmocka_unit_test(a_folder_is_itself_or_a_files),
      cmocka_unit_test(a_name_stands_in_its_parent),
      cmocka_unit_test(tells_what_lies_within),
      cmocka_unit_test(one_at_a_time_holds_a_lock),
      cmocka_unit_test(nothing_stays_open),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
