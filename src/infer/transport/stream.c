/* Packets over streams: u32 length, packet. A stream that breaks (its end, an error, a length that cannot be) is closed for good and keeps
 * the reason; the others go on. Both buffers of a peer hold one whole packet, so that a packet that is half out can be changed by its
 * owner. */
#include "base/clock.h"
#include "infer/transport/backend.h"
#include "infer/transport/packet.h"
#include "infer/wire.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX = 4, WHY = 160, AT_ONCE = 64 /* packets of a peer, before the others have their turn */ };

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

static bool is_wait(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

/* ---- sending ---- */

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

/* ---- receiving ---- */

static Status receive_from(Stream *stream, int from, BackendTake *take, void *context) {
  StreamPeer *peer = &stream->peers[from];
  const size_t max = stream->backend.max_packet;
  for (int packets = 0; peer->channel && packets < AT_ONCE;) {
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

/* ---- the rest ---- */

/* A peer that is held back is polled for a hang-up only (which poll reports always), and not once more when that has been seen. */
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

Status backend_stream(Backend **backend, int nodes, Connection *const *channels, size_t max_packet) {
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
