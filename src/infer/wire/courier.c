/* Beginning, end and loop of the thread, and what the thread that computes may call. What leaves is courier_send.c's, what comes
 * courier_receive.c's, what to do about packets that do not come reliability.c's. */
#include "infer/wire/courier.h"
#include "base/clock.h"
#include "infer/wire/courier_parts.h"
#include "infer/wire/interleave.h"
#include "infer/wire/parity.h"
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

static const double check_seconds = 1e-3 * RELIABILITY_LOOK_MS, stop_seconds = 1, flood_seconds = 1, nap_seconds = 50e-6;
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

/* Of a peer that takes part in the request, or of all. One that broke the rules first. */
static Status check_failure(Courier *c) {
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

/* One slice of a wait. *shift: by how much this process was late by itself. */
static Status wait_slice(Courier *c, double until, CourierCheck *check, void *context, double *shift) {
  double before = clock_now(), slice = before + check_seconds;
  wait_for_change(c, fmin(until, slice));
  double late = clock_now() - slice;
  *shift = late > gap_seconds ? late : 0;
  if (!check || clock_now() < c->checked + check_seconds) return STATUS_OK;
  c->checked = clock_now();
  pthread_mutex_unlock(&c->lock);
  Status status = check(context);
  pthread_mutex_lock(&c->lock);
  return status;
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
    Status checked = wait_slice(c, INFINITY, status == STATUS_OK ? c->setup.check : NULL, c->setup.check_context, &shift);
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
  size_t parity = c->reliability.mode == RELIABILITY_FEC ? PARITY_HEAD : 0, most = c->packet_most - PACKET_HEADER - parity;
  pthread_mutex_unlock(&c->lock);
  return most;
}

int courier_ring(const Courier *c) { return c->ring; }

/* ---- patience ---- */

static Status time_out(Courier *c, int peer) {
  c->accused = peer;
  if (!c->carrier->reliable && c->peers[peer].heard <= 0)
    return status_set(STATUS_TIMEOUT,
                      "no datagram of node %d has come within %g s: a firewall may let streams alone pass (--transport tcp)", peer,
                      c->setup.timeout);
  return status_set(STATUS_TIMEOUT, "node %d did not answer within %g s; --timeout gives it longer", peer, c->setup.timeout);
}

/* Patience with a peer is at its end. */
static Status run_out(Courier *c, int peer) {
  if (!c->setup.mask) return time_out(c, peer);
  courier_leave(c, peer);
  return STATUS_OK;
}

/* ---- requests ---- */

/* Whether that peer's groups of this part come in the request. */
static bool hears(const Courier *c, int peer, int part) {
  const PacketRules *rules = c->rules;
  if (!courier_is_in(c->senders, peer) || part >= rules->parts) return false;
  return rules->group_rows || packet_rows(rules, peer, c->batch, 0, 0, part) > 0;
}

Status courier_begin_request(Courier *c, uint32_t request, int64_t batch, const PacketRules *rules, uint64_t senders, uint64_t hearers) {
  pthread_mutex_lock(&c->lock);
  c->request = request;
  c->batch = batch;
  c->rules = rules;
  c->senders = senders;
  c->hearers = hearers;
  c->block_from = 0;
  for (int d = 0; d < c->setup.nodes; d++) {
    for (int lane = 0; lane < c->lanes && d != c->setup.self; lane++) {
      uint64_t first = courier_sequence(c, request + !hears(c, d, lane % c->setup.parts), 0);
      if (c->peers[d].taken[lane] < first) c->peers[d].taken[lane] = first;
      if (c->peers[d].next[lane] < first) c->peers[d].next[lane] = first;
    }
  }
  courier_receive_early(c);
  if (c->held) courier_wake(c);
  Status status = check_failure(c);
  pthread_mutex_unlock(&c->lock);
  return status;
}

/* One of these peers for whom packets have not left yet; -1: none. */
static int waits_for(const Courier *c, uint64_t peers) {
  for (int d = 0; d < c->setup.nodes; d++) {
    if (courier_is_in(peers, d) && c->peers[d].flying) return d;
  }
  return -1;
}

/* Whom a group waits for: its receivers, or who keeps the queue's head from leaving. */
static int holds_up(const Courier *c, const CourierGroup *g) {
  int peer = waits_for(c, g->peers);
  return peer >= 0 ? peer : waits_for(c, UINT64_MAX);
}

Status courier_reserve(Courier *c, GroupKey key, CourierCheck *check, void *context) {
  uint64_t sequence = courier_sequence(c, key.request, key.block);
  CourierGroup *g = &c->groups[courier_place(c, sequence, courier_lane(c, key.site, key.part))];
  Status status = STATUS_OK;
  pthread_mutex_lock(&c->lock);
  double from = clock_now(), shift;
  for (int waiting = g->waiting; status == STATUS_OK && g->waiting;) {
    status = check_failure(c);
    if (status == STATUS_OK && clock_now() > from + c->setup.timeout) {
      if (holds_up(c, g) >= 0) status = run_out(c, holds_up(c, g));
      from = clock_now();
    }
    if (status == STATUS_OK) status = wait_slice(c, from + c->setup.timeout, check, context, &shift);
    from += shift;
    if (g->waiting != waiting) from = clock_now();
    waiting = g->waiting;
  }
  if (status == STATUS_OK) {
    g->used = false; /* its memory is the owner's from here on */
    g->sequence = sequence;
  }
  pthread_mutex_unlock(&c->lock);
  return status;
}

/* The span of a block: from its first send to its last arrival. */
static void begin_span(Courier *c, uint64_t sequence) {
  if (sequence == c->span_sequence && c->span_from > 0) return;
  c->span_sequence = sequence;
  c->span_from = c->span_to = clock_now();
}

static void extend_span(Courier *c, uint64_t sequence, double last) {
  if (sequence != c->span_sequence || c->span_from <= 0 || last <= c->span_to) return;
  c->counts.span += last - c->span_to;
  c->span_to = last;
}

static void count_group(Courier *c, const CourierGroup *g) {
  uint64_t peers = (uint64_t)__builtin_popcountll(g->peers & ~c->left), times = courier_is_for_all(c, g) ? 1 : peers, payload = 0;
  for (int i = 0; i < g->count; i++) payload += g->packets[i].bytes;
  c->counts.payload_sent += peers * payload;
  c->counts.packets_sent += times * (uint64_t)g->count;
  c->counts.bytes_sent += times * (payload + (uint64_t)g->count * (PACKET_HEADER + c->carrier->overhead));
}

static void fill_group(Courier *c, CourierGroup *g, GroupKey key, const CourierPacket *packets, int count, uint64_t peers) {
  g->used = true;
  g->key = key;
  g->sequence = courier_sequence(c, key.request, key.block);
  g->packets = packets;
  g->count = count;
  g->peers = peers;
  g->waiting = 1; /* the queue's */
  memset(g->left, 0, (size_t)c->setup.nodes * sizeof *g->left);
  memset(g->resend, 0, (size_t)c->setup.nodes * (size_t)c->words * sizeof *g->resend);
}

static Status check_packets(const Courier *c, const CourierPacket *packets, int count) {
  for (int i = 0; i < count; i++) {
    if (packets[i].bytes + PACKET_HEADER > c->buffer_bytes)
      return status_set(STATUS_BAD_VALUE, "a packet of %zu bytes; the carrier takes %zu", packets[i].bytes,
                        c->buffer_bytes - PACKET_HEADER);
  }
  return count <= PACKETS_MOST ? STATUS_OK : status_set(STATUS_BAD_VALUE, "a group of %d packets", count);
}

Status courier_send(Courier *c, GroupKey key, const CourierPacket *packets, int count, uint64_t peers) {
  uint64_t sequence = courier_sequence(c, key.request, key.block);
  int place = courier_place(c, sequence, courier_lane(c, key.site, key.part));
  CourierGroup *g = &c->groups[place];
  pthread_mutex_lock(&c->lock);
  Status status = check_failure(c);
  if (status == STATUS_OK && g->waiting) status = status_set(STATUS_BAD_VALUE, "a group was sent before its memory was free");
  if (status == STATUS_OK) status = check_packets(c, packets, count);
  if (status == STATUS_OK && peers) {
    fill_group(c, g, key, packets, count, peers);
    count_group(c, g);
    begin_span(c, sequence);
    courier_queue(c, (CourierEntry){.kind = COURIER_GROUP, .ready = clock_now(), .peers = peers, .group = place});
    courier_wake(c);
  }
  pthread_mutex_unlock(&c->lock);
  return status;
}

/* ---- receiving ---- */

static void ask(Courier *c, int peer, GroupKey key, CourierSlot *slot, double now) {
  CourierEntry entry = {.kind = COURIER_QUERY, .ready = now, .peers = (uint64_t)1 << peer, .key = key};
  slot->asking = courier_queue(c, entry);
  courier_wake(c);
}

static CourierSlot *claim_slot(Courier *c, int peer, GroupKey key) {
  CourierSlot *slot = courier_receive_find(c, peer, key);
  if (slot) return slot;
  uint64_t sequence = courier_sequence(c, key.request, key.block);
  return courier_receive_open(c, peer, sequence, courier_lane(c, key.site, key.part));
}

/* Time has passed, but perhaps for this process alone: what came meanwhile is to be taken before anything is given up. A peer that sends
 * faster than it can be taken puts that off for a second. */
static bool has_looked(Courier *c, CourierSlot *slot, double now) {
  if (slot->doubted <= 0) slot->doubted = now;
  if (c->looked >= slot->doubted || now > slot->doubted + flood_seconds) return true;
  c->look = true;
  courier_wake(c);
  return false;
}

static GroupVerdict judge(Courier *c, int peer, GroupKey key, double since, double *again) {
  CourierPeer *from = &c->peers[peer];
  CourierSlot *slot = claim_slot(c, peer, key);
  GroupState state = {.packets = slot->count,
                      .arrived = slot->arrived,
                      .missing_sent = courier_missing_said(c, slot),
                      .sender = slot->sender,
                      .waiting = since,
                      .asking = slot->asking,
                      .asked = slot->asked,
                      .told = slot->told,
                      .unanswered = slot->unanswered,
                      .heard = slot->last,
                      .gap = from->gap,
                      .round_trip = from->round_trip,
                      .jitter = from->jitter,
                      .block_time = c->block_time};
  double now = clock_now();
  bool asks;
  GroupVerdict verdict = reliability_judge(&c->reliability, &state, now, &asks, again);
  if (courier_is_in(c->left, peer)) return verdict == GROUP_COMPLETE ? GROUP_COMPLETE : GROUP_LATE;
  if (verdict == GROUP_WAIT && asks) ask(c, peer, key, slot, now);
  if (verdict == GROUP_WAIT) slot->doubted = 0;
  if (verdict == GROUP_WAIT || verdict == GROUP_COMPLETE || has_looked(c, slot, now)) return verdict;
  *again = now + check_seconds;
  return GROUP_WAIT;
}

/* What is lost, or late at the deadline that was asked for, is done without. Patience that is at its end is a failure. */
static bool may_mask(const Courier *c, int peer, GroupVerdict verdict) {
  return courier_is_in(c->left, peer) || verdict == GROUP_LOST || verdict == GROUP_LATE;
}

/* Of packets that are not there. */
static uint64_t missing_tokens(const Courier *c, int peer, GroupKey key, const CourierSlot *slot) {
  int64_t all = packet_rows(c->rules, peer, c->batch, key.block, key.site, key.part), missing = slot->count ? 0 : all;
  for (int i = 0; i < slot->count; i++) missing += courier_has(slot->there, i) ? 0 : interleave_count(all, slot->count, i);
  return (uint64_t)missing;
}

static void count_missing(Courier *c, int peer, GroupKey key, const CourierSlot *slot, GroupVerdict verdict) {
  uint64_t packets = slot->count ? (uint64_t)(slot->count - slot->arrived) : 1, tokens = missing_tokens(c, peer, key, slot);
  if (verdict == GROUP_LOST) {
    c->counts.lost += packets;
    c->counts.lost_tokens += tokens;
  } else if (verdict != GROUP_COMPLETE) {
    c->counts.late += packets;
    c->counts.late_tokens += tokens;
  }
}

static Status decide(Courier *c, int peer, GroupKey key, GroupVerdict verdict, CourierArrival *arrival) {
  CourierSlot *slot = claim_slot(c, peer, key);
  if (verdict != GROUP_COMPLETE && !may_mask(c, peer, verdict)) TRY(run_out(c, peer));
  count_missing(c, peer, key, slot, verdict);
  slot->decided = true;
  *arrival = (CourierArrival){.packets = c->peers[peer].arrival,
                              .count = slot->count,
                              .missing = slot->count - slot->arrived,
                              .late = verdict == GROUP_LATE || verdict == GROUP_PEER_GONE};
  extend_span(c, slot->sequence, slot->last);
  return STATUS_OK;
}

static void list_packets(const Courier *c, int peer, GroupKey key) {
  const CourierSlot *slot = courier_receive_find(c, peer, key);
  int64_t tokens = packet_rows(c->rules, peer, c->batch, key.block, key.site, key.part);
  for (int i = 0; i < slot->count; i++) {
    bool there = courier_has(slot->there, i);
    c->peers[peer].arrival[i] = (CourierPacket){
        .header = {.request = key.request,
                   .block = key.block,
                   .site = key.site,
                   .part = key.part,
                   .flags = there ? slot->flags[i] : 0,
                   .type = c->rules->raw ? PACKET_RAW : PACKET_CODES,
                   .index = (uint16_t)i,
                   .count = (uint16_t)slot->count},
        .payload = there ? slot->bytes + packet_offset(c->rules, tokens, slot->count, i) : NULL,
        .bytes = there ? slot->length[i] : 0,
    };
  }
}

/* What lies between two waits: how long this device computes a block, and others may. Waiting does not count, or losses would make
 * everybody more and more patient. */
static void measure_block(Courier *c, GroupKey key, double now) {
  if (key.site || key.part || c->block_from <= 0) return;
  c->block_time = reliability_smooth(c->block_time, now - c->block_from);
}

Status courier_wait(Courier *c, GroupKey key, uint64_t peers, CourierArrival *arrivals, CourierCheck *check, void *context) {
  uint64_t undecided = peers;
  Status status = STATUS_OK;
  pthread_mutex_lock(&c->lock);
  double since = clock_now(), shift;
  measure_block(c, key, since);
  while (status == STATUS_OK && undecided) {
    double again = INFINITY, next;
    for (int d = 0; d < c->setup.nodes && status == STATUS_OK; d++) {
      if (!courier_is_in(undecided, d)) continue;
      GroupVerdict verdict = judge(c, d, key, since, &next);
      again = fmin(again, next);
      if (verdict == GROUP_WAIT) continue;
      status = decide(c, d, key, verdict, &arrivals[d]);
      undecided &= ~((uint64_t)1 << d);
    }
    if (status == STATUS_OK && undecided) status = check_failure(c);
    if (status == STATUS_OK && undecided)
      status = wait_slice(c, again, check, context, &shift);
    else
      shift = 0;
    since += shift;
  }
  c->block_from = clock_now();
  for (int d = 0; d < c->setup.nodes && status == STATUS_OK; d++) {
    if (courier_is_in(peers, d)) list_packets(c, d, key);
  }
  pthread_mutex_unlock(&c->lock);
  return status;
}

void courier_done(Courier *c, GroupKey key, uint64_t peers) {
  uint64_t sequence = courier_sequence(c, key.request, key.block);
  int lane = courier_lane(c, key.site, key.part);
  pthread_mutex_lock(&c->lock);
  for (int d = 0; d < c->setup.nodes; d++) {
    if (courier_is_in(peers, d) && c->peers[d].taken[lane] == sequence) c->peers[d].taken[lane] = sequence + 1;
  }
  if (c->held) courier_wake(c);
  pthread_mutex_unlock(&c->lock);
}

/* ---- the rest ---- */

Status courier_flush(Courier *c) {
  Status status = STATUS_OK;
  pthread_mutex_lock(&c->lock);
  double from = clock_now(), shift;
  while (status == STATUS_OK && (c->queued || waits_for(c, UINT64_MAX) >= 0)) {
    status = check_failure(c);
    if (status == STATUS_OK && clock_now() > from + c->setup.timeout) status = status_set(STATUS_TIMEOUT, "packets do not leave");
    if (status == STATUS_OK) status = wait_slice(c, from + c->setup.timeout, NULL, NULL, &shift);
    from += shift;
  }
  pthread_mutex_unlock(&c->lock);
  return status;
}

void courier_gone(Courier *c, int peer) {
  pthread_mutex_lock(&c->lock);
  courier_leave(c, peer);
  pthread_mutex_unlock(&c->lock);
}

int courier_accused(const Courier *c) { return c->accused; }

int courier_given_up(Courier *c) {
  pthread_mutex_lock(&c->lock);
  int peer = c->left ? __builtin_ctzll(c->left) : -1;
  pthread_mutex_unlock(&c->lock);
  return peer;
}

CourierCounts courier_counts(Courier *c) {
  pthread_mutex_lock(&c->lock);
  CourierCounts counts = c->counts;
  pthread_mutex_unlock(&c->lock);
  return counts;
}
