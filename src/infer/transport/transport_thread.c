/* One loop: what has arrived goes in, what is due goes out, then the thread sleeps until there is more of either or the owner calls. `lock`
 * protects everything except the backend, which belongs to the thread; packets are changed by the thread alone, so that it sends without
 * the lock. */
#include "infer/transport/transport_thread.h"
#include "base/clock.h"
#include "base/threads.h"
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static const double stop_seconds = 1, look_seconds = 1e-3 * POLICY_LOOK_MS;
static const double gap_seconds = 0.05; /* by which a look is late if this process did not run (Ctrl-Z), which is not a peer's silence */

struct TransportThread {
  TransportThreadSetup setup;
  Transport *transport;
  Backend *backend;
  pthread_t thread;
  bool threaded; /* there is one to join */
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int wake; /* eventfd */
  bool open, stopping, sleeping;
  bool work;     /* the owner has called since the thread last looked */
  bool held;     /* a packet in the backend waits for room */
  bool watched;  /* the owner waits for `changed` */
  Status failed; /* of opening, or of the backend as a whole */
  char failure[512];
  size_t max_packet;
  double checked; /* when the waiting owner was last asked whether to continue */
};

/* ---- the thread ---- */

static void wake(TransportThread *c) {
  c->work = true;
  if (!c->sleeping) return;
  c->sleeping = false;
  (void)!write(c->wake, &(uint64_t){1}, sizeof(uint64_t));
}

static void fail(TransportThread *c, Status status) {
  if (c->failed != STATUS_OK) return;
  c->failed = status;
  snprintf(c->failure, sizeof c->failure, "%s", status_message());
  pthread_cond_broadcast(&c->changed);
}

static Status take_packet(void *context, int peer, const uint8_t *packet, size_t bytes, double now, bool *taken) {
  TransportThread *c = context;
  pthread_mutex_lock(&c->lock);
  *taken = transport_input(c->transport, peer, packet, bytes, now);
  c->held |= !*taken;
  if (transport_changed(c->transport) && c->watched) pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
  return STATUS_OK;
}

static void receive(TransportThread *c) {
  c->held = c->work = false;
  pthread_mutex_unlock(&c->lock);
  double start = clock_now();
  Status status = c->backend->receive(c->backend, take_packet, c);
  pthread_mutex_lock(&c->lock);
  if (!c->backend->more) transport_caught_up(c->transport, start);
  c->work |= c->backend->more;
  if (status != STATUS_OK) fail(c, status);
  transport_state(c->transport)->dropped += c->backend->dropped;
  c->backend->dropped = 0;
  c->max_packet = c->backend->max_packet;
  for (int d = 0; d < c->setup.transport.nodes; d++) {
    const char *why;
    if (d == c->setup.transport.self) continue;
    Status peer = c->backend->peer_status(c->backend, d, &why);
    if (peer != STATUS_OK) transport_fail_peer(c->transport, d, peer, why);
  }
}

/* Sends what is due. Returns the peers (bits) whose links are full. */
static uint64_t send_due(TransportThread *c) {
  TransportOutput out;
  uint64_t blocked = 0;
  for (double now = clock_now(); transport_output(c->transport, now, blocked, &out); now = clock_now()) {
    bool taken = true;
    pthread_mutex_unlock(&c->lock);
    Status status = c->backend->send(c->backend, out.peer, out.packet, out.bytes, &taken);
    pthread_mutex_lock(&c->lock);
    if (status != STATUS_OK) transport_fail_peer(c->transport, out.peer, status, status_message());
    if (taken)
      transport_sent(c->transport, out.peer);
    else
      blocked |= (uint64_t)1 << out.peer;
  }
  return blocked;
}

static void sleep_until(TransportThread *c, double next) {
  struct pollfd polls[BACKEND_MAX_POLLS + 1];
  double seconds = fmin(fmax(0, next - clock_now()), 1);
  c->sleeping = true;
  pthread_mutex_unlock(&c->lock);
  int count = c->backend->polls(c->backend, polls, BACKEND_MAX_POLLS);
  polls[count] = (struct pollfd){.fd = c->wake, .events = POLLIN};
  struct timespec limit = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - floor(seconds)) * 1e9)};
  ppoll(polls, (nfds_t)count + 1, &limit, NULL);
  uint64_t woken;
  if (polls[count].revents) (void)!read(c->wake, &woken, sizeof woken);
  pthread_mutex_lock(&c->lock);
  c->sleeping = false;
}

static bool is_idle(const TransportThread *c) { return transport_is_idle(c->transport) && !c->backend->pending(c->backend); }

static void drive(TransportThread *c) {
  double stop = INFINITY;
  pthread_mutex_lock(&c->lock);
  while (c->failed == STATUS_OK && !(c->stopping && (is_idle(c) || clock_now() >= stop))) {
    receive(c);
    uint64_t blocked = send_due(c);
    if (transport_changed(c->transport) && c->watched) pthread_cond_broadcast(&c->changed);
    if (c->stopping) stop = fmin(stop, clock_now() + stop_seconds);
    bool over = c->stopping && is_idle(c);
    if (!c->work && !over) sleep_until(c, fmin(transport_deadline(c->transport, blocked), stop));
  }
  pthread_mutex_unlock(&c->lock);
}

static void *run(void *context) {
  TransportThread *c = context;
  prctl(PR_SET_TIMERSLACK, 1000UL); /* packets are sent at their time, not some 50 us later */
  Status status = c->setup.open(c->setup.open_context, &c->backend);
  if (status == STATUS_OK) {
    TransportSetup *setup = &c->setup.transport;
    setup->max_packet = c->max_packet = c->backend->max_packet;
    setup->overhead = c->backend->overhead;
    setup->reliable = c->backend->reliable;
    setup->ordered = c->backend->ordered;
    status = transport_new(&c->transport, setup, clock_now());
  }
  pthread_mutex_lock(&c->lock);
  if (status != STATUS_OK) fail(c, status);
  c->open = true;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
  if (status == STATUS_OK) drive(c);
  if (c->backend) c->backend->free(c->backend);
  return NULL;
}

/* ---- waiting ---- */

/* A look at what has come. Only times of looks are compared with one another: whatever this process does not do between two of them, also
 * while it asks whether to continue, is its own absence. */
typedef struct Look {
  double at;    /* clock_now */
  double shift; /* by how much it is late */
} Look;

static Look first_look(void) { return (Look){.at = clock_now()}; }

/* One slice of a wait, until something changes or until then, without the lock; *look: that before, then this one. */
static Status wait_slice(TransportThread *c, double until, TransportCheck *check, void *context, Look *look) {
  Status status = STATUS_OK;
  c->watched = true;
  threads_wait(&c->changed, &c->lock, fmin(until, clock_now() + look_seconds));
  c->watched = false;
  if (check && clock_now() >= c->checked + look_seconds) {
    c->checked = clock_now();
    pthread_mutex_unlock(&c->lock);
    status = check(context);
    pthread_mutex_lock(&c->lock);
  }
  const double now = clock_now(), late = now - look->at - look_seconds;
  *look = (Look){.at = now, .shift = late > gap_seconds ? late : 0};
  return status;
}

static Status check_all(TransportThread *c) {
  return c->failed == STATUS_OK ? transport_check(c->transport) : status_set(c->failed, "%s", c->failure);
}

Status transport_thread_reserve(TransportThread *c, MessageKey key, TransportCheck *check, void *context) {
  Status status = STATUS_OK;
  int holds_up;
  const double timeout = c->setup.transport.timeout;
  pthread_mutex_lock(&c->lock);
  Look look = first_look();
  double from = look.at;
  for (int pending, before = -1; status == STATUS_OK && (pending = transport_reserve(c->transport, key, &holds_up)) > 0; before = pending) {
    if (pending != before) from = look.at;
    status = check_all(c);
    if (status == STATUS_OK && look.at > from + timeout) {
      if (holds_up >= 0) status = transport_give_up(c->transport, holds_up);
      wake(c);
      from = look.at;
    }
    if (status != STATUS_OK) break;
    status = wait_slice(c, from + timeout, check, context, &look);
    from += look.shift;
  }
  pthread_mutex_unlock(&c->lock);
  return status;
}

Status transport_thread_take(TransportThread *c, MessageKey key, uint64_t peers, TransportArrival *arrivals, TransportCheck *check,
                             void *context) {
  double again;
  pthread_mutex_lock(&c->lock);
  Look look = first_look();
  Expected expected = transport_expect(c->transport, key, peers, look.at);
  Status status = transport_take(c->transport, &expected, look.at, arrivals, &again);
  while (status == STATUS_OK && expected.undecided && (status = check_all(c)) == STATUS_OK) {
    if (transport_wants_driver(c->transport)) wake(c);
    status = wait_slice(c, again, check, context, &look);
    expected.since += look.shift;
    if (status == STATUS_OK) status = transport_take(c->transport, &expected, look.at, arrivals, &again);
  }
  pthread_mutex_unlock(&c->lock);
  return status;
}

/* ---- what is done at once ---- */

Status transport_thread_begin_request(TransportThread *c, uint32_t request, int64_t batch, const PacketRules *rules, uint64_t senders,
                                      uint64_t receivers) {
  pthread_mutex_lock(&c->lock);
  transport_begin_request(c->transport, request, batch, rules, senders, receivers);
  if (c->held) wake(c);
  Status status = check_all(c);
  pthread_mutex_unlock(&c->lock);
  return status;
}

Status transport_thread_submit(TransportThread *c, MessageKey key, const TransportPacket *packets, int count, uint64_t peers) {
  pthread_mutex_lock(&c->lock);
  Status status = check_all(c);
  if (status == STATUS_OK) status = transport_submit(c->transport, key, packets, count, peers, clock_now());
  wake(c);
  pthread_mutex_unlock(&c->lock);
  return status;
}

void transport_thread_done(TransportThread *c, MessageKey key, uint64_t peers) {
  pthread_mutex_lock(&c->lock);
  transport_done(c->transport, key, peers);
  if (c->held) wake(c);
  pthread_mutex_unlock(&c->lock);
}

void transport_thread_gone(TransportThread *c, int peer) {
  pthread_mutex_lock(&c->lock);
  transport_leave(c->transport, peer);
  wake(c);
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
}

TransportState transport_thread_state(TransportThread *c) {
  if (!c) return (TransportState){.fault = -1};
  pthread_mutex_lock(&c->lock);
  TransportState state = *transport_state(c->transport);
  pthread_mutex_unlock(&c->lock);
  state.memory += sizeof *c;
  return state;
}

size_t transport_thread_max_packet(TransportThread *c) {
  pthread_mutex_lock(&c->lock);
  size_t bytes = c->max_packet - PACKET_HEADER;
  pthread_mutex_unlock(&c->lock);
  return bytes;
}

/* ---- beginning and end ---- */

static Status start_thread(TransportThread *c) {
  int failed = threads_spawn(&c->thread, run, c);
  if (failed) return status_set(STATUS_NO_MEMORY, "cannot start a thread: %s", strerror(failed));
  c->threaded = true;
  Status status = STATUS_OK;
  Look look = first_look();
  pthread_mutex_lock(&c->lock);
  while (!c->open) {
    Status checked = wait_slice(c, INFINITY, status == STATUS_OK ? c->setup.check : NULL, c->setup.check_context, &look);
    if (status == STATUS_OK) status = checked;
  }
  if (status == STATUS_OK && c->failed != STATUS_OK) status = status_set(c->failed, "%s", c->failure);
  pthread_mutex_unlock(&c->lock);
  return status;
}

Status transport_thread_start(TransportThread **transport, const TransportThreadSetup *setup) {
  TransportThread *c = calloc(1, sizeof *c);
  *transport = NULL;
  if (!c) return status_no_memory(NULL, "a thread");
  c->setup = *setup;
  pthread_mutex_init(&c->lock, NULL);
  threads_condition_init(&c->changed);
  c->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  Status status = c->wake < 0 ? status_set(STATUS_IO, "cannot make an event: %s", strerror(errno)) : start_thread(c);
  if (status == STATUS_OK)
    *transport = c;
  else
    transport_thread_stop(c);
  return status;
}

void transport_thread_stop(TransportThread *c) {
  if (!c) return;
  pthread_mutex_lock(&c->lock);
  c->stopping = true;
  wake(c);
  pthread_mutex_unlock(&c->lock);
  if (c->threaded) pthread_join(c->thread, NULL);
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->changed);
  if (c->wake >= 0) close(c->wake);
  transport_free(c->transport);
  free(c);
}
