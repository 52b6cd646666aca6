/* See heartbeat.h. */
#include "infer/cluster/heartbeat.h"
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

struct Heartbeat {
  pthread_t thread;
  pthread_mutex_t held; /* recursive */
  pthread_mutex_t lock; /* of stop */
  pthread_cond_t stops;
  bool stop;
  double seconds;
  void (*beat)(void *context);
  void *context;
};

static bool pause_until(Heartbeat *h, struct timespec *next) {
  next->tv_sec += (time_t)h->seconds;
  next->tv_nsec += (long)((h->seconds - (double)(time_t)h->seconds) * 1e9);
  if (next->tv_nsec >= 1000000000) next->tv_sec++, next->tv_nsec -= 1000000000;
  pthread_mutex_lock(&h->lock);
  while (!h->stop && pthread_cond_timedwait(&h->stops, &h->lock, next) == 0) continue;
  bool goes_on = !h->stop;
  pthread_mutex_unlock(&h->lock);
  return goes_on;
}

static void *run(void *context) {
  Heartbeat *h = context;
  struct timespec next;
  clock_gettime(CLOCK_MONOTONIC, &next);
  while (pause_until(h, &next)) {
    pthread_mutex_lock(&h->held);
    h->beat(h->context);
    pthread_mutex_unlock(&h->held);
    clock_gettime(CLOCK_MONOTONIC, &next);
  }
  return NULL;
}

/* Signals are for the threads that were there before. */
static int start_thread(Heartbeat *h) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int fault = pthread_create(&h->thread, NULL, run, h);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return fault;
}

static void release_memory(Heartbeat *h) {
  pthread_mutex_destroy(&h->held);
  pthread_mutex_destroy(&h->lock);
  pthread_cond_destroy(&h->stops);
  free(h);
}

Status heartbeat_start(Heartbeat **heartbeat, double seconds, void (*beat)(void *context), void *context) {
  pthread_mutexattr_t recursive;
  pthread_condattr_t monotonic;
  Heartbeat *h = calloc(1, sizeof *h);
  *heartbeat = NULL;
  if (!h) return status_set(STATUS_NO_MEMORY, "no memory for signs of life");
  h->seconds = seconds, h->beat = beat, h->context = context;
  pthread_mutexattr_init(&recursive);
  pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&h->held, &recursive);
  pthread_mutexattr_destroy(&recursive);
  pthread_mutex_init(&h->lock, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&h->stops, &monotonic);
  pthread_condattr_destroy(&monotonic);
  if (start_thread(h) == 0) {
    *heartbeat = h;
    return STATUS_OK;
  }
  release_memory(h);
  return status_set(STATUS_NO_MEMORY, "cannot start a thread for signs of life");
}

void heartbeat_stop(Heartbeat *h) {
  if (!h) return;
  pthread_mutex_lock(&h->lock);
  h->stop = true;
  pthread_cond_signal(&h->stops);
  pthread_mutex_unlock(&h->lock);
  pthread_join(h->thread, NULL);
  release_memory(h);
}

void heartbeat_hold(Heartbeat *h) {
  if (h) pthread_mutex_lock(&h->held);
}

void heartbeat_release(Heartbeat *h) {
  if (h) pthread_mutex_unlock(&h->held);
}
