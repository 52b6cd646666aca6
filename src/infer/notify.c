#include "infer/notify.h"
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void notify_send(const char *format, ...) {
  const char *path = getenv("NOTIFY_SOCKET");
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  size_t length = path ? strlen(path) : 0;
  char state[512];
  va_list arguments;
  if (length < 2 || length >= sizeof address.sun_path || !strchr("/@", path[0])) return;
  va_start(arguments, format);
  vsnprintf(state, sizeof state, format, arguments);
  va_end(arguments);
  memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = 0; /* a name of the abstract namespace */
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
  (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)(void *)&address, size);
  close(fd);
}

/* As set for this process, and not for a parent that passed its environment on. */
static const char *watchdog_microseconds(void) {
  const char *microseconds = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
  return pid && strtol(pid, NULL, 10) != (long)getpid() ? NULL : microseconds;
}

double notify_interval(void) {
  const char *microseconds = watchdog_microseconds();
  return microseconds ? strtod(microseconds, NULL) / 2e6 : 0; /* twice in that time */
}

void notify_busy(bool busy) {
  const char *microseconds = watchdog_microseconds();
  if (microseconds) notify_send("WATCHDOG_USEC=%s", busy ? "3600000000" : microseconds);
}
