/* Repeats a computation while signals arrive, whose handler takes more stack than their frame does: what keeps numbers below its stack
 * pointer loses them. It then gives other results, or writes anywhere and the program is killed. */
#ifndef TEST_SIGNAL_FLOOD_H
#define TEST_SIGNAL_FLOOD_H
#include <cmocka.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/time.h>

enum { FLOOD_MICROSECONDS = 50, FLOOD_SIGNALS = 500, FLOOD_REPEATS_MAX = 1000000 };

static volatile sig_atomic_t flood_signals;

static void flood_count(int number) {
  volatile char frame[2048];
  (void)number;
  memset((char *)frame, 0xff, sizeof frame);
  flood_signals++;
}

/* An interval of 0 ends them. */
static void flood_every(int microseconds) {
  const struct itimerval timer = {{0, microseconds}, {0, microseconds}};
  assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

/* `compute` writes to `got`, which has to equal `want` each time. */
static void flood(void (*compute)(void *context), void *context, const void *got, const void *want, size_t bytes) {
  struct sigaction action = {.sa_handler = flood_count}, former;
  int repeats = 0;
  bool same = true;
  sigaction(SIGALRM, &action, &former);
  flood_signals = 0;
  flood_every(FLOOD_MICROSECONDS);
  for (; same && flood_signals < FLOOD_SIGNALS && repeats < FLOOD_REPEATS_MAX; repeats++) {
    compute(context);
    same = memcmp(got, want, bytes) == 0;
  }
  flood_every(0);
  sigaction(SIGALRM, &former, NULL);
  assert_true(same);
  assert_true(repeats < FLOOD_REPEATS_MAX);
}

#endif
