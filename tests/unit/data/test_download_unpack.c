/* Archives, good and hostile, made here entry by entry: what is unpacked, what is refused, and that a refusal leaves nothing behind. */
#include "base/files.h"
#include "data/download.h"
#include "unit/remove_tree.h"
#include <archive.h>
#include <archive_entry.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Entry {
  const char *name;
  unsigned kind;    /* AE_IFREG ... */
  const char *text; /* contents, or where a link points */
} Entry;

static char folder[TEMPORARY_PATH], target[TEMPORARY_PATH + 16], packed[TEMPORARY_PATH + 16]; /* folder/target and folder/packed */

static const char *below(const char *name) {
  static char path[4][256];
  static int next;
  char *text = path[next++ % 4];
  snprintf(text, sizeof path[0], "%s/%s", folder, name);
  return text;
}

static int begin(void **state) {
  (void)state;
  if (make_temporary_folder(folder) != 0) return -1;
  snprintf(target, sizeof target, "%s/target", folder);
  snprintf(packed, sizeof packed, "%s/packed", folder);
  return mkdir(target, 0755);
}

static int end(void **state) {
  (void)state;
  return remove_tree(folder);
}

static void write_entry(struct archive *archive, const Entry *item, size_t size) {
  struct archive_entry *entry = archive_entry_new();
  archive_entry_set_pathname(entry, item->name);
  archive_entry_set_mode(entry, 0644);
  bool hard = item->kind == 0; /* a hard link is no kind of file of its own */
  archive_entry_set_filetype(entry, hard ? AE_IFREG : item->kind);
  if (hard) archive_entry_set_hardlink(entry, item->text);
  if (item->kind == AE_IFLNK) archive_entry_set_symlink(entry, item->text);
  if (item->kind == AE_IFCHR) archive_entry_set_rdevmajor(entry, 1), archive_entry_set_rdevminor(entry, 3);
  archive_entry_set_size(entry, item->kind == AE_IFREG ? (int64_t)size : 0);
  assert_int_equal(archive_write_header(archive, entry), ARCHIVE_OK);
  if (item->kind == AE_IFREG && size) assert_int_equal(archive_write_data(archive, item->text, size), size);
  archive_entry_free(entry);
}

typedef int Setter(struct archive *archive);

static void pack(const Entry *items, Setter *format, Setter *filter) {
  struct archive *archive = archive_write_new();
  assert_int_equal(format(archive), ARCHIVE_OK);
  assert_int_equal(filter(archive), ARCHIVE_OK);
  assert_int_equal(archive_write_open_filename(archive, packed), ARCHIVE_OK);
  for (; items->name; items++) write_entry(archive, items, items->text ? strlen(items->text) : 0);
  assert_int_equal(archive_write_close(archive), ARCHIVE_OK);
  archive_write_free(archive);
}

static void pack_tar(const Entry *items) { pack(items, archive_write_set_format_pax_restricted, archive_write_add_filter_gzip); }

static void assert_holds(const char *name, const char *text) {
  char *data = NULL;
  size_t size = 0;
  char path[256];
  snprintf(path, sizeof path, "%s/%s", target, name);
  assert_int_equal(files_read(path, 1 << 20, &data, &size), STATUS_OK);
  assert_string_equal(data, text);
  free(data);
}

static int names_in(const char *path) {
  char **names = NULL;
  size_t count = 0;
  assert_int_equal(files_list(path, &names, &count), STATUS_OK);
  files_list_free(names, count);
  return (int)count;
}

static void assert_says(const char *text) {
  if (!strstr(status_message(), text)) fail_msg("'%s' is not in '%s'", text, status_message());
}

/* Refused, for this reason, naming this entry; the target is empty and nothing is beside it but the archive. */
static void assert_refused(const char *why, const char *entry) {
  assert_int_equal(download_unpack(packed, target), STATUS_BAD_FILE);
  assert_says(why);
  assert_says(entry);
  assert_int_equal(names_in(target), 0);
  assert_int_equal(names_in(folder), 2);
}

static const Entry good[] = {{"./", AE_IFDIR, NULL},
                             {"top/", AE_IFDIR, NULL},
                             {"top/a.txt", AE_IFREG, "first"},
                             {"top/sub/b.txt", AE_IFREG, "second"},
                             {"./top/./sub//c", AE_IFREG, "third"},
                             {"empty", AE_IFREG, ""},
                             {"top/sub", AE_IFDIR, NULL},
                             {NULL, 0, NULL}};

static void test_good(void **state) {
  Setter *const formats[] = {archive_write_set_format_pax_restricted, archive_write_set_format_gnutar, archive_write_set_format_ustar};
  Setter *const filters[] = {archive_write_add_filter_gzip, archive_write_add_filter_bzip2, archive_write_add_filter_xz,
                             archive_write_add_filter_zstd, archive_write_add_filter_none};
  (void)state;
  for (int i = 0; i < 5; i++) {
    char command[256];
    pack(good, formats[i % 3], filters[i]);
    assert_int_equal(download_unpack(packed, target), STATUS_OK);
    assert_holds("top/a.txt", "first");
    assert_holds("top/sub/b.txt", "second");
    assert_holds("top/sub/c", "third");
    assert_holds("empty", "");
    assert_int_equal(names_in(target), 2); /* top, empty: no ".unpacking" is left */
    snprintf(command, sizeof command, "rm -r %s/*", target);
    assert_int_equal(system(command), 0);
  }
}

static void test_zip(void **state) {
  const Entry items[] = {{"d/", AE_IFDIR, NULL}, {"d/a", AE_IFREG, "zipped zipped zipped zipped"}, {NULL, 0, NULL}};
  const Entry evil[] = {{"../evil", AE_IFREG, "x"}, {NULL, 0, NULL}};
  (void)state;
  pack(items, archive_write_set_format_zip, archive_write_add_filter_none);
  char fresh[128];
  snprintf(fresh, sizeof fresh, "%s/made/when/missing", target);
  assert_int_equal(download_unpack(packed, fresh), STATUS_OK);
  assert_holds("made/when/missing/d/a", "zipped zipped zipped zipped");
  pack(evil, archive_write_set_format_zip, archive_write_add_filter_none);
  assert_int_equal(download_unpack(packed, target), STATUS_BAD_FILE);
  assert_says("'../evil'");
  assert_false(files_exists(below("evil")));
}

static void test_escapes(void **state) {
  static char longest[1200], deep[200] = "";
  memset(longest, 'n', sizeof longest - 1);
  for (int i = 0; i < 40; i++) strcat(deep, "d/");
  strcat(deep, "f");
  const struct {
    Entry entry;
    const char *why, *shown;
  } cases[] = {{{"../evil", AE_IFREG, "x"}, "leads out", "'../evil'"},
               {{"a/../../evil", AE_IFREG, "x"}, "leads out", "'a/../../evil'"},
               {{"a/..", AE_IFDIR, NULL}, "leads out", "'a/../'"},
               {{"/tmp/astra-evil", AE_IFREG, "x"}, "absolute", "'/tmp/astra-evil'"},
               {{"link", AE_IFLNK, "../../.."}, "symbolic link", "'link'"},
               {{"hard", 0, "good"}, "hard link", "'hard'"},
               {{"hard", 0, "/etc/passwd"}, "hard link", "'hard'"},
               {{"dev", AE_IFCHR, NULL}, "neither", "'dev'"},
               {{"pipe", AE_IFIFO, NULL}, "neither", "'pipe'"},
               {{"good", AE_IFREG, "again"}, "twice", "'good'"},
               {{"./good", AE_IFREG, "again"}, "twice", "'./good'"},
               {{"good/below", AE_IFREG, "x"}, "earlier entry is a file", "'good/below'"},
               {{"col\033[31mour", AE_IFREG, "x"}, "control characters", "'col?[31mour'"},
               {{".unpacking/x", AE_IFREG, "x"}, "reserved", "'.unpacking/x'"},
               {{longest, AE_IFREG, "x"}, "too long", "nnn"},
               {{deep, AE_IFREG, "x"}, "too deep", "d/d/d"}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const Entry items[] = {{"good", AE_IFREG, "good"}, cases[i].entry, {NULL, 0, NULL}};
    pack_tar(items);
    assert_refused(cases[i].why, cases[i].shown);
  }
  assert_false(files_exists("/tmp/astra-evil"));
}

static void test_link_then_through(void **state) {
  const Entry items[] = {{"out", AE_IFLNK, "/tmp"}, {"out/astra-evil", AE_IFREG, "x"}, {NULL, 0, NULL}};
  (void)state;
  pack_tar(items);
  assert_refused("symbolic link", "'out'");
  assert_false(files_exists("/tmp/astra-evil"));
}

/* A link that was in the target before is not followed out either. */
static void test_link_in_target(void **state) {
  const Entry items[] = {{"a", AE_IFREG, "x"}, {"top/evil", AE_IFREG, "x"}, {NULL, 0, NULL}};
  char path[128];
  (void)state;
  assert_int_equal(mkdir(below("outside"), 0755), 0);
  snprintf(path, sizeof path, "%s/top", target);
  assert_int_equal(symlink(below("outside"), path), 0);
  pack_tar(items);
  assert_int_equal(download_unpack(packed, target), STATUS_IO);
  assert_says("'top' is in the way");
  assert_int_equal(names_in(below("outside")), 0);
  assert_int_equal(names_in(target), 1); /* not even 'a' was moved */
}

static void test_merge(void **state) {
  const Entry items[] = {{"top/new", AE_IFREG, "new"}, {"top/old", AE_IFREG, "newer"}, {NULL, 0, NULL}};
  const Entry clash[] = {{"top/kept", AE_IFDIR, NULL}, {"first", AE_IFREG, "x"}, {NULL, 0, NULL}};
  char path[128];
  (void)state;
  snprintf(path, sizeof path, "%s/top", target);
  assert_int_equal(mkdir(path, 0755), 0);
  snprintf(path, sizeof path, "%s/top/old", target);
  assert_int_equal(files_write(path, "old", 3), STATUS_OK);
  snprintf(path, sizeof path, "%s/top/kept", target);
  assert_int_equal(files_write(path, "kept", 4), STATUS_OK);
  pack_tar(items);
  assert_int_equal(download_unpack(packed, target), STATUS_OK);
  assert_holds("top/new", "new");
  assert_holds("top/old", "newer");
  assert_holds("top/kept", "kept");
  pack_tar(clash);
  assert_int_equal(download_unpack(packed, target), STATUS_IO);
  assert_holds("top/kept", "kept");
  assert_int_equal(names_in(target), 1);
}

static void test_truncated(void **state) {
  (void)state;
  Entry items[] = {{"a", AE_IFREG, "text"}, {"b", AE_IFREG, NULL}, {NULL, 0, NULL}};
  char *noise = malloc(20001);
  unsigned seed = 1;
  for (int i = 0; i < 20000; i++) seed = seed * 1664525u + 1013904223u, noise[i] = (char)('!' + (seed >> 24) % 90);
  noise[20000] = '\0';
  items[1].text = noise;
  pack_tar(items);
  char *bytes = NULL;
  size_t size = 0;
  assert_int_equal(files_read(packed, 1 << 20, &bytes, &size), STATUS_OK);
  for (size_t cut = 0; cut < size - 8; cut += size / 9) {
    assert_int_equal(files_write(packed, bytes, cut), STATUS_OK);
    assert_int_equal(download_unpack(packed, target), STATUS_BAD_FILE);
    assert_int_equal(names_in(target), 0);
  }
  free(bytes);
  pack(items, archive_write_set_format_pax_restricted, archive_write_add_filter_xz);
  assert_int_equal(files_read(packed, 1 << 20, &bytes, &size), STATUS_OK);
  bytes[size / 2] ^= 0x55; /* a flipped byte; libarchive does not look at the checksum of gzip, so this is xz */
  assert_int_equal(files_write(packed, bytes, size), STATUS_OK);
  assert_int_equal(download_unpack(packed, target), STATUS_BAD_FILE);
  assert_int_equal(names_in(target), 0);
  free(bytes);
  free(noise);
}

static void test_no_archive(void **state) {
  (void)state;
  assert_int_equal(download_unpack(below("nothing"), target), STATUS_NOT_FOUND);
  assert_int_equal(files_write(packed, "<html>not found</html>", 22), STATUS_OK);
  assert_refused("cannot be opened as an archive", "packed");
  pack_tar((const Entry[]){{NULL, 0, NULL}});
  assert_int_equal(download_unpack(packed, target), STATUS_BAD_FILE);
}

/* 64 MB of zeros in a few KB. */
static void test_bomb(void **state) {
  static char zeros[1 << 20];
  struct archive *archive = archive_write_new();
  struct archive_entry *entry = archive_entry_new();
  (void)state;
  archive_write_set_format_pax_restricted(archive);
  archive_write_add_filter_zstd(archive);
  assert_int_equal(archive_write_open_filename(archive, packed), ARCHIVE_OK);
  archive_entry_set_pathname(entry, "zeros");
  archive_entry_set_filetype(entry, AE_IFREG);
  archive_entry_set_size(entry, 64 << 20);
  assert_int_equal(archive_write_header(archive, entry), ARCHIVE_OK);
  for (int i = 0; i < 64; i++) assert_int_equal(archive_write_data(archive, zeros, sizeof zeros), sizeof zeros);
  archive_entry_free(entry);
  archive_write_close(archive);
  archive_write_free(archive);
  assert_refused("beyond reason", "packed");
}

/* What a killed unpacking left is removed; one that runs is respected. */
static void test_leftover_and_lock(void **state) {
  char path[128];
  (void)state;
  pack_tar(good);
  snprintf(path, sizeof path, "%s/.unpacking/old/deep", target);
  assert_int_equal(files_make_dirs(path), STATUS_OK);
  int fd = open(target, O_RDONLY | O_DIRECTORY);
  assert_int_equal(flock(fd, LOCK_EX), 0);
  assert_int_equal(download_unpack(packed, target), STATUS_IO);
  assert_says("another process");
  close(fd);
  assert_int_equal(download_unpack(packed, target), STATUS_OK);
  assert_int_equal(names_in(target), 2);
}

/* The whole way: file:// archive, unpacked, removed, recognised afterwards; a broken one does not stay. */
static void test_fetched(void **state) {
  char url[128], path[128];
  (void)state;
  pack_tar(good);
  snprintf(url, sizeof url, "file://%s", packed);
  DownloadFile file = {.url = url, .name = "set.tar.gz", .unpack = true, .leaves = "top"};
  DownloadItem item = {.name = "set", .kind = "datasets", .files = &file, .count = 1};
  assert_false(download_present(&item, target));
  assert_int_equal(download_item(&item, target, true), STATUS_OK);
  assert_true(download_present(&item, target));
  assert_int_equal(names_in(target), 2);
  assert_int_equal(unlink(packed), 0);
  assert_int_equal(download_item(&item, target, true), STATUS_OK); /* not fetched again */
  assert_int_equal(files_write(packed, "junk", 4), STATUS_OK);
  snprintf(path, sizeof path, "%s/other", target);
  assert_int_equal(download_item(&item, path, true), STATUS_BAD_FILE);
  assert_false(files_exists(path));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_good),           TEST(test_zip),
                                     TEST(test_escapes),        TEST(test_link_then_through),
                                     TEST(test_link_in_target), TEST(test_merge),
                                     TEST(test_truncated),      TEST(test_no_archive),
                                     TEST(test_bomb),           TEST(test_leftover_and_lock),
                                     TEST(test_fetched)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
