/* What the thread that computes says of a request, and what it gives to be sent. */
#include "base/clock.h"
#include "infer/wire/courier_parts.h"
#include <string.h>

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
  Status status = courier_check(c);
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
    status = courier_check(c);
    if (status == STATUS_OK && clock_now() > from + c->setup.timeout) {
      if (holds_up(c, g) >= 0) status = courier_run_out(c, holds_up(c, g));
      from = clock_now();
    }
    if (status == STATUS_OK) status = courier_wait_slice(c, from + c->setup.timeout, check, context, &shift);
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

static void count_group(Courier *c, const CourierGroup *g) {
  uint64_t peers = (uint64_t)__builtin_popcountll(g->peers & ~c->left), payload = 0;
  for (int i = 0; i < g->count; i++) payload += g->packets[i].bytes;
  c->counts.payload_sent += peers * payload;
  c->counts.packets_sent += peers * (uint64_t)g->count;
  c->counts.bytes_sent += peers * (payload + (uint64_t)g->count * (PACKET_HEADER + c->carrier->overhead));
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
  Status status = courier_check(c);
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

/* ---- the rest ---- */

Status courier_flush(Courier *c) {
  Status status = STATUS_OK;
  pthread_mutex_lock(&c->lock);
  double from = clock_now(), shift;
  while (status == STATUS_OK && (c->queued || waits_for(c, UINT64_MAX) >= 0)) {
    status = courier_check(c);
    if (status == STATUS_OK && clock_now() > from + c->setup.timeout) status = status_set(STATUS_TIMEOUT, "packets do not leave");
    if (status == STATUS_OK) status = courier_wait_slice(c, from + c->setup.timeout, NULL, NULL, &shift);
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
