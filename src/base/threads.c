/* The pool of threads.h. Leaves out: queues, stealing, priorities: work is dealt out by index alone.
 * Invariant: between two calls of threads_for every worker waits for `generation` to move on; a job's fields are written
 * before that and read after it. Workers spin for a moment (the next job of a step is microseconds away) and then sleep,
 * because the machine is shared. */
#include "base/threads.h"
#include "base/cgroup.h"
#include "base/clock.h"
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

enum { PAUSES_PER_LOOK = 16 };
static const double spin_seconds = 50e-6;

typedef struct Job {
  ThreadsBody *body;
  void *context;
  int64_t items, grain;
} Job;

static struct Pool {
  int count; /* threads with the caller; 0 before the first start counts as 1 */
  pthread_t workers[THREADS_MAX];
  bool spins, stopping;
  Job job;
  atomic_uint generation; /* moves on with every job */
  atomic_int pending;     /* workers that have not finished the job */
  atomic_int sleepers;    /* workers asleep on `wake` */
  atomic_bool waiting;    /* the caller is asleep on `done` */
  atomic_bool busy;       /* a job runs: further calls run inline */
  pthread_mutex_t mutex;
  pthread_cond_t wake, done;
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

static _Thread_local int own_index; /* 0 for every thread that is no worker */

int threads_count(void) { return pool.count > 1 ? pool.count : 1; }

static void pause_core(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

/* Thread `index` of `count` gets blocks of `grain` items; the first (blocks mod count) threads get one more. */
static void run_share(const Job *job, int index, int count) {
  int64_t blocks = job->items / job->grain + (job->items % job->grain != 0);
  int64_t share = blocks / count, extra = blocks % count;
  int64_t first = index * share + (index < extra ? index : extra), last = first + share + (index < extra);
  if (first == last) return;
  int64_t end = last == blocks ? job->items : last * job->grain;
  job->body(job->context, first * job->grain, end, index);
}

/* True as soon as the worker sees a new generation; false when it is time to sleep. */
static bool spin_for_job(unsigned seen) {
  if (!pool.spins) return atomic_load(&pool.generation) != seen;
  double until = clock_now() + spin_seconds;
  do {
    for (int i = 0; i < PAUSES_PER_LOOK; i++) {
      if (atomic_load_explicit(&pool.generation, memory_order_acquire) != seen) return true;
      pause_core();
    }
  } while (clock_now() < until);
  return false;
}

/* `sleepers` is raised before `generation` is looked at, and the caller does it the other way round: one of the two sees
 * the other, so no wake-up is lost. The same holds for `waiting` and `pending`. */
static void sleep_for_job(unsigned seen) {
  pthread_mutex_lock(&pool.mutex);
  atomic_fetch_add(&pool.sleepers, 1);
  while (atomic_load(&pool.generation) == seen) pthread_cond_wait(&pool.wake, &pool.mutex);
  atomic_fetch_sub(&pool.sleepers, 1);
  pthread_mutex_unlock(&pool.mutex);
}

static void *work(void *argument) {
  own_index = (int)(intptr_t)argument;
  for (unsigned seen = 0;; seen++) {
    if (!spin_for_job(seen)) sleep_for_job(seen);
    if (pool.stopping) return NULL;
    run_share(&pool.job, own_index, pool.count);
    if (atomic_fetch_sub(&pool.pending, 1) == 1 && atomic_load(&pool.waiting)) {
      pthread_mutex_lock(&pool.mutex);
      pthread_cond_signal(&pool.done);
      pthread_mutex_unlock(&pool.mutex);
    }
  }
}

static void announce(void) {
  atomic_fetch_add(&pool.generation, 1);
  if (atomic_load(&pool.sleepers) == 0) return;
  pthread_mutex_lock(&pool.mutex);
  pthread_cond_broadcast(&pool.wake);
  pthread_mutex_unlock(&pool.mutex);
}

static void wait_for_workers(void) {
  double until = clock_now() + spin_seconds;
  do {
    for (int i = 0; i < PAUSES_PER_LOOK; i++) {
      if (atomic_load_explicit(&pool.pending, memory_order_acquire) == 0) return;
      pause_core();
    }
  } while (pool.spins && clock_now() < until);
  pthread_mutex_lock(&pool.mutex);
  atomic_store(&pool.waiting, true);
  while (atomic_load(&pool.pending) != 0) pthread_cond_wait(&pool.done, &pool.mutex);
  atomic_store(&pool.waiting, false);
  pthread_mutex_unlock(&pool.mutex);
}

void threads_for(int64_t items, int64_t grain, ThreadsBody *body, void *context) {
  if (items <= 0) return;
  Job job = {body, context, items, grain > 0 ? grain : 1};
  if (atomic_exchange(&pool.busy, true)) {
    body(context, 0, items, own_index);
    return;
  }
  if (pool.count <= 1 || items <= job.grain) {
    body(context, 0, items, 0);
  } else {
    pool.job = job;
    atomic_store(&pool.pending, pool.count - 1);
    announce();
    run_share(&job, 0, pool.count);
    wait_for_workers();
  }
  atomic_store(&pool.busy, false);
}

/* A forked child has none of the workers: it starts as a program without a pool. */
static void forget_workers(void) {
  pool.count = 1;
  pool.sleepers = 0;
  pool.waiting = false;
  pool.busy = false;
  pool.mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  pool.wake = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
  pool.done = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, forget_workers); }

static int allowed_cores(cpu_set_t *cores) {
  CPU_ZERO(cores);
  if (sched_getaffinity(0, sizeof *cores, cores) != 0) return 1;
  int count = CPU_COUNT(cores);
  return count < 1 ? 1 : count;
}

/* Allowed cores, or fewer where control groups limit their time: more threads than that would take turns in standing still. */
static int usable_cores(int allowed) { return (int)fmin(allowed, cgroup_cores(CGROUP_SELF, CGROUP_ROOT)); }

int threads_usable(void) {
  cpu_set_t allowed;
  const int cores = usable_cores(allowed_cores(&allowed));
  return cores < THREADS_MAX ? cores : THREADS_MAX;
}

/* Worker `index` keeps to the index-th allowed core. Only a pool that has a thread for each of them is bound: of fewer threads, those of
 * two programs would choose the same cores while others idle, and behind a limit of time the cores are shared. Refusal by the system costs
 * speed only. */
static void bind_worker(int index, const cpu_set_t *allowed) {
  cpu_set_t own;
  CPU_ZERO(&own);
  for (int core = 0, seen = 0; core < CPU_SETSIZE; core++) {
    if (CPU_ISSET(core, allowed) && seen++ == index) CPU_SET(core, &own);
  }
  if (CPU_COUNT(&own) == 1) pthread_setaffinity_np(pool.workers[index], sizeof own, &own);
}

Status threads_start(int count) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  cpu_set_t allowed;
  const int all = allowed_cores(&allowed), cores = usable_cores(all);
  if (count < 0 || count > THREADS_MAX) {
    return status_set(STATUS_BAD_VALUE, "%d threads: 1 to %d are accepted, or 0 for one per core", count, THREADS_MAX);
  }
  threads_stop();
  pthread_once(&once, watch_forks);
  if (count == 0) count = cores < THREADS_MAX ? cores : THREADS_MAX;
  pool.spins = count <= cores;
  pool.stopping = false;
  atomic_store(&pool.generation, 0);
  for (pool.count = 1; pool.count < count; pool.count++) {
    int error = pthread_create(&pool.workers[pool.count], NULL, work, (void *)(intptr_t)pool.count);
    if (error) {
      threads_stop();
      return status_set(STATUS_NO_MEMORY, "cannot start thread %d of %d: %s; ask for fewer threads", pool.count + 1, count,
                        strerror(error));
    }
    if (count == all && cores == all) bind_worker(pool.count, &allowed);
  }
  return STATUS_OK;
}

void threads_stop(void) {
  if (pool.count <= 1) return;
  pool.stopping = true;
  announce();
  for (int i = 1; i < pool.count; i++) pthread_join(pool.workers[i], NULL);
  pool.count = 1;
}

int threads_spawn(pthread_t *thread, void *(*run)(void *context), void *context) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(thread, NULL, run, context);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return error;
}

void threads_condition_init(pthread_cond_t *condition) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

bool threads_wait(pthread_cond_t *condition, pthread_mutex_t *lock, double until) {
  const double when = fmax(until, 0), seconds = floor(when);
  const struct timespec at = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((when - seconds) * 1e9)};
  return pthread_cond_timedwait(condition, lock, &at) == 0;
}
