/* See peer_handshake.h. All connections move side by side: no device waits for another in a fixed order. */
#include "infer/cluster/peer_handshake.h"
#include "base/clock.h"
#include "infer/cluster/byte_cursor.h"
#include "infer/cluster/fd_passing.h"
#include "infer/cluster/hello.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum { MEET_BYTES = WIRE_MEET_BYTES, MESSAGE = WIRE_HEADER + MEET_BYTES, CALLERS = WIRE_NODES + 8 };
static const double slice_seconds = 0.05; /* between two looks at the leader */

/* ---- MEET */

typedef struct PeerIdentity {
  uint16_t epoch, node;
  uint8_t session[HELLO_SESSION];
  uint64_t partition;
} PeerIdentity;

static PeerIdentity identity_of(const PeerHandshake *all) {
  PeerIdentity own = {.epoch = all->setup->epoch, .node = (uint16_t)all->setup->self, .partition = all->setup->fingerprints.partition};
  memcpy(own.session, all->session, HELLO_SESSION);
  return own;
}

static void pack_identity(const PeerIdentity *identity, uint8_t bytes[MEET_BYTES]) {
  uint8_t *at = bytes;
  byte_cursor_put_u16(&at, identity->epoch);
  byte_cursor_put_u16(&at, identity->node);
  byte_cursor_put(&at, identity->session, HELLO_SESSION);
  byte_cursor_put_u64(&at, identity->partition);
}

/* BAD_VALUE: a node that no cluster has. */
static Status parse_identity(const uint8_t bytes[MEET_BYTES], PeerIdentity *identity) {
  const uint8_t *at = bytes;
  identity->epoch = byte_cursor_get_u16(&at);
  identity->node = byte_cursor_get_u16(&at);
  byte_cursor_get(&at, identity->session, HELLO_SESSION);
  identity->partition = byte_cursor_get_u64(&at);
  return identity->node < WIRE_NODES ? STATUS_OK : status_set(STATUS_BAD_VALUE, "a peer handshake with node %d", identity->node);
}

/* ---- one connection on its way */

typedef struct Caller {
  Connection *connection; /* NULL: none */
  int node;               /* whom this device dialled or was passed; -1: whoever it says */
  bool shaken;
  size_t sent, got;
  uint8_t theirs[MESSAGE];
} Caller;

typedef struct Handshakes {
  PeerHandshake *all;
  uint8_t ours[MESSAGE];
  Caller callers[CALLERS];
} Handshakes;

static const Caller nobody = {.node = -1};

static bool is_free(const Caller *caller) { return !caller->connection; }

static void drop(Caller *caller) {
  connection_free(caller->connection);
  *caller = nobody;
}

static bool dials(const ClusterSetup *setup, int from, int to) {
  if (!setup->member[from].reachable) return true;
  return setup->member[to].reachable && from > to;
}

static const char *name_of(const ClusterSetup *setup, int node, char text[ADDRESS_TEXT + 16]) {
  char address[ADDRESS_TEXT];
  if (setup->member[node].reachable)
    snprintf(text, ADDRESS_TEXT + 16, "worker %s", address_text(&setup->member[node].address, address));
  else
    snprintf(text, ADDRESS_TEXT + 16, "node %d", node);
  return text;
}

static Status note_fault(PeerHandshake *all, int node, Status status) {
  char text[ADDRESS_TEXT + 16];
  all->fault = node;
  return status_wrap(status, "%s", name_of(all->setup, node, text));
}

static bool would_wait(ssize_t n) { return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR); }

/* As far as it goes without waiting: PEER when it goes no further. */
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

/* What it says it is; *stale: of another run or epoch. */
static Status read_identity(const PeerHandshake *all, const Caller *caller, PeerIdentity *identity, bool *stale) {
  WireHeader header;
  TRY(wire_parse(caller->theirs, MEET_BYTES, &header));
  TRY(wire_check_sender(&header, WIRE_FROM_PEER));
  TRY(parse_identity(caller->theirs + WIRE_HEADER, identity));
  *stale = identity->epoch != all->setup->epoch || memcmp(identity->session, all->session, HELLO_SESSION) != 0;
  return STATUS_OK;
}

/* Both have said who they are: the connection goes where it belongs. */
static Status seat(Handshakes *h, Caller *caller) {
  PeerHandshake *all = h->all;
  PeerIdentity peer = {.node = 0};
  bool stale = false;
  Status status = read_identity(all, caller, &peer, &stale);
  bool expected = status == STATUS_OK && !stale && peer.node < all->setup->nodes && peer.node != all->setup->self &&
                  (caller->node < 0 || caller->node == peer.node) && !all->connection[peer.node];
  if (!expected) {
    drop(caller);
    return STATUS_OK; /* whoever is waited for is still missing */
  }
  if (peer.partition != all->setup->fingerprints.partition)
    return note_fault(all, peer.node,
                      status_set(STATUS_BAD_VALUE, "another partition: %016" PRIx64 " there, %016" PRIx64 " here", peer.partition,
                                 all->setup->fingerprints.partition));
  all->connection[peer.node] = caller->connection;
  *caller = nobody;
  return STATUS_OK;
}

/* One that was dialled must answer; of the others anything may have called. */
static Status advance(Handshakes *h, Caller *caller) {
  Status status = move(h, caller);
  if (status == STATUS_OK && caller->sent == MESSAGE && caller->got == MESSAGE) return seat(h, caller);
  if (status == STATUS_OK) return STATUS_OK;
  if (caller->node >= 0) return note_fault(h->all, caller->node, status);
  drop(caller);
  return STATUS_OK;
}

/* ---- all of them */

static Caller *free_place(Handshakes *h) {
  for (int i = 0; i < CALLERS; i++) {
    if (is_free(&h->callers[i])) return &h->callers[i];
  }
  return NULL;
}

static Status dial(Handshakes *h, int node) {
  PeerHandshake *all = h->all;
  const Member *member = &all->setup->member[node];
  Address address = member->address;
  Caller *caller = free_place(h);
  if (!member->reachable) return note_fault(all, node, status_set(STATUS_BAD_VALUE, "has no address, as this device has none"));
  address_on_link(&address, connection_fd(all->control));
  caller->node = node;
  Status status = connection_call(&caller->connection, &address, HELLO_PEER, all->session, all->key);
  return status == STATUS_OK ? STATUS_OK : note_fault(all, node, status);
}

static Status dial_all(Handshakes *h) {
  const ClusterSetup *setup = h->all->setup;
  for (int d = 0; d < setup->nodes; d++) {
    if (d != setup->self && dials(setup, setup->self, d)) TRY(dial(h, d));
  }
  return STATUS_OK;
}

/* Of an earlier epoch, or when there are more callers than a cluster has devices: closed. */
static Status take_passed(Handshakes *h, const PassedFd *passed) {
  PeerHandshake *all = h->all;
  Caller *caller = free_place(h);
  FdKind kind = all->together ? FD_STREAM : FD_CONNECTION;
  bool due = passed->kind == kind && caller && (!all->together || (passed->epoch == all->setup->epoch && passed->node < all->setup->nodes));
  if (!due && passed->fd >= 0) close(passed->fd);
  if (!due || passed->fd < 0) return STATUS_OK;
  if (!all->together) return connection_tls(&caller->connection, passed->fd, CONNECTION_ANSWERS, all->key);
  caller->node = passed->node;
  return connection_plain(&caller->connection, passed->fd);
}

static Status take_all_passed(Handshakes *h) {
  PassedFd passed;
  bool any;
  for (;;) {
    TRY(fd_passing_receive(h->all->passed, &passed, &any));
    if (!any) return STATUS_OK;
    TRY(take_passed(h, &passed));
  }
}

static int missing(const PeerHandshake *all) {
  for (int d = 0; d < all->setup->nodes; d++) {
    if (d != all->setup->self && !all->connection[d]) return d;
  }
  return -1;
}

static void wait_for_events(Handshakes *h, double seconds) {
  Connection *waiting[CALLERS + 1] = {h->all->control};
  for (int i = 0; i < CALLERS; i++) waiting[1 + i] = h->callers[i].connection;
  connections_wait(waiting, CALLERS + 1, h->all->passed, seconds);
}

static Status listen_to_leader(PeerHandshake *all) {
  TRY(connections_step(&all->control, 1, 0));
  return *all->stop ? status_set(STATUS_INTERRUPTED, "the leader has changed its mind") : STATUS_OK;
}

static Status connect_all(Handshakes *h) {
  PeerHandshake *all = h->all;
  double until = clock_now() + all->seconds;
  if (!all->together) TRY(dial_all(h));
  while (missing(all) >= 0) {
    TRY(listen_to_leader(all));
    TRY(take_all_passed(h));
    for (int i = 0; i < CALLERS; i++) {
      if (!is_free(&h->callers[i])) TRY(advance(h, &h->callers[i]));
    }
    if (missing(all) < 0) break;
    if (clock_now() > until) return note_fault(all, missing(all), status_set(STATUS_TIMEOUT, "did not connect within %g s", all->seconds));
    wait_for_events(h, slice_seconds);
  }
  return STATUS_OK;
}

Status peer_handshake_run(PeerHandshake *all) {
  Handshakes h = {.all = all};
  const PeerIdentity own = identity_of(all);
  all->fault = -1;
  wire_pack(&(WireHeader){.kind = WIRE_MEET, .sender = (uint8_t)all->setup->self, .count = all->setup->epoch, .bytes = MEET_BYTES}, h.ours);
  pack_identity(&own, h.ours + WIRE_HEADER);
  for (int i = 0; i < CALLERS; i++) h.callers[i] = nobody;
  Status status = connect_all(&h);
  for (int i = 0; i < CALLERS; i++) drop(&h.callers[i]);
  return status;
}
