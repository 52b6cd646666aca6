/* Memory, peers, and sending: from the queue through the simulated links into flight, and out when a packet is due. */
#include "infer/transport/transport_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory: its size follows from the set-up and the backend ---- */

/* Slots also hold packets that arrive before their request begins, each behind its length. Where nothing is lost there are no queries. */
static void choose_sizes(Transport *t) {
  const TransportSetup *s = &t->setup;
  bool holds = s->reliable && s->ordered, asks = t->reliability.mode != RELIABILITY_STREAM;
  size_t min = t->reliability.min_packets > 0 ? (size_t)t->reliability.min_packets : 1;
  size_t usual = s->max_message_bytes / (s->max_packet - PACKET_HEADER) + min + 1;
  if (usual > (size_t)s->max_packets) usual = (size_t)s->max_packets;
  t->state.ring = holds || !s->ahead ? 2 : 2 * s->blocks;
  t->lanes = s->sites * s->parts;
  t->places = t->state.ring * t->lanes;
  t->words = (s->max_packets + 63) / 64;
  t->slot_room = s->max_message_bytes + (holds ? 0 : (size_t)s->max_packets * (PACKET_HEADER + EARLY_PREFIX));
  if (s->lengths_only) t->slot_room = 0;
  size_t in_flight = 2 * usual * (size_t)t->places + (asks ? 64 : 0);
  t->max_in_flight = in_flight < MAX_IN_FLIGHT ? (int)in_flight : MAX_IN_FLIGHT;
  t->max_queued = t->places + (asks ? s->nodes * (3 * t->lanes + 2 * MAX_ANSWERS) : 0);
  t->max_entering = s->links && s->links->topology == LINK_SWITCH ? MAX_IN_FLIGHT : 0;
}

/* The next part of the block; NULL while it is only measured. */
static void *part(Transport *t, size_t count, size_t bytes) {
  void *at = t->block ? t->block + t->state.memory : NULL;
  t->state.memory += (count * bytes + 15) / 16 * 16;
  return at;
}

static void lay_out_slots(Transport *t, Peer *peer) {
  size_t places = (size_t)t->places, words = (size_t)t->words, packets = t->setup.lengths_only ? 0 : (size_t)t->setup.max_packets;
  peer->slots = part(t, places, sizeof *peer->slots);
  peer->lane = part(t, (size_t)t->lanes, sizeof *peer->lane);
  peer->arrival = part(t, packets, sizeof *peer->arrival);
  uint64_t *bits = part(t, 2 * places * words, sizeof *bits);
  uint32_t *lengths = part(t, places * packets, sizeof *lengths);
  uint8_t *flags = part(t, places * packets, sizeof *flags);
  for (size_t i = 0; t->block && i < places; i++) {
    Slot *slot = &peer->slots[i];
    if (t->slot_room) slot->bytes = peer->slot_bytes + i * t->slot_room;
    slot->there = bits + 2 * i * words;
    slot->said = slot->there + words;
    slot->length = lengths + i * packets;
    slot->flags = flags + i * packets;
  }
}

/* Called twice: to measure the block, and to assign it. Returns how much must be zero; rings are written before they are read. */
static size_t lay_out(Transport *t) {
  size_t nodes = (size_t)t->setup.nodes, places = (size_t)t->places;
  t->due = part(t, nodes, sizeof *t->due);
  t->messages = part(t, places, sizeof *t->messages);
  for (size_t i = 0; i < places; i++) {
    Message lent, *m = t->block ? &t->messages[i] : &lent;
    m->left = part(t, nodes, sizeof *m->left);
    m->left_at = part(t, nodes, sizeof *m->left_at);
    m->resend = part(t, nodes * (size_t)t->words, sizeof *m->resend);
  }
  for (size_t d = 0; d < nodes; d++) {
    Peer lent;
    if ((int)d != t->setup.self) lay_out_slots(t, t->block ? &t->peers[d] : &lent);
  }
  size_t zeroed = t->state.memory;
  t->flights = part(t, nodes * (size_t)t->max_in_flight, sizeof *t->flights);
  t->queue = part(t, (size_t)t->max_queued, sizeof *t->queue);
  t->entering = part(t, (size_t)t->max_entering, sizeof *t->entering);
  return zeroed;
}

static bool allocate(Transport *t) {
  size_t nodes = (size_t)t->setup.nodes, slots = (size_t)t->places * t->slot_room;
  size_t buffer = (t->setup.lengths_only ? 0 : t->setup.max_packet) + PACKET_HEADER + PACKET_STATUS_HEAD + MAX_PACKETS / 8;
  bool memory = (t->peers = calloc(nodes, sizeof *t->peers)) && (t->buffer = malloc(buffer)) && (t->scratch = malloc(t->slot_room + 1));
  for (size_t d = 0; memory && slots && d < nodes; d++)
    memory = (int)d == t->setup.self || (t->peers[d].slot_bytes = calloc(1, slots)) != NULL;
  size_t zeroed = lay_out(t), whole = t->state.memory;
  if (!memory || !(t->block = malloc(whole))) return false;
  memset(t->block, 0, zeroed);
  t->state.memory = 0;
  lay_out(t);
  for (size_t d = 0; d < nodes; d++) t->due[d] = INFINITY;
  t->state.memory += sizeof *t + nodes * sizeof *t->peers + buffer + t->slot_room + (nodes - 1) * slots;
  return true;
}

Status transport_new(Transport **transport, const TransportSetup *setup, double now) {
  Transport *t = *transport = calloc(1, sizeof *t);
  if (!t) return status_no_memory(NULL, "packets");
  *t = (Transport){.setup = *setup, .reliability = *setup->reliability, .state.fault = -1, .free_flight = -1, .next_due = INFINITY};
  if (setup->links) t->links = *setup->links;
  choose_sizes(t);
  Status status = netem_init(&t->netem, setup->links ? &t->links : NULL, setup->ends, setup->medium, setup->self, setup->nodes, now);
  if (status == STATUS_OK && !allocate(t))
    status = status_set(STATUS_NO_MEMORY, "no memory for the packets of %d nodes; use a smaller --batch or --max-context", setup->nodes);
  if (status != STATUS_OK) {
    transport_free(t);
    *transport = NULL;
    return status;
  }
  const size_t question = PACKET_HEADER + setup->overhead, answer = question + PACKET_STATUS_HEAD;
  for (int d = 0; setup->settled && d < setup->nodes; d++) {
    if (d == setup->self) continue;
    t->peers[d].round_trip = netem_idle(&t->netem, d, question) + netem_idle(&t->netem, d, answer);
    t->peers[d].jitter = t->links.jitter;
  }
  t->fresh = UINT64_MAX;
  return STATUS_OK;
}

void transport_free(Transport *t) {
  if (!t) return;
  for (int d = 0; t->peers && d < t->setup.nodes; d++) {
    free(t->peers[d].slot_bytes);
    free(t->peers[d].why);
  }
  free(t->peers);
  free(t->block);
  free(t->scratch);
  free(t->buffer);
  netem_release(&t->netem);
  free(t);
}

TransportState *transport_state(Transport *t) { return &t->state; }
double transport_carried(const Transport *t, int peer) { return netem_carried(&t->netem, peer); }
double transport_carried_in(const Transport *t) { return netem_carried_in(&t->netem); }

bool transport_changed(Transport *t) {
  bool changed = t->changed;
  t->changed = false;
  return changed;
}

bool transport_wants_driver(Transport *t) {
  bool wants = t->wants_driver;
  t->wants_driver = false;
  return wants;
}

/* ---- peers ---- */

void transport_leave(Transport *t, int peer) {
  t->state.left |= (uint64_t)1 << peer;
  t->fresh |= (uint64_t)1 << peer;
  t->changed = t->wants_driver = true;
}

void transport_fail_peer(Transport *t, int peer, Status status, const char *why) {
  Peer *p = &t->peers[peer];
  if (p->status != STATUS_OK) return;
  p->status = status;
  p->why = strdup(why);
  t->failed |= (uint64_t)1 << peer;
  if (t->setup.mask) transport_leave(t, peer);
  t->changed = true;
}

Status transport_check(Transport *t) {
  uint64_t partners = (t->senders | t->receivers) & t->failed & ~t->state.left;
  if (!partners) return STATUS_OK;
  for (int pass = 0; pass < 2; pass++) {
    for (int d = 0; d < t->setup.nodes; d++) {
      Status status = t->peers[d].status;
      if (!is_in(partners, d) || (!pass && status == STATUS_PEER)) continue;
      t->state.fault = d;
      return status_set(status, "node %d: %s", d, t->peers[d].why ? t->peers[d].why : "failed");
    }
  }
  return STATUS_OK;
}

Status transport_give_up(Transport *t, int peer) {
  if (t->setup.mask) {
    transport_leave(t, peer);
    return STATUS_OK;
  }
  t->state.fault = peer;
  if (!t->setup.reliable && t->peers[peer].heard <= 0)
    return status_set(STATUS_TIMEOUT,
                      "no datagram of node %d has come within %g s: a firewall may let streams alone pass (--transport tcp)", peer,
                      t->setup.timeout);
  return status_set(STATUS_TIMEOUT, "node %d did not answer within %g s; --timeout gives it longer", peer, t->setup.timeout);
}

/* ---- sending: from the queue through the simulated links ---- */

/* The next packet of an entry: of a message for all its receivers, or of one receiver; false: there is none. A query about what has been
 * decided since is dropped. */
static bool next_packet(Transport *t, Entry *e, InFlight *packet) {
  const Message *m = &t->messages[e->message];
  *packet = (InFlight){.kind = e->kind, .message = e->message, .index = e->next, .key = e->key};
  switch (e->kind) {
  case ENTRY_MESSAGE:
    return e->next++ < m->count;
  case ENTRY_RESEND: {
    uint64_t *wanted = m->resend + __builtin_ctzll(e->peers) * t->words;
    int word = 0;
    while (word < t->words && !wanted[word]) word++;
    if (word == t->words) return false;
    packet->index = 64 * word + __builtin_ctzll(wanted[word]);
    wanted[word] &= wanted[word] - 1; /* not to be sent again after this */
    return true;
  }
  case ENTRY_QUERY: {
    const Slot *slot = find_slot(t, __builtin_ctzll(e->peers), e->key);
    return e->next++ == 0 && slot && !slot->decided;
  }
  default:
    return e->next++ == 0;
  }
}

/* The present size, of queries and answers too. */
static size_t packet_size(const Transport *t, int peer, const InFlight *packet) {
  uint64_t sequence;
  if (packet->kind <= ENTRY_RESEND) return PACKET_HEADER + t->messages[packet->message].packets[packet->index].bytes;
  if (packet->kind == ENTRY_QUERY) {
    const Slot *slot = find_slot(t, peer, packet->key);
    return PACKET_HEADER + packet_bits_bytes(slot ? slot->count : 0);
  }
  const Message *m = message_of(t, packet->key, &sequence);
  return PACKET_HEADER + PACKET_STATUS_HEAD + packet_bits_bytes(m->used && m->sequence == sequence && is_in(m->peers, peer) ? m->count : 0);
}

static void put_in_flight(Transport *t, int to, InFlight packet, double ready, double now) {
  Peer *peer = &t->peers[to];
  size_t bytes = packet_size(t, to, &packet) + t->setup.overhead;
  packet.sent = now;
  packet.at = netem_send(&t->netem, to, ready, bytes, packet.kind == ENTRY_MESSAGE, &packet.left, &packet.lost);
  if (packet.kind <= ENTRY_RESEND) t->messages[packet.message].pending++;
  int place = t->free_flight >= 0 ? t->free_flight : t->flights_used++;
  if (t->free_flight >= 0) t->free_flight = t->flights[place].next;
  if (peer->flying++)
    t->flights[peer->last].next = place;
  else
    peer->first = place, t->due[to] = packet.at;
  peer->last = place;
  t->flights[place] = packet;
  if (peer->flying == t->max_in_flight) t->full |= (uint64_t)1 << to;
  if (packet.at < t->next_due) t->next_due = packet.at;
}

/* Queue -> in flight, as far as there is room. A packet goes to all receivers in turn, to the next node first, so that devices that send at
 * the same time do not all begin with the same receiver. */
static void empty_queue(Transport *t, double now) {
  InFlight packet;
  while (t->queued) {
    Entry *e = &t->queue[t->queue_first];
    if (e->peers & t->full) return;
    if (next_packet(t, e, &packet)) {
      for (int i = 1; i < t->setup.nodes; i++) {
        int peer = (t->setup.self + i) % t->setup.nodes;
        if (is_in(e->peers, peer)) put_in_flight(t, peer, packet, fmin(e->ready, now), now);
      }
      continue;
    }
    if (e->kind <= ENTRY_RESEND) t->messages[e->message].pending--;
    t->queue_first = (t->queue_first + 1) % t->max_queued;
    t->queued--;
    t->changed = true;
  }
}

/* ---- bytes of a packet, made when it is sent, so that a STATUS is up to date ---- */

static void pack_bits(const uint64_t *bits, int count, bool inverted, uint8_t *bytes) {
  memset(bytes, 0, packet_bits_bytes(count));
  for (int i = 0; i < count; i++) {
    if (has(bits, i) != inverted) bytes[i / 8] |= (uint8_t)(1 << i % 8);
  }
}

/* A peer that queries what it is not sent, or what has been overwritten, must not wait. */
static size_t make_status(const Transport *t, int peer, MessageKey key, uint8_t *out) {
  Packet packet = control_packet(PACKET_STATUS, key);
  uint64_t sequence, left[MAX_PACKETS / 64] = {0};
  const Message *m = message_of(t, key, &sequence);
  bool here = m->used && m->sequence == sequence, over = key.request < t->request || m->sequence > sequence;
  uint8_t *head = out + PACKET_HEADER;
  memset(head, 0, PACKET_STATUS_HEAD);
  if (here && is_in(m->peers, peer)) {
    packet.count = (uint16_t)m->count;
    head[0] = m->left[peer] == m->count;
    for (int i = 0; i < m->left[peer]; i++) set(left, i);
  } else if (here || over) {
    head[0] = 2;
  }
  packet_pack(&packet, out);
  pack_bits(left, packet.count, false, head + PACKET_STATUS_HEAD);
  return PACKET_HEADER + PACKET_STATUS_HEAD + packet_bits_bytes(packet.count);
}

static size_t make_packet(const Transport *t, int peer, const InFlight *f, uint8_t *out) {
  if (f->kind == ENTRY_STATUS) return make_status(t, peer, f->key, out);
  if (f->kind == ENTRY_QUERY) {
    Packet packet = control_packet(PACKET_QUERY, f->key);
    const Slot *slot = find_slot(t, peer, f->key);
    if (slot) packet.count = (uint16_t)slot->count;
    packet_pack(&packet, out);
    if (slot) pack_bits(slot->there, packet.count, true, out + PACKET_HEADER);
    return PACKET_HEADER + packet_bits_bytes(packet.count);
  }
  const TransportPacket *packet = &t->messages[f->message].packets[f->index];
  packet_pack(&packet->header, out);
  if (!t->setup.lengths_only) memcpy(out + PACKET_HEADER, packet->payload, packet->bytes);
  return PACKET_HEADER + packet->bytes;
}

/* ---- in flight -> output ---- */

static void finish_packet(Transport *t, int to) {
  Peer *peer = &t->peers[to];
  const int place = peer->first;
  const InFlight f = t->flights[place];
  peer->first = f.next;
  t->flights[place].next = t->free_flight;
  t->free_flight = place;
  t->due[to] = --peer->flying ? t->flights[f.next].at : INFINITY;
  double next = INFINITY;
  for (int d = 0; d < t->setup.nodes; d++) next = t->due[d] < next ? t->due[d] : next;
  t->next_due = next;
  t->full &= ~((uint64_t)1 << to);
  t->changed = true;
  if (f.kind != ENTRY_MESSAGE) { /* messages were counted when they were queued */
    t->state.packets_sent++;
    t->state.bytes_sent += t->buffer_bytes + t->setup.overhead;
  }
  if (f.kind == ENTRY_STATUS) peer->answers--;
  if (f.kind == ENTRY_QUERY) {
    Slot *slot = find_slot(t, to, f.key);
    if (!slot) return;
    slot->asking = false;
    slot->asked = f.sent;
    slot->unanswered++;
    t->fresh |= (uint64_t)1 << to;
  }
  if (f.kind > ENTRY_RESEND) return;
  Message *m = &t->messages[f.message];
  if (f.kind == ENTRY_MESSAGE) m->left[to]++;
  if (f.kind == ENTRY_RESEND) t->state.resent++;
  m->left_at[to] = f.left;
  m->pending--;
}

/* The next packet to this peer that is due. What is lost on its link, or is for a peer that has been left out, ends here: *dropped. */
static bool next_to(Transport *t, int to, double now, TransportOutput *output, bool *dropped) {
  while (t->due[to] <= now) {
    const InFlight *f = &t->flights[t->peers[to].first];
    t->buffer_bytes = make_packet(t, to, f, t->buffer);
    *output = (TransportOutput){.peer = to, .packet = t->buffer, .bytes = t->buffer_bytes};
    if (!f->lost && !is_in(t->state.left, to)) return true;
    finish_packet(t, to);
    *dropped = true;
  }
  return false;
}

bool transport_output(Transport *t, double now, uint64_t blocked, TransportOutput *output) {
  for (bool dropped = true; dropped;) {
    dropped = false;
    empty_queue(t, now);
    if (t->next_due > now) return false;
    for (int i = 0, d = t->turn; i < t->setup.nodes; i++, d = d + 1 < t->setup.nodes ? d + 1 : 0) {
      if (t->due[d] <= now && !is_in(blocked, d) && next_to(t, d, now, output, &dropped)) {
        t->turn = d;
        return true;
      }
    }
  }
  return false;
}

void transport_sent(Transport *t, int peer) { finish_packet(t, peer); }

double transport_deadline(const Transport *t, uint64_t blocked) {
  double next = blocked ? INFINITY : t->next_due;
  for (int d = 0; blocked && d < t->setup.nodes; d++) {
    if (!is_in(blocked, d)) next = fmin(next, t->due[d]);
  }
  return t->entering_count ? fmin(next, t->entering[t->entering_first].at) : next;
}

/* One of these peers with packets in flight; -1: none. */
static int waits_for(const Transport *t, uint64_t peers) {
  for (int d = 0; d < t->setup.nodes; d++) {
    if (is_in(peers, d) && t->peers[d].flying) return d;
  }
  return -1;
}

bool transport_is_idle(const Transport *t) { return t->queued == 0 && waits_for(t, UINT64_MAX) < 0; }

/* ---- the owner's side: requests and messages that are sent ---- */

int transport_reserve(Transport *t, MessageKey key, int *holds_up) {
  uint64_t sequence;
  Message *m = message_of(t, key, &sequence);
  if (m->pending) {
    int peer = waits_for(t, m->peers); /* a receiver, or the one that blocks the head of the queue */
    *holds_up = peer >= 0 ? peer : waits_for(t, UINT64_MAX);
    return m->pending;
  }
  m->used = false; /* its memory is the owner's from now on */
  m->sequence = sequence;
  return 0;
}

Status transport_submit(Transport *t, MessageKey key, const TransportPacket *packets, int count, uint64_t peers, double now) {
  uint64_t sequence, receivers = (uint64_t)__builtin_popcountll(peers & ~t->state.left), payload = 0;
  Message *m = message_of(t, key, &sequence);
  if (m->pending) return status_set(STATUS_BAD_VALUE, "a message was sent before its memory was free");
  if (count > t->setup.max_packets)
    return status_set(STATUS_BAD_VALUE, "a message of %d packets; %d are possible", count, t->setup.max_packets);
  for (int i = 0; i < count; i++) {
    payload += packets[i].bytes;
    if (packets[i].bytes + PACKET_HEADER > t->setup.max_packet)
      return status_set(STATUS_BAD_VALUE, "a packet of %zu bytes; the backend takes %zu", packets[i].bytes,
                        t->setup.max_packet - PACKET_HEADER);
  }
  if (!peers) return STATUS_OK;
  *m = (Message){.used = true,
                 .sequence = sequence,
                 .peers = peers,
                 .key = key,
                 .packets = packets,
                 .count = count,
                 .pending = 1 /* the queue's */,
                 .left = m->left,
                 .left_at = m->left_at,
                 .resend = m->resend};
  memset(m->left, 0, (size_t)t->setup.nodes * sizeof *m->left);
  memset(m->resend, 0, (size_t)t->setup.nodes * (size_t)t->words * sizeof *m->resend);
  t->state.payload_sent += receivers * payload;
  t->state.packets_sent += receivers * (uint64_t)count;
  t->state.bytes_sent += receivers * (payload + (uint64_t)count * (PACKET_HEADER + t->setup.overhead));
  if (sequence != t->span_sequence || t->span_from <= 0) { /* a block's span reaches from its first packet sent to its last arrival */
    t->span_sequence = sequence;
    t->span_from = t->span_to = now;
  }
  enqueue(t, (Entry){.kind = ENTRY_MESSAGE, .ready = now, .peers = peers, .message = (int)(m - t->messages)});
  return STATUS_OK;
}
