/* The two backends, and how devices that have channels to each other come to one. First streams: packets behind their length. Then sealed
 * datagrams over one socket for all peers, whose keys and ports the devices agree on over the channels. Leaves out: lost packets, which are
 * the transport's. */
#include "infer/cluster/peer_backend.h"
#include "base/clock.h"
#include "infer/cluster/address.h"
#include "infer/transport/packet.h"
#include "infer/transport/seal.h"
#include "infer/wire.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_wait(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

/* ---- streams: u32 length, packet. A stream that breaks (its end, an error, a length that cannot be) is closed for good and keeps the
 * reason; the others go on. Both buffers of a peer hold one whole packet, so that a packet that is half out can be changed by its owner */

enum { PREFIX = 4, WHY = 160, PEER_AT_ONCE = 64 /* packets of a peer, before the others have their turn */ };

typedef struct StreamPeer {
  Connection *channel; /* NULL: not open */
  uint8_t *in, *out;
  size_t got;           /* of in, prefix included */
  size_t queued, taken; /* of out: bytes, and how many of them the channel has */
  bool held;            /* in is whole, and there was no room for it */
  bool deaf;            /* it takes nothing any more; what it has said is still to be heard */
  Status status;        /* why it is not open any more */
  char why[WHY];
} StreamPeer;

typedef struct Stream {
  Backend backend; /* first */
  int nodes;
  StreamPeer *peers; /* [nodes] */
} Stream;

static void close_peer(StreamPeer *peer, Status status, const char *why, const char *more) {
  connection_free(peer->channel);
  peer->channel = NULL;
  peer->status = status;
  peer->queued = peer->taken = 0;
  snprintf(peer->why, sizeof peer->why, "%s%s", why, more);
}

static void write_some(StreamPeer *peer) {
  while (peer->channel && peer->taken < peer->queued) {
    ssize_t n = connection_write(peer->channel, peer->out + peer->taken, peer->queued - peer->taken);
    if (n >= 0) {
      peer->taken += (size_t)n;
    } else if (is_wait(errno)) {
      return;
    } else if (errno == EPIPE || errno == ECONNRESET) {
      peer->deaf = true;
      peer->taken = peer->queued;
    } else if (errno != EINTR) {
      close_peer(peer, STATUS_IO, "cannot send: ", strerror(errno));
    }
  }
}

static Status stream_send(Backend *self, int to, const uint8_t *packet, size_t bytes, bool *taken) {
  StreamPeer *peer = &((Stream *)self)->peers[to];
  if (bytes > self->max_packet)
    return status_set(STATUS_BAD_VALUE, "a packet of %zu bytes for a stream that takes %zu", bytes, self->max_packet);
  write_some(peer);
  *taken = !peer->channel || peer->taken == peer->queued;
  if (!*taken || !peer->channel || peer->deaf) return STATUS_OK;
  wire_put_u32(peer->out, (uint32_t)bytes);
  memcpy(peer->out + PREFIX, packet, bytes);
  peer->queued = PREFIX + bytes;
  peer->taken = 0;
  write_some(peer);
  return STATUS_OK;
}

static bool stream_pending(const Backend *self) {
  const Stream *stream = (const Stream *)self;
  for (int d = 0; d < stream->nodes; d++) {
    if (stream->peers[d].channel && stream->peers[d].taken < stream->peers[d].queued) return true;
  }
  return false;
}

static Status receive_from(Stream *stream, int from, BackendTake *take, void *context) {
  StreamPeer *peer = &stream->peers[from];
  const size_t max = stream->backend.max_packet;
  for (int packets = 0; peer->channel && packets < PEER_AT_ONCE;) {
    const bool prefix = peer->got >= PREFIX;
    const size_t bytes = prefix ? wire_get_u32(peer->in) : 0, wanted = (prefix ? PREFIX + bytes : PREFIX) - peer->got;
    if (prefix && (bytes < PACKET_HEADER || bytes > max)) {
      status_set(STATUS_BAD_VALUE, "announces a packet of %zu bytes; %d to %zu are possible", bytes, PACKET_HEADER, max);
      close_peer(peer, STATUS_BAD_VALUE, status_message(), "");
    } else if (wanted == 0) {
      bool taken = true;
      TRY(take(context, from, peer->in + PREFIX, bytes, clock_now(), &taken));
      peer->held = !taken;
      if (!taken) return STATUS_OK;
      peer->got = 0;
      packets++;
    } else { /* of the prefix or of the rest */
      ssize_t n = connection_read(peer->channel, peer->in + peer->got, wanted);
      const int error = n < 0 ? errno : 0;
      if (n > 0)
        peer->got += (size_t)n;
      else if (n == 0 || error == ECONNRESET)
        close_peer(peer, STATUS_PEER, "closed the connection", "");
      else if (!is_wait(error) && error != EINTR)
        close_peer(peer, STATUS_IO, "cannot receive: ", strerror(error));
      if (n <= 0 && error != EINTR) return STATUS_OK;
    }
  }
  stream->backend.more |= peer->channel != NULL;
  return STATUS_OK;
}

static Status stream_receive(Backend *self, BackendTake *take, void *context) {
  Stream *stream = (Stream *)self;
  self->more = false;
  for (int d = 0; d < stream->nodes; d++) {
    if (!stream->peers[d].channel) continue;
    write_some(&stream->peers[d]);
    TRY(receive_from(stream, d, take, context));
  }
  return STATUS_OK;
}

/* A peer that is held back and has nothing to get is not polled: that it hung up shows when there is room for its packets again. */
static int stream_polls(Backend *self, struct pollfd *polls, int room) {
  Stream *stream = (Stream *)self;
  int count = 0;
  for (int d = 0; d < stream->nodes && count < room; d++) {
    const StreamPeer *peer = &stream->peers[d];
    short events = peer->channel ? connection_events(peer->channel, !peer->held, peer->taken < peer->queued) : 0;
    if (events) polls[count++] = (struct pollfd){.fd = connection_fd(peer->channel), .events = events};
  }
  return count;
}

static Status stream_peer_status(const Backend *self, int peer, const char **why) {
  const StreamPeer *p = &((const Stream *)self)->peers[peer];
  *why = p->why;
  return p->channel ? STATUS_OK : p->status;
}

static void stream_free(Backend *self) {
  Stream *stream = (Stream *)self;
  for (int d = 0; d < stream->nodes; d++) {
    connection_free(stream->peers[d].channel);
    free(stream->peers[d].in);
    free(stream->peers[d].out);
  }
  free(stream->peers);
  free(stream);
}

/* channels [nodes]: taken over, also when it fails; NULL at this node's own place. */
static Status open_streams(Backend **backend, int nodes, Connection *const *channels, size_t max_packet) {
  Stream *stream = calloc(1, sizeof *stream);
  *backend = NULL;
  if (stream) stream->peers = calloc((size_t)nodes, sizeof *stream->peers);
  if (!stream || !stream->peers) {
    for (int d = 0; d < nodes; d++) connection_free(channels[d]);
    free(stream);
    return status_set(STATUS_NO_MEMORY, "no memory for %d peers", nodes);
  }
  stream->nodes = nodes;
  stream->backend = (Backend){.max_packet = max_packet,
                              .overhead = PREFIX,
                              .reliable = true,
                              .ordered = true,
                              .send = stream_send,
                              .receive = stream_receive,
                              .polls = stream_polls,
                              .pending = stream_pending,
                              .peer_status = stream_peer_status,
                              .free = stream_free};
  bool memory = true;
  for (int d = 0; d < nodes; d++) {
    StreamPeer *peer = &stream->peers[d];
    if (!(peer->channel = channels[d])) continue;
    memory = (peer->in = malloc(PREFIX + max_packet)) && (peer->out = malloc(PREFIX + max_packet)) && memory;
  }
  if (memory) {
    *backend = &stream->backend;
    return STATUS_OK;
  }
  stream_free(&stream->backend);
  return status_set(STATUS_NO_MEMORY, "no memory for the packets of %d nodes", nodes);
}

/* ---- sealed datagrams (seal.h). Who one is from is known by the key that opens it, not by its address. What cannot be opened is dropped
 * and counted. A packet that is longer than a route lets through is sent in fragments, and max_packet is lowered */

typedef struct UdpAddress {
  struct sockaddr_storage address;
  socklen_t address_bytes;                          /* 0: this node itself */
  uint8_t seal[UDP_KEY_BYTES], open[UDP_KEY_BYTES]; /* of what goes there, and of what comes from there */
} UdpAddress;

enum { LOWER_V4 = 28, LOWER_V6 = 48 /* IP and UDP */, RECEIVE_BUFFER = 4 << 20, AT_ONCE = 256 };

typedef struct UdpPeer {
  struct sockaddr_storage address;
  socklen_t address_bytes;
  DatagramSender sender;
  DatagramReceiver receiver;
  Connection *channel;
  bool closed; /* its channel has ended */
} UdpPeer;

typedef struct Udp {
  Backend backend; /* first */
  int self, nodes, socket;
  size_t lower;   /* bytes of IP and UDP */
  bool full;      /* the socket took no more; until it is looked at again */
  UdpPeer *peers; /* [nodes] */
  uint8_t *in, *out;
  size_t room; /* of each */
} Udp;

/* Whether datagrams may be cut on the way. Those of a socket for IPv6 may be IPv4 within it. */
static void allow_fragments(const Udp *udp, bool allow) {
  int v4 = allow ? IP_PMTUDISC_DONT : IP_PMTUDISC_DO, v6 = allow ? IPV6_PMTUDISC_DONT : IPV6_PMTUDISC_DO;
  setsockopt(udp->socket, IPPROTO_IP, IP_MTU_DISCOVER, &v4, sizeof v4);
  if (udp->lower == LOWER_V6) setsockopt(udp->socket, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &v6, sizeof v6);
}

static ssize_t put(const Udp *udp, const UdpPeer *peer, size_t size) {
  return sendto(udp->socket, udp->out, size, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&peer->address, peer->address_bytes);
}

/* What a route lets through, as the system knows it by now; 0: it does not say. */
static uint32_t route_mtu(const struct sockaddr_storage *address, socklen_t bytes) {
  int probe = socket(address->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), mtu = 0;
  socklen_t size = sizeof mtu;
  bool v6 = address->ss_family == AF_INET6;
  if (probe < 0) return 0;
  bool known = connect(probe, (const struct sockaddr *)address, bytes) == 0 &&
               getsockopt(probe, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU : IP_MTU, &mtu, &size) == 0;
  close(probe);
  return known && mtu > 0 ? (uint32_t)mtu : 0;
}

static size_t packet_of_mtu(const Udp *udp, uint32_t mtu) {
  if (mtu > UDP_MAX_MTU) mtu = UDP_MAX_MTU;
  if (mtu < UDP_MIN_MTU) mtu = UDP_MIN_MTU;
  return mtu - udp->lower - DATAGRAM_AROUND;
}

static Status udp_send(Backend *self, int to, const uint8_t *packet, size_t bytes, bool *taken) {
  Udp *udp = (Udp *)self;
  *taken = true;
  UdpPeer *peer = &udp->peers[to];
  if (peer->closed || bytes + DATAGRAM_AROUND > udp->room) return STATUS_OK;
  TRY(datagram_close(&peer->sender, packet, bytes, udp->out));
  ssize_t n = put(udp, peer, bytes + DATAGRAM_AROUND);
  if (n < 0 && errno == EMSGSIZE) { /* the route has become narrower: later packets are shorter, this one goes in fragments */
    uint32_t mtu = route_mtu(&peer->address, peer->address_bytes);
    size_t max = packet_of_mtu(udp, mtu ? mtu : UDP_MIN_MTU);
    if (max < self->max_packet) self->max_packet = max;
    allow_fragments(udp, true);
    n = put(udp, peer, bytes + DATAGRAM_AROUND);
    int error = errno;
    allow_fragments(udp, false);
    errno = error;
  }
  *taken = !(n < 0 && is_wait(errno));
  udp->full |= !*taken;
  return STATUS_OK; /* what the network did not want is lost, as others are on their way */
}

static bool udp_pending(const Backend *self) {
  (void)self;
  return false;
}

static Status udp_receive(Backend *self, BackendTake *take, void *context) {
  Udp *udp = (Udp *)self;
  for (int d = 0; d < udp->nodes; d++) { /* a channel says nothing any more, but that it ends */
    UdpPeer *peer = &udp->peers[d];
    uint8_t byte;
    if (!peer->channel || peer->closed) continue;
    ssize_t n = connection_read(peer->channel, &byte, 1);
    peer->closed = n >= 0 || (!is_wait(errno) && errno != EINTR);
  }
  self->more = udp->full = false;
  for (int i = 0; i < AT_ONCE; i++) {
    ssize_t n = recv(udp->socket, udp->in, udp->room, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && is_wait(errno)) return STATUS_OK;
    if (n < 0 && errno != EINTR && errno != ECONNREFUSED) return status_set(STATUS_IO, "cannot receive datagrams: %s", strerror(errno));
    if (n < 0) continue;
    const int from = n <= (ssize_t)udp->room ? datagram_sender(udp->in, (size_t)n) : -1;
    size_t bytes;
    uint8_t *packet = NULL;
    bool taken = true;
    if (from >= 0 && from < udp->nodes && from != udp->self) packet = datagram_open(&udp->peers[from].receiver, udp->in, (size_t)n, &bytes);
    if (packet) TRY(take(context, from, packet, bytes, clock_now(), &taken));
    self->dropped += !packet || !taken;
  }
  self->more = true;
  return STATUS_OK;
}

static int udp_polls(Backend *self, struct pollfd *polls, int room) {
  Udp *udp = (Udp *)self;
  int count = 0;
  polls[count++] = (struct pollfd){.fd = udp->socket, .events = (short)(POLLIN | (udp->full ? POLLOUT : 0))};
  for (int d = 0; d < udp->nodes && count < room; d++) {
    const UdpPeer *peer = &udp->peers[d];
    if (peer->channel && !peer->closed)
      polls[count++] = (struct pollfd){.fd = connection_fd(peer->channel), .events = connection_events(peer->channel, true, false)};
  }
  return count;
}

static Status udp_peer_status(const Backend *self, int peer, const char **why) {
  *why = "closed the connection";
  return ((const Udp *)self)->peers[peer].closed ? STATUS_PEER : STATUS_OK;
}

static void udp_free(Backend *self) {
  Udp *udp = (Udp *)self;
  for (int d = 0; d < udp->nodes; d++) {
    seal_free(udp->peers[d].sender.seal);
    seal_free(udp->peers[d].receiver.seal);
    connection_free(udp->peers[d].channel);
  }
  close(udp->socket);
  free(udp->peers);
  free(udp->in);
  free(udp->out);
  free(udp);
}

/* ---- how devices agree on datagrams. Each end of a channel says over it:
 *
 *   0 port u16 | 2 zero u16 | 4 MTU u32, 0: the route's | 8 key of what it sends [44]; zero on a secret channel, where both ends know keys
 */

enum { WORD = 8 + UDP_KEY_BYTES };
static const double look_seconds = 0.05, write_seconds = 0.002; /* between looks, and where a new connection had no room for a word */
static const char label[] = "EXPORTER-astra-2 data";

typedef struct Agreement {
  const BackendPeers *peers;
  UdpAddress *all;        /* [nodes] */
  uint8_t (*said)[WORD];  /* [nodes] to each */
  uint8_t (*heard)[WORD]; /* [nodes] from each */
  size_t out[WIRE_NODES], in[WIRE_NODES];
  int socket, fault;
  uint32_t mtu; /* the smallest that any device asks for; 0: none does, and the system is asked for each route */
} Agreement;

static Status break_off(Agreement *m, int peer) {
  m->fault = peer;
  return status_set(STATUS_PEER, "node %d: went away while datagrams were agreed on", peer);
}

static Status step(Agreement *m, int d) {
  Connection *channel = m->peers->channels[d];
  ssize_t n = m->out[d] < (size_t)WORD ? connection_write(channel, m->said[d] + m->out[d], (size_t)WORD - m->out[d]) : 0;
  if (n < 0 && !is_wait(errno) && errno != EINTR) return break_off(m, d);
  m->out[d] += n > 0 ? (size_t)n : 0;
  n = m->in[d] < (size_t)WORD ? connection_read(channel, m->heard[d] + m->in[d], (size_t)WORD - m->in[d]) : 1;
  if (n == 0 || (n < 0 && !is_wait(errno) && errno != EINTR)) return break_off(m, d);
  if (m->in[d] < (size_t)WORD && n > 0) m->in[d] += (size_t)n;
  return STATUS_OK;
}

/* Words both ways, with all peers at once. */
static Status exchange_words(Agreement *m) {
  const BackendPeers *p = m->peers;
  for (double until = clock_now() + p->seconds;;) {
    Connection *waiting[WIRE_NODES];
    int count = 0, late = -1;
    bool writes = false;
    for (int d = 0; d < p->nodes; d++) {
      if (d == p->self) continue;
      TRY(step(m, d));
      if (m->out[d] == (size_t)WORD && m->in[d] == (size_t)WORD) continue;
      late = d;
      waiting[count++] = p->channels[d];
      writes |= m->out[d] < (size_t)WORD;
    }
    if (late < 0) return STATUS_OK;
    double left = until - clock_now();
    if (atomic_load(&p->give_up)) return status_set(STATUS_INTERRUPTED, "node %d was not waited for any more", late);
    if (left <= 0) {
      m->fault = late;
      return status_set(STATUS_TIMEOUT, "node %d did not say within %g s where it takes datagrams", late, p->seconds);
    }
    TRY(connections_wait(waiting, count, -1, fmin(left, writes ? write_seconds : look_seconds)));
  }
}

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
  bool v4 = false, v6 = false, far = false;
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
    v4 |= address->ss_family == AF_INET;
    v6 |= address->ss_family == AF_INET6;
    far |= !address_number_is_local((struct sockaddr *)address);
  }
  for (int d = 0; d < p->nodes && v6; d++) { /* one socket for all peers: where need be as IPv4 within IPv6 */
    if (d == p->self || m->all[d].address.ss_family != AF_INET) continue;
    struct sockaddr_in number = *(struct sockaddr_in *)&m->all[d].address;
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = number.sin_port};
    mapped.sin6_addr.s6_addr[10] = mapped.sin6_addr.s6_addr[11] = 0xff;
    memcpy(mapped.sin6_addr.s6_addr + 12, &number.sin_addr, 4);
    memset(&m->all[d].address, 0, sizeof m->all[d].address);
    memcpy(&m->all[d].address, &mapped, sizeof mapped);
    m->all[d].address_bytes = sizeof mapped;
  }
  struct sockaddr_storage own = {.ss_family = v6 ? AF_INET6 : AF_INET};
  /* Other machines have no business with it; a socket for the loopbacks of both kinds cannot be bound to either. */
  if (!far && !v6) ((struct sockaddr_in *)&own)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (!far && !v4 && v6) ((struct sockaddr_in6 *)&own)->sin6_addr = in6addr_loopback;
  m->socket = socket(own.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (m->socket >= 0 && v6) setsockopt(m->socket, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
  socklen_t bytes = v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
  set_port(&own, p->port);
  if (m->socket >= 0 && p->port && bind(m->socket, (struct sockaddr *)&own, bytes) == 0) return STATUS_OK;
  set_port(&own, 0);
  if (m->socket >= 0 && bind(m->socket, (struct sockaddr *)&own, bytes) == 0) return STATUS_OK;
  return status_set(STATUS_IO, "cannot open a socket for datagrams: %s", strerror(errno));
}

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

static Status take_words(Agreement *m) {
  m->mtu = m->peers->mtu;
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
    if (wanted && (!m->mtu || wanted < m->mtu)) m->mtu = wanted;
    if (!connection_is_secret(m->peers->channels[d])) memcpy(m->all[d].open, word + 8, UDP_KEY_BYTES);
  }
  return STATUS_OK;
}

static Status fill_udp(Udp *udp, const Agreement *m) {
  int buffer = RECEIVE_BUFFER;
  struct sockaddr_storage own;
  socklen_t own_bytes = sizeof own;
  if (getsockname(udp->socket, (struct sockaddr *)&own, &own_bytes) != 0 || fcntl(udp->socket, F_SETFL, O_NONBLOCK) < 0)
    return status_set(STATUS_IO, "cannot prepare a socket: %s", strerror(errno));
  udp->lower = own.ss_family == AF_INET6 ? LOWER_V6 : LOWER_V4;
  udp->room = UDP_MAX_MTU;
  udp->in = malloc(udp->room);
  udp->out = malloc(udp->room);
  if (!udp->in || !udp->out) return status_no_memory(NULL, "datagrams");
  /* Less will do, but what does not fit while this process has no processor is lost. */
  if (setsockopt(udp->socket, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) != 0)
    setsockopt(udp->socket, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  allow_fragments(udp, false);
  uint32_t min = m->mtu ? m->mtu : UDP_MAX_MTU;
  for (int d = 0; d < udp->nodes; d++) {
    UdpPeer *peer = &udp->peers[d];
    if (d == udp->self) continue;
    peer->address = m->all[d].address;
    peer->address_bytes = m->all[d].address_bytes;
    peer->sender.self = (uint8_t)udp->self;
    TRY(seal_new(&peer->sender.seal, m->all[d].seal, true));
    TRY(seal_new(&peer->receiver.seal, m->all[d].open, false));
    uint32_t mtu = m->mtu ? 0 : route_mtu(&peer->address, peer->address_bytes);
    if (mtu && mtu < min) min = mtu;
  }
  udp->backend.max_packet = packet_of_mtu(udp, min);
  return STATUS_OK;
}

/* Takes over the socket and the channels, also when it fails. */
static Status open_udp(Backend **backend, const Agreement *m) {
  const BackendPeers *p = m->peers;
  Udp *udp = calloc(1, sizeof *udp);
  UdpPeer *peers = calloc((size_t)p->nodes, sizeof *peers);
  if (!udp || !peers) {
    close(m->socket);
    for (int d = 0; d < p->nodes; d++) connection_free(p->channels[d]);
    free(udp);
    free(peers);
    return status_set(STATUS_NO_MEMORY, "no memory for %d peers", p->nodes);
  }
  *udp = (Udp){.self = p->self, .nodes = p->nodes, .socket = m->socket, .peers = peers};
  for (int d = 0; d < udp->nodes; d++) udp->peers[d].channel = p->channels[d];
  udp->backend = (Backend){.overhead = DATAGRAM_AROUND,
                           .send = udp_send,
                           .receive = udp_receive,
                           .polls = udp_polls,
                           .pending = udp_pending,
                           .peer_status = udp_peer_status,
                           .free = udp_free};
  Status status = fill_udp(udp, m);
  if (status == STATUS_OK)
    *backend = &udp->backend;
  else
    udp_free(&udp->backend);
  return status;
}

static Status open_datagrams(Backend **backend, BackendPeers *p) {
  size_t nodes = (size_t)p->nodes;
  Agreement m = {.peers = p,
                 .all = calloc(nodes, sizeof *m.all),
                 .said = calloc(nodes, WORD),
                 .heard = calloc(nodes, WORD),
                 .socket = -1,
                 .fault = -1};
  Status status = m.all && m.said && m.heard ? open_socket(&m) : status_set(STATUS_NO_MEMORY, "no memory for %d peers", p->nodes);
  if (status == STATUS_OK) status = prepare_words(&m);
  if (status == STATUS_OK) status = exchange_words(&m);
  if (status == STATUS_OK) status = take_words(&m);
  if (status == STATUS_OK) {
    status = open_udp(backend, &m);
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
  size_t max = p->max_packet < STREAM_MAX_PACKET ? p->max_packet : STREAM_MAX_PACKET;
  *backend = NULL;
  p->fault = -1;
  Status status = p->datagrams ? open_datagrams(backend, p) : open_streams(backend, p->nodes, p->channels, max);
  for (int d = 0; d < p->nodes; d++) p->channels[d] = NULL;
  return status;
}
