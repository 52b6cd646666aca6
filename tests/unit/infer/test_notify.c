/* What a service tells systemd: to a path and to a name of the abstract namespace, and nothing where there is no socket; when signs of life
 * are wanted. */
#include "infer/notify.h"
#include "unit/remove_tree.h"
#include <cmocka.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static char folder[TEMPORARY_PATH];

static int make_folder(void **state) {
  (void)state;
  return make_temporary_folder(folder);
}

static int remove_folder(void **state) {
  (void)state;
  return rmdir(folder);
}

static int listen_at(const struct sockaddr_un *address, socklen_t size) {
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(fd, (const struct sockaddr *)address, size), 0);
  return fd;
}

static void assert_told(int fd, const char *expected) {
  char text[512];
  ssize_t n = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);
  assert_true(n > 0);
  text[n] = 0;
  assert_string_equal(text, expected);
}

static void a_path_and_an_abstract_name(void **state) {
  (void)state;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", folder);
  int fd = listen_at(&address, sizeof address);
  setenv("NOTIFY_SOCKET", address.sun_path, 1);
  notify_send("READY=1\nSTATUS=%d leaders", 3);
  assert_told(fd, "READY=1\nSTATUS=3 leaders");
  close(fd);
  unlink(address.sun_path);
  notify_send("READY=1"); /* nobody is there: nothing happens */
  char name[64];
  int length = snprintf(name, sizeof name, "@astra-test-%d", (int)getpid());
  memcpy(address.sun_path, name, sizeof name);
  address.sun_path[0] = 0;
  fd = listen_at(&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length));
  setenv("NOTIFY_SOCKET", name, 1);
  notify_send("STOPPING=1");
  assert_told(fd, "STOPPING=1");
  static const char *const others[] = {"", "/", "relative", "vsock:2:1234"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    setenv("NOTIFY_SOCKET", others[i], 1);
    notify_send("READY=1");
  }
  unsetenv("NOTIFY_SOCKET");
  notify_send("READY=1");
  assert_int_equal(recv(fd, name, sizeof name, MSG_DONTWAIT), -1);
  close(fd);
}

static void signs_of_life_are_for_the_process_that_is_watched(void **state) {
  (void)state;
  char pid[32];
  unsetenv("WATCHDOG_PID");
  unsetenv("WATCHDOG_USEC");
  assert_true(notify_interval() <= 0);
  setenv("WATCHDOG_USEC", "30000000", 1);
  assert_true(notify_interval() > 14.9 && notify_interval() < 15.1);
  setenv("WATCHDOG_PID", "1", 1);
  assert_true(notify_interval() <= 0);
  snprintf(pid, sizeof pid, "%d", (int)getpid());
  setenv("WATCHDOG_PID", pid, 1);
  assert_true(notify_interval() > 14.9);
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", folder);
  int fd = listen_at(&address, sizeof address);
  setenv("NOTIFY_SOCKET", address.sun_path, 1);
  notify_busy(true);
  assert_told(fd, "WATCHDOG_USEC=3600000000");
  notify_busy(false);
  assert_told(fd, "WATCHDOG_USEC=30000000");
  close(fd);
  unlink(address.sun_path);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_path_and_an_abstract_name),
                                     cmocka_unit_test(signs_of_life_are_for_the_process_that_is_watched)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
