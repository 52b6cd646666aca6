/* What the system says of memory: plausible numbers, which follow what is touched. */
#define cgroup_memory_left scripted_left
#include "base/memory.c" /* with a limit of control groups that the test sets */
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static double left = INFINITY;
double scripted_left(const char *self, const char *root) {
  (void)self, (void)root;
  return left;
}

static void own_pages_are_counted(void **state) {
  (void)state;
  const size_t bytes = (size_t)32 << 20;
  const MemoryUse before = memory_used();
  assert_true(before.anonymous > 0 && before.resident >= before.anonymous);
  void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(block != MAP_FAILED);
  memset(block, 1, bytes);
  const MemoryUse after = memory_used();
  assert_true(after.anonymous >= before.anonymous + 0.9 * (double)bytes);
  assert_true(after.resident >= before.resident + 0.9 * (double)bytes);
  munmap(block, bytes);
  assert_true(memory_peak() >= after.anonymous);
  assert_true(memory_used().anonymous < after.anonymous - 0.9 * (double)bytes);
}

static void some_memory_is_left(void **state) {
  (void)state;
  const double machine = memory_available();
  assert_true(machine > 0);
  left = 4096;
  assert_true(memory_available() == 4096);
  left = INFINITY;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(own_pages_are_counted),
      cmocka_unit_test(some_memory_is_left),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
