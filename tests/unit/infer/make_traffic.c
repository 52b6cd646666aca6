/* make_traffic SECONDS PORT...: a hostile neighbour of nodes that take datagrams on these ports of the loopback. Sends them noise,
 * datagrams that look like theirs but are sealed by nobody, and, where it may listen to the loopback (root), what it overhears: again, cut
 * short, with a bit changed, in the name of another node, and late. Prints how many of each it sent. */
#include "base/clock.h"
#include "base/rng.h"
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 9000, KEPT = 64, PORTS = 64 };

typedef struct Traffic {
  int out, ear; /* ear: -1 where listening is not allowed */
  uint16_t ports[PORTS];
  int count;
  Rng rng;
  uint8_t kept[KEPT][BYTES];
  size_t size[KEPT];
  uint16_t port[KEPT];
  long noise, forged, overheard, replayed, cut, changed, renamed;
} Traffic;

static void send_to(Traffic *t, uint16_t port, const uint8_t *bytes, size_t size) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  (void)!sendto(t->out, bytes, size, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof to);
}

static void make_noise(Traffic *t, uint16_t port) {
  uint8_t bytes[256];
  size_t size = rng_below(&t->rng, sizeof bytes);
  for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)rng_next(&t->rng);
  send_to(t, port, bytes, size);
  t->noise++;
  if (size < 48) return;
  bytes[0] = 0x21;
  bytes[1] = (uint8_t)rng_below(&t->rng, 5);
  memset(bytes + 3, 0, 5);
  send_to(t, port, bytes, size);
  t->forged++;
}

static bool is_wanted(const Traffic *t, uint16_t port) {
  for (int i = 0; i < t->count; i++) {
    if (t->ports[i] == port) return true;
  }
  return false;
}

static void send_changed(Traffic *t, int which) {
  uint8_t copy[BYTES];
  size_t size = t->size[which];
  uint16_t port = t->port[which];
  send_to(t, port, t->kept[which], size);
  t->replayed++;
  memcpy(copy, t->kept[which], size);
  send_to(t, port, copy, rng_below(&t->rng, size));
  t->cut++;
  copy[rng_below(&t->rng, size)] ^= (uint8_t)(1 << rng_below(&t->rng, 8));
  send_to(t, port, copy, size);
  t->changed++;
  memcpy(copy, t->kept[which], size);
  copy[1] ^= 1;
  send_to(t, port, copy, size);
  t->renamed++;
}

/* One overheard frame: Ethernet, IPv4, UDP. What is kept is sent again later, too. */
static void listen_once(Traffic *t) {
  uint8_t frame[BYTES + 100];
  struct sockaddr_ll from;
  socklen_t from_bytes = sizeof from;
  ssize_t n = recvfrom(t->ear, frame, sizeof frame, MSG_DONTWAIT, (struct sockaddr *)&from, &from_bytes);
  if (n < (ssize_t)(sizeof(struct iphdr) + sizeof(struct udphdr)) || from.sll_pkttype == PACKET_OUTGOING) return;
  const struct iphdr *ip = (const struct iphdr *)frame;
  size_t head = (size_t)ip->ihl * 4 + sizeof(struct udphdr);
  if (ip->protocol != IPPROTO_UDP || (size_t)n < head + 8) return;
  struct udphdr udp;
  memcpy(&udp, frame + head - sizeof udp, sizeof udp);
  struct sockaddr_in own;
  socklen_t own_bytes = sizeof own;
  getsockname(t->out, (struct sockaddr *)&own, &own_bytes);
  if (!is_wanted(t, ntohs(udp.dest)) || udp.source == own.sin_port) return;
  int which = (int)(t->overheard++ % KEPT);
  t->size[which] = (size_t)n - head;
  t->port[which] = ntohs(udp.dest);
  memcpy(t->kept[which], frame + head, t->size[which]);
  send_changed(t, which);
}

static void run(Traffic *t, double seconds) {
  for (double until = clock_now() + seconds; clock_now() < until;) {
    struct pollfd ear = {.fd = t->ear, .events = POLLIN};
    poll(&ear, 1, 1);
    for (int i = 0; i < 50 && t->ear >= 0; i++) listen_once(t);
    for (int i = 0; i < t->count; i++) make_noise(t, t->ports[i]);
    if (t->overheard) send_changed(t, (int)rng_below(&t->rng, (uint64_t)(t->overheard < KEPT ? t->overheard : KEPT)));
  }
}

int main(int argc, char **argv) {
  static Traffic t;
  if (argc < 3 || argc - 2 > PORTS) {
    fprintf(stderr, "usage: make_traffic SECONDS PORT...\n");
    return 2;
  }
  for (int i = 2; i < argc; i++) t.ports[t.count++] = (uint16_t)atoi(argv[i]);
  rng_init(&t.rng, 1, 1);
  t.out = socket(AF_INET, SOCK_DGRAM, 0);
  bind(t.out, (struct sockaddr *)&(struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)},
       sizeof(struct sockaddr_in));
  t.ear = socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_IP));
  struct sockaddr_ll lo = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP), .sll_ifindex = (int)if_nametoindex("lo")};
  if (t.ear >= 0 && bind(t.ear, (struct sockaddr *)&lo, sizeof lo) != 0) {
    close(t.ear);
    t.ear = -1;
  }
  run(&t, atof(argv[1]));
  printf("noise %ld forged %ld overheard %ld replayed %ld cut %ld changed %ld renamed %ld\n", t.noise, t.forged, t.overheard, t.replayed,
         t.cut, t.changed, t.renamed);
  return 0;
}
