/* After its first steps a training step asks the system for no memory: every request of the program is counted, on all threads, over
 * optimizer, tape, quantisation, noise, averages, revival, random maps and the loader's workers. Not under a sanitizer, which has an
 * allocator of its own. */
#include "unit/train/tiny_run.h"
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#if defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static atomic_int asked;
static void *volatile kept; /* keeps the compiler from leaving out a malloc that it sees freed */

#if !SANITIZED && defined(__GLIBC__)
#define COUNTED 1
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t align, size_t size);

void *malloc(size_t size) {
  asked++;
  return __libc_malloc(size);
}
void *calloc(size_t count, size_t size) {
  asked++;
  return __libc_calloc(count, size);
}
void *realloc(void *block, size_t size) {
  asked++;
  return __libc_realloc(block, size);
}
void *aligned_alloc(size_t align, size_t size) {
  asked++;
  return __libc_memalign(align, size);
}
void *memalign(size_t align, size_t size);
void *memalign(size_t align, size_t size) { return aligned_alloc(align, size); }
int posix_memalign(void **block, size_t align, size_t size) {
  *block = aligned_alloc(align, size);
  return *block ? 0 : 12;
}
void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
  asked++;
  return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}
#else
#define COUNTED 0
#endif

static void skip_where_not_counted(void) {
  if (COUNTED) return;
  printf("skipped: under a sanitizer, or without glibc, allocations cannot be counted\n");
  skip();
}

/* Steps 3 to 8: the fifth ends an epoch, so that a new order of the data is drawn, too. */
static void assert_no_allocation(const TrainOptions *options) {
  Session session;
  tiny_open(&session, options);
  tiny_steps(&session, 2);
  for (int step = 3; step <= 8; step++) {
    int before = asked;
    tiny_step(&session);
    int during = asked - before;
    if (during != 0) fail_msg("step %d asked for memory %d times", step, during);
  }
  int64_t revived = session.emulation.revived;
  if (options->dead_below > 0.1) assert_true(revived > 0); /* that path was walked, too */
  session_close(&session);
}

static TrainOptions even_three(void) {
  TrainOptions options = tiny_options();
  options.devices[0] = options.devices[1] = 3;
  options.map = MAP_EVEN;
  return options;
}

static void the_count_works(void **state) {
  (void)state;
  skip_where_not_counted();
  int before = asked;
  kept = malloc(3);
  free(kept);
  kept = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(kept, 4096);
  assert_int_equal(asked - before, 2);
}

static void an_astra_step_allocates_nothing(void **state) {
  (void)state;
  skip_where_not_counted();
  TrainOptions options = even_three();
  assert_no_allocation(&options);
  options.codebook_decay = 0.5;
  options.dead_below = 0.5;
  options.optimizer.average = 0.99;
  options.accumulate = 1;
  options.mixup = 0.2;
  options.smoothing = 0.1;
  options.workers = 2;
  assert_no_allocation(&options);
}

static void other_numbers_of_devices_allocate_nothing(void **state) {
  (void)state;
  skip_where_not_counted();
  TrainOptions options = tiny_options(); /* 2 to 4 devices, Dirichlet counts */
  options.groups = 1;
  options.class_token = CLASS_SINGLE;
  options.gradient = QUANTISE_ROTATION;
  assert_no_allocation(&options);
  options.accumulate = 2;
  options.covariance = NOISE_DIAGONAL;
  options.gradient = QUANTISE_NONE;
  options.crop_least = 0.3;
  assert_no_allocation(&options);
}

static void a_plain_step_allocates_nothing(void **state) {
  (void)state;
  skip_where_not_counted();
  TrainOptions options = tiny_options();
  options.groups = 0;
  assert_no_allocation(&options);
  options.patch_drop = 0.5;
  assert_no_allocation(&options);
}

static int with_threads(void **state) { return threads_start(2) == STATUS_OK ? tiny_make(state) : -1; }

static int without_threads(void **state) {
  threads_stop();
  return tiny_remove(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_count_works),
      cmocka_unit_test(an_astra_step_allocates_nothing),
      cmocka_unit_test(other_numbers_of_devices_allocate_nothing),
      cmocka_unit_test(a_plain_step_allocates_nothing),
  };
  return cmocka_run_group_tests(tests, with_threads, without_threads);
}
