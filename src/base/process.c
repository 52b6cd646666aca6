/* See process.h. */
#include "base/process.h"
#include "base/files.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- where programs are */

char *process_beside(const char *name) {
  char self[4096];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  char *folder = NULL, *path = NULL;
  if (length > 0) {
    self[length] = '\0';
    folder = files_folder(self);
    if (folder) path = files_join(folder, name);
  }
  free(folder);
  if (path && access(path, X_OK) == 0) return path;
  free(path);
  return strdup(name);
}

/* ---- children */

bool process_child(pid_t parent, int end, const int *defaults, const int *ignored) {
  for (; defaults && *defaults; defaults++) signal(*defaults, SIG_DFL);
  for (; ignored && *ignored; ignored++) signal(*ignored, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, end);
  return getppid() == parent; /* or it died before that took effect */
}

/* ---- signals, which are passed on */

static volatile sig_atomic_t interrupted, child_running;
static pid_t child;

static void pass_on(int signal_number) {
  int saved = errno;
  interrupted = signal_number;
  if (child_running) kill(child, signal_number);
  errno = saved;
}

typedef struct Signals {
  struct sigaction interrupt, terminate;
  sigset_t mask;
} Signals;

/* Both signals wait until unblock: the child must not get them before its program runs, nor this process before it knows the child. */
static void take_signals(Signals *old) {
  struct sigaction action = {.sa_handler = pass_on};
  sigset_t both;
  sigemptyset(&both);
  sigaddset(&both, SIGINT);
  sigaddset(&both, SIGTERM);
  sigemptyset(&action.sa_mask);
  sigprocmask(SIG_BLOCK, &both, &old->mask);
  interrupted = 0;
  sigaction(SIGINT, &action, &old->interrupt);
  sigaction(SIGTERM, &action, &old->terminate);
}

static void restore_signals(const Signals *old) {
  sigaction(SIGINT, &old->interrupt, NULL);
  sigaction(SIGTERM, &old->terminate, NULL);
}

/* ---- the program */

/* In a process group of its own: a signal to the whole group of this process, as a terminal sends it, would otherwise arrive twice, and
 * programs that save their state at the first end at the second. It must not outlive this process, though. */
static _Noreturn void become(const char *const *argv, int out, int log, const Signals *old, pid_t parent) {
  int none = open("/dev/null", O_RDONLY);
  restore_signals(old);
  setpgid(0, 0);
  if (!process_child(parent, SIGTERM, NULL, NULL)) _exit(127);
  if (none >= 0 && dup2(none, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0) {
    sigprocmask(SIG_SETMASK, &old->mask, NULL);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
  }
  _exit(127);
}

/* What a program said last that explains its end: the last line with an error that it wrote (from byte `start` of the file on), or else its
 * last line; what was in `line` where there is none. */
static void last_line(const char *path, off_t start, char *line, size_t room) {
  FILE *file = fopen(path, "r");
  char next[512];
  bool found = false;
  if (file == NULL) return;
  bool placed = fseeko(file, start, SEEK_SET) == 0;
  while (placed && fgets(next, sizeof next, file)) {
    next[strcspn(next, "\r\n")] = '\0';
    bool error = strstr(next, "error:") != NULL;
    if (next[0] == '\0' || (found && !error)) continue;
    snprintf(line, room, "%s", next);
    found = error;
  }
  fclose(file);
}

static Status say_end(const char *program, int state, const char *log, off_t start) {
  char line[512] = "it said nothing";
  last_line(log, start, line, sizeof line);
  if (interrupted) return status_set(STATUS_INTERRUPTED, "%s: interrupted", program);
  if (WIFSIGNALED(state)) return status_set(STATUS_PEER, "%s: killed by signal %d; see %s", program, WTERMSIG(state), log);
  if (WEXITSTATUS(state) == 127)
    return status_set(STATUS_NOT_FOUND, "%s: cannot be started; install it beside this program or in PATH", program);
  return status_set(STATUS_PEER, "%s: exit code %d: %s; see %s", program, WEXITSTATUS(state), line, log);
}

static Status run_child(const char *const *argv, int out, int log, const char *log_path) {
  Signals old;
  siginfo_t end;
  int state = 0;
  const off_t said = lseek(log, 0, SEEK_END);
  const pid_t self = getpid();
  take_signals(&old);
  child = fork();
  if (child == 0) become(argv, out, log, &old, self);
  child_running = child > 0;
  sigprocmask(SIG_SETMASK, &old.mask, NULL);
  if (child < 0) {
    Status status = status_set(STATUS_IO, "%s: no new process: %s", argv[0], strerror(errno));
    restore_signals(&old);
    return status;
  }
  while (waitid(P_PID, (id_t)child, &end, WEXITED | WNOWAIT) < 0 && errno == EINTR) continue;
  child_running = 0; /* before its number can become another process's */
  bool ended = waitpid(child, &state, 0) == child;
  restore_signals(&old);
  return ended && state == 0 && !interrupted ? STATUS_OK : say_end(argv[0], state, log_path, said > 0 ? said : 0);
}

Status process_run(const char *const *argv, const char *out, const char *log) {
  FileWriter writer;
  TRY(files_create(&writer, out));
  int stream = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  Status status = stream >= 0 ? STATUS_OK : status_set(STATUS_IO, "%s: %s", log, strerror(errno));
  if (status == STATUS_OK) status = run_child(argv, fileno(writer.stream), stream, log);
  if (stream >= 0) close(stream);
  if (status == STATUS_OK) return files_commit(&writer);
  files_abort(&writer);
  return status;
}
