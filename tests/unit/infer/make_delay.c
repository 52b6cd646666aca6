/* A long way between two network namespaces, which kernels without a delaying queue do not offer:
 *
 *   ip netns exec A make_delay FILE-OF-B SECONDS BITS
 *     Makes a device tun0 in namespace A and one in B, the one that FILE-OF-B is (/run/netns/B), and carries packets between them: at BITS
 * a second in each direction, each SECONDS later. The caller gives the devices their addresses. Prints "ready"; ends when it is killed. */
#include "base/clock.h"
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { PACKET = 2048, PLACES = 8192, FRAME = 14 /* bytes of a link's header, which count */ };

typedef struct Way {
  int from, to;
  double free; /* when the link has sent what it has taken */
  unsigned first, count;
  double due[PLACES];
  size_t bytes[PLACES];
  char packet[PLACES][PACKET];
} Way;

static Way ways[2];

static void die(const char *what) {
  perror(what);
  exit(1);
}

static int open_device(void) {
  struct ifreq request = {.ifr_name = "tun0"};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
  if (device < 0 || ioctl(device, TUNSETIFF, &request) != 0) die("/dev/net/tun");
  return device;
}

/* What has come on one side; a full queue loses packets, as a router's does. */
static void take(Way *way, double seconds, double bits) {
  char packet[PACKET];
  for (ssize_t bytes; (bytes = read(way->from, packet, sizeof packet)) > 0;) {
    const double now = clock_now();
    if (way->count == PLACES) continue;
    const unsigned place = (way->first + way->count++) % PLACES;
    way->free = (way->free > now ? way->free : now) + 8 * (double)(bytes + FRAME) / bits;
    way->due[place] = way->free + seconds;
    way->bytes[place] = (size_t)bytes;
    memcpy(way->packet[place], packet, (size_t)bytes);
  }
}

static void give(Way *way) {
  for (; way->count > 0 && way->due[way->first] <= clock_now(); way->first = (way->first + 1) % PLACES, way->count--)
    if (write(way->to, way->packet[way->first], way->bytes[way->first]) < 0) continue; /* the device is down: the packet is lost */
}

/* Seconds until a packet is due: at most one. */
static double next_due(void) {
  double due = clock_now() + 1;
  for (int w = 0; w < 2; w++)
    if (ways[w].count > 0 && ways[w].due[ways[w].first] < due) due = ways[w].due[ways[w].first];
  return due > clock_now() ? due - clock_now() : 0;
}

int main(int argc, char **argv) {
  if (argc != 4) return fprintf(stderr, "usage: make_delay FILE-OF-B SECONDS BITS\n"), 2;
  const double seconds = atof(argv[2]), bits = atof(argv[3]);
  const int here = open_device(), other = open(argv[1], O_RDONLY | O_CLOEXEC);
  if (other < 0 || setns(other, CLONE_NEWNET) != 0) die(argv[1]);
  const int there = open_device();
  ways[0].from = here, ways[0].to = there;
  ways[1].from = there, ways[1].to = here;
  puts("ready");
  fflush(stdout);
  for (;;) {
    const double wait = next_due();
    struct pollfd poll_for[2] = {{.fd = here, .events = POLLIN}, {.fd = there, .events = POLLIN}};
    ppoll(poll_for, 2, &(struct timespec){.tv_sec = (time_t)wait, .tv_nsec = (long)(1e9 * (wait - (double)(time_t)wait))}, NULL);
    for (int w = 0; w < 2; w++) {
      take(&ways[w], seconds, bits);
      give(&ways[w]);
    }
  }
}
