/* Arena: alignment, marks, a full range, zeroing of used memory, red zones under the address sanitizer. */
#include "base/arena.h"
#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static void blocks_are_aligned_and_disjoint(void **state) {
  (void)state;
  Arena *arena = arena_new(1 << 20);
  uint8_t *blocks[64];
  for (int i = 0; i < 64; i++) {
    blocks[i] = arena_alloc(arena, (size_t)i * 7);
    assert_non_null(blocks[i]);
    assert_int_equal((uintptr_t)blocks[i] % ARENA_ALIGN, 0);
    memset(blocks[i], i, (size_t)i * 7);
  }
  for (int i = 0; i < 64; i++) {
    for (int j = 0; j < i * 7; j++) assert_int_equal(blocks[i][j], i);
    if (i > 0) assert_true(blocks[i] > blocks[i - 1]);
  }
  arena_free(arena);
}

static void release_returns_to_the_mark(void **state) {
  (void)state;
  Arena *arena = arena_new(1 << 20);
  assert_int_equal(arena_mark(arena), 0);
  arena_alloc(arena, 1000);
  size_t mark = arena_mark(arena);
  void *first = arena_alloc(arena, 5000);
  size_t peak = arena_mark(arena);
  arena_release(arena, mark);
  assert_int_equal(arena_mark(arena), mark);
  assert_ptr_equal(arena_alloc(arena, 10), first);
  assert_int_equal(arena_peak(arena), peak);
  arena_release(arena, 0);
  assert_int_equal(arena_mark(arena), 0);
  arena_watch(arena);
  arena_alloc(arena, 100);
  size_t watched = arena_mark(arena);
  arena_release(arena, 0);
  assert_int_equal(arena_watched(arena), watched);
  arena_watch(arena);
  assert_int_equal(arena_watched(arena), 0);
  assert_int_equal(arena_peak(arena), peak);
  arena_release(arena, 4096); /* forward: nothing happens */
  assert_int_equal(arena_mark(arena), 0);
  arena_free(arena);
}

static void a_full_range_gives_null_and_stays_usable(void **state) {
  (void)state;
  Arena *arena = arena_new(1); /* rounded up to the least size */
  size_t reserved = arena_reserved(arena);
  assert_true(reserved >= (size_t)1 << 20);
  assert_null(arena_alloc(arena, reserved + 1));
  assert_null(arena_alloc(arena, SIZE_MAX));
  assert_null(arena_alloc(arena, SIZE_MAX - 64));
  assert_int_equal(arena_mark(arena), 0);
  int count = 0;
  while (arena_alloc(arena, 4032)) count++;
  assert_in_range(count, (int)(reserved / 4096), (int)(reserved / 4032));
  assert_true(arena_mark(arena) <= reserved);
  arena_release(arena, 0);
  assert_non_null(arena_alloc(arena, 4032));
  arena_free(arena);
}

static void a_huge_reservation_costs_nothing(void **state) {
  (void)state;
  Arena *arena = arena_new(SIZE_MAX); /* halved until the system agrees */
  assert_non_null(arena);
  assert_true(arena_reserved(arena) > (size_t)1 << 30);
  uint8_t *block = arena_alloc(arena, (size_t)1 << 29);
  assert_non_null(block);
  block[12345] = 1;
  arena_free(arena);
  arena_free(NULL);
}

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
static void red_zones_follow_every_block(void **state) {
  (void)state;
  Arena *arena = arena_new(1 << 20);
  uint8_t *a = arena_alloc(arena, 100), *b = arena_alloc(arena, 8);
  assert_false(__asan_address_is_poisoned(a + 99));
  assert_true(__asan_address_is_poisoned(a + 100));
  assert_true(__asan_address_is_poisoned(b - 1));
  assert_true(__asan_address_is_poisoned(b + 8));
  arena_release(arena, 0);
  assert_true(__asan_address_is_poisoned(a));
  arena_free(arena);
}
#endif

/* What is in use stays; what is free comes back as zeroes. */
static void trim_keeps_what_is_used(void **state) {
  (void)state;
  Arena *arena = arena_new((size_t)64 << 20);
  assert_non_null(arena);
  unsigned char *kept = arena_alloc(arena, 10000);
  size_t mark = arena_mark(arena);
  unsigned char *freed = arena_alloc(arena, (size_t)8 << 20);
  memset(kept, 1, 10000);
  memset(freed, 2, (size_t)8 << 20);
  arena_release(arena, mark);
  arena_trim(arena);
  freed = arena_alloc(arena, (size_t)8 << 20);
  assert_int_equal(kept[9999], 1);
  assert_int_equal(freed[(size_t)1 << 20], 0);
  assert_true(arena_peak(arena) >= (size_t)8 << 20);
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(trim_keeps_what_is_used),          cmocka_unit_test(blocks_are_aligned_and_disjoint),
      cmocka_unit_test(release_returns_to_the_mark),      cmocka_unit_test(a_full_range_gives_null_and_stays_usable),
      cmocka_unit_test(a_huge_reservation_costs_nothing),
#ifdef __SANITIZE_ADDRESS__
      cmocka_unit_test(red_zones_follow_every_block),
#endif
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
