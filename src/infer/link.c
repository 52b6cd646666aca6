/* Whole messages over non-blocking channels. Shapes, models and meaning are the owner's (network.c, node.c, leader.c). */
#include "infer/link.h"
#include "base/clock.h"
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void link_clear(Link *link) { memset(link, 0, sizeof *link); }

bool link_is_open(const Link *link) { return link->channel != NULL; }

void link_open_channel(Link *link, Channel *channel, int peer, const LinkSink *sink) {
  link_clear(link);
  link->channel = channel;
  link->heard = clock_now();
  link->peer = peer;
  link->sink = *sink;
}

Status link_open(Link *link, int fd, int peer, const LinkSink *sink) {
  Channel *channel;
  link_clear(link);
  TRY(channel_plain(&channel, fd));
  link_open_channel(link, channel, peer, sink);
  return STATUS_OK;
}

void link_close(Link *link) {
  channel_free(link->channel);
  link->channel = NULL;
  link->queued = 0;
}

Status link_pair(int fd[2]) {
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0) return STATUS_OK;
  fd[0] = fd[1] = -1;
  return status_set(STATUS_IO, "cannot make a pair of sockets: %s%s", strerror(errno),
                    errno == EMFILE ? " (raise the limit with ulimit -n, or use fewer nodes)" : "");
}

/* "node 2", "the leader" into name; returns name. */
static const char *peer_name(const Link *link, char name[24]) {
  if (link->peer < 0)
    snprintf(name, 24, "the leader");
  else
    snprintf(name, 24, "node %d", link->peer);
  return name;
}

static Status fail(Link *link, Status code) {
  char name[24];
  link->status = link->nameless ? code : status_wrap(code, "%s", peer_name(link, name));
  link_close(link);
  return link->status;
}

Status link_send(Link *link, const uint8_t *message, size_t size) {
  if (!link_is_open(link)) return fail(link, status_set(STATUS_PEER, "the connection is closed"));
  if (link->queued == LINK_QUEUE)
    return fail(link, status_set(STATUS_PEER, "does not take messages any more (%d are waiting)", LINK_QUEUE));
  int place = (link->first + link->queued++) % LINK_QUEUE;
  link->queue[place].bytes = message;
  link->queue[place].size = size;
  return STATUS_OK;
}

int link_pending(const Link *link) { return link->queued; }

/* Writes until all is out or the channel takes no more. */
static Status write_some(Link *link) {
  while (link->queued) {
    size_t left = link->queue[link->first].size - link->written;
    ssize_t n = channel_write(link->channel, link->queue[link->first].bytes + link->written, left);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return STATUS_OK;
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return fail(link, status_set(STATUS_PEER, "closed the connection"));
    if (n < 0) return fail(link, status_set(STATUS_IO, "cannot send: %s", strerror(errno)));
    link->sent.bytes += (uint64_t)n;
    link->written += (size_t)n;
    if ((size_t)n < left) continue;
    link->sent.messages++;
    link->written = 0;
    link->first = (link->first + 1) % LINK_QUEUE;
    link->queued--;
  }
  return STATUS_OK;
}

void link_ping(Link *link, const uint8_t message[WIRE_HEADER]) {
  if (!link_is_open(link) || link->queued > 0) return;
  link->queue[link->first].bytes = message;
  link->queue[link->first].size = WIRE_HEADER;
  ssize_t n = channel_write(link->channel, message, WIRE_HEADER);
  link->sent.bytes += n > 0 ? (uint64_t)n : 0;
  link->sent.messages += n == WIRE_HEADER;
  link->queued = n < WIRE_HEADER;
  link->written = n > 0 && n < WIRE_HEADER ? (size_t)n : 0;
}

static bool header_complete(const Link *link) { return link->got >= WIRE_HEADER; }
static bool held_back(const Link *link) { return header_complete(link) && !link->payload; }

/* Once the header is complete: checks it and asks the owner for a place. */
static Status place_payload(Link *link) {
  Status status = wire_parse(link->head, link->sink.most_payload, &link->header);
  if (status == STATUS_OK) status = link->sink.place(link->sink.context, link, &link->header, &link->payload);
  return status == STATUS_OK ? STATUS_OK : fail(link, status);
}

static Status deliver(Link *link) {
  uint8_t *payload = link->payload;
  link->payload = NULL;
  link->got = 0;
  link->received.messages++;
  Status status = link->sink.deliver(link->sink.context, link, &link->header, payload);
  return status == STATUS_OK ? STATUS_OK : fail(link, status);
}

/* One read: the rest of the header or of the payload. *more: something came, there may be more. */
static Status read_once(Link *link, bool *more) {
  bool head = !header_complete(link);
  size_t wanted = head ? WIRE_HEADER - link->got : WIRE_HEADER + (size_t)link->header.bytes - link->got;
  uint8_t *to = head ? link->head + link->got : link->payload + (link->got - WIRE_HEADER);
  ssize_t n = channel_read(link->channel, to, wanted);
  *more = n > 0 || (n < 0 && errno == EINTR);
  if (n == 0 || (n < 0 && errno == ECONNRESET)) return fail(link, status_set(STATUS_PEER, "closed the connection"));
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return STATUS_OK;
  if (n < 0) return fail(link, status_set(STATUS_IO, "cannot receive: %s", strerror(errno)));
  link->received.bytes += (uint64_t)n;
  link->heard = clock_now();
  link->got += (size_t)n;
  return STATUS_OK;
}

static bool message_complete(const Link *link) { return link->payload && link->got == WIRE_HEADER + (size_t)link->header.bytes; }

static Status read_some(Link *link) {
  bool more = true;
  while (more && link_is_open(link)) {
    if (held_back(link)) TRY(place_payload(link));
    if (held_back(link)) return STATUS_OK;
    if (!message_complete(link)) TRY(read_once(link, &more));
    if (held_back(link)) TRY(place_payload(link));
    if (message_complete(link)) TRY(deliver(link));
  }
  return STATUS_OK;
}

/* What to wait for. A link that is held back is polled for sending and for a hang-up only. */
static short wanted_events(const Link *link) { return channel_events(link->channel, !held_back(link), link->queued > 0); }

static Status move(Link *link, short events) {
  if (events & POLLNVAL) return fail(link, status_set(STATUS_IO, "its socket is not open"));
  if (link->queued && channel_may_write(link->channel, events)) TRY(write_some(link));
  /* A peer that hung up may have left messages behind: read first. */
  if (channel_may_read(link->channel, events)) TRY(read_some(link));
  if ((events & POLLHUP) && held_back(link)) return fail(link, status_set(STATUS_PEER, "closed the connection"));
  return STATUS_OK;
}

/* A link that was held back, or whose channel holds bytes: what had come by then is taken now, for no event will tell of it. *moved:
 * something was. */
static Status resume(Link *link, bool *moved) {
  uint64_t before = link->received.bytes + link->received.messages;
  TRY(read_some(link));
  *moved |= link->received.bytes + link->received.messages != before;
  return STATUS_OK;
}

Status links_step(Link *const *links, int count, double seconds) {
  struct pollfd waiting[LINKS_MOST];
  bool moved = false;
  if (count > LINKS_MOST) return status_set(STATUS_BAD_VALUE, "%d links, at most %d are possible", count, LINKS_MOST);
  for (int i = 0; i < count; i++) {
    Link *link = links[i];
    if (link && link_is_open(link) && (held_back(link) || channel_pending(link->channel))) TRY(resume(link, &moved));
    bool open = link && link_is_open(link);
    waiting[i] = (struct pollfd){.fd = open ? channel_fd(link->channel) : -1, .events = open ? wanted_events(link) : 0};
  }
  int ready = poll(waiting, (nfds_t)count, moved || seconds <= 0 ? 0 : (int)ceil(fmin(seconds, 3600) * 1000));
  if (ready < 0 && errno != EINTR) return status_set(STATUS_IO, "cannot wait for messages: %s", strerror(errno));
  for (int i = 0; i < count && ready > 0; i++) {
    if (waiting[i].revents && link_is_open(links[i])) TRY(move(links[i], waiting[i].revents));
  }
  return STATUS_OK;
}
