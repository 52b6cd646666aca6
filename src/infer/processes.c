/* fork, sockets and wait: what the nodes say to each other is elsewhere. */
#include "infer/processes.h"
#include "base/clock.h"
#include "infer/link.h"
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

/* mesh[i * count + j]: i's end of the stream to j; child_control[i]: i's end of its control stream. */
typedef struct Sockets {
  int count;
  int *mesh, *child_control;
} Sockets;

static void close_at(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static void close_sockets(Sockets *sockets) {
  for (int i = 0; sockets->mesh && i < sockets->count * sockets->count; i++) close_at(&sockets->mesh[i]);
  for (int i = 0; sockets->child_control && i < sockets->count; i++) close_at(&sockets->child_control[i]);
  free(sockets->mesh);
  free(sockets->child_control);
  *sockets = (Sockets){0};
}

/* The mesh of many nodes needs more descriptors than the usual soft limit: the hard limit is ours to use. */
static void raise_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

static Status make_sockets(Sockets *sockets, int count, int *parent_control) {
  *sockets = (Sockets){count, malloc((size_t)(count * count) * sizeof(int)), malloc((size_t)count * sizeof(int))};
  if (!sockets->mesh || !sockets->child_control) return status_set(STATUS_NO_MEMORY, "no memory for %d nodes", count);
  for (int i = 0; i < count * count; i++) sockets->mesh[i] = -1;
  for (int i = 0; i < count; i++) sockets->child_control[i] = -1;
  raise_limit();
  for (int i = 0; i < count; i++) {
    int pair[2];
    TRY(link_pair(pair));
    parent_control[i] = pair[0];
    sockets->child_control[i] = pair[1];
    for (int j = 0; j < i; j++) {
      TRY(link_pair(pair));
      sockets->mesh[i * count + j] = pair[0];
      sockets->mesh[j * count + i] = pair[1];
    }
  }
  return STATUS_OK;
}

/* A terminal's Ctrl-C reaches children too: the parent decides what it means. */
static void become_child(pid_t parent) {
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  if (getppid() != parent) _exit(1); /* it died before we asked to be told */
}

static void run_child(Processes *processes, Sockets *sockets, int node, ProcessesMain *child, void *context, pid_t parent) {
  become_child(parent);
  int count = sockets->count;
  for (int i = 0; i < count; i++) {
    close_at(&processes->control[i]);
    if (i != node) close_at(&sockets->child_control[i]);
    for (int j = 0; j < count && i != node; j++) close_at(&sockets->mesh[i * count + j]);
  }
  _exit(child(context, node, sockets->child_control[node], sockets->mesh + node * count));
}

static Status fork_all(Processes *processes, Sockets *sockets, ProcessesMain *child, void *context) {
  pid_t parent = getpid();
  fflush(NULL); /* or each child would print what is still buffered */
  for (int node = 0; node < processes->count; node++) {
    pid_t pid = fork();
    if (pid < 0) return status_set(STATUS_IO, "cannot start process %d of %d: %s", node + 1, processes->count, strerror(errno));
    if (pid == 0) run_child(processes, sockets, node, child, context, parent);
    processes->pid[node] = pid;
  }
  return STATUS_OK;
}

Status processes_start(Processes *processes, int count, ProcessesMain *child, void *context) {
  size_t n = (size_t)count;
  *processes = (Processes){.count = count,
                           .pid = calloc(n, sizeof(pid_t)),
                           .control = malloc(n * sizeof(int)),
                           .reaped = calloc(n, sizeof(bool)),
                           .ended = calloc(n, sizeof(int))};
  Sockets sockets = {0};
  bool memory = processes->pid && processes->control && processes->reaped && processes->ended;
  for (int i = 0; memory && i < count; i++) processes->control[i] = -1;
  Status status =
      memory ? make_sockets(&sockets, count, processes->control) : status_set(STATUS_NO_MEMORY, "no memory for %d nodes", count);
  if (status == STATUS_OK) status = fork_all(processes, &sockets, child, context);
  close_sockets(&sockets);
  if (status == STATUS_OK) return STATUS_OK;
  processes_stop(processes, 0);
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
  free(processes->pid);
  free(processes->control);
  free(processes->reaped);
  free(processes->ended);
  *processes = (Processes){0};
}
