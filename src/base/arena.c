/* The bump allocator of arena.h. Leaves out: growing, freeing of single blocks, locking (one thread allocates).
 * Invariant: `used` is a multiple of ARENA_ALIGN; every byte at or above `peak` is still zero, as the system gave it. */
#include "base/arena.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#endif

#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
enum { RED_ZONE = 64 };
static void poison(const void *start, size_t bytes) { __asan_poison_memory_region(start, bytes); }
static void unpoison(const void *start, size_t bytes) { __asan_unpoison_memory_region(start, bytes); }
#else
enum { RED_ZONE = 0 };
static void poison(const void *start, size_t bytes) { (void)start, (void)bytes; }
static void unpoison(const void *start, size_t bytes) { (void)start, (void)bytes; }
#endif

_Static_assert(sizeof(void *) == 8, "arenas reserve more addresses than 32 bits have");

struct Arena {
  uint8_t *base; /* starts on a huge page */
  size_t reserved, used, peak, watched;
  void *mapping; /* what munmap gets: a huge page more than `reserved`, for the alignment */
  size_t mapped;
};

static const size_t huge_page = (size_t)2 << 20, min_bytes = (size_t)1 << 20, page = 4096;

static size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

Arena *arena_new(size_t bytes) {
  const size_t max = SIZE_MAX / 4;
  size_t reserved = round_up(bytes < min_bytes ? min_bytes : bytes > max ? max : bytes, page);
  void *mapping = MAP_FAILED;
  for (; reserved >= min_bytes; reserved = round_up(reserved / 2, page)) {
    mapping = mmap(NULL, reserved + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping != MAP_FAILED) break;
  }
  if (mapping == MAP_FAILED) return NULL;
  Arena *arena = calloc(1, sizeof *arena);
  if (!arena) {
    munmap(mapping, reserved + huge_page);
    return NULL;
  }
  arena->mapping = mapping;
  arena->mapped = reserved + huge_page;
  arena->base = (uint8_t *)mapping + (huge_page - (uintptr_t)mapping % huge_page) % huge_page;
  arena->reserved = reserved;
  arena_huge_pages(arena, true); /* a wish: works without */
  return arena;
}

void arena_huge_pages(Arena *arena, bool huge) { madvise(arena->mapping, arena->mapped, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE); }

void arena_free(Arena *arena) {
  if (!arena) return;
  unpoison(arena->base, arena->peak);
  munmap(arena->mapping, arena->mapped);
  free(arena);
}

void *arena_alloc(Arena *arena, size_t bytes) {
  size_t left = arena->reserved - arena->used;
  if (bytes == 0) bytes = 1; /* two blocks never share an address */
  if (bytes > left) return NULL;
  size_t taken = round_up(bytes, ARENA_ALIGN) + RED_ZONE;
  if (taken > left) return NULL;
  uint8_t *block = arena->base + arena->used;
  arena->used += taken;
  if (arena->used > arena->peak) arena->peak = arena->used;
  if (arena->used > arena->watched) arena->watched = arena->used;
  poison(block, taken);
  unpoison(block, bytes);
  return block;
}

size_t arena_mark(const Arena *arena) { return arena->used; }

void arena_release(Arena *arena, size_t mark) {
  if (mark >= arena->used) return;
  poison(arena->base + mark, arena->used - mark);
  arena->used = mark;
}

void arena_trim(Arena *arena) {
  size_t from = round_up(arena->used, page);
  if (from < arena->peak) madvise(arena->base + from, round_up(arena->peak, page) - from, MADV_DONTNEED);
}

size_t arena_peak(const Arena *arena) { return arena->peak; }
void arena_watch(Arena *arena) { arena->watched = arena->used; }
size_t arena_watched(const Arena *arena) { return arena->watched; }
size_t arena_reserved(const Arena *arena) { return arena->reserved; }
