/* Signals that ask a program to end: doubled ones count as one, one that comes again ends it, and what nohup ignores stays ignored. */
#include "base/signals.h"
#include <cmocka.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t asked;
static void ask(int number) { asked = asked * 100 + number; }

static void a_second_later(void) { nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 50000000}, NULL); }

static void doubled_ones_are_one(void) {
  signals_catch(SIGTERM, ask);
  signals_catch(SIGINT, ask);
  raise(SIGTERM);
  raise(SIGTERM);
  if (asked != SIGTERM) _exit(2);
  raise(SIGINT); /* another, which a supervisor has its own reasons for */
  raise(SIGINT);
  if (asked != SIGTERM * 100 + SIGINT) _exit(3);
  a_second_later();
  raise(SIGINT);
  _exit(4); /* not come to */
}

static void ignored_hang_ups_stay_so(void) {
  signal(SIGHUP, SIG_IGN);
  signals_catch(SIGHUP, ask);
  raise(SIGHUP);
  signal(SIGHUP, SIG_DFL);
  signals_catch(SIGHUP, ask);
  if (asked != 0) _exit(2);
  raise(SIGHUP);
  _exit(asked == SIGHUP ? 0 : 3);
}

static void the_order_is_told(void) {
  if (signals_note(SIGUSR1) != SIGNAL_FIRST || signals_note(SIGUSR1) != SIGNAL_DOUBLED || signals_note(SIGUSR2) != SIGNAL_FIRST) _exit(2);
  a_second_later();
  _exit(signals_note(SIGUSR1) == SIGNAL_AGAIN ? 0 : 3);
}

static int end_of(void (*child)(void)) {
  int status = -1;
  const pid_t pid = fork();
  if (pid == 0) child();
  assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
  return status;
}

static void doubled(void **state) {
  (void)state;
  const int status = end_of(doubled_ones_are_one);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
}

static void ignored(void **state) {
  (void)state;
  assert_int_equal(end_of(ignored_hang_ups_stay_so), 0);
}

static void order(void **state) {
  (void)state;
  assert_int_equal(end_of(the_order_is_told), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(doubled), cmocka_unit_test(ignored), cmocka_unit_test(order)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
