/* Beginning, end and loop of the thread, failures, and how others wait for it. What leaves is courier_send.c's, what comes
 * courier_receive.c's; the thread that computes calls courier_request.c and courier_wait.c. */
#include "infer/wire/courier.h"
#include "base/clock.h"
#include "infer/wire/courier_parts.h"
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static const double stop_seconds = 1, nap_seconds = 50e-6;
static const double gap_seconds = 0.05; /* by which a look comes late when this process did not run (Ctrl-Z): nobody's silence */

/* ---- failures ---- */

static void keep_text(char to[COURIER_FAILURE], const char *text) { snprintf(to, COURIER_FAILURE, "%s", text); }

static void fail(Courier *c, Status status) {
  if (c->failed != STATUS_OK) return;
  c->failed = status;
  keep_text(c->failure, status_message());
  pthread_cond_broadcast(&c->changed);
}

void courier_leave(Courier *c, int peer) {
  c->left |= (uint64_t)1 << peer;
  courier_wake(c);
  pthread_cond_broadcast(&c->changed);
}

void courier_fail_peer(Courier *c, int peer, Status status, const char *why) {
  CourierPeer *p = &c->peers[peer];
  if (p->status != STATUS_OK) return;
  p->status = status;
  keep_text(p->why, why);
  if (c->setup.mask) courier_leave(c, peer);
  pthread_cond_broadcast(&c->changed);
}

static Status accuse(Courier *c, int peer) {
  c->accused = peer;
  return status_set(c->peers[peer].status, "node %d: %s", peer, c->peers[peer].why);
}

Status courier_check(Courier *c) {
  if (c->failed != STATUS_OK) return status_set(c->failed, "%s", c->failure);
  uint64_t partners = (c->senders | c->hearers) & ~c->left;
  for (int pass = 0; pass < 2; pass++) {
    for (int d = 0; d < c->setup.nodes; d++) {
      Status status = c->peers[d].status;
      if (courier_is_in(partners, d) && status != STATUS_OK && (pass || status != STATUS_PEER)) return accuse(c, d);
    }
  }
  return STATUS_OK;
}

/* ---- the thread ---- */

void courier_wake(Courier *c) {
  c->work = true;
  if (!c->sleeping) return;
  c->sleeping = false;
  (void)!write(c->wake, &(uint64_t){1}, sizeof(uint64_t));
}

static void sleep_until(Courier *c, double next) {
  struct pollfd polls[CARRIER_POLLS + 1];
  double seconds = fmin(fmax(0, next - clock_now()), 1);
  c->sleeping = true;
  pthread_mutex_unlock(&c->lock);
  int count = c->carrier->polls(c->carrier, polls, CARRIER_POLLS);
  if (count < 0) seconds = fmin(seconds, nap_seconds);
  if (count < 0) count = 0;
  polls[count] = (struct pollfd){.fd = c->wake, .events = POLLIN};
  struct timespec limit = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - floor(seconds)) * 1e9)};
  ppoll(polls, (nfds_t)count + 1, &limit, NULL);
  uint64_t woken;
  if (polls[count].revents) (void)!read(c->wake, &woken, sizeof woken);
  pthread_mutex_lock(&c->lock);
  c->sleeping = false;
}

static void receive(Courier *c) {
  pthread_mutex_unlock(&c->lock);
  double start = clock_now();
  Status status = c->carrier->receive(c->carrier, courier_receive_take, c);
  pthread_mutex_lock(&c->lock);
  if (!c->carrier->more) c->looked = start;
  c->work |= c->carrier->more;
  if (c->look) pthread_cond_broadcast(&c->changed);
  c->look = false;
  if (status != STATUS_OK) fail(c, status);
  c->counts.dropped += c->carrier->dropped;
  c->carrier->dropped = 0;
  c->packet_most = c->carrier->packet_most;
  for (int d = 0; d < c->setup.nodes; d++) {
    const char *why;
    if (d == c->setup.self || c->peers[d].status != STATUS_OK) continue;
    Status peer = c->carrier->peer_status(c->carrier, d, &why);
    if (peer != STATUS_OK) courier_fail_peer(c, d, peer, why);
  }
}

static bool under_way(const Courier *c) {
  bool any = c->queued > 0 || c->carrier->pending(c->carrier);
  for (int d = 0; d < c->setup.nodes; d++) any |= c->peers[d].flying > 0;
  return any;
}

static void carry(Courier *c) {
  double stop = INFINITY;
  pthread_mutex_lock(&c->lock);
  while (c->failed == STATUS_OK && !(c->stopping && (!under_way(c) || clock_now() >= stop))) {
    c->held = c->work = false;
    receive(c);
    double now = clock_now();
    c->work |= courier_launch(c, now) && c->queued; /* what flies makes room for the rest */
    double next = fmin(courier_land(c, now), courier_fly(c, now));
    if (c->watched && !under_way(c)) pthread_cond_broadcast(&c->changed);
    if (c->stopping) stop = fmin(stop, now + stop_seconds);
    bool over = c->stopping && !under_way(c);
    if (!c->work && !over) sleep_until(c, fmin(next, stop));
  }
  pthread_mutex_unlock(&c->lock);
}

/* ---- waiting ---- */

/* Until something changes, or then; lets go of the lock. */
static void wait_for_change(Courier *c, double until) {
  double seconds = fmax(0, until - clock_now());
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  long nanoseconds = at.tv_nsec + (long)((seconds - floor(seconds)) * 1e9);
  at.tv_sec += (time_t)seconds + nanoseconds / 1000000000;
  at.tv_nsec = nanoseconds % 1000000000;
  c->watched = true;
  pthread_cond_timedwait(&c->changed, &c->lock, &at);
  c->watched = false;
}

Status courier_wait_slice(Courier *c, double until, CourierCheck *check, void *context, double *shift) {
  double before = clock_now(), slice = before + COURIER_LOOK;
  wait_for_change(c, fmin(until, slice));
  double late = clock_now() - slice;
  *shift = late > gap_seconds ? late : 0;
  if (!check || clock_now() < c->checked + COURIER_LOOK) return STATUS_OK;
  c->checked = clock_now();
  pthread_mutex_unlock(&c->lock);
  Status status = check(context);
  pthread_mutex_lock(&c->lock);
  return status;
}

/* ---- patience ---- */

static Status time_out(Courier *c, int peer) {
  c->accused = peer;
  if (!c->carrier->reliable && c->peers[peer].heard <= 0)
    return status_set(STATUS_TIMEOUT,
                      "no datagram of node %d has come within %g s: a firewall may let streams alone pass (--transport tcp)", peer,
                      c->setup.timeout);
  return status_set(STATUS_TIMEOUT, "node %d did not answer within %g s; --timeout gives it longer", peer, c->setup.timeout);
}

Status courier_run_out(Courier *c, int peer) {
  if (!c->setup.mask) return time_out(c, peer);
  courier_leave(c, peer);
  return STATUS_OK;
}

/* ---- beginning and end ---- */

static void *run(void *context) {
  Courier *c = context;
  prctl(PR_SET_TIMERSLACK, 1000UL); /* packets are let go at their time, not some 50 us later */
  Status status = c->setup.open(c->setup.open_context, &c->carrier);
  if (status == STATUS_OK) status = courier_memory_allocate(c);
  pthread_mutex_lock(&c->lock);
  if (status == STATUS_OK) c->packet_most = c->carrier->packet_most;
  c->opened = status;
  if (status != STATUS_OK) keep_text(c->failure, status_message());
  c->open = true;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
  if (status == STATUS_OK) carry(c);
  if (c->carrier) c->carrier->free(c->carrier);
  return NULL;
}

static Status wait_until_open(Courier *c) {
  Status status = STATUS_OK;
  double shift;
  pthread_mutex_lock(&c->lock);
  while (!c->open) {
    Status checked = courier_wait_slice(c, INFINITY, status == STATUS_OK ? c->setup.check : NULL, c->setup.check_context, &shift);
    if (status == STATUS_OK) status = checked;
  }
  pthread_mutex_unlock(&c->lock);
  return status;
}

static Status start_thread(Courier *c) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&c->thread, NULL, run, c);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed) return status_set(STATUS_NO_MEMORY, "cannot start a thread: %s", strerror(failed));
  c->threaded = true;
  Status status = wait_until_open(c);
  if (status != STATUS_OK) return status;
  return c->opened == STATUS_OK ? STATUS_OK : status_set(c->opened, "%s", c->failure);
}

static void init_locks(Courier *c) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

Status courier_start(Courier **courier, const CourierSetup *setup) {
  Courier *c = calloc(1, sizeof *c);
  *courier = NULL;
  if (!c) return status_set(STATUS_NO_MEMORY, "no memory for a courier");
  *c = (Courier){.setup = *setup, .reliability = *setup->reliability, .accused = -1, .memory = sizeof *c};
  if (setup->links) c->links = *setup->links;
  init_locks(c);
  c->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  Status status = c->wake < 0 ? status_set(STATUS_IO, "cannot make an event: %s", strerror(errno)) : STATUS_OK;
  if (status == STATUS_OK) status = shaper_init(&c->shaper, setup->links ? &c->links : NULL, setup->self, setup->nodes, clock_now());
  if (status == STATUS_OK) status = start_thread(c);
  if (status == STATUS_OK)
    *courier = c;
  else
    courier_stop(c);
  return status;
}

void courier_stop(Courier *c) {
  if (!c) return;
  pthread_mutex_lock(&c->lock);
  c->stopping = true;
  courier_wake(c);
  pthread_mutex_unlock(&c->lock);
  if (c->threaded) pthread_join(c->thread, NULL);
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->changed);
  courier_memory_release(c);
}

size_t courier_bytes(const Courier *c) { return c ? c->memory : 0; }

size_t courier_packet_most(Courier *c) {
  pthread_mutex_lock(&c->lock);
  size_t most = c->packet_most - PACKET_HEADER;
  pthread_mutex_unlock(&c->lock);
  return most;
}

int courier_ring(const Courier *c) { return c->ring; }
