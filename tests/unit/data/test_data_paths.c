/* The order in which places are searched, and what the message says when nothing is found. */
#include "base/files.h"
#include "data/data_paths.h"
#include "data_testing.h"

static int set_up(void **state) {
  if (testing_make_folder(state) != 0) return -1;
  setenv("ASTRA_HOME", testing_path("home"), 1);
  setenv("HOME", testing_path("user"), 1);
  return 0;
}

static void assert_found(const char *extra, const char *want) {
  char *found;
  assert_ok(data_paths_find("datasets", "thing/a.bin", extra, &found));
  assert_string_equal(found, testing_path(want));
  free(found);
}

static void test_order(void **state) {
  (void)state;
  assert_ok(files_make_dirs(testing_path("extra")));
  testing_write("user/.cache/astra/datasets/thing/a.bin", "3", 1);
  assert_found(testing_path("extra"), "user/.cache/astra/datasets/thing/a.bin");
  testing_write("home/datasets/thing/a.bin", "2", 1);
  assert_found(testing_path("extra"), "home/datasets/thing/a.bin");
  testing_write("extra/thing/a.bin", "1", 1);
  assert_found(testing_path("extra"), "extra/thing/a.bin");
  assert_found(NULL, "home/datasets/thing/a.bin");
}

static void test_bundled(void **state) {
  (void)state;
  char *found;
  assert_ok(data_paths_find("datasets", "cifar100-sample/test.bin", NULL, &found));
  assert_string_equal(found, "datasets/cifar100-sample/test.bin");
  free(found);
}

static void test_nothing(void **state) {
  (void)state;
  char *found;
  assert_fails(data_paths_find("checkpoints", "vit-none", testing_path("absent"), &found), STATUS_BAD_USAGE,
               "absent: there is no such directory");
  assert_null(found);
  assert_ok(files_make_dirs(testing_path("extra")));
  assert_fails(data_paths_find("checkpoints", "vit-none", testing_path("extra"), &found), STATUS_NOT_FOUND, "vit-none not found");
  assert_null(found);
  assert_non_null(strstr(status_message(), testing_path("extra/vit-none")));
  assert_non_null(strstr(status_message(), testing_path("home/checkpoints/vit-none")));
  assert_non_null(strstr(status_message(), testing_path("user/.cache/astra/checkpoints/vit-none")));
  assert_non_null(strstr(status_message(), " checkpoints/vit-none"));
  assert_non_null(strstr(status_message(), "/share/astra/checkpoints/vit-none"));
}

/* A folder with a part of a file is passed over for a whole copy elsewhere, and named where there is none. */
static void test_unfinished(void **state) {
  (void)state;
  char *found;
  testing_write("home/checkpoints/gpt2/model.safetensors.part", "1", 1);
  assert_fails(data_paths_find("checkpoints", "gpt2", NULL, &found), STATUS_NOT_FOUND, "unfinished download");
  testing_write("user/.cache/astra/checkpoints/gpt2/model.safetensors", "12", 2);
  assert_ok(data_paths_find("checkpoints", "gpt2", NULL, &found));
  assert_string_equal(found, testing_path("user/.cache/astra/checkpoints/gpt2"));
  free(found);
  testing_write("home/checkpoints/mine/model-00001-of-00002.safetensors.part", "1", 1); /* a checkpoint that is being written */
  assert_ok(data_paths_find("checkpoints", "mine", NULL, &found));
  free(found);
}

static void test_absolute(void **state) {
  (void)state;
  char *found;
  assert_fails(data_paths_find("checkpoints", testing_path("nowhere"), NULL, &found), STATUS_NOT_FOUND, "nowhere not found; give a path");
  const char *first = strstr(status_message(), "nowhere");
  assert_null(strstr(first + 1, "nowhere"));
  testing_write("there/a.bin", "1", 1);
  assert_ok(data_paths_find("checkpoints", testing_path("there"), testing_path("extra"), &found));
  assert_string_equal(found, testing_path("there"));
  free(found);
}

static void test_store(void **state) {
  (void)state;
  char *folder;
  assert_ok(data_paths_store("datasets", &folder));
  assert_string_equal(folder, testing_path("home/datasets"));
  free(folder);
  unsetenv("ASTRA_HOME");
  assert_ok(data_paths_store("checkpoints", &folder));
  assert_string_equal(folder, testing_path("user/.cache/astra/checkpoints"));
  free(folder);
  unsetenv("HOME");
  assert_fails(data_paths_store("datasets", &folder), STATUS_NOT_FOUND, "ASTRA_HOME");
  assert_null(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_order),    cmocka_unit_test(test_unfinished), cmocka_unit_test(test_bundled), cmocka_unit_test(test_nothing),
      cmocka_unit_test(test_absolute), cmocka_unit_test(test_store), /* last: it takes the variables away */
  };
  return cmocka_run_group_tests(tests, set_up, testing_remove_folder);
}
