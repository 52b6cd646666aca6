/* Other programs: their output is whole or absent, failures name the log's last line, and a signal is passed on. */
#include "base/files.h"
#include "base/process.h"
#include "unit/remove_tree.h"
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Places {
  char out[TEMPORARY_PATH + 8], log[TEMPORARY_PATH + 8];
} Places;

static Places make_places(void) {
  char folder[TEMPORARY_PATH];
  Places p;
  assert_int_equal(make_temporary_folder(folder), 0);
  snprintf(p.out, sizeof p.out, "%s/out", folder);
  snprintf(p.log, sizeof p.log, "%s/log", folder);
  return p;
}

static Status shell(const Places *p, const char *script) {
  const char *argv[] = {"/bin/sh", "-c", script, NULL};
  return process_run(argv, p->out, p->log);
}

static void assert_file(const char *path, const char *wanted) {
  char *text;
  size_t size;
  assert_int_equal(files_read(path, 4096, &text, &size), STATUS_OK);
  assert_string_equal(text, wanted);
  free(text);
}

static void output_is_kept_and_errors_are_logged(void **state) {
  (void)state;
  Places p = make_places();
  assert_int_equal(shell(&p, "cat; echo answer; echo said >&2"), STATUS_OK); /* cat: there is no input */
  assert_file(p.out, "answer\n");
  assert_int_equal(shell(&p, "echo again >&2"), STATUS_OK);
  assert_file(p.out, "");
  assert_file(p.log, "said\nagain\n");
}

static void a_failure_leaves_no_output(void **state) {
  (void)state;
  Places p = make_places();
  assert_int_equal(shell(&p, "echo half; echo first >&2; echo the reason >&2; exit 3"), STATUS_PEER);
  assert_false(files_exists(p.out));
  assert_non_null(strstr(status_message(), "exit code 3: the reason"));
  assert_non_null(strstr(status_message(), p.log));
  assert_int_equal(shell(&p, "echo 'sh: error: none left' >&2; echo 'Try sh --help' >&2; exit 2"), STATUS_PEER);
  assert_non_null(strstr(status_message(), "exit code 2: sh: error: none left; see"));
  assert_int_equal(shell(&p, "echo 'of this run' >&2; exit 4"), STATUS_PEER);
  assert_non_null(strstr(status_message(), "exit code 4: of this run; see"));
  assert_int_equal(shell(&p, "exit 5"), STATUS_PEER);
  assert_non_null(strstr(status_message(), "exit code 5: it said nothing; see"));
  assert_int_equal(shell(&p, "kill -KILL $$"), STATUS_PEER);
  assert_non_null(strstr(status_message(), "signal 9"));
  const char *argv[] = {"/no/such/program", NULL};
  assert_int_equal(process_run(argv, p.out, p.log), STATUS_NOT_FOUND);
  assert_non_null(strstr(status_message(), "/no/such/program"));
}

static void a_signal_is_passed_on(void **state) {
  (void)state;
  Places p = make_places();
  char script[128];
  snprintf(script, sizeof script, "trap 'echo stopped >&2; exit 0' TERM; kill -TERM %d; sleep 5 & wait", (int)getpid());
  assert_int_equal(shell(&p, script), STATUS_INTERRUPTED);
  assert_file(p.log, "stopped\n");
  assert_false(files_exists(p.out));
  struct sigaction action;
  sigaction(SIGTERM, NULL, &action);
  assert_true(action.sa_handler == SIG_DFL); /* as it was before */
}

/* What is sent to this process's group is passed on, and must not arrive twice. */
static void a_program_has_a_group_of_its_own(void **state) {
  (void)state;
  Places p = make_places();
  assert_int_equal(shell(&p, "read id name letter parent group rest </proc/$$/stat; test $group = $$"), STATUS_OK);
}

static void a_program_beside_this_one_is_preferred(void **state) {
  (void)state;
  char self[4096] = "";
  assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
  char *own = process_beside(strrchr(self, '/') + 1), *other = process_beside("no-such-program");
  assert_string_equal(own, self);
  assert_string_equal(other, "no-such-program");
  free(own);
  free(other);
}

static void a_child_begins_as_its_parent_wants(void **state) {
  (void)state;
  static const int defaults[] = {SIGUSR1, 0}, ignored[] = {SIGUSR2, 0};
  const pid_t parent = getpid();
  signal(SIGUSR1, SIG_IGN);
  for (int orphan = 0; orphan < 2; orphan++) {
    int ended = 0;
    pid_t pid = fork();
    if (pid == 0) {
      const bool follows = process_child(orphan ? parent + 1 : parent, SIGKILL, defaults, ignored);
      int wanted = 0;
      const bool set = prctl(PR_GET_PDEATHSIG, &wanted) == 0 && wanted == SIGKILL;
      _exit(follows == !orphan && set && signal(SIGUSR1, SIG_DFL) == SIG_DFL && signal(SIGUSR2, SIG_DFL) == SIG_IGN ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &ended, 0), pid);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
  }
  signal(SIGUSR1, SIG_DFL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(output_is_kept_and_errors_are_logged),
      cmocka_unit_test(a_failure_leaves_no_output),
      cmocka_unit_test(a_signal_is_passed_on),
      cmocka_unit_test(a_program_has_a_group_of_its_own),
      cmocka_unit_test(a_program_beside_this_one_is_preferred),
      cmocka_unit_test(a_child_begins_as_its_parent_wants),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
