/* A listener in a process of its own, with the test as callers without a key and as a leader: callers without a key shut nobody out,
 * neither with many connections nor when descriptors run out; the end of a session is noticed whatever the listener's parent did with
 * SIGCHLD; and the connection of a session is none of the listener's business. It mostly waits. */
#include "infer/cluster/connection.h"
#include "infer/cluster/hello.h"
#include "infer/cluster/listener.h"
#include "infer/wire.h"
#include "sample_fixture.h"
#include "shake_hands.h"
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

enum { CROWD = 60 };

static SampleFixture fixture;
static Address door;
static volatile sig_atomic_t stop;

static void ask_to_stop(int number) { stop = number; }

static int make_model(void **state) {
  (void)state;
  ModelConfig config;
  assert_int_equal(sample_config(&config, "tiny", 4, 16, 1, CLASS_DISTRIBUTED), STATUS_OK);
  sample_fixture_open(&fixture, &config);
  door = (Address){.on_disk = true};
  snprintf(door.name, sizeof door.name, "%s/door", fixture.directory);
  return 0;
}

static int remove_model(void **state) {
  (void)state;
  sample_fixture_close(&fixture);
  return 0;
}

/* ---- the listener */

typedef struct Listener {
  bool once;
  int spare; /* descriptors that are left to it; 0: as many as the system gives */
} Listener;

static void leave_descriptors(int spare) {
  const struct rlimit limit = {.rlim_cur = 128, .rlim_max = 128};
  int last = -1;
  setrlimit(RLIMIT_NOFILE, &limit);
  for (int fd; (fd = dup(0)) >= 0;) last = fd;
  while (spare-- > 0) close(last--);
}

static void be_listener(const Listener *listener, pid_t parent) {
  const ListenerOptions options = {
      .weights = &fixture.weights, .listen = door, .threads = 1, .queue = 1, .once = listener->once, .stop = &stop};
  if (listener->spare) leave_descriptors(listener->spare);
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  signal(SIGTERM, ask_to_stop);
  _exit(listener_run(&options) == STATUS_OK ? 0 : 1);
}

static pid_t start(Listener listener) {
  pid_t parent = getpid(), pid = fork();
  if (pid == 0) be_listener(&listener, parent);
  assert_true(pid > 0);
  return pid;
}

/* It ends by itself, at once, when told to or when its leader has left. */
static void assert_ends(pid_t pid) {
  int ended = 0;
  for (int i = 0; i < 2000 && waitpid(pid, &ended, WNOHANG) != pid; i++) {
    if (i == 1999) kill(pid, SIGKILL);
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  }
  assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
}

static void end(pid_t pid) {
  kill(pid, SIGTERM);
  assert_ends(pid);
}

/* Seconds that a process has computed. */
static double computed(pid_t pid) {
  char path[64], line[1024];
  unsigned long user = 0, system = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  assert_non_null(fgets(line, sizeof line, file));
  fclose(file);
  assert_int_equal(sscanf(strrchr(line, ')') + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system), 2);
  return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

/* The process that it has started; 0: the system does not tell. */
static pid_t child_of(pid_t pid) {
  char path[64];
  int child = 0;
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
  FILE *file = fopen(path, "r");
  if (!file) return 0;
  assert_int_equal(fscanf(file, "%d", &child), 1);
  fclose(file);
  return (pid_t)child;
}

/* ---- the service manager */

/* The next datagram that begins so; the ones before are dropped. */
static void expect_told(int fd, const char *beginning) {
  char text[512];
  struct pollfd waiting = {.fd = fd, .events = POLLIN};
  do {
    assert_int_equal(poll(&waiting, 1, 20000), 1);
    ssize_t n = recv(fd, text, sizeof text - 1, 0);
    assert_true(n > 0);
    text[n] = 0;
  } while (strncmp(text, beginning, strlen(beginning)) != 0);
}

static void systemd_is_told_what_it_does(void **state) {
  (void)state;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  snprintf(address.sun_path, sizeof address.sun_path, "%s/told", fixture.directory);
  assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
  setenv("NOTIFY_SOCKET", address.sun_path, 1);
  setenv("WATCHDOG_USEC", "200000", 1);
  pid_t pid = start((Listener){0});
  expect_told(fd, "READY=1\nSTATUS=waits for leaders");
  expect_told(fd, "WATCHDOG=1");
  expect_told(fd, "WATCHDOG=1");
  end(pid);
  expect_told(fd, "STOPPING=1");
  unsetenv("NOTIFY_SOCKET");
  unsetenv("WATCHDOG_USEC");
  close(fd);
  unlink(address.sun_path);
}

/* ---- callers */

/* Once it listens. */
static int dial(void) {
  int fd = -1;
  for (int i = 0; i < 1000 && address_call(&door, &fd) != STATUS_OK; i++) nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  assert_true(fd >= 0);
  return fd;
}

static const uint8_t session[HELLO_SESSION] = "fifteen letters";

/* A connection that has shown the key within so many seconds; NULL: it was not let in. */
static Connection *lead(double seconds) {
  Connection *connection;
  close(dial());
  assert_int_equal(shake_hands_call(&connection, &door, HELLO_LEADER, session, NULL), STATUS_OK);
  if (shake_hands(connection, seconds) == STATUS_OK) return connection;
  connection_free(connection);
  return NULL;
}

static void say(Connection *connection, WireHeader header) {
  uint8_t message[WIRE_HEADER];
  header.sender = WIRE_LEADER;
  wire_pack(&header, message);
  assert_int_equal(connection_write(connection, message, WIRE_HEADER), WIRE_HEADER);
}

static bool is_welcome(Connection *connection) {
  uint8_t bytes[WIRE_HEADER + WELCOME_BYTES];
  WireHeader header;
  for (size_t got = 0; got < sizeof bytes;) {
    struct pollfd waiting = {.fd = connection_fd(connection), .events = connection_events(connection, true, false)};
    ssize_t n = connection_read(connection, bytes + got, sizeof bytes - got);
    if (n > 0) got += (size_t)n;
    if (n == 0 || (n < 0 && (errno != EAGAIN || poll(&waiting, 1, 10000) != 1))) return false;
  }
  return wire_parse(bytes, WELCOME_BYTES, &header) == STATUS_OK && header.kind == WIRE_WELCOME;
}

/* ---- what callers without a key cannot do */

/* Whoever says nothing, or has another key, is given up after 5 s: a leader that had to wait for their places would wait longer. */
static void many_callers_shut_nobody_out(void **state) {
  (void)state;
  pid_t listener = start((Listener){.once = false});
  const KeyFile wrong = {.open = false};
  uint8_t hello[HELLO_BYTES];
  int crowd[CROWD];
  for (int i = 0; i < CROWD; i++) {
    crowd[i] = dial();
    assert_int_equal(hello_pack(&(Hello){.role = HELLO_LEADER}, &wrong, hello), STATUS_OK);
    if (i % 2) assert_int_equal(write(crowd[i], hello, sizeof hello), sizeof hello);
  }
  Connection *leader = lead(4);
  assert_non_null(leader);
  assert_true(is_welcome(leader));
  for (int i = 0; i < CROWD; i++) close(crowd[i]);
  connection_free(leader);
  end(listener);
}

static void without_descriptors_it_waits(void **state) {
  (void)state;
  pid_t listener = start((Listener){.spare = 8});
  int crowd[12];
  for (int i = 0; i < 12; i++) crowd[i] = dial();
  double before = computed(listener);
  nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 500000000}, NULL);
  assert_true(computed(listener) - before < 0.1);
  for (int i = 0; i < 12; i++) close(crowd[i]);
  Connection *leader = lead(20);
  assert_non_null(leader);
  assert_true(is_welcome(leader));
  connection_free(leader);
  end(listener);
}

/* ---- children */

static void ignored_children_are_noticed_to_end(void **state) {
  (void)state;
  signal(SIGCHLD, SIG_IGN); /* as some that start services leave it */
  pid_t listener = start((Listener){.once = true});
  signal(SIGCHLD, SIG_DFL);
  Connection *leader = lead(20);
  assert_non_null(leader);
  assert_true(is_welcome(leader));
  say(leader, (WireHeader){.kind = WIRE_BYE});
  assert_ends(listener);
  connection_free(leader);
}

/* The connection is the session's by then, open for as long as that is busy: nothing of it may wake the listener. */
static void a_leader_that_has_left_wakes_the_session_alone(void **state) {
  (void)state;
  pid_t listener = start((Listener){.once = true});
  Connection *leader = lead(20);
  assert_non_null(leader);
  assert_true(is_welcome(leader));
  pid_t child = child_of(listener);
  if (child == 0) {
    connection_free(leader);
    assert_ends(listener);
    print_message("skipped: the system does not tell a process's children\n");
    skip();
  }
  assert_int_equal(kill(child, SIGSTOP), 0);
  connection_free(leader);
  double before = computed(listener);
  nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 500000000}, NULL);
  double more = computed(listener) - before;
  kill(child, SIGCONT);
  assert_ends(listener);
  assert_true(more < 0.1);
}

int main(void) {
  signal(SIGPIPE, SIG_IGN); /* of a listener that has given a caller up */
  const struct CMUnitTest tests[] = {cmocka_unit_test(systemd_is_told_what_it_does), cmocka_unit_test(many_callers_shut_nobody_out),
                                     cmocka_unit_test(without_descriptors_it_waits), cmocka_unit_test(ignored_children_are_noticed_to_end),
                                     cmocka_unit_test(a_leader_that_has_left_wakes_the_session_alone)};
  return cmocka_run_group_tests(tests, make_model, remove_model);
}
