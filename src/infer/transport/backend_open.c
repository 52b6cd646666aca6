/* How devices that have channels to each other come to a backend. Before datagrams can flow, each end of a channel says over it:
 *
 *   0 port u16 | 2 zero u16 | 4 MTU u32, 0: the route's | 8 key of what it sends [44]; zero on a secret channel, where both ends know keys
 */
#include "base/clock.h"
#include "infer/transport/backend.h"
#include "infer/wire.h"
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORD = 8 + UDP_KEY_BYTES };
static const double look_seconds = 0.05;
static const char label[] = "EXPORTER-astra-2 data";

typedef struct Agreement {
  const BackendPeers *peers;
  UdpAddress *all;        /* [nodes] */
  uint8_t (*said)[WORD];  /* [nodes] to each */
  uint8_t (*heard)[WORD]; /* [nodes] from each */
  size_t out[WIRE_NODES], in[WIRE_NODES];
  int socket, fault;
} Agreement;

/* ---- words both ways, with all peers at once ---- */

static Status break_off(Agreement *m, int peer, const char *what) {
  m->fault = peer;
  return status_set(STATUS_PEER, "node %d: %s while datagrams were agreed on", peer, what);
}

static Status step(Agreement *m, int d) {
  Connection *channel = m->peers->channels[d];
  ssize_t n = m->out[d] < (size_t)WORD ? connection_write(channel, m->said[d] + m->out[d], (size_t)WORD - m->out[d]) : 0;
  if (n < 0 && errno != EAGAIN && errno != EINTR) return break_off(m, d, "went away");
  m->out[d] += n > 0 ? (size_t)n : 0;
  n = m->in[d] < (size_t)WORD ? connection_read(channel, m->heard[d] + m->in[d], (size_t)WORD - m->in[d]) : 1;
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return break_off(m, d, "went away");
  if (m->in[d] < (size_t)WORD && n > 0) m->in[d] += (size_t)n;
  return STATUS_OK;
}

static Status exchange_words(Agreement *m) {
  const BackendPeers *p = m->peers;
  for (double until = clock_now() + p->seconds;;) {
    struct pollfd polls[WIRE_NODES];
    int count = 0, late = -1;
    for (int d = 0; d < p->nodes; d++) {
      if (d == p->self) continue;
      TRY(step(m, d));
      if (m->out[d] == (size_t)WORD && m->in[d] == (size_t)WORD) continue;
      late = d;
      short events = connection_events(p->channels[d], m->in[d] < (size_t)WORD, m->out[d] < (size_t)WORD);
      polls[count++] = (struct pollfd){.fd = connection_fd(p->channels[d]), .events = events};
    }
    if (late < 0) return STATUS_OK;
    double left = until - clock_now();
    if (atomic_load(&p->give_up)) return status_set(STATUS_INTERRUPTED, "node %d was not waited for any more", late);
    if (left <= 0) {
      m->fault = late;
      return status_set(STATUS_TIMEOUT, "node %d did not say within %g s where it takes datagrams", late, p->seconds);
    }
    poll(polls, (nfds_t)count, (int)ceil(1000 * fmin(left, look_seconds)));
  }
}

/* ---- keys ---- */

/* context: who the two are, so that a pair's keys are no other pair's, and what they have agreed on. Both directions in one: of the lower
 * number first. */
static Status derive_keys(Agreement *m, int d) {
  const BackendPeers *p = m->peers;
  bool lower = p->self < d;
  uint8_t keys[2 * UDP_KEY_BYTES], context[2 + BACKEND_MAX_AGREED] = {(uint8_t)(lower ? p->self : d), (uint8_t)(lower ? d : p->self)};
  if (p->agreed_bytes > BACKEND_MAX_AGREED) return status_set(STATUS_BAD_VALUE, "keys of %zu bytes of agreement", p->agreed_bytes);
  if (p->agreed) memcpy(context + 2, p->agreed, p->agreed_bytes);
  TRY(connection_export(p->channels[d], label, context, 2 + p->agreed_bytes, keys, sizeof keys));
  memcpy(m->all[d].seal, keys + (lower ? 0 : UDP_KEY_BYTES), UDP_KEY_BYTES);
  memcpy(m->all[d].open, keys + (lower ? UDP_KEY_BYTES : 0), UDP_KEY_BYTES);
  OPENSSL_cleanse(keys, sizeof keys);
  return STATUS_OK;
}

/* ---- addresses ---- */

static void set_port(struct sockaddr_storage *address, uint16_t port) {
  if (address->ss_family == AF_INET6)
    ((struct sockaddr_in6 *)address)->sin6_port = htons(port);
  else
    ((struct sockaddr_in *)address)->sin_port = htons(port);
}

static uint16_t get_port(const struct sockaddr_storage *address) {
  return ntohs(address->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)address)->sin6_port
                                              : ((const struct sockaddr_in *)address)->sin_port);
}

/* Where the channels' other ends are, and a socket that takes datagrams from all of them. */
static Status open_socket(Agreement *m) {
  const BackendPeers *p = m->peers;
  bool v6 = false, far = false;
  for (int d = 0; d < p->nodes; d++) {
    struct sockaddr_storage *address = &m->all[d].address;
    socklen_t *bytes = &m->all[d].address_bytes;
    if (d == p->self) continue;
    *bytes = sizeof *address;
    memset(address, 0, sizeof *address);
    bool known = getpeername(connection_fd(p->channels[d]), (struct sockaddr *)address, bytes) == 0;
    if (!known || (address->ss_family != AF_INET && address->ss_family != AF_INET6)) {
      memset(address, 0, sizeof *address); /* processes of one machine are on its loopback */
      address->ss_family = AF_INET;
      ((struct sockaddr_in *)address)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      *bytes = sizeof(struct sockaddr_in);
    }
    v6 |= address->ss_family == AF_INET6;
    far |= address->ss_family == AF_INET6 || ntohl(((struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 != 127;
  }
  for (int d = 0; d < p->nodes && v6; d++) { /* one socket for all peers: where need be as IPv4 within IPv6 */
    if (d == p->self || m->all[d].address.ss_family != AF_INET) continue;
    struct sockaddr_in v4 = *(struct sockaddr_in *)&m->all[d].address;
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = v4.sin_port};
    mapped.sin6_addr.s6_addr[10] = mapped.sin6_addr.s6_addr[11] = 0xff;
    memcpy(mapped.sin6_addr.s6_addr + 12, &v4.sin_addr, 4);
    memset(&m->all[d].address, 0, sizeof m->all[d].address);
    memcpy(&m->all[d].address, &mapped, sizeof mapped);
    m->all[d].address_bytes = sizeof mapped;
  }
  struct sockaddr_storage own = {.ss_family = v6 ? AF_INET6 : AF_INET};
  if (!far) ((struct sockaddr_in *)&own)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  m->socket = socket(own.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (m->socket >= 0 && v6) setsockopt(m->socket, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
  socklen_t bytes = v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
  set_port(&own, p->port);
  if (m->socket >= 0 && p->port && bind(m->socket, (struct sockaddr *)&own, bytes) == 0) return STATUS_OK;
  set_port(&own, 0);
  if (m->socket >= 0 && bind(m->socket, (struct sockaddr *)&own, bytes) == 0) return STATUS_OK;
  return status_set(STATUS_IO, "cannot open a socket for datagrams: %s", strerror(errno));
}

/* ---- all of it ---- */

static Status prepare_words(Agreement *m) {
  struct sockaddr_storage own;
  socklen_t bytes = sizeof own;
  if (getsockname(m->socket, (struct sockaddr *)&own, &bytes) != 0)
    return status_set(STATUS_IO, "a socket without a name: %s", strerror(errno));
  for (int d = 0; d < m->peers->nodes; d++) {
    if (d == m->peers->self) continue;
    m->said[d][0] = (uint8_t)get_port(&own);
    m->said[d][1] = (uint8_t)(get_port(&own) >> 8);
    wire_put_u32(m->said[d] + 4, m->peers->mtu);
    if (connection_is_secret(m->peers->channels[d])) {
      TRY(derive_keys(m, d));
      continue;
    }
    if (RAND_bytes(m->all[d].seal, UDP_KEY_BYTES) != 1) return status_set(STATUS_IO, "no random numbers for a key");
    memcpy(m->said[d] + 8, m->all[d].seal, UDP_KEY_BYTES);
  }
  return STATUS_OK;
}

/* The smallest MTU that anybody asks for; 0: nobody does. */
static Status take_words(Agreement *m, uint32_t *mtu) {
  *mtu = m->peers->mtu;
  for (int d = 0; d < m->peers->nodes; d++) {
    const uint8_t *word = m->heard[d];
    uint16_t port = (uint16_t)(word[0] | word[1] << 8);
    uint32_t wanted = wire_get_u32(word + 4);
    if (d == m->peers->self) continue;
    if (port == 0 || word[2] || word[3] || (wanted && wanted < UDP_MIN_MTU)) {
      m->fault = d;
      return status_set(STATUS_BAD_VALUE, "node %d: sent port %d and MTU %u for its datagrams", d, port, wanted);
    }
    set_port(&m->all[d].address, port);
    if (wanted && (!*mtu || wanted < *mtu)) *mtu = wanted;
    if (!connection_is_secret(m->peers->channels[d])) memcpy(m->all[d].open, word + 8, UDP_KEY_BYTES);
  }
  return STATUS_OK;
}

static Status open_datagrams(BackendPeers *p, Backend **backend) {
  size_t nodes = (size_t)p->nodes;
  uint32_t mtu = 0;
  Agreement m = {.peers = p,
                 .all = calloc(nodes, sizeof *m.all),
                 .said = calloc(nodes, WORD),
                 .heard = calloc(nodes, WORD),
                 .socket = -1,
                 .fault = -1};
  Status status = m.all && m.said && m.heard ? open_socket(&m) : status_set(STATUS_NO_MEMORY, "no memory for %d peers", p->nodes);
  if (status == STATUS_OK) status = prepare_words(&m);
  if (status == STATUS_OK) status = exchange_words(&m);
  if (status == STATUS_OK) status = take_words(&m, &mtu);
  if (status == STATUS_OK) {
    for (int d = 0; d < p->nodes; d++) m.all[d].channel = p->channels[d];
    status = backend_udp(backend, &(UdpSetup){.self = p->self, .nodes = p->nodes, .socket = m.socket, .peers = m.all, .mtu = mtu});
  } else {
    for (int d = 0; d < p->nodes; d++) connection_free(p->channels[d]);
    if (m.socket >= 0) close(m.socket);
  }
  p->fault = m.fault;
  if (m.all) OPENSSL_cleanse(m.all, nodes * sizeof *m.all);
  if (m.said) OPENSSL_cleanse(m.said, nodes * WORD);
  if (m.heard) OPENSSL_cleanse(m.heard, nodes * WORD);
  free(m.all);
  free(m.said);
  free(m.heard);
  return status;
}

Status backend_open(void *context, Backend **backend) {
  BackendPeers *p = context;
  p->fault = -1;
  size_t max = p->max_packet < STREAM_MAX_PACKET ? p->max_packet : STREAM_MAX_PACKET;
  Status status = p->datagrams ? open_datagrams(p, backend) : backend_stream(backend, p->nodes, p->channels, max);
  for (int d = 0; d < p->nodes; d++) p->channels[d] = NULL;
  return status;
}
