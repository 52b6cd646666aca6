/* Time. Leaves out: dates. */
#include "base/clock.h"
#include <time.h>

static double read_clock(clockid_t which) {
  struct timespec now;
  clock_gettime(which, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double clock_now(void) { return read_clock(CLOCK_MONOTONIC); }
double clock_spent(void) { return read_clock(CLOCK_THREAD_CPUTIME_ID); }
