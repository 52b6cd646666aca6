/* Counts what a program asks of the system for memory, on all threads: include it in the program's only file. Not under a sanitizer, which
 * has an allocator of its own, and with glibc only. */
#ifndef UNIT_COUNT_ALLOCATIONS_H
#define UNIT_COUNT_ALLOCATIONS_H
#include "autograd/kernels/matmul.h"
#include "autograd/real.h"
#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#if !SANITIZED && defined(__GLIBC__)
#define ALLOCATIONS_COUNTED 1
static atomic_long own_allocations;
static atomic_long *allocations = &own_allocations; /* elsewhere after allocations_share */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t align, size_t size);
void *memalign(size_t align, size_t size);

void *malloc(size_t size) {
  atomic_fetch_add(allocations, 1);
  return __libc_malloc(size);
}
void *calloc(size_t count, size_t size) {
  atomic_fetch_add(allocations, 1);
  return __libc_calloc(count, size);
}
void *realloc(void *block, size_t size) {
  atomic_fetch_add(allocations, 1);
  return __libc_realloc(block, size);
}
void *aligned_alloc(size_t align, size_t size) {
  atomic_fetch_add(allocations, 1);
  return __libc_memalign(align, size);
}
void *memalign(size_t align, size_t size) { return aligned_alloc(align, size); }
int posix_memalign(void **block, size_t align, size_t size) {
  *block = aligned_alloc(align, size);
  return *block ? 0 : 12;
}
void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
  atomic_fetch_add(allocations, 1);
  return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}

static inline long allocations_so_far(void) { return atomic_load(allocations); }

/* From now on the children that are forked count as well. */
static inline void allocations_share(void) {
  void *shared = mmap(NULL, sizeof *allocations, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(shared != MAP_FAILED);
  allocations = shared;
}
#else
#define ALLOCATIONS_COUNTED 0
static inline long allocations_so_far(void) { return 0; }
static inline void allocations_share(void) {}
#endif

/* First in each test: skips it where nothing is counted; else makes sure that the count works. oneDNN makes a few small objects for each
 * product and frees them, which is its own business: what the project does is seen without it. */
static inline void allocations_need_count(void) {
  static void *volatile kept; /* keeps the compiler from leaving out a malloc that it sees freed */
  assert_int_equal(matmul_choose_backend("openblas"), STATUS_OK);
  if (!ALLOCATIONS_COUNTED) {
    printf("skipped: under a sanitizer, or without glibc, allocations cannot be counted\n");
    skip();
  }
  long before = allocations_so_far();
  kept = malloc(3);
  free(kept);
  kept = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(kept, 4096);
  assert_int_equal(allocations_so_far() - before, 2);
}

#endif
