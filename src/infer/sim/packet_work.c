/* See packet_work.h. What goes through the loopback includes the system's share, a receiver's also what it costs to be woken up. */
#include "infer/sim/packet_work.h"
#include "base/clock.h"
#include "base/threads.h"
#include "infer/transport/seal.h"
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SHORT = 128, LONG = 1200, RECORD = 16384, TIMES = 150, RUNS = 3, TIMEOUT_MS = 5000 };

/* One path: what it costs on either side, seconds a packet. */
typedef struct Path {
  int out, in; /* sockets; -1: none */
  size_t bytes;
  DatagramSender sender;
  DatagramReceiver receiver;
  uint8_t packet[RECORD], sent[RECORD + DATAGRAM_AROUND], came[RECORD + DATAGRAM_AROUND];
  double spent; /* by the receiver */
  atomic_int taken;
} Path;

/* ---- sockets */

static Status failed(const char *what) {
  return status_set(STATUS_IO, "the work of sending cannot be measured on 127.0.0.1: %s: %s", what, strerror(errno));
}

/* A socket bound to a port of the loopback that the system chooses. */
static Status bind_any(int type, int *descriptor, struct sockaddr_in *address) {
  socklen_t length = sizeof *address;
  *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  *descriptor = socket(AF_INET, type | SOCK_CLOEXEC, 0);
  if (*descriptor < 0) return failed("socket");
  if (bind(*descriptor, (struct sockaddr *)address, length) != 0) return failed("bind");
  return getsockname(*descriptor, (struct sockaddr *)address, &length) == 0 ? STATUS_OK : failed("getsockname");
}

/* A pair of datagram sockets, or a stream. */
static Status open_sockets(Path *path, bool stream) {
  struct sockaddr_in to, unused;
  int first = -1;
  Status status = bind_any(stream ? SOCK_STREAM : SOCK_DGRAM, &first, &to);
  if (!stream) path->in = first;
  if (status == STATUS_OK && stream && listen(first, 1) != 0) status = failed("listen");
  if (status == STATUS_OK && !stream) status = bind_any(SOCK_DGRAM, &path->out, &unused);
  if (status == STATUS_OK && stream && (path->out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) < 0) status = failed("socket");
  if (status == STATUS_OK && connect(path->out, (struct sockaddr *)&to, sizeof to) != 0) status = failed("connect");
  if (status == STATUS_OK && stream && (path->in = accept(first, NULL, NULL)) < 0) status = failed("accept");
  if (stream && first >= 0) close(first);
  return status;
}

/* ---- one run */

static void *take_all(void *context) {
  Path *path = context;
  size_t size = path->bytes + DATAGRAM_AROUND, opened;
  double begun = clock_spent();
  for (int i = 0; i < TIMES; i++) {
    struct pollfd wait = {.fd = path->in, .events = POLLIN};
    ssize_t n = 1;
    for (size_t got = 0; got < size && n > 0; got += (size_t)n) {
      if (poll(&wait, 1, TIMEOUT_MS) != 1) return NULL;
      n = recv(path->in, path->came + got, size - got, 0);
    }
    if (n <= 0 || !datagram_open(&path->receiver, path->came, size, &opened)) return NULL;
    atomic_store(&path->taken, i + 1);
  }
  path->spent = clock_spent() - begun;
  return NULL;
}

/* Until it has been taken, and the receiver sleeps again: none is lost, however little of a processor the receiver has. */
static bool wait_for(const Path *path, int count) {
  const struct timespec pause = {.tv_nsec = 50000};
  double until = clock_now() + 1e-3 * TIMEOUT_MS;
  do nanosleep(&pause, NULL);
  while (atomic_load(&path->taken) < count && clock_now() < until);
  return atomic_load(&path->taken) >= count;
}

static Status send_all(Path *path, double *spent) {
  size_t size = path->bytes + DATAGRAM_AROUND;
  *spent = 0;
  for (int i = 0; i < TIMES; i++) {
    double begun = clock_spent();
    TRY(datagram_close(&path->sender, path->packet, path->bytes, path->sent));
    if (send(path->out, path->sent, size, MSG_NOSIGNAL) != (ssize_t)size) return failed("send");
    *spent += clock_spent() - begun;
    if (!wait_for(path, i + 1)) break;
  }
  return STATUS_OK;
}

static Status run_once(Path *path, double *out, double *in) {
  pthread_t receiver;
  double spent;
  atomic_store(&path->taken, 0);
  if (threads_spawn(&receiver, take_all, path) != 0) return status_set(STATUS_NO_MEMORY, "no thread to measure packets with");
  Status status = send_all(path, &spent);
  pthread_join(receiver, NULL);
  TRY(status);
  if (atomic_load(&path->taken) < TIMES)
    return status_set(STATUS_IO, "the work of sending cannot be measured: %d of %d packets came over 127.0.0.1", atomic_load(&path->taken),
                      TIMES);
  *out = fmin(*out, spent / TIMES);
  *in = fmin(*in, path->spent / TIMES);
  return STATUS_OK;
}

static Status measure_path(Path *path, bool stream, size_t bytes, double *out, double *in) {
  static const uint8_t key[SEAL_KEY + SEAL_IV] = {1, 2, 3};
  *path = (Path){.out = -1, .in = -1, .bytes = bytes, .sender = {.self = 1}};
  *out = *in = INFINITY;
  Status status = open_sockets(path, stream);
  if (status == STATUS_OK) status = seal_new(&path->sender.seal, key, true);
  if (status == STATUS_OK) status = seal_new(&path->receiver.seal, key, false);
  for (int i = 0; i < RUNS && status == STATUS_OK; i++) status = run_once(path, out, in);
  if (path->out >= 0) close(path->out);
  if (path->in >= 0) close(path->in);
  seal_free(path->sender.seal);
  seal_free(path->receiver.seal);
  return status;
}

/* ---- all */

static PacketCost line_through(double little, double much) {
  double byte = fmax((much - little) / (LONG - SHORT), 0);
  return (PacketCost){.packet = fmax(little - SHORT * byte, 0), .byte = byte};
}

Status packet_work_measure(PacketWork *work) {
  double out[3], in[3];
  Path *path = calloc(1, sizeof *path);
  if (!path) return status_no_memory(NULL, "measuring packets");
  Status status = measure_path(path, false, SHORT, &out[0], &in[0]);
  if (status == STATUS_OK) status = measure_path(path, false, LONG, &out[1], &in[1]);
  if (status == STATUS_OK) status = measure_path(path, true, RECORD, &out[2], &in[2]);
  free(path);
  TRY(status);
  *work = (PacketWork){.out = line_through(out[0], out[1]),
                       .in = line_through(in[0], in[1]),
                       .stream_out = {.byte = out[2] / RECORD},
                       .stream_in = {.byte = in[2] / RECORD}};
  return STATUS_OK;
}

/* ---- into timelines */

/* The event by which the sender sends what is waited for; NULL: none. Devices send and wait in about the same order: the search goes on
 * from where the one before it, of the same receiver, has ended. */
static const Event *find(const Timeline *sender, const Event *wait, int receiver, int *at) {
  for (int i = 0; i < sender->count; i++, ++*at) {
    if (*at >= sender->count) *at = 0;
    const Event *e = &sender->list[*at];
    if (e->kind == EVENT_SEND && e->block == wait->block && e->site == wait->site && e->part == wait->part && (e->peers >> receiver & 1))
      return e;
  }
  return NULL;
}

Status packet_work_add(const PacketWork *work, const Timeline *from, int count, bool datagrams, Timeline *to) {
  const PacketCost *out = datagrams ? &work->out : &work->stream_out, *in = datagrams ? &work->in : &work->stream_in;
  for (int d = 0; d < count; d++) {
    int found[64] = {0}; /* of each sender's events, the last that was found */
    to[d].tokens = from[d].tokens;
    for (int i = 0; i < from[d].count; i++) {
      const Event *event = &from[d].list[i];
      double seconds = (event->packets * out->packet + event->bytes * out->byte) * __builtin_popcountll(event->peers);
      if (event->kind == EVENT_SEND) TRY(timeline_add(&to[d], &(Event){.kind = EVENT_FIXED, .seconds = seconds}));
      TRY(timeline_add(&to[d], event));
      if (event->kind != EVENT_WAIT) continue;
      seconds = 0;
      for (uint64_t left = event->peers; left; left &= left - 1) {
        int peer = __builtin_ctzll(left);
        const Event *sent = peer < count ? find(&from[peer], event, d, &found[peer]) : NULL;
        if (!sent)
          return status_set(STATUS_BAD_VALUE, "device %d waits for block %d, site %d, part %d of device %d, which never sends it", d,
                            event->block, event->site, event->part, peer);
        seconds += sent->packets * in->packet + sent->bytes * in->byte;
      }
      TRY(timeline_add(&to[d], &(Event){.kind = EVENT_FIXED, .seconds = seconds}));
    }
  }
  return STATUS_OK;
}
