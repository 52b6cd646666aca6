/* fork, sockets and wait: what the nodes say to each other is elsewhere. */
#include "infer/cluster/processes.h"
#include "base/clock.h"
#include "infer/cluster/connection.h"
#include "infer/cluster/fd_passing.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

static void close_at(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

/* Many nodes need more descriptors than the usual soft limit: the hard limit is ours to use. */
static void raise_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

/* A fault ends the child: a handler that it has from its parent would go on in the parent's place. */
static void let_faults_end(void) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) signal(faults[i], SIG_DFL);
}

void processes_become_parent(void) { signal(SIGCHLD, SIG_DFL); }

void processes_become_child(pid_t parent) {
  let_faults_end();
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  if (getppid() != parent) _exit(1); /* it died before we asked to be told */
}

static void run_child(Processes *processes, int number, int control, int passed, ProcessesMain *child, void *context, pid_t parent) {
  processes_become_child(parent);
  for (int i = 0; i <= number; i++) {
    close_at(&processes->control[i]);
    close_at(&processes->passed[i]);
  }
  _exit(child(context, number, control, passed));
}

static Status fork_one(Processes *processes, int number, ProcessesMain *child, void *context, pid_t parent) {
  int control[2] = {-1, -1}, passed[2] = {-1, -1};
  Status status = connection_pair(control);
  if (status == STATUS_OK) status = fd_passing_pair(passed);
  processes->control[number] = control[0];
  processes->passed[number] = passed[0];
  pid_t pid = status == STATUS_OK ? fork() : -1;
  if (pid == 0) run_child(processes, number, control[1], passed[1], child, context, parent);
  if (pid < 0 && status == STATUS_OK)
    status = status_set(STATUS_IO, "cannot start process %d of %d: %s", number + 1, processes->count, strerror(errno));
  if (pid > 0) processes->pid[number] = pid;
  close_at(&control[1]);
  close_at(&passed[1]);
  return status;
}

static Status fork_all(Processes *processes, ProcessesMain *child, void *context) {
  pid_t parent = getpid();
  fflush(NULL); /* or each child would print what is still buffered */
  raise_limit();
  processes_become_parent();
  for (int i = 0; i < processes->count; i++) TRY(fork_one(processes, i, child, context, parent));
  return STATUS_OK;
}

Status processes_start(Processes *processes, int count, ProcessesMain *child, void *context) {
  size_t n = (size_t)count;
  *processes = (Processes){.count = count,
                           .pid = calloc(n, sizeof(pid_t)),
                           .control = malloc(n * sizeof(int)),
                           .passed = malloc(n * sizeof(int)),
                           .reaped = calloc(n, sizeof(bool)),
                           .ended = calloc(n, sizeof(int))};
  bool memory = processes->pid && processes->control && processes->passed && processes->reaped && processes->ended;
  for (int i = 0; memory && i < count; i++) processes->control[i] = processes->passed[i] = -1;
  Status status = memory ? fork_all(processes, child, context) : status_set(STATUS_NO_MEMORY, "no memory for %d nodes", count);
  if (status == STATUS_OK) return STATUS_OK;
  processes_stop(processes, 0);
  return status;
}

static Status pass_stream(const Processes *processes, int to, int fd, int node, uint16_t epoch) {
  return fd_passing_send(processes->passed[to], &(PassedFd){.kind = FD_STREAM, .epoch = epoch, .node = (uint16_t)node, .fd = fd});
}

Status processes_join(Processes *processes, int a, int to_b, int b, int to_a, uint16_t epoch) {
  int pair[2];
  TRY(connection_pair(pair));
  Status status = pass_stream(processes, a, pair[0], to_b, epoch);
  if (status == STATUS_OK) status = pass_stream(processes, b, pair[1], to_a, epoch);
  close(pair[0]);
  close(pair[1]);
  return status;
}

static bool reap(Processes *processes, int node, int flags) {
  if (processes->reaped[node] || !processes->pid[node]) return true;
  pid_t ended;
  do ended = waitpid(processes->pid[node], &processes->ended[node], flags);
  while (ended < 0 && errno == EINTR);
  return processes->reaped[node] = ended != 0;
}

static void describe_end(int status, char *text, size_t room) {
  if (WIFSIGNALED(status))
    snprintf(text, room, "died: signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  else
    snprintf(text, room, "ended with exit status %d", WEXITSTATUS(status));
}

static void pause_a_moment(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

static int find_dead(Processes *processes) {
  int found = -1;
  for (int i = 0; i < processes->count; i++) {
    if (!processes->pid[i] || !reap(processes, i, WNOHANG)) continue;
    if (found < 0 || (WIFSIGNALED(processes->ended[i]) && !WIFSIGNALED(processes->ended[found]))) found = i;
  }
  return found;
}

int processes_find_dead(Processes *processes, double wait, char *text, size_t room) {
  double until = clock_now() + wait;
  int found;
  while ((found = find_dead(processes)) < 0 && clock_now() < until) pause_a_moment();
  if (found >= 0) describe_end(processes->ended[found], text, room);
  return found;
}

void processes_end(Processes *processes, int number) {
  if (processes->pid[number] && !processes->reaped[number]) kill(processes->pid[number], SIGKILL);
  reap(processes, number, 0);
  processes->pid[number] = 0;
  close_at(&processes->passed[number]);
}

static bool all_reaped(Processes *processes) {
  bool all = true;
  for (int i = 0; i < processes->count; i++) all &= reap(processes, i, WNOHANG);
  return all;
}

void processes_stop(Processes *processes, double grace) {
  bool started = processes->pid && processes->reaped && processes->ended;
  double until = clock_now() + grace;
  while (started && !all_reaped(processes) && clock_now() < until) pause_a_moment();
  for (int i = 0; started && i < processes->count; i++) {
    if (processes->pid[i] && !processes->reaped[i]) kill(processes->pid[i], SIGKILL); /* also ends one that is stopped */
    reap(processes, i, 0);
  }
  for (int i = 0; processes->control && i < processes->count; i++) close_at(&processes->control[i]);
  for (int i = 0; processes->passed && i < processes->count; i++) close_at(&processes->passed[i]);
  free(processes->pid);
  free(processes->control);
  free(processes->passed);
  free(processes->reaped);
  free(processes->ended);
  *processes = (Processes){0};
}
