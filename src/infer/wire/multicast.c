/* See multicast.h. */
#include "infer/wire/multicast.h"
#include "base/clock.h"
#include "infer/wire/packet.h"
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PORT_FIRST = 49152, PORTS = 16384, BUFFER = 4 << 20, WORDS = 4, WORD = PACKET_HEADER + DATAGRAM_AROUND };
static const double word_seconds = 0.02;

/* ---- sockets ---- */

static bool set(int socket, int level, int option, int value) { return setsockopt(socket, level, option, &value, sizeof value) == 0; }

/* Several devices of one machine take what comes to the same port. */
static bool open_in(Multicast *m, struct in_addr interface) {
  struct ip_mreq member = {.imr_multiaddr = m->group.sin_addr, .imr_interface = interface};
  m->in = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (m->in < 0) return false;
  if (!set(m->in, SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)) set(m->in, SOL_SOCKET, SO_RCVBUF, BUFFER);
  return set(m->in, SOL_SOCKET, SO_REUSEADDR, 1) && bind(m->in, (const struct sockaddr *)&m->group, sizeof m->group) == 0 &&
         set(m->in, IPPROTO_IP, IP_MULTICAST_ALL, 0) && setsockopt(m->in, IPPROTO_IP, IP_ADD_MEMBERSHIP, &member, sizeof member) == 0;
}

static bool open_out(Multicast *m, struct in_addr interface) {
  m->out = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  return m->out >= 0 && setsockopt(m->out, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface) == 0 &&
         set(m->out, IPPROTO_IP, IP_MULTICAST_TTL, 1) && set(m->out, IPPROTO_IP, IP_MULTICAST_LOOP, 1);
}

static void close_all(Multicast *m) {
  if (m->in >= 0) close(m->in);
  if (m->out >= 0) close(m->out);
  m->in = m->out = -1;
}

static Status draw_key(Multicast *m) {
  if (RAND_bytes(m->key, sizeof m->key) != 1) return status_set(STATUS_IO, "no random numbers for a key");
  m->sender.self = (uint8_t)m->self;
  return seal_new(&m->sender.seal, m->key, true);
}

Status multicast_new(Multicast **multicast, int self, int nodes, uint32_t number, struct in_addr interface) {
  Multicast *m = calloc(1, sizeof *m);
  *multicast = m;
  if (!m) return status_set(STATUS_NO_MEMORY, "no memory for multicast");
  *m = (Multicast){.self = self, .nodes = nodes, .in = -1, .out = -1, .receivers = calloc((size_t)nodes, sizeof *m->receivers)};
  m->group = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)(PORT_FIRST + (number >> 16) % PORTS))};
  m->group.sin_addr.s_addr = htonl(0xefff0000U | (number & 0xffff)); /* 239.255.0.0/16: of a site's own */
  Status status = m->receivers ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for %d peers", nodes);
  bool possible = status == STATUS_OK && open_in(m, interface) && open_out(m, interface);
  if (possible) status = draw_key(m);
  if (!possible) close_all(m);
  if (status == STATUS_OK) return STATUS_OK;
  multicast_free(m);
  *multicast = NULL;
  return status;
}

void multicast_free(Multicast *m) {
  if (!m) return;
  for (int d = 0; m->receivers && d < m->nodes; d++) seal_free(m->receivers[d].seal);
  seal_free(m->sender.seal);
  OPENSSL_cleanse(m->key, sizeof m->key);
  close_all(m);
  free(m->receivers);
  free(m);
}

Status multicast_peer(Multicast *m, int peer, const uint8_t key[CARRIER_KEY_BYTES]) {
  static const uint8_t none[CARRIER_KEY_BYTES];
  if (memcmp(key, none, sizeof none) == 0) return STATUS_OK;
  return seal_new(&m->receivers[peer].seal, key, false);
}

/* ---- datagrams ---- */

Status multicast_send(Multicast *m, const uint8_t *packet, size_t bytes, uint8_t *out, bool *taken) {
  TRY(datagram_close(&m->sender, packet, bytes, out));
  ssize_t n = sendto(m->out, out, bytes + DATAGRAM_AROUND, MSG_NOSIGNAL, (const struct sockaddr *)&m->group, sizeof m->group);
  *taken = !(n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
  return STATUS_OK; /* what the network did not want is lost */
}

bool multicast_take(Multicast *m, uint8_t *in, size_t room, int *from, uint8_t **packet, size_t *bytes) {
  *packet = NULL;
  *from = -1;
  if (m->in < 0) return false;
  ssize_t n = recv(m->in, in, room, MSG_TRUNC);
  if (n < 0) return errno == EINTR;
  if ((size_t)n <= room) *from = datagram_sender(in, (size_t)n);
  bool known = *from >= 0 && *from < m->nodes && *from != m->self && m->receivers[*from].seal;
  if (known) *packet = datagram_open(&m->receivers[*from], in, (size_t)n, bytes);
  return true;
}

/* ---- whether it works ---- */

static Status say(Multicast *m) {
  uint8_t packet[PACKET_HEADER], out[WORD];
  bool taken;
  packet_pack(&(Packet){.request = 1, .type = PACKET_PROBE}, packet);
  return m->out >= 0 ? multicast_send(m, packet, sizeof packet, out, &taken) : STATUS_OK;
}

static void listen_for(Multicast *m, double seconds, uint64_t *heard) {
  uint8_t in[WORD], *packet;
  size_t bytes;
  int from;
  poll(&(struct pollfd){.fd = m->in, .events = POLLIN}, 1, (int)(seconds * 1000));
  while (multicast_take(m, in, sizeof in, &from, &packet, &bytes)) *heard |= packet ? (uint64_t)1 << from : 0;
}

static uint64_t speakers(const Multicast *m) {
  uint64_t all = 0;
  for (int d = 0; d < m->nodes; d++) all |= m->receivers[d].seal ? (uint64_t)1 << d : 0;
  return all;
}

Status multicast_hear(Multicast *m, double seconds, uint64_t *heard) {
  double until = clock_now() + seconds;
  *heard = 0;
  for (int said = 0; said < WORDS || (*heard != speakers(m) && clock_now() < until); said++) {
    if (said < WORDS) TRY(say(m));
    if (m->in >= 0) listen_for(m, *heard == speakers(m) ? 0 : word_seconds, heard);
    if (m->in < 0 && said >= WORDS) break;
  }
  return STATUS_OK;
}
