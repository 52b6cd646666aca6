#include "base/signals.h"
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum { SIGNALS = 32, TOGETHER_MS = 1000 };

static _Atomic int64_t first_ms[SIGNALS]; /* 0: none came */
static void (*volatile asks[SIGNALS])(int number);

SignalOrder signals_note(int number) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + 1;
  int64_t first = 0;
  if (atomic_compare_exchange_strong(&first_ms[number], &first, ms)) return SIGNAL_FIRST;
  return ms - first < TOGETHER_MS ? SIGNAL_DOUBLED : SIGNAL_AGAIN;
}

static void on_signal(int number) {
  const int saved = errno;
  const SignalOrder order = signals_note(number);
  if (order == SIGNAL_FIRST) asks[number](number);
  if (order == SIGNAL_AGAIN) {
    signal(number, SIG_DFL);
    raise(number); /* it takes effect when this handler returns */
  }
  errno = saved;
}

bool signals_hangup_ignored(void) {
  struct sigaction now;
  return sigaction(SIGHUP, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

void signals_catch(int number, void (*ask)(int number)) {
  struct sigaction action = {.sa_handler = on_signal};
  if (number == SIGHUP && signals_hangup_ignored()) return;
  sigemptyset(&action.sa_mask);
  asks[number] = ask;
  sigaction(number, &action, NULL);
}
