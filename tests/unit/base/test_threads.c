/* The thread pool: every item once, fixed shares, nesting, restart, sleep and wake, fork. */
#include <pthread.h>
#include <sched.h>
#define cgroup_cores           scripted_cores
#define sched_getaffinity      scripted_affinity
#define pthread_setaffinity_np scripted_binding
int scripted_affinity(pid_t process, size_t size, cpu_set_t *cores);
int scripted_binding(pthread_t thread, size_t size, const cpu_set_t *cores);
#include "base/threads.c" /* with cores and a limit of control groups that the test sets */
#include <cmocka.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_ITEMS = 1000 };

typedef struct Record {
  int64_t grain;
  int owner[MAX_ITEMS]; /* thread + 1 */
  int calls[8];
} Record;

static void record_range(void *context, int64_t begin, int64_t end, int thread) {
  Record *record = context;
  record->calls[thread]++;
  for (int64_t i = begin; i < end; i++) record->owner[i] += thread + 1;
}

static void check_cover(int64_t items, int64_t grain, int threads) {
  Record record = {.grain = grain};
  threads_for(items, grain, record_range, &record);
  int64_t sizes[8] = {0}, blocks = (items + grain - 1) / grain;
  for (int64_t i = 0; i < items; i++) {
    assert_in_range(record.owner[i], 1, threads);
    if (i > 0) assert_true(record.owner[i] >= record.owner[i - 1]);
    if (i > 0 && record.owner[i] != record.owner[i - 1]) assert_int_equal(i % grain, 0);
    sizes[record.owner[i] - 1]++;
  }
  for (int t = 0; t < threads; t++) {
    assert_in_range(record.calls[t], 0, 1);
    assert_true((sizes[t] + grain - 1) / grain <= (blocks + threads - 1) / threads); /* as equal as the grain allows */
  }
}

static void every_item_is_done_once(void **state) {
  (void)state;
  for (int threads = 1; threads <= 5; threads++) {
    assert_int_equal(threads_start(threads), STATUS_OK);
    assert_int_equal(threads_count(), threads);
    const int64_t items[] = {1, 2, 3, 7, 64, 65, 999, 1000}, grains[] = {1, 2, 8, 64, 5000};
    for (int i = 0; i < 8; i++) {
      for (int g = 0; g < 5; g++) check_cover(items[i], grains[g], threads);
    }
    threads_stop();
    assert_int_equal(threads_count(), 1);
  }
}

static void nothing_to_do_calls_nothing(void **state) {
  (void)state;
  Record record = {0};
  threads_start(2);
  threads_for(0, 1, record_range, &record);
  threads_for(-3, 1, record_range, &record);
  threads_stop();
  assert_int_equal(record.calls[0] + record.calls[1], 0);
}

static void works_without_a_pool(void **state) {
  (void)state;
  threads_stop();
  check_cover(100, 8, 1);
}

static void shares_do_not_change_between_runs(void **state) {
  (void)state;
  Record first = {0};
  threads_start(3);
  threads_for(MAX_ITEMS, 8, record_range, &first);
  for (int round = 0; round < 200; round++) {
    if (round % 50 == 49) threads_start(3); /* a restart changes nothing */
    Record again = {0};
    threads_for(MAX_ITEMS, 8, record_range, &again);
    assert_memory_equal(first.owner, again.owner, sizeof first.owner);
  }
  threads_stop();
}

typedef struct Nest {
  int inner_thread[4], inner_calls[4];
} Nest;

typedef struct NestInner {
  Nest *nest;
  int outer;
} NestInner;

static void inner_body(void *context, int64_t begin, int64_t end, int thread) {
  NestInner *inner = context;
  inner->nest->inner_thread[inner->outer] = thread;
  inner->nest->inner_calls[inner->outer] += (int)(end - begin);
}

static void outer_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)begin, (void)end;
  NestInner inner = {context, thread};
  threads_for(100, 1, inner_body, &inner);
}

static void a_call_from_a_body_runs_inline(void **state) {
  (void)state;
  Nest nest = {{0}, {0}};
  threads_start(4);
  threads_for(4, 1, outer_body, &nest);
  threads_stop();
  for (int t = 0; t < 4; t++) {
    assert_int_equal(nest.inner_thread[t], t);
    assert_int_equal(nest.inner_calls[t], 100);
  }
}

static void add_up(void *context, int64_t begin, int64_t end, int thread) {
  int64_t *sums = context;
  for (int64_t i = begin; i < end; i++) sums[thread * 8] += i;
}

static void no_wake_up_is_lost(void **state) {
  (void)state;
  for (int threads = 2; threads <= 4; threads += 2) {
    int64_t sums[4 * 8] = {0};
    threads_start(threads);
    for (int round = 0; round < 3000; round++) {
      threads_for(64, 1, add_up, sums);
      if (round % 100 == 0) usleep(300); /* long enough for the workers to fall asleep */
    }
    threads_stop();
    assert_int_equal(sums[0] + sums[8] + sums[16] + sums[24], 3000 * 2016);
  }
}

static void a_forked_child_runs_alone_and_can_start_anew(void **state) {
  (void)state;
#ifdef __SANITIZE_THREAD__
  printf("skipped: the thread sanitizer does not follow threads that are started after a fork\n");
  skip();
#endif
  threads_start(2);
  check_cover(64, 1, 2);
  pid_t child = fork();
  if (child == 0) {
    int64_t sums[16] = {0};
    alarm(20);
    if (threads_count() != 1) _exit(1);
    threads_for(64, 1, add_up, sums);
    if (sums[0] != 2016 || threads_start(2) != STATUS_OK) _exit(2);
    threads_for(64, 1, add_up, sums);
    threads_stop();
    _exit(sums[0] + sums[8] == 2 * 2016 ? 0 : 3);
  }
  int result = -1;
  waitpid(child, &result, 0);
  assert_true(WIFEXITED(result));
  assert_int_equal(WEXITSTATUS(result), 0);
  check_cover(64, 1, 2); /* the parent's pool is untouched */
  threads_stop();
}

static double cores_allowed = INFINITY;
double scripted_cores(const char *self, const char *root) {
  (void)self, (void)root;
  return cores_allowed;
}

static void a_limit_of_time_means_fewer_threads(void **state) {
  (void)state;
  assert_int_equal(threads_start(0), STATUS_OK);
  const int all = threads_count();
  cores_allowed = 1;
  assert_int_equal(threads_start(0), STATUS_OK);
  assert_int_equal(threads_count(), 1);
  assert_int_equal(threads_start(3), STATUS_OK); /* as asked for */
  assert_int_equal(threads_count(), 3);
  cores_allowed = 1000;
  assert_int_equal(threads_start(0), STATUS_OK);
  assert_int_equal(threads_count(), all);
  cores_allowed = INFINITY;
  threads_stop();
}

static int cores_given = 2; /* by the system: cores 4, 5, ... */
int scripted_affinity(pid_t process, size_t size, cpu_set_t *cores) {
  (void)process, (void)size;
  for (int core = 0; core < cores_given; core++) CPU_SET(4 + core, cores);
  return 0;
}

static int bindings, bound_wrong;
int scripted_binding(pthread_t thread, size_t size, const cpu_set_t *cores) {
  (void)thread, (void)size;
  bindings++;
  bound_wrong += CPU_COUNT(cores) != 1 || !CPU_ISSET(4 + bindings, cores);
  return 0;
}

static int bindings_of(int threads, int cores, double limit) {
  bindings = bound_wrong = 0;
  cores_given = cores;
  cores_allowed = limit;
  assert_int_equal(threads_start(threads), STATUS_OK);
  threads_stop();
  cores_given = 2;
  cores_allowed = INFINITY;
  assert_int_equal(bound_wrong, 0);
  return bindings;
}

/* Else two programs on one machine would have their workers on the same cores, and others idle. */
static void workers_are_bound_where_there_is_one_for_each_core(void **state) {
  (void)state;
  assert_int_equal(bindings_of(4, 4, INFINITY), 3);
  assert_int_equal(bindings_of(0, 4, INFINITY), 3);
  assert_int_equal(bindings_of(2, 4, INFINITY), 0);
  assert_int_equal(bindings_of(3, 2, INFINITY), 0);
  assert_int_equal(bindings_of(4, 4, 2), 0);
  assert_int_equal(bindings_of(2, 4, 2), 0);
}

static void a_wrong_count_is_refused(void **state) {
  (void)state;
  assert_int_equal(threads_start(-1), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "-1 threads"));
  assert_int_equal(threads_start(100000), STATUS_BAD_VALUE);
  assert_int_equal(threads_start(0), STATUS_OK);
  assert_true(threads_count() >= 1);
  threads_stop();
  threads_stop();
}

typedef struct Signal {
  pthread_mutex_t lock;
  pthread_cond_t condition;
  bool given;
} Signal;

static void *give_signal(void *context) {
  Signal *signal = context;
  pthread_mutex_lock(&signal->lock);
  signal->given = true;
  pthread_cond_signal(&signal->condition);
  pthread_mutex_unlock(&signal->lock);
  return NULL;
}

/* By clock_now: by the system's date all of this time is long past. */
static void a_wait_lasts_until_its_time_or_a_signal(void **state) {
  static const double seconds = 0.05, long_seconds = 60;
  Signal signal = {.given = false};
  pthread_t thread;
  (void)state;
  pthread_mutex_init(&signal.lock, NULL);
  threads_condition_init(&signal.condition);
  pthread_mutex_lock(&signal.lock);
  const double start = clock_now(), until = start + seconds;
  while (threads_wait(&signal.condition, &signal.lock, until)) continue;
  assert_true(clock_now() >= until);
  assert_true(clock_now() < start + long_seconds);
  assert_false(threads_wait(&signal.condition, &signal.lock, start));
  assert_false(threads_wait(&signal.condition, &signal.lock, -1));
  assert_int_equal(threads_spawn(&thread, give_signal, &signal), 0);
  while (!signal.given && threads_wait(&signal.condition, &signal.lock, clock_now() + long_seconds)) continue;
  assert_true(signal.given);
  pthread_mutex_unlock(&signal.lock);
  pthread_join(thread, NULL);
  pthread_cond_destroy(&signal.condition);
  pthread_mutex_destroy(&signal.lock);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(works_without_a_pool),
      cmocka_unit_test(every_item_is_done_once),
      cmocka_unit_test(nothing_to_do_calls_nothing),
      cmocka_unit_test(shares_do_not_change_between_runs),
      cmocka_unit_test(a_call_from_a_body_runs_inline),
      cmocka_unit_test(no_wake_up_is_lost),
      cmocka_unit_test(a_limit_of_time_means_fewer_threads),
      cmocka_unit_test(workers_are_bound_where_there_is_one_for_each_core),
      cmocka_unit_test(a_wrong_count_is_refused),
      cmocka_unit_test(a_wait_lasts_until_its_time_or_a_signal),
      cmocka_unit_test(a_forked_child_runs_alone_and_can_start_anew),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
