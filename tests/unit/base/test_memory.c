/* What the system says of memory: plausible numbers, which follow what is touched. */
#include "base/memory.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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
  assert_true(memory_available() > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(own_pages_are_counted),
      cmocka_unit_test(some_memory_is_left),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
