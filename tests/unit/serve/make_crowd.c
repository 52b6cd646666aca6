/* make_crowd PORT COUNT SECONDS silent|heads: opens COUNT connections to a service on this machine and keeps them for SECONDS, silent or
 * with a head that never ends, some bytes every half second. Connections that the other side closes are opened again at once. Prints how
 * many it opened, how many it held at most, and how many were closed or refused: a line of JSON. Exit code 1: not one could be opened. */
#include "base/clock.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct Crowd {
  struct sockaddr_in address;
  struct pollfd *all; /* [count]; fd -1: closed */
  int count, opened, open, most, closed;
} Crowd;

static void open_one(Crowd *crowd, struct pollfd *one) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  *one = (struct pollfd){.fd = -1, .events = POLLIN};
  if (fd < 0) return;
  if (connect(fd, (struct sockaddr *)(void *)&crowd->address, sizeof crowd->address) != 0 && errno != EINPROGRESS) {
    close(fd);
    return;
  }
  one->fd = fd;
  crowd->opened++;
  if (++crowd->open > crowd->most) crowd->most = crowd->open;
}

/* What has been closed by the other side is given up. */
static void look(Crowd *crowd) {
  char scrap[4096];
  if (poll(crowd->all, (nfds_t)crowd->count, 50) <= 0) return;
  for (int i = 0; i < crowd->count; i++) {
    struct pollfd *one = &crowd->all[i];
    if (one->fd < 0 || !one->revents) continue;
    ssize_t got = recv(one->fd, scrap, sizeof scrap, 0);
    if (got > 0 || (got < 0 && errno == EAGAIN)) continue;
    close(one->fd);
    one->fd = -1;
    crowd->open--;
    crowd->closed++;
  }
}

int main(int argc, char **argv) {
  if (argc != 5) return fprintf(stderr, "usage: make_crowd PORT COUNT SECONDS silent|heads\n"), 2;
  Crowd crowd = {.count = atoi(argv[2])};
  const bool heads = strcmp(argv[4], "heads") == 0;
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < (rlim_t)crowd.count + 16) crowd.count = (int)files.rlim_cur - 16;
  crowd.address =
      (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  crowd.all = crowd.count > 0 ? calloc((size_t)crowd.count, sizeof *crowd.all) : NULL;
  if (!crowd.all) return 2;
  for (int i = 0; i < crowd.count; i++) crowd.all[i].fd = -1;
  double end = clock_now() + atof(argv[3]), next = 0;
  while (clock_now() < end) {
    int begun = 0; /* a few hundred at a time, or the first are looked at late */
    for (int i = 0; i < crowd.count && begun < 500; i++) {
      if (crowd.all[i].fd < 0) open_one(&crowd, &crowd.all[i]), begun++;
    }
    if (heads && clock_now() > next) {
      next = clock_now() + 0.5;
      for (int i = 0; i < crowd.count; i++) {
        if (crowd.all[i].fd >= 0) (void)!send(crowd.all[i].fd, "GET /health HTTP/1.1\r\nX: y", 26, MSG_NOSIGNAL | MSG_DONTWAIT);
      }
    }
    look(&crowd);
  }
  printf("{\"wanted\":%d,\"opened\":%d,\"most\":%d,\"closed\":%d}\n", crowd.count, crowd.opened, crowd.most, crowd.closed);
  for (int i = 0; i < crowd.count; i++)
    if (crowd.all[i].fd >= 0) close(crowd.all[i].fd);
  free(crowd.all);
  return crowd.opened == 0;
}
