/* What leaves: groups and small packets from the queue, in order, through the shaper into each peer's flights, and from there, when they
 * are due, to the carrier. A packet's bytes are made at that moment, so that a STATUS tells what has left by then. */
#include "base/clock.h"
#include "infer/wire/courier_parts.h"
#include <math.h>
#include <string.h>

/* Groups always find room: one for each place is theirs alone. */
bool courier_queue(Courier *c, CourierEntry entry) {
  if (c->queued >= c->queue_most - (entry.kind == COURIER_GROUP ? 0 : c->slots)) return false;
  c->queue[(c->queue_first + c->queued++) % c->queue_most] = entry;
  return true;
}

/* ---- sizes and bytes ---- */

static size_t packet_size(const Courier *c, const CourierFlight *f) {
  const CourierGroup *g = &c->groups[f->group];
  switch (f->kind) {
  case COURIER_QUERY:
    return PACKET_HEADER;
  case COURIER_STATUS:
    return PACKET_HEADER + PACKET_STATUS_HEAD;
  default:
    return PACKET_HEADER + g->packets[f->index].bytes;
  }
}

static Packet control_packet(PacketType type, GroupKey key) {
  return (Packet){.request = key.request, .block = key.block, .site = key.site, .part = key.part, .type = type};
}

static size_t make_query(const Courier *c, int peer, GroupKey key, uint8_t *out) {
  Packet packet = control_packet(PACKET_QUERY, key);
  const CourierSlot *slot = courier_receive_find(c, peer, key);
  if (slot) packet.count = (uint16_t)slot->count;
  packet_pack(&packet, out);
  if (slot) courier_pack_bits(slot->there, packet.count, true, out + PACKET_HEADER);
  return PACKET_HEADER + packet_bits_bytes(packet.count);
}

/* Whoever asks for what it is not sent, or for what has been written over, must not wait. */
static size_t make_status(const Courier *c, int peer, GroupKey key, uint8_t *out) {
  Packet packet = control_packet(PACKET_STATUS, key);
  uint64_t sequence = courier_sequence(c, key.request, key.block), left[PACKETS_MOST / 64] = {0};
  const CourierGroup *g = &c->groups[courier_place(c, sequence, courier_lane(c, key.site, key.part))];
  bool here = g->used && g->sequence == sequence, over = key.request < c->request || g->sequence > sequence;
  uint8_t *head = out + PACKET_HEADER;
  memset(head, 0, PACKET_STATUS_HEAD);
  if (here && courier_is_in(g->peers, peer)) {
    packet.count = (uint16_t)g->count;
    head[0] = g->left[peer] == g->count;
    for (int i = 0; i < g->left[peer] && i < g->count; i++) courier_set(left, i);
  } else if (here || over) {
    head[0] = 2;
  }
  packet_pack(&packet, out);
  courier_pack_bits(left, packet.count, false, head + PACKET_STATUS_HEAD);
  return PACKET_HEADER + PACKET_STATUS_HEAD + packet_bits_bytes(packet.count);
}

static size_t make_packet(const Courier *c, int peer, const CourierFlight *f, uint8_t *out) {
  const CourierGroup *g = &c->groups[f->group];
  if (f->kind == COURIER_QUERY) return make_query(c, peer, f->key, out);
  if (f->kind == COURIER_STATUS) return make_status(c, peer, f->key, out);
  const CourierPacket *packet = &g->packets[f->index];
  packet_pack(&packet->header, out);
  memcpy(out + PACKET_HEADER, packet->payload, packet->bytes);
  return PACKET_HEADER + packet->bytes;
}

/* ---- queue -> flights ---- */

static bool has_room(const Courier *c, uint64_t peers) {
  for (int d = 0; d < c->setup.nodes; d++) {
    if (courier_is_in(peers, d) && c->peers[d].flying == c->flights_most) return false;
  }
  return true;
}

static void take_off(Courier *c, int to, CourierFlight flight, double ready) {
  CourierPeer *peer = &c->peers[to];
  size_t bytes = packet_size(c, &flight);
  bool planned = flight.kind == COURIER_GROUP;
  flight.at = shaper_send(&c->shaper, to, ready, bytes + c->carrier->overhead, planned, &flight.lost);
  if (planned || flight.kind == COURIER_RESEND) c->groups[flight.group].waiting++;
  peer->flights[(peer->first + peer->flying++) % c->flights_most] = flight;
}

/* A question about what has been decided since is not asked any more. */
static bool is_open(const Courier *c, const CourierEntry *e) {
  const CourierSlot *slot = courier_receive_find(c, __builtin_ctzll(e->peers), e->key);
  return slot && !slot->decided;
}

/* The first packet that is to be sent again, and is not from here on; false: there is none. */
static bool next_wanted(const Courier *c, uint64_t *wanted, int *index) {
  for (int i = 0; i < c->words; i++) {
    if (!wanted[i]) continue;
    *index = 64 * i + __builtin_ctzll(wanted[i]);
    wanted[i] &= wanted[i] - 1;
    return true;
  }
  return false;
}

/* The next packet of a group for all its receivers, or the next one that is sent again; false: there is none. */
static bool next_flight(Courier *c, CourierEntry *e, CourierFlight *flight) {
  const CourierGroup *g = &c->groups[e->group];
  *flight = (CourierFlight){.kind = e->kind, .group = e->group, .index = e->next, .key = e->key};
  if (e->kind == COURIER_RESEND) return next_wanted(c, g->resend + __builtin_ctzll(e->peers) * c->words, &flight->index);
  if (e->kind == COURIER_QUERY || e->kind == COURIER_STATUS) return e->next++ == 0 && (e->kind == COURIER_STATUS || is_open(c, e));
  return e->next++ < g->count;
}

static void finish_entry(Courier *c, const CourierEntry *e) {
  if (e->kind == COURIER_GROUP || e->kind == COURIER_RESEND) c->groups[e->group].waiting--;
  c->queue_first = (c->queue_first + 1) % c->queue_most;
  c->queued--;
}

bool courier_launch(Courier *c, double now) {
  CourierFlight flight;
  bool any = false;
  while (c->queued) {
    CourierEntry *e = &c->queue[c->queue_first];
    if (!has_room(c, e->peers)) return any;
    if (!next_flight(c, e, &flight)) {
      finish_entry(c, e);
      continue;
    }
    any = true;
    for (int d = 0; d < c->setup.nodes; d++) {
      if (courier_is_in(e->peers, d)) take_off(c, d, flight, fmin(e->ready, now));
    }
  }
  return any;
}

/* ---- flights -> carrier ---- */

static void note_question(const Courier *c, int to, GroupKey key) {
  CourierSlot *slot = courier_receive_find(c, to, key);
  if (!slot) return;
  slot->asking = false;
  slot->asked = clock_now();
  slot->unanswered++;
}

static void land_away(Courier *c, int to) {
  CourierPeer *peer = &c->peers[to];
  const CourierFlight f = peer->flights[peer->first];
  peer->first = (peer->first + 1) % c->flights_most;
  peer->flying--;
  if (c->watched) pthread_cond_broadcast(&c->changed);
  if (f.kind == COURIER_QUERY) note_question(c, to, f.key);
  if (f.kind == COURIER_STATUS) peer->asked--;
  if (f.kind == COURIER_QUERY || f.kind == COURIER_STATUS) return;
  if (f.kind == COURIER_GROUP) c->groups[f.group].left[to]++;
  c->groups[f.group].left_at[to] = clock_now();
  c->groups[f.group].waiting--;
}

/* Groups counted when they were queued. */
static void count_sent(Courier *c, const CourierFlight *f, size_t bytes) {
  if (f->kind == COURIER_GROUP) return;
  c->counts.packets_sent++;
  c->counts.bytes_sent += bytes + c->carrier->overhead;
  if (f->kind == COURIER_RESEND) c->counts.resent++;
}

/* Hands over without the lock: flights, and groups that wait, are changed by this thread alone. */
static bool hand_over(Courier *c, int to, const CourierFlight *f) {
  size_t bytes = make_packet(c, to, f, c->buffer);
  bool taken = true;
  Status status = STATUS_OK;
  if (!f->lost && !courier_is_in(c->left, to)) {
    pthread_mutex_unlock(&c->lock);
    status = c->carrier->send(c->carrier, to, c->buffer, bytes, &taken);
    pthread_mutex_lock(&c->lock);
  }
  if (status != STATUS_OK) courier_fail_peer(c, to, status, status_message());
  if (taken) count_sent(c, f, bytes);
  if (taken) land_away(c, to);
  return taken;
}

double courier_fly(Courier *c, double now) {
  double next = INFINITY;
  for (int d = 0; d < c->setup.nodes; d++) {
    CourierPeer *peer = &c->peers[d];
    bool taken = true;
    while (taken && peer->flying && peer->flights[peer->first].at <= now) {
      const CourierFlight flight = peer->flights[peer->first];
      taken = hand_over(c, d, &flight);
    }
    if (taken && peer->flying) next = fmin(next, peer->flights[peer->first].at);
  }
  return next;
}
