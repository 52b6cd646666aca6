/* See peer_handshake.h. All connections progress side by side: no device waits for another in a fixed order. */
#include "infer/cluster/peer_handshake.h"
#include "base/clock.h"
#include "infer/byte_cursor.h"
#include "infer/cluster/fd_passing.h"
#include "infer/cluster/hello.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

enum { MEET_BYTES = WIRE_MEET_BYTES, MESSAGE = WIRE_HEADER + MEET_BYTES, CALLERS = WIRE_NODES + 8 };
static const double slice_seconds = 0.05; /* between two looks at the leader */

/* ---- MEET */

typedef struct PeerIdentity {
  uint16_t epoch, node;
  uint8_t session[HELLO_SESSION];
  uint64_t partition;
} PeerIdentity;

static void meet_fields(ByteCursor c, PeerIdentity *identity) {
  byte_cursor_u16(&c, &identity->epoch);
  byte_cursor_u16(&c, &identity->node);
  byte_cursor_bytes(&c, identity->session, HELLO_SESSION);
  byte_cursor_u64(&c, &identity->partition);
}

static void pack_meet(PeerIdentity *identity, uint8_t message[MESSAGE]) {
  wire_pack(&(WireHeader){.kind = WIRE_MEET, .sender = (uint8_t)identity->node, .count = identity->epoch, .bytes = MEET_BYTES}, message);
  meet_fields(byte_cursor_to(message + WIRE_HEADER), identity);
}

/* BAD_VALUE: no MEET, or of a node that no cluster has. */
static Status parse_meet(const uint8_t message[MESSAGE], PeerIdentity *identity) {
  WireHeader header;
  TRY(wire_parse(message, MEET_BYTES, &header));
  TRY(wire_check_sender(&header, WIRE_FROM_PEER));
  meet_fields(byte_cursor_from(message + WIRE_HEADER), identity);
  return identity->node < WIRE_NODES ? STATUS_OK : status_set(STATUS_BAD_VALUE, "a peer handshake with node %d", identity->node);
}

/* ---- one connection */

typedef struct Caller {
  Connection *connection; /* NULL: a free place */
  int node;               /* that this device dialled or was passed; -1: unknown until its MEET */
  bool shaken;            /* its TLS handshake is done: it has the key */
  uint64_t arrival;       /* the greater the later; of those that came by themselves */
  size_t sent, got;       /* bytes of MEET, ours and theirs */
  uint8_t theirs[MESSAGE];
} Caller;

typedef struct Handshakes {
  PeerHandshake *all;
  uint8_t ours[MESSAGE];
  Caller callers[CALLERS];
  uint64_t arrivals;
} Handshakes;

static void drop(Caller *caller) {
  connection_free(caller->connection);
  *caller = (Caller){.node = -1};
}

static Status note_fault(PeerHandshake *all, int node, Status status) {
  const SetupDevice *device = &all->setup->device[node];
  char address[ADDRESS_TEXT];
  all->fault = node;
  if (device->reachable) return status_wrap(status, "worker %s", address_text(&device->address, address));
  return status_wrap(status, "node %d", node);
}

static bool would_wait(ssize_t n) { return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR); }

/* TLS handshake, then MEET in both directions, as far as possible without waiting. PEER: the connection has failed. */
static Status move(Handshakes *h, Caller *caller) {
  if (!caller->shaken) TRY(connection_step(caller->connection, &caller->shaken));
  if (!caller->shaken) return STATUS_OK;
  while (caller->sent < MESSAGE) {
    ssize_t n = connection_write(caller->connection, h->ours + caller->sent, MESSAGE - caller->sent);
    if (would_wait(n)) break;
    if (n < 0) return status_set(STATUS_PEER, "closed the connection");
    caller->sent += (size_t)n;
  }
  while (caller->got < MESSAGE) {
    ssize_t n = connection_read(caller->connection, caller->theirs + caller->got, MESSAGE - caller->got);
    if (would_wait(n)) break;
    if (n <= 0) return status_set(STATUS_PEER, "closed the connection");
    caller->got += (size_t)n;
  }
  return STATUS_OK;
}

/* Both sides have sent MEET. A connection that is not expected, perhaps of an earlier epoch, is closed: its node is still missing then. */
static Status accept_peer(PeerHandshake *all, Caller *caller) {
  const ClusterSetup *setup = all->setup;
  PeerIdentity peer = {.node = 0};
  bool expected = parse_meet(caller->theirs, &peer) == STATUS_OK && peer.epoch == setup->epoch &&
                  memcmp(peer.session, all->session, HELLO_SESSION) == 0 && peer.node < setup->nodes && peer.node != setup->self &&
                  (caller->node < 0 || caller->node == peer.node) && !all->connection[peer.node];
  if (!expected) {
    drop(caller);
    return STATUS_OK;
  }
  if (peer.partition != setup->fingerprints.partition)
    return note_fault(all, peer.node,
                      status_set(STATUS_BAD_VALUE, "another partition: %016" PRIx64 " there, %016" PRIx64 " here", peer.partition,
                                 setup->fingerprints.partition));
  all->connection[peer.node] = caller->connection;
  *caller = (Caller){.node = -1};
  return STATUS_OK;
}

/* ---- all of them */

static Caller *free_place(Handshakes *h) {
  for (int i = 0; i < CALLERS; i++) {
    if (!h->callers[i].connection) return &h->callers[i];
  }
  return NULL;
}

/* A free place, or that of the oldest one which has not shown that it has the key: calls without it, as many as there may be, take no place
 * from the devices. NULL: all have it. */
static Caller *place_for_call(Handshakes *h) {
  Caller *place = free_place(h);
  if (place) return place;
  for (int i = 0; i < CALLERS; i++) {
    Caller *caller = &h->callers[i];
    if (caller->node < 0 && !caller->shaken && (!place || caller->arrival < place->arrival)) place = caller;
  }
  if (place) drop(place);
  return place;
}

static Status dial(Handshakes *h, int node) {
  PeerHandshake *all = h->all;
  const SetupDevice *device = &all->setup->device[node];
  Address address = device->address;
  Caller *caller = free_place(h);
  if (!device->reachable) return note_fault(all, node, status_set(STATUS_BAD_VALUE, "has no address, as this device has none"));
  address_on_link(&address, connection_fd(all->control));
  caller->node = node;
  if (!(caller->connection = malloc(sizeof *caller->connection))) return status_no_memory(NULL, "a connection");
  Status status = connection_dial(caller->connection, &address, HELLO_PEER, all->session, all->key);
  return status == STATUS_OK ? STATUS_OK : note_fault(all, node, status);
}

/* A descriptor of an earlier epoch, or one for which there is no place, is closed. */
static Status take_passed(Handshakes *h, const PassedFd *passed) {
  PeerHandshake *all = h->all;
  const FdKind kind = all->together ? FD_STREAM : FD_CONNECTION;
  const bool ours = !all->together || (passed->epoch == all->setup->epoch && passed->node < all->setup->nodes);
  if (passed->fd < 0) return STATUS_OK;
  Caller *caller = passed->kind != kind || !ours ? NULL : all->together ? free_place(h) : place_for_call(h);
  if (!caller) {
    close(passed->fd);
    return STATUS_OK;
  }
  caller->arrival = h->arrivals++;
  if (!all->together) return connection_tls(&caller->connection, passed->fd, CONNECTION_ANSWERS, all->key);
  caller->node = passed->node;
  return connection_plain(&caller->connection, passed->fd);
}

static int find_missing(const PeerHandshake *all) {
  for (int d = 0; d < all->setup->nodes; d++) {
    if (d != all->setup->self && !all->connection[d]) return d;
  }
  return -1;
}

static Status connect_all(Handshakes *h) {
  PeerHandshake *all = h->all;
  const ClusterSetup *setup = all->setup;
  const SetupDevice *self = &setup->device[setup->self];
  double until = clock_now() + all->seconds;
  /* Of two, the one that cannot be reached dials, else the one with the higher number. */
  for (int d = 0; d < setup->nodes && !all->together; d++) {
    bool dials = d != setup->self && (!self->reachable || (setup->device[d].reachable && setup->self > d));
    if (dials) TRY(dial(h, d));
  }
  for (;;) {
    Connection *waiting[CALLERS + 1] = {all->control};
    if (find_missing(all) < 0) return STATUS_OK;
    TRY(connections_step(&all->control, 1, 0));
    if (*all->stop) return status_set(STATUS_INTERRUPTED, "the leader has changed its mind");
    for (bool any = true; any;) {
      PassedFd passed;
      TRY(fd_passing_receive(all->passed, &passed, &any));
      if (any) TRY(take_passed(h, &passed));
    }
    for (int i = 0; i < CALLERS; i++) {
      Caller *caller = &h->callers[i];
      Status status = caller->connection ? move(h, caller) : STATUS_OK;
      if (status != STATUS_OK && caller->node >= 0) return note_fault(all, caller->node, status); /* one that was dialled must answer */
      if (status != STATUS_OK) drop(caller); /* incoming connections can be from anyone */
      if (caller->connection && caller->sent == MESSAGE && caller->got == MESSAGE) TRY(accept_peer(all, caller));
      waiting[1 + i] = caller->connection;
    }
    int missing = find_missing(all);
    if (missing < 0) return STATUS_OK;
    if (clock_now() > until) return note_fault(all, missing, status_set(STATUS_TIMEOUT, "did not connect within %g s", all->seconds));
    connections_wait(waiting, CALLERS + 1, all->passed, slice_seconds);
  }
}

Status peer_handshake_run(PeerHandshake *all) {
  const ClusterSetup *setup = all->setup;
  Handshakes h = {.all = all};
  all->fault = -1;
  PeerIdentity own = {.epoch = setup->epoch, .node = (uint16_t)setup->self, .partition = setup->fingerprints.partition};
  memcpy(own.session, all->session, HELLO_SESSION);
  pack_meet(&own, h.ours);
  for (int i = 0; i < CALLERS; i++) h.callers[i].node = -1;
  Status status = connect_all(&h);
  for (int i = 0; i < CALLERS; i++) drop(&h.callers[i]);
  return status;
}
