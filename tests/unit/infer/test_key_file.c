/* Key files: what is written can be read, by its owner alone, and nothing is overwritten. */
#include "infer/cluster/key_file.h"
#include "unit/remove_tree.h"
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[TEMPORARY_PATH], path[TEMPORARY_PATH + 16];

static int make_folder(void **state) {
  (void)state;
  if (make_temporary_folder(folder) != 0) return -1;
  snprintf(path, sizeof path, "%s/key", folder);
  return 0;
}

static int remove_folder(void **state) {
  (void)state;
  unlink(path);
  return rmdir(folder);
}

static void write_text(const char *text, mode_t mode) {
  unlink(path);
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
  assert_int_equal(fchmod(fd, mode), 0);
  close(fd);
}

static const char line[] = "00112233445566778899aabbccddeeff0123456789ABCDEFfedcba9876543210";

static void written_keys_are_read_again(void **state) {
  (void)state;
  KeyFile key, got;
  struct stat file;
  char text[KEY_FILE_LINE + 1], other[KEY_FILE_LINE + 1];
  unlink(path);
  assert_int_equal(key_file_make(path, text), STATUS_OK);
  assert_int_equal(key_file_make(NULL, other), STATUS_OK);
  assert_string_not_equal(text, other);
  assert_int_equal(strspn(other, "0123456789abcdef"), KEY_FILE_LINE - 1);
  assert_string_equal(other + KEY_FILE_LINE - 1, "\n");
  assert_int_equal(key_file_read(&key, path), STATUS_OK);
  assert_int_equal(stat(path, &file), 0);
  assert_int_equal(file.st_mode & 0777, 0600);
  assert_int_equal(file.st_size, KEY_FILE_LINE);
  assert_int_equal(key_file_make(path, other), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), path));
  assert_int_equal(key_file_read(&got, path), STATUS_OK);
  assert_memory_equal(&key, &got, sizeof key);
  write_text(text, 0600);
  assert_int_equal(key_file_read(&got, path), STATUS_OK);
  assert_memory_equal(&key, &got, sizeof key);
}

static void digits_mean_bytes(void **state) {
  (void)state;
  const uint8_t first[10] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99};
  KeyFile key;
  char windows[80];
  write_text(line, 0600);
  assert_int_equal(key_file_read(&key, path), STATUS_OK);
  assert_memory_equal(key.bytes, first, 10);
  assert_int_equal(key.bytes[16 + 7], 0xef);
  assert_int_equal(key.bytes[31], 0x10);
  assert_false(key.open);
  snprintf(windows, sizeof windows, "%s\r\n", line);
  write_text(windows, 0400);
  assert_int_equal(key_file_read(&key, path), STATUS_OK);
}

static void other_files_are_refused(void **state) {
  (void)state;
  char text[80], wanted[TEMPORARY_PATH + 32];
  KeyFile key;
  static const mode_t modes[] = {0640, 0604, 0620, 0602, 0601};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    write_text(line, modes[i]);
    assert_int_equal(key_file_read(&key, path), STATUS_BAD_VALUE);
    snprintf(wanted, sizeof wanted, "chmod 600 %s", path);
    assert_non_null(strstr(status_message(), wanted));
  }
  /* A credential of systemd, which the group may read by its mode, and no other file. */
  write_text(line, 0440);
  setenv("CREDENTIALS_DIRECTORY", folder, 1);
  assert_int_equal(key_file_read(&key, path), STATUS_OK);
  write_text(line, 0444);
  assert_int_equal(key_file_read(&key, path), STATUS_BAD_VALUE);
  write_text(line, 0440);
  setenv("CREDENTIALS_DIRECTORY", "/run/credentials/other", 1);
  assert_int_equal(key_file_read(&key, path), STATUS_BAD_VALUE);
  unsetenv("CREDENTIALS_DIRECTORY");
  static const char *const tails[] = {"0", " ", "\n\n", "\n ", "\r"};
  for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
    snprintf(text, sizeof text, "%s%s", line, tails[i]);
    write_text(text, 0600);
    assert_int_equal(key_file_read(&key, path), STATUS_BAD_FILE);
  }
  snprintf(text, sizeof text, "%.63s", line);
  write_text(text, 0600);
  assert_int_equal(key_file_read(&key, path), STATUS_BAD_FILE);
  snprintf(text, sizeof text, "%.62sg0\n", line);
  write_text(text, 0600);
  assert_int_equal(key_file_read(&key, path), STATUS_BAD_FILE);
  write_text("", 0600);
  assert_int_equal(key_file_read(&key, path), STATUS_BAD_FILE);
  const KeyFile none = {.open = false};
  assert_memory_equal(&key, &none, sizeof key);
  unlink(path);
  assert_int_equal(key_file_read(&key, path), STATUS_NOT_FOUND);
  assert_int_equal(key_file_read(&key, folder), STATUS_BAD_FILE);
}

static void a_key_of_zeroes_is_refused(void **state) {
  (void)state;
  char zeroes[KEY_FILE_LINE + 1] = "";
  KeyFile key;
  memset(zeroes, '0', KEY_FILE_LINE - 1);
  write_text(zeroes, 0600);
  assert_int_equal(key_file_read(&key, path), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "a key of zeroes is no secret"));
}

static void keys_of_other_users_are_refused(void **state) {
  (void)state;
  KeyFile key;
  write_text(line, 0600);
  if (chown(path, 12345, (gid_t)-1) != 0) {
    printf("skipped: only root gives files away\n");
    skip();
  }
  assert_int_equal(key_file_read(&key, path), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "belongs to another user (12345)"));
  assert_int_equal(chown(path, 0, (gid_t)-1), 0);
  assert_int_equal(key_file_read(&key, path), STATUS_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(written_keys_are_read_again), cmocka_unit_test(digits_mean_bytes),
                                     cmocka_unit_test(other_files_are_refused), cmocka_unit_test(a_key_of_zeroes_is_refused),
                                     cmocka_unit_test(keys_of_other_users_are_refused)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
