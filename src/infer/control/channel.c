/* Plain or TLS: which one it is shows nowhere but here. What TLS is, is tls_psk.c's. */
#include "infer/control/channel.h"
#include "base/clock.h"
#include "infer/control/tls_psk.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct Channel {
  int fd;
  TlsPsk *tls; /* NULL: plain */
};

static Status prepare(Channel **channel, int fd) {
  int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) return status_set(STATUS_IO, "cannot prepare a socket: %s", strerror(errno));
  *channel = calloc(1, sizeof **channel);
  if (!*channel) return status_set(STATUS_NO_MEMORY, "no memory for a channel");
  (*channel)->fd = fd;
  return STATUS_OK;
}

Status channel_plain(Channel **channel, int fd) {
  *channel = NULL;
  Status status = prepare(channel, fd);
  if (status != STATUS_OK) close(fd);
  return status;
}

Status channel_tls(Channel **channel, int fd, ChannelRole role, const KeyFile *key) {
  TRY(channel_plain(channel, fd));
  Status status = tls_psk_new(&(*channel)->tls, fd, role == CHANNEL_ANSWERS, key);
  if (status == STATUS_OK) return STATUS_OK;
  channel_free(*channel);
  *channel = NULL;
  return status;
}

Status channel_step(Channel *channel, bool *done) {
  *done = true;
  return channel->tls ? tls_psk_step(channel->tls, done) : STATUS_OK;
}

Status channel_handshake(Channel *channel, double seconds) {
  double until = clock_now() + seconds;
  bool done;
  for (;;) {
    TRY(channel_step(channel, &done));
    double left = until - clock_now();
    if (done) return STATUS_OK;
    if (left <= 0) return status_set(STATUS_TIMEOUT, "the handshake was not over within %g s", seconds);
    struct pollfd waiting = {.fd = channel->fd, .events = channel_events(channel, true, false)};
    if (poll(&waiting, 1, (int)ceil(fmin(left, 3600) * 1000)) < 0 && errno != EINTR)
      return status_set(STATUS_IO, "cannot wait for a handshake: %s", strerror(errno));
  }
}

ssize_t channel_read(Channel *channel, void *to, size_t room) {
  return channel->tls ? tls_psk_read(channel->tls, to, room) : recv(channel->fd, to, room, 0);
}

ssize_t channel_write(Channel *channel, const void *from, size_t bytes) {
  return channel->tls ? tls_psk_write(channel->tls, from, bytes) : send(channel->fd, from, bytes, MSG_NOSIGNAL);
}

short channel_events(const Channel *channel, bool to_read, bool to_write) {
  if (channel->tls) return tls_psk_events(channel->tls, to_read, to_write);
  return (short)((to_read ? POLLIN : 0) | (to_write ? POLLOUT : 0));
}

/* In TLS either direction can be what the other one waited for: any event is a reason. */
bool channel_may_read(const Channel *channel, short events) {
  return channel->tls ? events != 0 : (events & (POLLIN | POLLHUP | POLLERR)) != 0;
}
bool channel_may_write(const Channel *channel, short events) { return channel->tls ? events != 0 : (events & (POLLOUT | POLLERR)) != 0; }

bool channel_pending(const Channel *channel) { return channel->tls && tls_psk_pending(channel->tls); }
int channel_fd(const Channel *channel) { return channel->fd; }
bool channel_is_secret(const Channel *channel) { return channel->tls != NULL; }

Status channel_export(Channel *channel, const char *label, const uint8_t *context, size_t context_bytes, uint8_t *out, size_t bytes) {
  if (channel->tls) return tls_psk_export(channel->tls, label, context, context_bytes, out, bytes);
  return status_set(STATUS_UNSUPPORTED, "a plain channel has no keys to derive others from");
}

void channel_forget(Channel *channel) {
  tls_psk_forget(channel->tls);
  channel_free(channel);
}

void channel_free(Channel *channel) {
  if (!channel) return;
  tls_psk_free(channel->tls);
  close(channel->fd);
  free(channel);
}
