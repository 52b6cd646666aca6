/* Datagrams between devices. One socket for all peers; who a datagram is from is known by the key that opens it, not by its address. What
 * cannot be opened is dropped and counted. Leaves out: lost packets, which are the transport's. */
#include "base/clock.h"
#include "infer/transport/backend.h"
#include "infer/transport/packet.h"
#include "infer/transport/seal.h"
#include "infer/wire.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* ---- sending ---- */

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
  *taken = !(n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
  udp->full |= !*taken;
  return STATUS_OK; /* what the network did not want is lost, as others are on their way */
}

static bool udp_pending(const Backend *self) {
  (void)self;
  return false;
}

/* ---- receiving ---- */

static Status udp_receive(Backend *self, BackendTake *take, void *context) {
  Udp *udp = (Udp *)self;
  for (int d = 0; d < udp->nodes; d++) { /* a channel says nothing any more, but that it ends */
    UdpPeer *peer = &udp->peers[d];
    uint8_t byte;
    if (!peer->channel || peer->closed) continue;
    ssize_t n = connection_read(peer->channel, &byte, 1);
    peer->closed = n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
  }
  self->more = udp->full = false;
  for (int i = 0; i < AT_ONCE; i++) {
    ssize_t n = recv(udp->socket, udp->in, udp->room, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return STATUS_OK;
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

/* ---- the rest ---- */

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

static Status open_udp(Udp *udp, const UdpSetup *setup) {
  int buffer = RECEIVE_BUFFER;
  struct sockaddr_storage own;
  socklen_t own_bytes = sizeof own;
  if (getsockname(udp->socket, (struct sockaddr *)&own, &own_bytes) != 0 || fcntl(udp->socket, F_SETFL, O_NONBLOCK) < 0)
    return status_set(STATUS_IO, "cannot prepare a socket: %s", strerror(errno));
  udp->lower = own.ss_family == AF_INET6 ? LOWER_V6 : LOWER_V4;
  udp->room = UDP_MAX_MTU;
  udp->in = malloc(udp->room);
  udp->out = malloc(udp->room);
  if (!udp->in || !udp->out) return status_set(STATUS_NO_MEMORY, "no memory for datagrams");
  /* Less will do, but what does not fit while this process has no processor is lost. */
  if (setsockopt(udp->socket, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) != 0)
    setsockopt(udp->socket, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  allow_fragments(udp, false);
  uint32_t min = setup->mtu ? setup->mtu : UDP_MAX_MTU;
  for (int d = 0; d < udp->nodes; d++) {
    UdpPeer *peer = &udp->peers[d];
    const UdpAddress *given = &setup->peers[d];
    if (d == udp->self) continue;
    peer->address = given->address;
    peer->address_bytes = given->address_bytes;
    peer->sender.self = (uint8_t)udp->self;
    TRY(seal_new(&peer->sender.seal, given->seal, true));
    TRY(seal_new(&peer->receiver.seal, given->open, false));
    uint32_t mtu = setup->mtu ? 0 : route_mtu(&peer->address, peer->address_bytes);
    if (mtu && mtu < min) min = mtu;
  }
  udp->backend.max_packet = packet_of_mtu(udp, min);
  return STATUS_OK;
}

Status backend_udp(Backend **backend, const UdpSetup *setup) {
  Udp *udp = calloc(1, sizeof *udp);
  UdpPeer *peers = calloc((size_t)setup->nodes, sizeof *peers);
  *backend = NULL;
  if (!udp || !peers) {
    close(setup->socket);
    for (int d = 0; d < setup->nodes; d++) connection_free(setup->peers[d].channel);
    free(udp);
    free(peers);
    return status_set(STATUS_NO_MEMORY, "no memory for %d peers", setup->nodes);
  }
  *udp = (Udp){.self = setup->self, .nodes = setup->nodes, .socket = setup->socket, .peers = peers};
  for (int d = 0; d < udp->nodes; d++) udp->peers[d].channel = setup->peers[d].channel;
  udp->backend = (Backend){.overhead = DATAGRAM_AROUND,
                           .send = udp_send,
                           .receive = udp_receive,
                           .polls = udp_polls,
                           .pending = udp_pending,
                           .peer_status = udp_peer_status,
                           .free = udp_free};
  Status status = open_udp(udp, setup);
  if (status == STATUS_OK)
    *backend = &udp->backend;
  else
    udp_free(&udp->backend);
  return status;
}
