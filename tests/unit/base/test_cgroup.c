/* Limits of control groups of both versions, from folders that look like /sys/fs/cgroup. */
#include "base/cgroup.h"
#include "base/files.h"
#include "unit/remove_tree.h"
#include <cmocka.h>
#include <math.h>
#include <string.h>

static char folder[TEMPORARY_PATH], root[TEMPORARY_PATH + 8], self[TEMPORARY_PATH + 8];

static int make_folder(void **state) {
  (void)state;
  if (make_temporary_folder(folder) != 0) return -1;
  snprintf(root, sizeof root, "%s/root", folder);
  snprintf(self, sizeof self, "%s/self", folder);
  return files_make_dirs(root) == STATUS_OK ? 0 : -1;
}

static int remove_folder(void **state) {
  (void)state;
  return remove_tree(folder);
}

/* One file of a group; "" is the group at the top. */
static void set(const char *group, const char *name, const char *text) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", root, group);
  assert_int_equal(files_make_dirs(path), STATUS_OK);
  snprintf(path, sizeof path, "%s/%s/%s", root, group, name);
  assert_int_equal(files_write(path, text, strlen(text)), STATUS_OK);
}

static void is_in(const char *list) { assert_int_equal(files_write(self, list, strlen(list)), STATUS_OK); }

static void check(double memory, double cores) {
  const double left = cgroup_memory_left(self, root), time = cgroup_cores(self, root);
  if (left != memory || time != cores) fail_msg("%g bytes and %g cores, not %g and %g", left, time, memory, cores);
}

static void the_least_on_the_way_counts(void **state) {
  (void)state;
  set("", "cgroup.controllers", "cpu memory\n");
  set("a/b/c", "memory.max", "max\n");
  set("a/b/c", "memory.current", "100\n");
  set("a/b/c", "cpu.max", "max 100000\n");
  is_in("0::/a/b/c\n");
  check(INFINITY, INFINITY);
  set("a/b", "memory.max", "5000\n");
  set("a/b", "memory.current", "3000\n");
  set("a/b", "cpu.max", "250000 100000\n");
  check(2000, 3);
  set("a/b", "memory.stat", "anon 5\nactive_file 70\ninactive_file 500\ninactive_anon 9\n");
  check(2500, 3); /* what caches files gives way */
  set("a", "memory.max", "4000\n");
  set("a", "memory.current", "3900\n");
  set("a", "cpu.max", "50000 100000\n");
  check(100, 1);
  set("a/b/c", "memory.max", "50\n"); /* it uses 100 */
  check(0, 1);
}

static void version_1_has_a_hierarchy_for_each(void **state) {
  (void)state;
  is_in("5:cpu,cpuacct:/job\n4:memory:/job\n3:cpuset:/job\n1:name=systemd:/job\n0::/job\n");
  check(INFINITY, INFINITY);
  set("memory/job", "memory.limit_in_bytes", "9223372036854771712\n");
  set("memory/job", "memory.usage_in_bytes", "1000\n");
  assert_true(cgroup_memory_left(self, root) > 1e18);
  set("memory/job", "memory.limit_in_bytes", "4000\n");
  set("memory/job", "memory.stat", "inactive_file 1\ntotal_inactive_file 200\n");
  set("cpu,cpuacct/job", "cpu.cfs_quota_us", "-1\n");
  set("cpu,cpuacct/job", "cpu.cfs_period_us", "100000\n");
  check(3200, INFINITY);
  set("cpu,cpuacct", "cpu.cfs_quota_us", "400000\n");
  set("cpu,cpuacct", "cpu.cfs_period_us", "100000\n");
  check(3200, 4);
  set("unified/job", "memory.max", "50\n"); /* beside them */
  set("unified/job", "memory.current", "20\n");
  check(30, 4);
  set("cpuset/job", "cpu.cfs_quota_us", "1\n"); /* of another controller */
  check(30, 4);
}

static void a_mount_by_one_of_its_controllers_is_found(void **state) {
  (void)state;
  is_in("5:cpuacct,cpu:/\n");
  set("cpu", "cpu.cfs_quota_us", "150000\n");
  set("cpu", "cpu.cfs_period_us", "100000\n");
  check(INFINITY, 2);
}

/* As in a container that sees its own group at the top, but is listed by its path outside. */
static void a_path_from_outside_means_the_top(void **state) {
  (void)state;
  set("", "cgroup.controllers", "cpu memory\n");
  set("", "memory.max", "900\n");
  set("", "memory.current", "300\n");
  set("", "cpu.max", "200000 100000\n");
  is_in("0::/docker/0123\n");
  check(600, 2);
  is_in("0::/../../other\n");
  check(600, 2);
  is_in("0::/\n");
  check(600, 2);
}

static void what_makes_no_sense_limits_nothing(void **state) {
  (void)state;
  check(INFINITY, INFINITY); /* no list */
  set("", "cgroup.controllers", "");
  is_in("\n0\n0:\n::\n7:cpu\nmemory:memory:memory\n0::");
  check(INFINITY, INFINITY);
  is_in("0::/\n");
  set("", "memory.max", "");
  set("", "memory.current", "5");
  set("", "cpu.max", "1");
  check(INFINITY, INFINITY);
  set("", "memory.max", "many");
  set("", "cpu.max", "5 0");
  check(INFINITY, INFINITY);
  set("", "memory.max", "50"); /* and no memory.stat */
  set("", "cpu.max", "-5 100000");
  check(45, INFINITY);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(the_least_on_the_way_counts, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(version_1_has_a_hierarchy_for_each, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(a_mount_by_one_of_its_controllers_is_found, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(a_path_from_outside_means_the_top, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(what_makes_no_sense_limits_nothing, make_folder, remove_folder),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
