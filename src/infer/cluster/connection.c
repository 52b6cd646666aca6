/* See connection.h. What TLS is, is tls_psk.c's; shapes, models and meaning of messages are the owner's. */
#include "infer/cluster/connection.h"
#include "base/clock.h"
#include "infer/cluster/tls_psk.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- beginning and end */

void connection_init(Connection *c) { *c = (Connection){.fd = -1, .peer = -1}; }

Status connection_open(Connection *c, int fd) {
  int flags = fcntl(fd, F_GETFL);
  connection_init(c);
  if (flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) >= 0) {
    c->fd = fd;
    return STATUS_OK;
  }
  Status status = status_set(STATUS_IO, "cannot prepare a socket: %s", strerror(errno));
  close(fd);
  return status;
}

Status connection_dial(Connection *c, const Address *address, HelloRole role, const uint8_t session[HELLO_SESSION], const KeyFile *key) {
  int fd;
  connection_init(c);
  TRY(address_call(address, &fd));
  *c = (Connection){.fd = fd, .calling = true, .address = *address, .role = role, .key = key, .peer = -1};
  memcpy(c->session, session, HELLO_SESSION);
  return STATUS_OK;
}

void connection_close(Connection *c) {
  tls_psk_free(c->tls);
  if (c->fd >= 0) close(c->fd);
  c->tls = NULL;
  c->fd = -1;
  c->calling = false;
  c->queued = 0;
}

Status connection_plain(Connection **c, int fd) {
  *c = malloc(sizeof **c);
  if (!*c) {
    close(fd);
    return status_set(STATUS_NO_MEMORY, "no memory for a connection");
  }
  Status status = connection_open(*c, fd);
  if (status == STATUS_OK) return STATUS_OK;
  free(*c);
  *c = NULL;
  return status;
}

Status connection_tls(Connection **c, int fd, ConnectionRole role, const KeyFile *key) {
  TRY(connection_plain(c, fd));
  Status status = tls_psk_new(&(*c)->tls, fd, role == CONNECTION_ANSWERS, key);
  if (status == STATUS_OK) return STATUS_OK;
  connection_free(*c);
  *c = NULL;
  return status;
}

Status connection_call(Connection **c, const Address *address, HelloRole role, const uint8_t session[HELLO_SESSION], const KeyFile *key) {
  if (!(*c = malloc(sizeof **c))) return status_set(STATUS_NO_MEMORY, "no memory for a connection");
  Status status = connection_dial(*c, address, role, session, key);
  if (status == STATUS_OK) return STATUS_OK;
  free(*c);
  *c = NULL;
  return status;
}

void connection_free(Connection *c) {
  if (!c) return;
  connection_close(c);
  free(c);
}

void connection_forget(Connection *c) {
  tls_psk_forget(c->tls);
  connection_free(c);
}

Status connection_pair(int fd[2]) {
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0) return STATUS_OK;
  fd[0] = fd[1] = -1;
  return status_set(STATUS_IO, "cannot make a pair of sockets: %s%s", strerror(errno),
                    errno == EMFILE ? " (raise the limit with ulimit -n, or use fewer nodes)" : "");
}

bool connection_is_open(const Connection *c) { return c->fd >= 0; }
bool connection_is_calling(const Connection *c) { return c->calling; }

/* Once somebody has taken the call: HELLO, and TLS behind it. */
static Status take_up(Connection *c) {
  bool done;
  TRY(address_called(&c->address, c->fd, &done));
  if (!done) return STATUS_OK;
  c->calling = false;
  TRY(hello_send(c->fd, c->role, c->session, c->key));
  return tls_psk_new(&c->tls, c->fd, false, c->key);
}

Status connection_step(Connection *c, bool *done) {
  *done = false;
  if (c->calling) TRY(take_up(c));
  if (c->calling) return STATUS_OK;
  if (!c->tls) {
    *done = true;
    return STATUS_OK;
  }
  TRY(hello_check_answer(c->fd));
  return tls_psk_step(c->tls, done);
}

/* ---- bytes */

ssize_t connection_read(Connection *c, void *to, size_t room) { return c->tls ? tls_psk_read(c->tls, to, room) : recv(c->fd, to, room, 0); }

ssize_t connection_write(Connection *c, const void *from, size_t bytes) {
  return c->tls ? tls_psk_write(c->tls, from, bytes) : send(c->fd, from, bytes, MSG_NOSIGNAL);
}

short connection_events(const Connection *c, bool to_read, bool to_write) {
  if (c->calling) return POLLOUT;
  if (c->tls) return tls_psk_events(c->tls, to_read, to_write);
  return (short)((to_read ? POLLIN : 0) | (to_write ? POLLOUT : 0));
}

/* In TLS either direction can be what the other one waited for: any event is a reason. */
static bool may_read(const Connection *c, short events) { return c->tls ? events != 0 : (events & (POLLIN | POLLHUP | POLLERR)) != 0; }
static bool may_write(const Connection *c, short events) { return c->tls ? events != 0 : (events & (POLLOUT | POLLERR)) != 0; }

/* Bytes wait inside, of which no poll will tell. */
static bool has_bytes(const Connection *c) { return c->tls && tls_psk_pending(c->tls); }

int connection_fd(const Connection *c) { return c->fd; }
bool connection_is_secret(const Connection *c) { return c->tls != NULL; }

Status connection_export(Connection *c, const char *label, const uint8_t *context, size_t context_bytes, uint8_t *out, size_t bytes) {
  if (c->tls) return tls_psk_export(c->tls, label, context, context_bytes, out, bytes);
  return status_set(STATUS_UNSUPPORTED, "a plain connection has no keys to derive others from");
}

/* ---- messages */

void connection_receive(Connection *c, int peer, const ConnectionSink *sink) {
  c->peer = peer;
  c->sink = *sink;
  c->heard = clock_now();
}

/* "node 2", "the leader" into name; returns name. */
static const char *peer_name(const Connection *c, char name[24]) {
  if (c->peer < 0)
    snprintf(name, 24, "the leader");
  else
    snprintf(name, 24, "node %d", c->peer);
  return name;
}

static Status fail(Connection *c, Status code) {
  char name[24];
  c->status = c->nameless ? code : status_wrap(code, "%s", peer_name(c, name));
  connection_close(c);
  return c->status;
}

Status connection_send(Connection *c, const uint8_t *message, size_t size) {
  if (!connection_is_open(c)) return fail(c, status_set(STATUS_PEER, "the connection is closed"));
  if (c->queued == CONNECTION_QUEUE)
    return fail(c, status_set(STATUS_PEER, "does not take messages any more (%d are waiting)", CONNECTION_QUEUE));
  if (c->limited) address_limit_silence(c->fd, false);
  c->limited = false;
  int place = (c->first + c->queued++) % CONNECTION_QUEUE;
  c->queue[place].bytes = message;
  c->queue[place].size = size;
  return STATUS_OK;
}

int connection_queued(const Connection *c) { return c->queued; }

/* Writes until all is out or it takes no more. */
static Status write_some(Connection *c) {
  while (c->queued) {
    size_t left = c->queue[c->first].size - c->written;
    ssize_t n = connection_write(c, c->queue[c->first].bytes + c->written, left);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return STATUS_OK;
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return fail(c, status_set(STATUS_PEER, "closed the connection"));
    if (n < 0) return fail(c, status_set(STATUS_IO, "cannot send: %s", strerror(errno)));
    c->sent.bytes += (uint64_t)n;
    c->written += (size_t)n;
    if ((size_t)n < left) continue;
    c->sent.messages++;
    c->written = 0;
    c->first = (c->first + 1) % CONNECTION_QUEUE;
    c->queued--;
  }
  return STATUS_OK;
}

void connection_ping(Connection *c, const uint8_t message[WIRE_HEADER]) {
  if (!connection_is_open(c) || c->queued > 0 || address_has_unanswered(c->fd)) return;
  if (!c->limited) address_limit_silence(c->fd, true);
  c->limited = true;
  c->queue[c->first].bytes = message;
  c->queue[c->first].size = WIRE_HEADER;
  ssize_t n = connection_write(c, message, WIRE_HEADER);
  c->queued = n < WIRE_HEADER;
  c->written = n > 0 && n < WIRE_HEADER ? (size_t)n : 0;
}

static bool header_complete(const Connection *c) { return c->got >= WIRE_HEADER; }
static bool held_back(const Connection *c) { return header_complete(c) && !c->payload; }

/* Once the header is complete: checks it and asks the owner for a place. */
static Status place_payload(Connection *c) {
  Status status = wire_parse(c->head, c->sink.max_payload, &c->header);
  if (status == STATUS_OK) status = wire_check_sender(&c->header, c->sink.from);
  if (status == STATUS_OK) status = c->sink.place(c->sink.context, c, &c->header, &c->payload);
  return status == STATUS_OK ? STATUS_OK : fail(c, status);
}

static Status deliver(Connection *c) {
  uint8_t *payload = c->payload;
  c->payload = NULL;
  c->got = 0;
  c->received.messages++;
  Status status = c->sink.deliver(c->sink.context, c, &c->header, payload);
  return status == STATUS_OK ? STATUS_OK : fail(c, status);
}

/* One read: the rest of the header or of the payload. *more: something came, there may be more. */
static Status read_once(Connection *c, bool *more) {
  bool head = !header_complete(c);
  size_t wanted = head ? WIRE_HEADER - c->got : WIRE_HEADER + (size_t)c->header.bytes - c->got;
  uint8_t *to = head ? c->head + c->got : c->payload + (c->got - WIRE_HEADER);
  ssize_t n = connection_read(c, to, wanted);
  *more = n > 0 || (n < 0 && errno == EINTR);
  if (n == 0 || (n < 0 && errno == ECONNRESET)) return fail(c, status_set(STATUS_PEER, "closed the connection"));
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return STATUS_OK;
  if (n < 0) return fail(c, status_set(STATUS_IO, "cannot receive: %s", strerror(errno)));
  c->received.bytes += (uint64_t)n;
  c->heard = clock_now();
  c->got += (size_t)n;
  return STATUS_OK;
}

static bool message_complete(const Connection *c) { return c->payload && c->got == WIRE_HEADER + (size_t)c->header.bytes; }

static Status read_some(Connection *c) {
  bool more = true;
  while (more && connection_is_open(c)) {
    if (held_back(c)) TRY(place_payload(c));
    if (held_back(c)) return STATUS_OK;
    if (!message_complete(c)) TRY(read_once(c, &more));
    if (held_back(c)) TRY(place_payload(c));
    if (message_complete(c)) TRY(deliver(c));
  }
  return STATUS_OK;
}

/* What to wait for. One that is held back is polled for sending and for a hang-up only. */
static short wanted_events(const Connection *c) { return connection_events(c, !held_back(c), c->queued > 0); }

static Status move(Connection *c, short events) {
  if (events & POLLNVAL) return fail(c, status_set(STATUS_IO, "its socket is not open"));
  if (c->queued && may_write(c, events)) TRY(write_some(c));
  /* A peer that hung up may have left messages behind: read first. */
  if (may_read(c, events)) TRY(read_some(c));
  if ((events & POLLHUP) && held_back(c)) return fail(c, status_set(STATUS_PEER, "closed the connection"));
  return STATUS_OK;
}

/* One that was held back, or holds bytes of its own: what had come by then is taken now, for no event will tell of it. *moved:
 * something was. */
static Status resume(Connection *c, bool *moved) {
  uint64_t before = c->received.bytes + c->received.messages;
  TRY(read_some(c));
  *moved |= c->received.bytes + c->received.messages != before;
  return STATUS_OK;
}

/* One that has not begun with messages waits for what its beginning waits for. */
static short awaited_events(const Connection *c) { return c->sink.place ? wanted_events(c) : connection_events(c, true, false); }

/* The only place where a thread waits for connections. waiting [count + 1] tells what happened; *ready: to how many. */
static Status wait_for_events(Connection *const *connections, int count, int also, double seconds, struct pollfd *waiting, int *ready) {
  if (count > MAX_CONNECTIONS) return status_set(STATUS_BAD_VALUE, "%d connections, at most %d are possible", count, MAX_CONNECTIONS);
  for (int i = 0; i < count; i++) {
    const Connection *c = connections[i];
    bool open = c && connection_is_open(c);
    waiting[i] = (struct pollfd){.fd = open ? c->fd : -1, .events = open ? awaited_events(c) : 0};
  }
  waiting[count] = (struct pollfd){.fd = also, .events = POLLIN};
  *ready = poll(waiting, (nfds_t)count + 1, seconds <= 0 ? 0 : (int)ceil(fmin(seconds, 3600) * 1000));
  if (*ready < 0 && errno != EINTR) return status_set(STATUS_IO, "cannot wait for messages: %s", strerror(errno));
  return STATUS_OK;
}

Status connections_wait(Connection *const *connections, int count, int also, double seconds) {
  struct pollfd waiting[MAX_CONNECTIONS + 1];
  int ready;
  return wait_for_events(connections, count, also, seconds, waiting, &ready);
}

Status connections_step(Connection *const *connections, int count, double seconds) {
  struct pollfd waiting[MAX_CONNECTIONS + 1];
  bool moved = false;
  int ready;
  for (int i = 0; i < count; i++) {
    Connection *c = connections[i];
    if (c && connection_is_open(c) && (held_back(c) || has_bytes(c))) TRY(resume(c, &moved));
  }
  TRY(wait_for_events(connections, count, -1, moved ? 0 : seconds, waiting, &ready));
  for (int i = 0; i < count && ready > 0; i++) {
    if (waiting[i].revents && connection_is_open(connections[i])) TRY(move(connections[i], waiting[i].revents));
  }
  return STATUS_OK;
}
