/* Which lists of workers are taken: what needs a key, and who could not call whom. */
#include "cli/infer_run.h"
#include "unit/remove_tree.h"
#include <cmocka.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[TEMPORARY_PATH], key_path[TEMPORARY_PATH + 16];

static int make_key(void **state) {
  (void)state;
  char line[KEY_FILE_LINE + 1];
  if (make_temporary_folder(folder) != 0) return -1;
  snprintf(key_path, sizeof key_path, "%s/key", folder);
  return key_file_make(key_path, line) == STATUS_OK ? 0 : -1;
}

static int remove_key(void **state) {
  (void)state;
  return remove_tree(folder);
}

static Status open_cluster(const char *peers, const char *key_file) {
  InferCluster cluster;
  return infer_cluster_open(&cluster, &(InferSettings){.peers = peers, .key_file = key_file, .local = true});
}

static void other_machines_need_a_key(void **state) {
  (void)state;
  static const char *const near[] = {"unix:/tmp/x", "local", "local,unix:/tmp/x"};
  static const char *const far[] = {
      "127.0.0.1:1", "[::1]:1", "localhost:1", "203.0.113.1:7433", "[2001:db8::1]:7433", "0.0.0.0:7433", "no.such.name.invalid:7433"};
  char text[ADDRESS_TEXT + 64];
  for (size_t i = 0; i < sizeof near / sizeof *near; i++) assert_int_equal(open_cluster(near[i], NULL), STATUS_OK);
  for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
    assert_int_equal(open_cluster(far[i], key_path), STATUS_OK);
    assert_int_equal(open_cluster(far[i], NULL), STATUS_BAD_USAGE);
    snprintf(text, sizeof text, "--peers %s needs --key-file", far[i]);
    assert_non_null(strstr(status_message(), text));
    snprintf(text, sizeof text, "unix:/tmp/x,%s", far[i]);
    assert_int_equal(open_cluster(text, NULL), STATUS_BAD_USAGE);
  }
}

/* The later one calls the earlier one. */
static void nobody_calls_an_address_of_another_machine(void **state) {
  (void)state;
  assert_int_equal(open_cluster("203.0.113.1:7433,203.0.113.2:7433", key_path), STATUS_OK);
  assert_int_equal(open_cluster("203.0.113.1:7433,127.0.0.1:1,unix:/tmp/x", key_path), STATUS_OK);
  assert_int_equal(open_cluster("127.0.0.1:1,203.0.113.1:7433", key_path), STATUS_BAD_USAGE);
  assert_non_null(strstr(status_message(), "--peers 127.0.0.1:1,203.0.113.1:7433: the second"));
  assert_int_equal(open_cluster("203.0.113.1:7433,unix:/tmp/x,[2001:db8::1]:7433", key_path), STATUS_BAD_USAGE);
  assert_non_null(strstr(status_message(), "--peers unix:/tmp/x,[2001:db8::1]:7433"));
}

static void a_strategy_is_chosen_by_its_name(void **state) {
  (void)state;
  for (int i = 0; i < STRATEGY_COUNT; i++) {
    InferSettings settings;
    const char *images[8];
    int count;
    char *arguments[] = {(char[]){"astra-infer"}, (char[]){"-c"},         (char[]){"x"},
                         (char[]){"x.png"},       (char[]){"--strategy"}, (char *)(uintptr_t)strategy_facts((Strategy)i)->name};
    if (infer_settings_parse(&settings, INFER_MAIN, 6, arguments, images, &count) != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(settings.strategy, i);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_strategy_is_chosen_by_its_name), cmocka_unit_test(other_machines_need_a_key),
                                     cmocka_unit_test(nobody_calls_an_address_of_another_machine)};
  return cmocka_run_group_tests(tests, make_key, remove_key);
}
